"""Double pendulum, cart-pole and Lennard-Jones cluster: conservation laws, known frequencies, planted faults."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from diffsim import rollout_with_receipt
from diffsim.integrators import Phase, implicit_midpoint, leapfrog
from diffsim.scenes import cartpole, make
from diffsim.scenes import double_pendulum as swing
from diffsim.scenes import lennard_jones as cluster
from tests.scenes.checks import drift, order, run, scene_of

# --- double pendulum


def hamilton_gap(field):
    """How far a field is from Hamilton's equations for `energy`, at one state in motion."""
    scene = scene_of("double_pendulum")
    x = swing.Swing(jnp.array([0.7, -1.1]), jnp.array([0.9, 0.4]))
    slope = jax.jit(jax.grad(swing.energy))(x, scene.params)
    rate = jax.jit(field)(x, scene.params)
    return float(jnp.max(jnp.abs(jnp.stack([rate.angle - slope.momentum, rate.momentum + slope.angle]))))


def test_double_pendulum_follows_hamiltons_equations():
    assert hamilton_gap(swing.field) < 1e-13


def test_double_pendulum_with_the_coupling_torque_turned_round_does_not():
    def faulty(x, p):
        (l1, l2), (_, m2) = p["length"], p["mass"]
        w1, w2 = swing.spins(x, p)
        coupling = m2 * l1 * l2 * w1 * w2 * jnp.sin(x.angle[0] - x.angle[1])
        right = swing.field(x, p)
        return right._replace(momentum=right.momentum + 2 * jnp.stack([coupling, -coupling]))

    assert hamilton_gap(faulty) > 0.1


def test_double_pendulum_energy_error_is_of_fourth_order_or_better():
    scene = scene_of("double_pendulum")
    h = [0.02, 0.01, 0.005]
    errors = [drift(lambda x: swing.energy(x, scene.params), run(scene, h=s, steps=round(2.56 / s))) for s in h]
    assert order(h, errors) > 3.7 and errors[1] < 2e-5


@pytest.mark.parametrize("mode", [0, 1])
def test_double_pendulum_swings_gently_at_the_frequencies_of_its_modes(mode):
    scene = scene_of("double_pendulum")
    (l1, l2), (m1, m2), g = scene.params["length"], scene.params["mass"], scene.params["gravity"]
    M = np.array([[(m1 + m2) * l1**2, m2 * l1 * l2], [m2 * l1 * l2, m2 * l2**2]])
    K = np.diag([(m1 + m2) * g * l1, m2 * g * l2])
    squares, shapes = np.linalg.eig(np.linalg.solve(M, K))
    start = jnp.asarray(1e-5 * shapes[:, mode])
    xs = run(scene, x0=swing.at_rest(start))
    want = start * np.cos(np.sqrt(squares[mode]) * scene.h * scene.steps)
    np.testing.assert_allclose(xs.angle[-1], want, atol=1e-5 * 1e-5)


def test_double_pendulum_by_implicit_midpoint_is_symplectic():
    scene = scene_of("double_pendulum", integrator=implicit_midpoint)
    step = lambda z: jnp.concatenate(scene.system.step(swing.Swing(z[:2], z[2:]), scene.params, 0.05))
    J = jax.jit(jax.jacfwd(step))(jnp.array([0.7, -1.1, 0.9, 0.4]))
    omega = jnp.kron(jnp.array([[0.0, 1.0], [-1.0, 0.0]]), jnp.eye(2))
    np.testing.assert_allclose(J.T @ omega @ J, omega, atol=1e-12)


# --- cart-pole


def power_gap(motion):
    """How far the rate of the energy is from the motor's power F·dx/dt, at one state in motion."""
    scene = scene_of("cartpole")
    x = cartpole.Driven(jnp.array([0.2, 2.0]), jnp.array([-0.6, 1.5]), jnp.array(0.13))
    rate = cartpole.Driven(x.v, jax.jit(motion)(x.q, x.v, 3.0, scene.params), jnp.ones(()))
    gain = jax.jit(lambda x, d: jax.jvp(lambda x: cartpole.energy(x, scene.params), (x,), (d,))[1])(x, rate)
    return abs(float(gain - 3.0 * x.v[0]))


def test_cartpole_gains_the_energy_that_the_motor_gives():
    assert power_gap(cartpole.motion) < 1e-13


def test_cartpole_without_the_poles_pull_on_the_cart_does_not():
    def faulty(q, v, pushed, p):
        cart = pushed / (p["cart"] + p["bob"] * jnp.sin(q[1]) ** 2)
        return jnp.stack([cart, -(cart * jnp.cos(q[1]) + cartpole.GRAVITY * jnp.sin(q[1])) / p["length"]])

    assert power_gap(faulty) > 0.1


def test_cartpole_coasts_at_constant_energy_and_momentum():
    scene = scene_of("cartpole")
    x0 = scene.x0._replace(q=jnp.array([0.0, 1.2]), v=jnp.array([0.3, 0.0]))
    p = {**scene.params, "force": jnp.zeros(21)}
    xs = run(scene, x0=x0, params=p)
    momentum = lambda x: (p["cart"] + p["bob"]) * x.v[0] + p["bob"] * p["length"] * jnp.cos(x.q[1]) * x.v[1]
    assert drift(lambda x: cartpole.energy(x, p), xs) < 1e-6
    assert drift(momentum, xs) < 1e-6


def test_cartpole_swings_gently_at_the_frequency_of_pole_and_cart_together():
    scene = scene_of("cartpole")
    p = scene.params
    xs = run(scene, x0=scene.x0._replace(q=jnp.array([0.0, 1e-5])), params={"force": jnp.zeros(21)})
    omega = np.sqrt((p["cart"] + p["bob"]) * cartpole.GRAVITY / (p["cart"] * p["length"]))
    assert float(xs.q[-1, 1]) == pytest.approx(1e-5 * np.cos(omega * scene.h * scene.steps), abs=1e-10)


def test_cartpole_force_is_interpolated_in_time_and_feedback_is_added():
    scene = scene_of("cartpole")
    p = {**scene.params, "gains": jnp.array([1.0, 2.0, 3.0, 4.0])}
    force = jax.jit(lambda x: cartpole.force(x, p, 0.1))
    for t in (0.0, 0.05, 0.1, 1.234, 2.0):
        x = cartpole.Driven(jnp.array([0.5, 3.0]), jnp.array([-0.2, 0.1]), jnp.array(t))
        fed_back = 0.5 + 2 * (3.0 - np.pi) - 0.6 + 0.4
        want = np.interp(t, 0.1 * np.arange(21), p["force"]) - fed_back
        assert float(force(x)) == pytest.approx(want, abs=1e-12)


def test_cartpole_is_held_upright_by_feedback_that_moves_the_poles_left():
    """Gains that put the linearised poles at -2, -3, -4, -5 1/s bring a tilt of 0.1 rad back; without, it falls."""
    scene = scene_of("cartpole", steps=600)
    field = lambda z, u: cartpole.motion(z[:2], z[2:], u, scene.params)
    upright = jnp.array([0.0, jnp.pi, 0.0, 0.0])
    A = np.vstack([np.eye(4)[2:], jax.jit(jax.jacobian(field))(upright, 0.0)])
    b = np.concatenate([np.zeros(2), jax.jit(jax.jacobian(field, argnums=1))(upright, 0.0)])
    reach = np.stack([np.linalg.matrix_power(A, k) @ b for k in range(4)], axis=1)
    wanted = sum(
        c * np.linalg.matrix_power(A, k) for c, k in zip(np.poly([-2, -3, -4, -5]), range(4, -1, -1), strict=True)
    )
    gains = jnp.asarray(np.linalg.solve(reach.T, np.eye(4)[3]) @ wanted)
    tilted = scene.x0._replace(q=jnp.array([0.0, jnp.pi + 0.1]))
    off = {"force": jnp.zeros(21)}
    assert abs(float(run(scene, x0=tilted, params={**off, "gains": gains}).q[-1, 1]) - np.pi) < 1e-3
    assert np.max(np.abs(run(scene, x0=tilted, params=off).q[:, 1] - np.pi)) > 2


# --- Lennard-Jones


def test_cluster_energy_error_is_of_second_order():
    scene = scene_of("lennard_jones")
    h = [0.02, 0.01, 0.005]
    errors = [drift(lambda x: cluster.energy(x, scene.params), run(scene, h=s, steps=round(2.56 / s))) for s in h]
    assert order(h, errors) == pytest.approx(2, abs=0.1)


def momentum_drift(acceleration):
    scene = scene_of("lennard_jones")
    system = leapfrog(acceleration)
    xs = run(replace(scene, system=system))
    spin = lambda x: jnp.sum(x.q[:, 0] * x.v[:, 1] - x.q[:, 1] * x.v[:, 0])
    return drift(lambda x: jnp.sum(x.v, axis=0), xs), drift(spin, xs)


def test_cluster_keeps_its_momentum_and_angular_momentum():
    linear, angular = momentum_drift(cluster.acceleration)
    assert linear < 1e-13 and angular < 1e-13


def test_cluster_whose_pairs_push_one_atom_only_does_not():
    def faulty(q, p):
        first, second = cluster.pairs(q.shape[0])
        d = q[second] - q[first]
        s = (p["sigma"] ** 2 / jnp.sum(d * d, axis=1)) ** 3
        push = 24 * p["epsilon"] * (2 * s * s - s) / jnp.sum(d * d, axis=1) / cluster.MASS
        return jnp.zeros_like(q).at[second].add(push[:, None] * d)

    assert momentum_drift(faulty)[0] > 1e-3


def test_cluster_force_is_minus_the_slope_of_its_energy():
    scene = scene_of("lennard_jones", atoms=13, dimension=3)
    q = 1.05 * scene.x0.q
    slope = jax.jit(jax.grad(lambda q: cluster.energy(Phase(q, jnp.zeros_like(q)), scene.params)))(q)
    np.testing.assert_allclose(cluster.MASS * jax.jit(cluster.acceleration)(q, scene.params), -slope, atol=1e-12)


def test_cluster_hand_derived_products_are_jax_s():
    scene = scene_of("lennard_jones", atoms=13, dimension=3)
    q, w = 1.05 * scene.x0.q, jnp.cos(jnp.arange(39.0)).reshape(13, 3)
    want = jax.jit(lambda q, p, w: jax.vjp(cluster.acceleration, q, p)[1](w))(q, scene.params, w)
    got = jax.jit(cluster.acceleration_vjp)(q, scene.params, w)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-11, atol=1e-12), got, want)


def test_two_atoms_vibrate_at_the_known_frequency():
    """ω² = 2k/m with k = 72·2^(-1/3) ε/σ², the curvature at the bottom of the well."""
    scene = scene_of("lennard_jones", atoms=2, h=1e-3, steps=1000)
    p = scene.params
    stretched = jnp.array([[-0.5, 0.0], [0.5, 0.0]]) * (2 ** (1 / 6) * p["sigma"] + 1e-7)
    xs = run(scene, x0=Phase(stretched, jnp.zeros((2, 2))))
    omega = np.sqrt(2 * 72 * 2 ** (-1 / 3) * p["epsilon"] / p["sigma"] ** 2 / cluster.MASS)
    stretch = xs.q[:, 1, 0] - xs.q[:, 0, 0] - 2 ** (1 / 6) * p["sigma"]
    np.testing.assert_allclose(stretch, 1e-7 * np.cos(omega * 1e-3 * np.arange(1001)), atol=1e-11)
    assert 2 * np.pi / omega == pytest.approx(1.27, abs=0.01)


def test_derivative_of_squared_forces_with_respect_to_sigma_is_finite_and_right():
    """The published trap: a masked diagonal gives NaN here although energy and forces are fine."""
    sigma, r = 2.0, 6**0.5
    q = jnp.array([[1.0, 2.0, 3.0], [2.0, 3.0, 5.0]])
    squared = lambda s: jnp.sum((cluster.MASS * cluster.acceleration(q, {"epsilon": 1.0, "sigma": s})) ** 2)
    F = 24 * (2 * sigma**12 / r**13 - sigma**6 / r**7)
    slope = 24 * (24 * sigma**11 / r**13 - 6 * sigma**5 / r**7)
    assert float(jax.jit(jax.grad(squared))(sigma)) == pytest.approx(4 * F * slope, rel=1e-12)


def test_cluster_on_a_grid_comes_back_to_the_bit():
    scene = scene_of("lennard_jones", grid=2.0**-40, steps=2000)
    _, receipt = rollout_with_receipt(scene.system, scene.x0, scene.params, h=scene.h, steps=scene.steps)
    assert float(receipt.round_trip) == 0 and receipt.problems() == []


def test_cluster_refuses_what_it_has_no_shape_for():
    with pytest.raises(ValueError, match="write 2 to 13 atoms"):
        make("lennard_jones", atoms=14)
