"""Chain and beam: statics against independent solutions, dissipation of implicit Euler, planted faults."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize
import scipy.sparse
import scipy.sparse.linalg

from diffsim.scenes import beam, chain, make
from diffsim.solvers import GradientDescent, Newton
from tests.scenes.checks import at, drift, order, run, scene_of

# --- chain


@pytest.fixture(scope="module")
def sagging():
    """The chain after long, strongly damped steps: at rest in equilibrium."""
    scene = scene_of("chain", h=10.0, steps=8, solver=Newton(iterations=30))
    return scene, at(run(scene), -1)


def test_hooks_carry_the_chains_weight(sagging):
    scene, x = sagging
    s = chain.elongations(x.q)[0]
    tension = scene.params["k1"] * s + scene.params["k2"] * s**3
    sine = -x.q[0, 1] / jnp.linalg.norm(x.q[0])
    assert float(2 * tension * sine) == pytest.approx(chain.MASS * chain.GRAVITY, rel=1e-9)


def test_one_mass_hangs_where_the_scalar_equation_says():
    scene = make("chain", masses=1, h=10.0, steps=8, solver=Newton(iterations=30))
    k1, k2 = (float(scene.params[k]) for k in ("k1", "k2"))

    def unbalanced(depth):
        s = np.hypot(0.5, depth) - 0.5
        return 2 * (k1 * s + k2 * s**3) * depth / np.hypot(0.5, depth) - chain.MASS * chain.GRAVITY

    depth = scipy.optimize.brentq(unbalanced, 1e-3, 1.0, xtol=1e-14)
    np.testing.assert_allclose(at(run(scene), -1).q, [[0.5, -depth]], atol=1e-10)


def tension_gap(potential):
    """How far a potential's slope is from the tension k1 s + k2 s³, for one mass halfway, pulled down."""
    p = {"k1": 20.0, "k2": 1e4}
    q = jnp.array([[0.5, -0.2]])
    s = np.hypot(0.5, 0.2) - 0.5
    want = 2 * (20 * s + 1e4 * s**3) * -0.2 / np.hypot(0.5, 0.2)
    return abs(float(jax.jit(jax.grad(potential))(q, p)[0, 1]) - want)


def test_springs_pull_with_their_tension():
    assert tension_gap(chain.potential) < 1e-12


def test_springs_with_a_third_instead_of_a_fourth_do_not():
    wrong = lambda q, p: chain.potential(q, p) + p["k2"] * jnp.sum(chain.elongations(q) ** 4) / 12
    assert tension_gap(wrong) > 1e-3


def test_implicit_euler_only_loses_energy_and_the_loss_is_of_first_order():
    scene = scene_of("chain")
    h, lost = [2e-3, 1e-3], []
    for size in h:
        energy = jax.vmap(lambda x: chain.energy(x, scene.params))(run(scene, h=size, steps=round(0.2 / size)))
        assert float(np.max(np.diff(energy))) < 1e-12
        lost.append(float(energy[0] - energy[-1]))
    assert order(h, lost) == pytest.approx(1, abs=0.15)


def test_residual_falls_with_the_budget_and_is_zero_at_newtons_root():
    x = at(run(scene_of("chain"), steps=10), -1)

    def leftover(**solver):
        scene = make("chain", **solver)
        return float(jax.jit(scene.system.solve_info, static_argnums=2)(x, scene.params, scene.h).residual)

    few, more = (leftover(solver=GradientDescent(iterations=k, rate=5e-3)) for k in (4, 16))
    assert few > 10 * more
    assert leftover() < 1e-12


# --- beam


def lame(p):
    young = np.repeat(np.asarray(p["young"]).ravel(), 2)
    return young / 2.6, young * 0.3 / (1.3 * 0.4)


def textbook(F, mu, lam):
    """Compressible neo-Hookean energy density in plane strain, with the volume term's modulus λ + μ."""
    J = jnp.linalg.det(F)
    return mu / 2 * (jnp.sum(F * F) - 2) - mu * (J - 1) + (lam + mu) / 2 * (J - 1) ** 2


def static_tip_drop(along, across, gravity):
    """Mean drop of the tip [m] by Newton's method on a sparse matrix of element Hessians: only the mesh is shared."""
    scene, m = make("beam", along=along, across=across), beam.mesh(along, across)
    mu, lam = lame(scene.params)
    weight = np.zeros((len(m.rest), 2))
    weight[across + 1 :, 1] = -gravity * np.asarray(beam.nodal_mass(scene.params)).ravel()
    free = np.arange(2 * (across + 1), 2 * len(m.rest))
    element = lambda c, b, mu, lam: m.volume * textbook(c.T @ b, mu, lam)
    slope, curvature = (jax.jit(jax.vmap(d(element))) for d in (jax.grad, jax.hessian))
    dof = (2 * m.corners[:, :, None] + np.arange(2)).reshape(-1, 6)
    places = np.repeat(dof, 6, axis=1).ravel(), np.tile(dof, (1, 6)).ravel()
    nodes = m.rest.copy()
    for _ in range(12):
        args = nodes[m.corners], m.slopes, mu, lam
        force = np.zeros(nodes.size)
        np.add.at(force, dof.ravel(), np.asarray(slope(*args)).ravel())
        K = scipy.sparse.csc_matrix((np.asarray(curvature(*args)).ravel(), places), shape=(nodes.size, nodes.size))
        move = scipy.sparse.linalg.spsolve(K[free][:, free], (weight.ravel() - force)[free])
        nodes.reshape(-1)[free] += move
        if np.max(np.abs(move)) < 1e-11:
            break
    return beam.HEIGHT / 2 - nodes.reshape(along + 1, across + 1, 2)[-1, :, 1].mean()


def euler_bernoulli(gravity):
    """Tip drop q L⁴ / (8 E' I) of a beam under its weight, E' = E/(1-ν²) in plane strain."""
    section = beam.WIDTH * beam.HEIGHT**3 / 12
    load = 1100 * gravity * beam.HEIGHT * beam.WIDTH
    return load * beam.LENGTH**4 / (8 * 2e6 / (1 - 0.3**2) * section)


def test_small_deflection_approaches_euler_and_bernoulli():
    gravity = beam.GRAVITY / 1000
    off = {n: static_tip_drop(10 * n, n, gravity) / euler_bernoulli(gravity) - 1 for n in (4, 8, 14)}
    assert off[4] == pytest.approx(-0.12, abs=0.01)
    assert off[8] == pytest.approx(-0.03, abs=0.01)
    assert abs(off[14]) < 0.02


def own_static_drop(scene):
    x = at(run(scene, h=100.0, steps=1), -1)
    return beam.HEIGHT / 2 - float(jnp.mean(x.q[-1, :, 1]))


def test_large_deflection_is_that_of_the_sparse_solution():
    """One very long implicit Euler step is a static solve."""
    scene = make("beam", solver=Newton(iterations=20))
    assert own_static_drop(scene) == pytest.approx(static_tip_drop(16, 2, beam.GRAVITY), rel=1e-5)


def test_plane_stress_in_place_of_plane_strain_is_noticed(monkeypatch):
    def plane_stress(p):
        young = jnp.repeat(p["young"].ravel(), 2)
        return young / 2.6, young / 2.6 + young * 0.3 / (1 - 0.3**2)

    monkeypatch.setattr(beam, "_moduli", plane_stress)
    scene = make("beam", solver=Newton(iterations=20))
    assert own_static_drop(scene) != pytest.approx(static_tip_drop(16, 2, beam.GRAVITY), rel=1e-2)


def test_energy_density_is_the_textbooks_and_blind_to_rotation():
    scene = scene_of("beam", along=4, across=2)
    mu, lam = lame(scene.params)
    F, turn = np.array([[1.2, 0.3], [-0.1, 0.9]]), np.array([[0.8, -0.6], [0.6, 0.8]])
    away = slice(4 * 2, None)  # the triangles that touch no held node
    densities = [beam.energy_density(scene.x0.q @ G.T, scene.params)[away] for G in (F, turn @ F, turn)]
    np.testing.assert_allclose(densities[0], textbook(F, mu[0], lam[0]), rtol=1e-12)
    np.testing.assert_allclose(densities[1], densities[0], rtol=1e-12)
    np.testing.assert_allclose(densities[2], 0, atol=1e-9)


def test_masses_add_up():
    scene = scene_of("beam", along=6, across=3)
    held = 1100 * beam.LENGTH * beam.HEIGHT * beam.WIDTH / 12
    total = float(jnp.sum(beam.nodal_mass(scene.params)))
    assert total + held == pytest.approx(1100 * beam.LENGTH * beam.HEIGHT * beam.WIDTH, rel=1e-12)


def test_preconditioner_inverts_the_diagonal_blocks_of_the_hessian():
    scene = scene_of("beam", along=4, across=2)
    p = {**scene.params, "young": 2e6 + 1e6 * jnp.cos(jnp.arange(8.0)).reshape(4, 2)}
    q = scene.x0.q + 0.01 * jnp.cos(jnp.arange(24.0)).reshape(4, 3, 2)
    H = jax.jit(jax.hessian(lambda u: beam.potential(u.reshape(4, 3, 2), p)))(q.ravel()).reshape(12, 2, 12, 2)
    inertia = beam.nodal_mass(p).reshape(12, 1, 1) / 0.01**2 * jnp.eye(2)[None]
    blocks = np.asarray(H)[np.arange(12), :, np.arange(12)] + inertia
    r = jnp.sin(jnp.arange(24.0)).reshape(4, 3, 2)
    want = np.linalg.solve(blocks, r.reshape(12, 2, 1)).reshape(4, 3, 2)
    x = scene.x0._replace(q=q)
    np.testing.assert_allclose(jax.jit(beam.precondition)(x, scene.x0, p, 0.01, r), want, rtol=1e-10)


def test_beam_loses_energy_ever_less_as_steps_shrink():
    scene = scene_of("beam", along=8, across=1)
    h = [2e-3, 1e-3]
    lost = [drift(lambda x: beam.energy(x, scene.params), run(scene, h=s, steps=round(0.04 / s))) for s in h]
    assert order(h, lost) > 0.7


def test_an_inside_out_triangle_has_finite_energy_and_force():
    scene = scene_of("beam", along=2, across=1)
    crushed = scene.x0.q * jnp.array([[[-1.0, 1.0]]])
    value, slope = jax.jit(jax.value_and_grad(beam.potential))(crushed, scene.params)
    assert bool(jnp.isfinite(value)) and bool(jnp.all(jnp.isfinite(slope)))


def test_beam_and_chain_refuse_to_be_empty():
    with pytest.raises(ValueError, match="no cells"):
        make("beam", across=0)
    with pytest.raises(ValueError, match="at least 1"):
        make("chain", masses=0)


def test_large_beam_is_solved_without_a_matrix():
    scene = scene_of("beam", along=40, across=4)
    assert scene.x0.q.size == 400
    receipt = jax.jit(scene.system.solve_info, static_argnums=2)(scene.x0, scene.params, scene.h)
    assert receipt.problems(residual=1e-4) == []
