"""What holds for every scene that is registered, and the physics of cloth, pendulum and fixed point."""

from dataclasses import replace
from functools import cache
from importlib import import_module

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from scipy.special import ellipk

from diffsim import Adjoint, rollout
from diffsim.integrators import Phase
from diffsim.scenes import SCENES, cloth, fixed_point, make, pendulum
from tests.helpers import along, bits, central_difference, directions, gap, slope

# The scenes whose physics is tested here; tests/scenes/test_gradients_and_pictures.py and its neighbours have the others.
HERE = {"cloth": {"nodes": 6, "steps": 64}, "pendulum": {"steps": 64}, "fixed_point": {}}
UNITS = {"kg", "m", "s", "N", "Pa", "K", "W", "J", "rad", "zJ", "nm", "1", "m²", "s²", "m³", "rad²", "nm⁴", "K²"}


@cache
def scene_of(name, **settings):
    return make(name, **(HERE.get(name, {}) | settings))


# Every scene ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SCENES)
def test_every_scene_says_what_it_is(name):
    scene = scene_of(name)
    assert scene.name == name
    assert scene.question.endswith("?")
    assert scene.h > 0 and scene.steps >= 1
    assert import_module(SCENES[name]).make.__doc__


@pytest.mark.parametrize("name", SCENES)
def test_every_parameter_and_the_loss_has_a_unit(name):
    scene = scene_of(name)
    assert set(scene.units) == {*scene.params, "loss"}
    for quantity, unit in scene.units.items():
        parts = unit.replace(",", " ").replace("/", " ").replace("(", " ").replace(")", " ").split()
        assert parts and set(parts) <= UNITS, f"{quantity} [{unit}]"


@pytest.mark.parametrize("name", SCENES)
def test_every_scene_starts_finite_with_a_finite_loss(name):
    scene = scene_of(name)
    assert all(np.all(np.isfinite(a)) for a in jax.tree.leaves((scene.x0, scene.params)))
    loss = scene.loss(scene.x0)
    assert loss.shape == () and np.isfinite(loss)


@pytest.mark.parametrize("name", SCENES)
def test_every_scene_draws_its_start(name):
    scene = scene_of(name)
    canvas = FigureCanvasAgg(Figure())
    ax = canvas.figure.subplots()
    canvas.draw()
    empty = np.asarray(canvas.buffer_rgba()).copy()
    scene.draw(ax, scene.x0, scene.params)
    canvas.draw()
    assert np.any(np.asarray(canvas.buffer_rgba()) != empty)
    assert "[" in ax.get_xlabel()


def test_an_unknown_scene_is_answered_with_the_known_ones():
    with pytest.raises(ValueError, match="no scene 'clothes'; write one of .*cloth.*pendulum"):
        make("clothes")


# Gradients --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", HERE)
def test_the_gradient_passes_central_differences(name):
    # On a grid the loss is a staircase, and a difference of it is coarse.
    scene = scene_of(name) if name == "fixed_point" else scene_of(name, grid=None)
    value, gradient = scene.value_and_grad()
    assert np.isfinite(value) and float(value) == float(scene.value(scene.params))
    for part in directions(scene.params, count=3):
        direction = jax.tree.map(lambda p, d: p * d, scene.params, part)
        size = along(jax.tree.map(jnp.abs, gradient), jax.tree.map(jnp.abs, direction))
        want = pytest.approx(central_difference(scene.value, scene.params, direction, 1e-3), abs=1e-5 * size)
        assert along(gradient, direction) == want
    assert 1.001 * along(gradient, direction) != want


@pytest.mark.parametrize("name", ["cloth", "pendulum"])
def test_the_reversible_gradient_is_the_stored_one(name):
    """With tolerance 0 the way back has to be exact to the bit; the formula is compared with AD below."""
    scene = scene_of(name)
    reversed_run, stored = (
        scene.value_and_grad(Adjoint.parse(f"executed/custom-adjoint/{how}")) for how in ("reverse(0)", "store-all")
    )
    assert bits(reversed_run[0]) == bits(stored[0])
    assert gap(reversed_run[1], stored[1]) < 1e-11


def test_scene_settings_reach_the_run():
    scene = scene_of("pendulum")
    direct = rollout(scene.system, scene.x0, scene.params, h=scene.h, steps=5)
    assert float(scene.value(scene.params, steps=5)) == float(scene.loss(direct))
    elsewhere = Phase(q=jnp.array(0.5), v=jnp.array(0.0))
    assert float(scene.value(scene.params, elsewhere)) != float(scene.value(scene.params))


@pytest.mark.parametrize("module", [cloth, pendulum], ids=["cloth", "pendulum"])
def test_acceleration_vjp_is_the_transposed_jacobian_of_acceleration(module):
    scene = scene_of(module.__name__.split(".")[-1])
    q, w = directions((scene.x0.q, scene.x0.q), count=1, seed=1)[0]
    q = scene.x0.q + 0.05 * q
    p = jax.tree.map(lambda a: a * 1.1, scene.params)

    @jax.jit
    def both(q, p, w):
        return module.acceleration_vjp(q, p, w), jax.vjp(module.acceleration, q, p)[1](w)

    by_hand, by_ad = both(q, p, jnp.asarray(w))
    assert gap(by_hand[0], by_ad[0]) < 1e-13
    assert gap(by_hand[1], by_ad[1]) < 1e-13
    wrong = jax.tree.map(lambda a: 1.001 * a, by_hand)
    assert gap(wrong[0], by_ad[0]) > 1e-4


# Energy -----------------------------------------------------------------------------------------------------------


def energies(module, scene, h, duration, params):
    """Energy after every step of a run; `params` are those of the energy, the run has the scene's own."""
    step, energy = compiled(scene.system.step), compiled(module.energy)
    x, found = scene.x0, []
    for _ in range(round(duration / h)):
        x = step(x, scene.params, h)
        found.append(float(energy(x, params)))
    return np.array(found) - float(energy(scene.x0, params))


@cache
def compiled(function):
    return jax.jit(function)


@pytest.mark.parametrize(
    ("module", "sizes", "duration"),
    [(cloth, (2e-3, 1e-3, 5e-4), 0.128), (pendulum, (0.04, 0.02, 0.01), 2.4)],
    ids=["cloth", "pendulum"],
)
def test_energy_is_conserved_to_second_order(module, sizes, duration):
    scene = scene_of(module.__name__.split(".")[-1], grid=None)
    errors = [np.max(np.abs(energies(module, scene, h, duration, scene.params))) for h in sizes]
    assert slope(sizes, errors) == pytest.approx(2.0, abs=0.15)
    # The check can fail: an energy with other stiffnesses, or another length, is not conserved.
    other = (
        jax.tree.map(lambda a: 1.1 * a, scene.params) if module is cloth else {**scene.params, "length": jnp.array(1.1)}
    )
    wrong = [np.max(np.abs(energies(module, scene, h, duration, other))) for h in sizes[:2]]
    assert wrong[1] > 0.9 * wrong[0]


# Cloth ------------------------------------------------------------------------------------------------------------

NODE_MASS = cloth.MASS / 36


@pytest.fixture(scope="module")
def crumpled():
    """A cloth out of its rest, and its spring constants."""
    scene = scene_of("cloth")
    return scene.x0.q + 0.05 * directions(scene.x0.q, count=1)[0], scene.params


@jax.jit
def slope_of_energy(q, p):
    return jax.grad(lambda q: cloth.energy(Phase(q, jnp.zeros_like(q)), p))(q)


def free(q):
    """Whether a node is free to move: all but the two corners at the far edge."""
    moves = np.ones(q.shape[1:], bool)
    moves[0, -1] = moves[-1, -1] = False
    return moves


def test_cloth_acceleration_is_minus_the_slope_of_its_energy(crumpled):
    q, p = crumpled
    force = -slope_of_energy(q, p)
    assert gap(compiled(cloth.acceleration)(q, p)[:, free(q)], (force / NODE_MASS)[:, free(q)]) < 1e-12


def test_cloth_falls_freely_where_it_lies_at_its_rest_lengths():
    scene = scene_of("cloth")
    acceleration = np.asarray(compiled(cloth.acceleration)(scene.x0.q, scene.params))
    moves = free(acceleration)
    assert np.allclose(acceleration[2, moves], -cloth.GRAVITY, atol=1e-7)
    assert np.allclose(acceleration[:2], 0.0, atol=1e-7)
    assert np.all(acceleration[:, ~moves] == 0.0)


def test_cloth_hangs_from_its_two_corners():
    scene = scene_of("cloth")
    x_T = rollout(scene.system, scene.x0, scene.params, h=scene.h, steps=scene.steps)
    moved = np.any(np.asarray(x_T.q != scene.x0.q), axis=0)
    assert np.array_equal(moved, free(scene.x0.q))


def test_cloth_does_not_care_where_it_is_or_how_it_is_turned_about_the_vertical(crumpled):
    q, p = crumpled
    turn = np.array([[0.6, -0.8, 0.0], [0.8, 0.6, 0.0], [0.0, 0.0, 1.0]])
    turned = lambda a: jnp.einsum("ij,jkl->ikl", turn, a)
    shift = np.array([0.3, -1.0, 2.0])[:, None, None]
    acceleration = compiled(cloth.acceleration)
    here = acceleration(q, p)
    assert gap(acceleration(turned(q) + shift, p), turned(here)) < 1e-11
    # Turned about a horizontal axis it falls another way.
    tilt = turn[[2, 0, 1]][:, [2, 0, 1]]
    assert gap(acceleration(jnp.einsum("ij,jkl->ikl", tilt, q), p), jnp.einsum("ij,jkl->ikl", tilt, here)) > 1e-3


def test_cloth_swings_symmetrically():
    """Left and right mirror each other, since start, stiffnesses and held corners do."""
    scene = scene_of("cloth", grid=None)
    q = rollout(scene.system, scene.x0, scene.params, h=scene.h, steps=scene.steps).q
    mirrored = jnp.stack([cloth.SIDE - q[0, ::-1], q[1, ::-1], q[2, ::-1]])
    assert gap(mirrored, q) < 1e-12
    lopsided = {**scene.params, "stretch_x": scene.params["stretch_x"].at[0].mul(2.0)}
    q = rollout(scene.system, scene.x0, lopsided, h=scene.h, steps=scene.steps).q
    assert gap(jnp.stack([cloth.SIDE - q[0, ::-1], q[1, ::-1], q[2, ::-1]]), q) > 1e-6


def test_cloth_springs_pull_each_other_with_opposite_forces(crumpled):
    """Without the held corners and the weight, the springs' forces add up to zero, and so do their torques."""
    q, p = crumpled
    force = -slope_of_energy(q, p)
    weight = np.array([0.0, 0.0, -cloth.GRAVITY * NODE_MASS])[:, None, None]
    springs = np.asarray(force) - weight
    scale = np.max(np.abs(springs))
    assert np.max(np.abs(springs.sum(axis=(1, 2)))) < 1e-12 * scale
    assert np.max(np.abs(np.cross(np.asarray(q), springs, axis=0).sum(axis=(1, 2)))) < 1e-12 * scale


def test_cloth_refuses_fewer_than_three_nodes():
    with pytest.raises(ValueError, match="nodes=2: bending springs span three nodes; write at least 3"):
        make("cloth", nodes=2)


# Pendulum ---------------------------------------------------------------------------------------------------------


def test_pendulum_has_the_period_of_the_elliptic_integral():
    scene = scene_of("pendulum", grid=None)
    period = 4 * float(np.sqrt(1.0 / 9.81) * ellipk(np.sin(0.5) ** 2))
    steps = 400
    x_T = rollout(scene.system, scene.x0, scene.params, h=period / steps, steps=steps)
    # Second order in h: at this h about 1e-4 of the amplitude.
    assert float(x_T.q) == pytest.approx(1.0, abs=1e-6)
    assert float(x_T.v) == pytest.approx(0.0, abs=2e-3)
    small_angle = 2 * np.pi * np.sqrt(1.0 / 9.81)
    x_T = rollout(scene.system, scene.x0, scene.params, h=small_angle / steps, steps=steps)
    assert abs(float(x_T.v)) > 0.1


def test_pendulum_only_knows_the_ratio_of_gravity_and_length():
    scene = scene_of("pendulum", grid=None)
    gradient = scene.value_and_grad()[1]
    g, length = (float(scene.params[name]) for name in ("gravity", "length"))
    assert float(gradient["gravity"]) * g == pytest.approx(-float(gradient["length"]) * length, rel=1e-12)


# Fixed point ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("K", [1, 4, 8, 20])
def test_fixed_point_has_the_derivatives_of_its_docstring(K):
    """Off the limit -1 by ρ^K + Kαρ^(K-1) as executed, by ρ^K as the equation's adjoint at the unconverged state."""
    alpha, rho = 0.2, 0.8
    scene = fixed_point.make(iterations=K, rate=alpha)
    executed, adjoint = (
        float(scene.value_and_grad(Adjoint.parse(f"{cell}/store-all"))[1]["stiffness"])
        for cell in ("executed/ad", "converged/adjoint-solve")
    )
    assert executed + 1 == pytest.approx(rho**K + K * alpha * rho ** (K - 1), rel=1e-12)
    assert adjoint + 1 == pytest.approx(rho**K, rel=1e-12)


def test_fixed_point_root_vjp_is_that_of_its_residual():
    scene = scene_of("fixed_point")
    by_hand, by_ad = (
        scene.value_and_grad(Adjoint.parse(f"converged/{how}/store-all"))[1] for how in ("custom-adjoint", "ad")
    )
    assert gap(by_hand, by_ad) < 1e-14
    faulty = replace(scene.system, root_vjp=lambda x, x_next, p, h, lam: (0 * x, {"stiffness": x * lam, "load": lam}))
    wrong = replace(scene, system=faulty).value_and_grad(Adjoint.parse("converged/custom-adjoint/store-all"))[1]
    assert gap(wrong, by_ad) > 1e-2
