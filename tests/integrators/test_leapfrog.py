"""The leapfrog: its order, its symmetries, and the fixed-point version's way back, to the bit."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from math import inf, nan
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree
from scipy.integrate import solve_ivp

from diffsim import Adjoint, System, rollout, trajectory
from diffsim.integrators import Phase, fixed_point_leapfrog, leapfrog, snap
from diffsim.scenes import cloth, make
from tests.helpers import LATTICE, PENDULUM, Rod, bits, gap, lattice_acceleration, pendulum_acceleration, slope, snapped

ROD = Rod(gravity=9.81, length=0.8)
START = Phase(q=1.0, v=-0.3)
FLOAT = leapfrog(pendulum_acceleration)


def euler_step(x, p, h):
    """Planted: an explicit Euler step, first order, neither reversible nor symplectic."""
    return Phase(x.q + h * x.v, x.v + h * pendulum_acceleration(x.q, p))


EULER = System(step=euler_step, name="explicit Euler")


# Accuracy and structure -------------------------------------------------------------------------------------------


def errors(system, steps_per_run):
    """Distance from an accurate solution at t = 1, for each number of steps."""
    rhs = lambda t, y: [y[1], -ROD.gravity / ROD.length * np.sin(y[0])]
    exact = solve_ivp(rhs, (0, 1), [START.q, START.v], method="DOP853", rtol=1e-13, atol=1e-13).y[:, -1]
    ends = [rollout(system, START, ROD, h=1 / steps, steps=steps) for steps in steps_per_run]
    return [np.hypot(float(end.q) - exact[0], float(end.v) - exact[1]) for end in ends]


STEPS = (16, 32, 64, 128)


def test_the_order_is_two():
    assert -slope(STEPS, errors(FLOAT, STEPS)) == pytest.approx(2.0, abs=0.15)


def test_the_order_test_notices_a_first_order_method():
    assert -slope(STEPS, errors(EULER, STEPS)) < 1.5


def reversal_gap(system):
    flipped = lambda x: Phase(x.q, -x.v)
    run = lambda x: rollout(system, x, ROD, h=0.05, steps=100)
    return gap(flipped(run(flipped(run(START)))), jax.tree.map(jnp.asarray, START))


def test_turning_the_velocity_round_runs_the_film_backwards():
    assert reversal_gap(FLOAT) < 1e-12
    assert reversal_gap(EULER) > 1e-2


def energy(states):
    return np.asarray(states.v) ** 2 / 2 - ROD.gravity / ROD.length * np.cos(np.asarray(states.q))


def energy_errors(system):
    states = trajectory(system, START, ROD, h=0.05, steps=4096)
    return np.abs(energy(states) - energy(states)[0])


def test_the_energy_error_stays_bounded_over_a_long_run():
    error = energy_errors(FLOAT)
    # O(h²): h² g/ℓ times an energy of about g/ℓ.
    assert np.max(error) < 0.05**2 * (ROD.gravity / ROD.length) ** 2 / 4
    assert np.max(error[2048:]) < 1.01 * np.max(error[:2048])
    growing = energy_errors(EULER)
    assert np.max(growing[2048:]) > 1.5 * np.max(growing[:2048])


def test_the_energy_error_is_of_second_order():
    worst = []
    for h in (0.1, 0.05, 0.025):
        states = trajectory(FLOAT, START, ROD, h=h, steps=round(4 / h))
        worst.append(np.max(np.abs(energy(states) - energy(states)[0])))
    assert slope((0.1, 0.05, 0.025), worst) == pytest.approx(2.0, abs=0.15)


def symplectic_defect(step, x0, params, h):
    """Largest entry of JᵀΩJ - Ω for the Jacobian J of one step."""
    flat, unravel = ravel_pytree(x0)
    J = np.asarray(jax.jit(jax.jacfwd(lambda x: ravel_pytree(step(unravel(x), params, h))[0]))(flat))
    half = flat.size // 2
    omega = np.block([[np.zeros((half, half)), np.eye(half)], [-np.eye(half), np.zeros((half, half))]])
    return np.max(np.abs(J.T @ omega @ J - omega))


@pytest.mark.parametrize(
    "make_system", [leapfrog, partial(fixed_point_leapfrog, grid=2.0**-40)], ids=["float", "fixed"]
)
def test_a_step_is_symplectic(make_system):
    system = make_system(lattice_acceleration)
    assert symplectic_defect(system.step, LATTICE.x0, LATTICE.params, 0.2) < 1e-14
    damped = lambda x, p, h: (y := system.step(x, p, h))._replace(v=jax.tree.map(lambda v: 0.99 * v, y.v))
    assert symplectic_defect(damped, LATTICE.x0, LATTICE.params, 0.2) > 1e-3


def test_unstep_inverts_step_up_to_rounding():
    x = FLOAT.step(START, ROD, 0.05)
    assert gap(FLOAT.unstep(x, ROD, 0.05), jax.tree.map(jnp.asarray, START)) < 1e-15


# Derivatives by hand ----------------------------------------------------------------------------------------------


def lattice_vjp(q, p, w):
    """The transposed Jacobian of the lattice's acceleration, by hand."""
    x, y, c = q["across"], q["along"], p["coupling"]
    wx, wy = w["across"], w["along"]
    from_q = {
        "across": -p["k"] * wx - 2 * c * (y * wx + x * wy),
        "along": -p["k"] * wy - 2 * c * (x * wx - y * wy),
    }
    share = {
        "k": -jnp.sum(x * wx + y * wy),
        "coupling": -jnp.sum(2 * x * y * wx + (x**2 - y**2) * wy),
    }
    return from_q, share


COTANGENT = jax.tree.map(lambda a: np.cos(np.arange(np.size(a)) + 1.0), LATTICE.x0)


@pytest.mark.parametrize("acceleration_vjp", [None, lattice_vjp], ids=["by AD", "by hand"])
@pytest.mark.parametrize("grid", [None, 2.0**-40], ids=["float", "fixed"])
def test_step_vjp_and_costate_are_the_transposed_jacobians(acceleration_vjp, grid):
    settings = {"acceleration_vjp": acceleration_vjp}
    system = (
        leapfrog(lattice_acceleration, **settings)
        if grid is None
        else fixed_point_leapfrog(lattice_acceleration, grid=grid, **settings)
    )
    x0, p, h, lam = jax.tree.map(jnp.asarray, (LATTICE.x0, LATTICE.params, 0.1, COTANGENT))

    @jax.jit
    def both(x, p, lam):
        x_next, vjp = jax.vjp(lambda x, p: system.step(x, p, 0.1), x, p)
        from_x, rate = jax.vjp(system.field, x, p)[1](lam)
        by_ad = vjp(lam), (jax.tree.map(jnp.negative, from_x), rate)
        return (system.step_vjp(x, x_next, p, 0.1, lam), system.costate(x, p, lam)), by_ad

    by_hand, by_ad = both(x0, p, lam)
    assert gap(by_hand[0], by_ad[0]) < 1e-14
    assert gap(by_hand[1], by_ad[1]) < 1e-14


def test_a_wrong_acceleration_vjp_would_be_noticed():
    wrong = lambda q, p, w: jax.tree.map(lambda a: 1.01 * a, lattice_vjp(q, p, w))
    system = leapfrog(lattice_acceleration, acceleration_vjp=wrong)
    x = jax.tree.map(jnp.asarray, LATTICE.x0)
    x_next, vjp = jax.vjp(lambda x: system.step(x, LATTICE.params, 0.1), x)
    assert gap(system.step_vjp(x, x_next, LATTICE.params, 0.1, COTANGENT)[0], vjp(COTANGENT)[0]) > 1e-4


# The way back, to the bit -----------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Forced:
    """A force with a start; `single` is the grid [length] that leaves room for the run in single precision."""

    name: str
    acceleration: Callable
    q0: Any
    params: Any
    h: float
    double: float = 2.0**-40
    single: float = 2.0**-16


def network(q, p):
    """A random smooth force: minus the gradient of |q|²/2 + Σ log cosh(W q)."""
    return -(q + p["W"].T @ jnp.tanh(p["W"] @ q))


def penalty(q, p):
    """Balls under gravity on a stiff floor: the force has a kink."""
    return -p["k"] * jnp.minimum(q, 0.0) - 1.0


def transcendental(q, p):
    return -p["k"] * (jnp.exp(q) - jnp.exp(-q)) * (2 + jnp.sin(3 * q)) / (1 + q * q)


def cloth_forced():
    scene = make("cloth", nodes=8, grid=None)
    return Forced("cloth", cloth.acceleration, scene.x0.q, scene.params, 2e-3)


def forced():
    random = np.random.default_rng(0)
    return [
        Forced("pendulum", pendulum_acceleration, np.float64(1.0), Rod(gravity=np.float64(9.81), length=np.float64(0.8)), 0.02),
        Forced("network", network, random.normal(size=9), {"W": random.normal(size=(13, 9))}, 0.02),
        Forced("penalty", penalty, random.uniform(0.1, 1.0, size=7), {"k": np.float64(1e3)}, 0.005),
        Forced("transcendental", transcendental, random.normal(size=5), {"k": np.float64(2.0)}, 0.02),
    ]  # fmt: skip


FORCED = {force.name: force for force in forced()}
LONG = 2048


def there_and_back(system, h):
    """`run(x0, params, steps)`: x_T, and what `unstep` makes of it after as many steps; one program for all lengths."""

    @jax.jit
    def run(x0, params, steps):
        x_T = jax.lax.fori_loop(0, steps, lambda _, x: system.step(x, params, h), x0)
        return x_T, jax.lax.fori_loop(0, steps, lambda _, x: system.unstep(x, params, h), x_T)

    return run


def prepared(force, dtype):
    cast = lambda tree: jax.tree.map(lambda a: jnp.asarray(a, dtype), tree)
    grid = force.double if dtype == jnp.float64 else force.single
    q0 = cast(force.q0)
    return grid, snap(Phase(q0, jnp.zeros_like(q0)), grid), cast(force.params)


def on_grid(x, grid):
    return all(np.all(np.mod(np.asarray(a, np.float64) / grid, 1.0) == 0) for a in jax.tree.leaves(x))


@pytest.mark.parametrize("dtype", [jnp.float64, jnp.float32], ids=["double", "single"])
@pytest.mark.parametrize("name", [*FORCED, "cloth"])
def test_the_fixed_point_round_trip_is_exact_to_the_bit(name, dtype):
    force = FORCED[name] if name in FORCED else cloth_forced()
    grid, x0, params = prepared(force, dtype)
    x_T, back = there_and_back(fixed_point_leapfrog(force.acceleration, grid=grid), force.h)(x0, params, LONG)
    assert bits(back) == bits(x0)
    assert on_grid(x_T, grid)
    assert {a.dtype for a in jax.tree.leaves(x_T)} == {np.dtype(dtype)}
    # It went somewhere in between.
    assert gap(x_T, x0) > 1e-2


@pytest.mark.parametrize("name", FORCED)
def test_in_floats_the_same_round_trip_is_off(name):
    force = FORCED[name]
    _, x0, params = prepared(force, jnp.float64)
    _, back = there_and_back(leapfrog(force.acceleration), force.h)(x0, params, LONG)
    assert bits(back) != bits(x0)
    assert 0 < gap(back, x0) < 1e-6


@pytest.mark.parametrize("claim", ["executed/ad/reverse(0)", "executed/custom-adjoint/reverse(0)"])
@pytest.mark.parametrize("name", ["network", "penalty"])
def test_the_way_back_stays_exact_when_it_is_compiled_with_a_pullback(name, claim):
    """With tolerance 0, a single bit that is off anywhere in 512 steps makes the gradient NaN."""
    force = FORCED[name]
    grid, x0, params = prepared(force, jnp.float64)
    system = fixed_point_leapfrog(force.acceleration, grid=grid)
    value = lambda p, claim: jnp.sum(rollout(system, x0, p, h=force.h, steps=512, adjoint=Adjoint.parse(claim)).q)
    slopes = jax.jit(jax.grad(value), static_argnums=1)(params, claim)
    assert gap(slopes, jax.jit(jax.grad(value), static_argnums=1)(params, "executed/ad/checkpoint(23)")) < 1e-9


def test_a_step_that_rounds_its_sum_instead_of_its_increments_is_caught():
    """Planted: rounding the sums looks like fixed point, and isn't reversible."""
    force = FORCED["network"]
    grid, x0, params = prepared(force, jnp.float64)
    exact = leapfrog(force.acceleration)
    rounded = System(
        step=lambda x, p, h: snap(exact.step(x, p, h), grid),
        unstep=lambda x, p, h: snap(exact.unstep(x, p, h), grid),
    )
    x_T, back = there_and_back(rounded, force.h)(x0, params, LONG)
    assert on_grid(x_T, grid)
    assert bits(back) != bits(x0)


def test_the_float_round_trip_drifts_further_the_longer_the_run():
    """On the chaotic cloth the error grows exponentially: four times as long, far more than four times as far off."""
    force = cloth_forced()
    _, x0, params = prepared(force, jnp.float64)
    run = there_and_back(leapfrog(force.acceleration), 1e-3)
    drift = [gap(run(x0, params, steps)[1], x0) for steps in (128, 512, 2048)]
    assert 0 < drift[0] < drift[1] < drift[2]
    assert drift[2] > 100 * drift[1]


# Integers ---------------------------------------------------------------------------------------------------------


def integer_run(k, l, acceleration, h, grid, steps, rounding=np.rint):
    """The same scheme on int64 numbers, in numpy: positions k·grid, velocities l·grid."""
    dtype = np.float64 if grid < 2.0**-30 else np.float32
    real = lambda a: a.astype(dtype) * dtype(grid)
    whole = lambda rate, duration: rounding(dtype(duration) * rate / dtype(grid)).astype(np.int64)
    for _ in range(steps):
        k = k + whole(real(l), h / 2)
        l = l + whole(acceleration(real(k)), h)
        k = k + whole(real(l), h / 2)
    return k, l


@pytest.mark.parametrize(("dtype", "grid"), [(np.float64, 2.0**-40), (np.float32, 2.0**-16)], ids=["double", "single"])
@pytest.mark.parametrize("size", [1, 3, 64])
def test_it_is_integer_arithmetic(dtype, grid, size):
    """Bit for bit the run on int64 numbers, for a force that floats evaluate exactly: a = -4 q."""
    random = np.random.default_rng(size)
    k, l = (np.rint(random.normal(size=size) / grid).astype(np.int64) for _ in range(2))
    k[::3] //= 2**12  # small numbers too, which rounding treats most harshly
    x0 = Phase(jnp.asarray(k * grid, dtype), jnp.asarray(l * grid, dtype))
    system = fixed_point_leapfrog(lambda q, p: -4 * q, grid=grid)
    x_T, back = there_and_back(system, 0.01)(x0, (), LONG)
    right = integer_run(k, l, lambda q: -4 * q, 0.01, grid, LONG)
    assert bits(x_T) == bits(Phase(*(np.asarray(a * grid, dtype) for a in right)))
    assert bits(back) == bits(x0)
    # The comparison can fail: cutting off instead of rounding gives other integers.
    other = integer_run(k, l, lambda q: -4 * q, 0.01, grid, LONG, rounding=np.trunc)
    assert bits(x_T) != bits(Phase(*(np.asarray(a * grid, dtype) for a in other)))


# Snap -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("grid", [0.25, 2.0**-40, 4.0])
def test_snap_gives_the_nearest_multiple(grid):
    x = np.random.default_rng(0).normal(size=100) * 100 * grid
    snapped_x = np.asarray(snap(jnp.asarray(x), grid))
    assert np.all(snapped_x == np.rint(x / grid) * grid)
    assert np.all(np.abs(snapped_x - x) <= grid / 2)
    assert bits(snap(jnp.asarray(snapped_x), grid)) == bits(snapped_x)


def test_snap_rounds_halves_to_even():
    assert snap(jnp.array([0.5, 1.5, 2.5, -0.5, -1.5]), 1.0).tolist() == [0.0, 2.0, 2.0, 0.0, -2.0]


def test_snap_takes_pytrees_and_keeps_dtypes():
    x = {"a": jnp.array([0.3], jnp.float32), "b": (jnp.array(0.8),)}
    y = snap(x, 0.25)
    assert (y["a"].dtype, y["b"][0].dtype) == (jnp.float32, jnp.float64)
    assert (y["a"].tolist(), float(y["b"][0])) == ([0.25], 0.75)


@pytest.mark.parametrize("x", [0.3, 0.125, 7.0, -1e-9, 0.0])
def test_the_derivative_of_snap_is_the_identity(x):
    rounded, tangent = jax.jvp(lambda x: snap(x, 0.25), (jnp.array(x),), (jnp.array(2.0),))
    assert float(tangent) == 2.0
    assert float(rounded) == float(snap(jnp.array(x), 0.25))
    assert float(jax.grad(lambda x: snap(x, 0.25) ** 2)(jnp.array(x))) == 2 * float(rounded)


def test_snapped_starts_are_on_the_grid():
    for small in (PENDULUM, LATTICE):
        assert on_grid(small.x0, small.system.grid)
        assert bits(snapped(small.x0)) == bits(small.x0)
    assert not on_grid(Phase(0.3, 0.0), 0.25)


@pytest.mark.parametrize("grid", [0.3, 3.0, 0.0, -0.5, nan, inf, 2.0**-40 * (1 + 1e-12), 1e-12])
def test_a_grid_that_is_no_power_of_two_is_refused(grid):
    with pytest.raises(
        ValueError, match=r"grid=.* sums are exact only on a power of two; write for example grid=2.0\*\*-40"
    ):
        fixed_point_leapfrog(pendulum_acceleration, grid=grid)


@pytest.mark.parametrize("grid", [1.0, 0.5, 8.0, 2.0**-40, 2.0**-200])
def test_any_power_of_two_will_do(grid):
    assert fixed_point_leapfrog(pendulum_acceleration, grid=grid).grid == grid
