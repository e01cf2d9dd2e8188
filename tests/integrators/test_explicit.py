"""Symplectic Euler and Runge–Kutta 4: order, adjoint, invariants."""

from functools import lru_cache

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from diffsim import AD, Adjoint, CustomAdjoint, System, rollout, supported, trajectory, trees
from diffsim.integrators import Phase, runge_kutta4, symplectic_euler

DAMPING = 0.3
X0 = Phase(jnp.array([1.0]), jnp.array([0.2]))
P = jnp.array(2.0)


def acceleration(q, p):
    return -p * jnp.sin(q)


def damped_field(x, p):
    return Phase(x.v, acceleration(x.q, p) - DAMPING * x.v)


@lru_cache
def reference(damping):
    """The pendulum at time 1, by an eighth-order method of an independent library."""
    term = diffrax.ODETerm(lambda t, x, p: Phase(x.v, acceleration(x.q, p) - damping * x.v))
    control = diffrax.PIDController(rtol=1e-12, atol=1e-12)
    found = diffrax.diffeqsolve(term, diffrax.Dopri8(), 0.0, 1.0, 0.01, X0, args=P, stepsize_controller=control)
    return jax.tree.map(lambda a: a[0], found.ys)


def fitted_order(system, damping, counts=(16, 64)):
    ends = [rollout(system, X0, P, h=1.0 / n, steps=n) for n in counts]
    errors = [float(trees.largest_gap(end, reference(damping))) for end in ends]
    return -np.polyfit(np.log(counts), np.log(errors), 1)[0]


SYSTEMS = {
    "symplectic Euler": (symplectic_euler(acceleration), 0.0, 1),
    "Runge–Kutta 4": (runge_kutta4(damped_field), DAMPING, 4),
}
each_system = pytest.mark.parametrize("name", list(SYSTEMS))


@each_system
def test_order(name):
    system, damping, order = SYSTEMS[name]
    assert abs(fitted_order(system, damping) - order) < 0.15


def test_the_order_check_can_fail():
    """Runge–Kutta with the weights of its middle stages shifted is consistent, but of first order."""

    def step(x, p, h):
        k1 = damped_field(x, p)
        k2 = damped_field(trees.axpy(h / 2, k1, x), p)
        return trees.axpy(h / 3, k1, trees.axpy(2 * h / 3, k2, x))

    assert abs(fitted_order(System(step=step), DAMPING) - 4) > 0.5


def adjoints_agree(system):
    grads = [
        jax.grad(
            lambda x0, p, a=Adjoint(realization=how): jnp.sum(rollout(system, x0, p, h=0.1, steps=5, adjoint=a).q ** 2),
            argnums=(0, 1),
        )(X0, P)
        for how in (AD(), CustomAdjoint())
    ]
    return float(trees.largest_gap(*grads)) < 1e-14


@each_system
def test_hand_derived_adjoint_is_of_the_executed_step(name):
    assert adjoints_agree(SYSTEMS[name][0])


@pytest.mark.parametrize("share", [True, False])
def test_the_adjoint_check_can_fail(share):
    """A wrong factor in one part of the formula is noticed."""

    def wrong(q, p, w):
        force, parameter = jax.vjp(acceleration, q, p)[1](w)
        return (force, 1.001 * parameter) if share else (1.001 * force, parameter)

    assert not adjoints_agree(symplectic_euler(acceleration, acceleration_vjp=wrong))


@each_system
def test_costate_is_minus_the_transposed_field(name):
    system = SYSTEMS[name][0]
    lam = Phase(jnp.array([0.7]), jnp.array([-0.4]))
    from_x, rate = jax.vjp(system.field, X0, P)[1](lam)
    got_x, got_rate = system.costate(X0, P, lam)
    assert float(trees.largest_gap(got_x, trees.scale(-1.0, from_x))) < 1e-15 and abs(got_rate - rate) < 1e-15


def test_symplectic_euler_is_undone():
    system = SYSTEMS["symplectic Euler"][0]
    back = system.unstep(system.step(X0, P, 0.1), P, 0.1)
    assert float(trees.largest_gap(back, X0)) < 1e-15
    assert "executed/custom-adjoint/reverse" in [str(a) for a in supported(system)]
    assert SYSTEMS["Runge–Kutta 4"][0].unstep is None


def energies(system, h, steps):
    xs = trajectory(system, X0, P, h=h, steps=steps)
    return np.asarray(0.5 * xs.v**2 - P * jnp.cos(xs.q))[:, 0]


def test_symplectic_euler_keeps_the_energy_in_a_band_of_width_h():
    """Over 200 periods the error neither grows nor shrinks, and it halves with h; explicit Euler's energy runs away."""
    system = SYSTEMS["symplectic Euler"][0]
    wide, narrow = (np.abs(E - E[0]) for E in (energies(system, 0.1, 9000), energies(system, 0.05, 18000)))
    assert np.max(wide[-1000:]) < 1.05 * np.max(wide[:1000])
    assert abs(np.max(wide) / np.max(narrow) - 2) < 0.2
    explicit = System(step=lambda x, p, h: Phase(x.q + h * x.v, x.v + h * acceleration(x.q, p)))
    assert energies(explicit, 0.05, 2000)[-1] - energies(explicit, 0.05, 1)[0] > 1.0


def test_symplectic_euler_preserves_area():
    flat = lambda system: lambda z: jnp.concatenate(system.step(Phase(z[:1], z[1:]), P, 0.3))
    area = [float(jnp.linalg.det(jax.jacfwd(flat(s))(jnp.array([1.0, 0.2])))) for s, _, _ in SYSTEMS.values()]
    assert abs(area[0] - 1) < 1e-14 and abs(area[1] - 1) > 1e-2


@each_system
def test_float32_and_pytrees(name):
    system = SYSTEMS[name][0]
    x0, p = jax.tree.map(lambda a: a.astype(jnp.float32), (X0, P))
    assert all(a.dtype == jnp.float32 for a in jax.tree.leaves(rollout(system, x0, p, h=0.1, steps=3)))


def test_runge_kutta_takes_any_pytree():
    system = runge_kutta4(lambda x, p: {"a": -p * x["a"], "b": (x["a"],)})
    x0 = {"a": jnp.ones((2, 3)), "b": (jnp.zeros((2, 3)),)}
    x = rollout(system, x0, P, h=0.05, steps=10, adjoint=Adjoint(realization=CustomAdjoint()))
    assert np.allclose(x["a"], np.exp(-1.0), rtol=1e-6) and np.allclose(x["b"][0], (1 - np.exp(-1.0)) / 2, rtol=1e-6)
