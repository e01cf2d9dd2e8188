"""Heat, wave and fluid: conserved totals, exact modes, the pressure's budget, planted faults."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from diffsim import rollout_with_receipt, trees
from diffsim.integrators import Phase
from diffsim.scenes import fluid, heat, make, wave
from diffsim.solvers import ConjugateGradient, Jacobi, Newton
from tests.scenes.checks import at, drift, order, run, scene_of

EXACT = Newton(iterations=1, line_search=False)

# --- heat


def heat_drift():
    """Relative drift of the heat content over a run with a conductivity that differs from cell to cell."""
    scene = make("heat", cells=8, steps=5)
    uneven = 237 * (1.2 + jnp.cos(jnp.arange(64.0))).reshape(8, 8)
    total = lambda u: heat.content(u, scene.params)
    return drift(total, run(scene, params={"conductivity": uneven})) / float(total(scene.x0))


def test_insulated_plate_keeps_its_heat():
    assert heat_drift() < 1e-12


def test_a_conductivity_taken_outside_the_divergence_does_not(monkeypatch):
    def faulty(u, p):
        ones = {**p, "conductivity": jnp.ones_like(u)}
        return p["conductivity"] * heat_field(u, ones)

    heat_field = heat.field
    monkeypatch.setattr(heat, "field", faulty)
    assert heat_drift() > 1e-3


def mode(cells):
    c = np.cos(np.pi * heat.centres(cells) / heat.SIDE)
    return jnp.asarray(np.outer(c, c))


def test_the_slowest_mode_decays_by_backward_eulers_factor():
    scene = scene_of("heat", cells=8, solver=EXACT)
    width = heat.SIDE / 8
    rate = 237 / 2.43e6 * 2 * (2 / width * np.sin(np.pi * width / (2 * heat.SIDE))) ** 2
    u = run(scene, x0=mode(8))[-1]
    np.testing.assert_allclose(u, mode(8) / (1 + scene.h * rate) ** scene.steps, rtol=1e-10, atol=1e-13)


def test_the_slowest_mode_approaches_the_exact_decay():
    exact = np.exp(-2 * np.pi**2 * 237 / 2.43e6 / heat.SIDE**2 * 2.0)

    def left(cells, h):
        scene = scene_of("heat", cells=cells, solver=EXACT)
        return float(run(scene, x0=mode(cells), h=h, steps=round(2 / h))[-1, 0, 0] / mode(cells)[0, 0])

    # Cells and steps are refined together so that both errors fall by the same factor of 4.
    errors = [abs(left(n, h) / exact - 1) for n, h in ((4, 0.2), (8, 0.05))]
    assert order([2.0, 1.0], errors) == pytest.approx(2, abs=0.2) and errors[-1] < 0.02


def test_heat_flows_from_hot_to_cold_only():
    u = run(scene_of("heat", cells=8, solver=EXACT))
    assert np.max(np.diff(np.max(u, axis=(1, 2)))) < 0 < np.min(np.diff(np.min(u, axis=(1, 2))))


def test_heat_residual_falls_with_the_budget():
    def leftover(k):
        scene = make("heat", cells=8, solver=ConjugateGradient(iterations=k))
        return float(jax.jit(scene.system.solve_info, static_argnums=2)(scene.x0, scene.params, scene.h).residual)

    assert leftover(3) > 100 * leftover(9)


# --- wave


def still(q):
    return Phase(q, jnp.zeros_like(q))


def test_a_mode_swings_at_the_frequency_of_the_discrete_membrane():
    """Leapfrog of step h turns ω into 2/h·asin(hω/2); the mesh turns 2π²c² into 8c²/Δx²·sin²(πΔx/2)."""
    scene = scene_of("wave", nodes=15, h=0.02)
    s = np.sin(np.pi * wave.places(15))
    shape = jnp.asarray(np.outer(s, s))
    xs = run(scene, x0=still(shape), params={"speed": jnp.full((15, 15), 0.7)})
    omega = 0.7 * np.sqrt(8) * 16 * np.sin(np.pi / 32)
    swung = np.cos(2 * np.arcsin(0.02 * omega / 2) * np.arange(101))
    np.testing.assert_allclose(xs.q[:, 7, 7], swung, atol=1e-11)
    assert omega == pytest.approx(0.7 * np.sqrt(2) * np.pi, rel=2e-3)


def test_wave_energy_error_is_of_second_order():
    scene = scene_of("wave", nodes=23)
    h = [0.02, 0.01, 0.005]
    errors = [drift(lambda x: wave.energy(x, scene.params), run(scene, h=s, steps=round(1 / s))) for s in h]
    assert order(h, errors) == pytest.approx(2, abs=0.2)
    assert errors[-1] < 0.01 * float(wave.energy(scene.x0, scene.params))


def energy_rate(acceleration):
    """Rate of the energy along a field, at one state in motion over uneven speeds."""
    scene = scene_of("wave", nodes=9)
    x = Phase(scene.x0.q, jnp.cos(jnp.arange(81.0)).reshape(9, 9))
    rate = Phase(x.v, acceleration(x.q, scene.params))
    return abs(float(jax.jit(lambda x, d: jax.jvp(lambda x: wave.energy(x, scene.params), (x,), (d,))[1])(x, rate)))


def test_wave_conserves_its_energy_over_uneven_speeds():
    assert energy_rate(wave.acceleration) < 1e-14


def test_wave_with_the_speed_inside_the_laplacian_does_not():
    assert energy_rate(lambda q, p: wave.laplacian(p["speed"] ** 2 * q)) > 1e-5


def product_gap(hand):
    scene = scene_of("wave", nodes=9)
    q, w = scene.x0.q, jnp.cos(jnp.arange(81.0)).reshape(9, 9)
    want = jax.jit(lambda q, p, w: jax.vjp(wave.acceleration, q, p)[1](w))(q, scene.params, w)
    return float(trees.largest_gap(jax.jit(hand)(q, scene.params, w), want))


def test_wave_hand_derived_products_are_jax_s():
    assert product_gap(wave.acceleration_vjp) < 1e-11


def test_wave_products_without_the_factor_two_are_not():
    def faulty(q, p, w):
        from_q, from_p = wave.acceleration_vjp(q, p, w)
        return from_q, {"speed": from_p["speed"] / 2}

    assert product_gap(faulty) > 0.1


def test_wave_on_a_grid_comes_back_to_the_bit():
    scene = scene_of("wave", nodes=19, h=0.02, steps=500, grid=2.0**-44)
    _, receipt = rollout_with_receipt(scene.system, scene.x0, scene.params, h=scene.h, steps=scene.steps)
    assert float(receipt.round_trip) == 0 and receipt.problems() == []


# --- fluid


def vortices(cells):
    """The stream function sin(2πx) sin(2πy)/2π on the cells' lower corners: its flow only decays."""
    s = np.sin(2 * np.pi * np.arange(cells) / cells)
    return jnp.asarray(np.outer(s, s) / (2 * np.pi))


def test_taylor_green_vortices_decay_at_the_discrete_rate():
    scene = scene_of("fluid", cells=16, solver=ConjugateGradient(iterations=20), steps=20)
    x0 = scene.x0._replace(velocity=fluid.swirl(vortices(16)))
    x = at(run(scene, x0=x0, params={"stirring": jnp.zeros(4)}), -1)
    rate = 3e-3 * 2 * (2 * 16 * np.sin(np.pi / 16)) ** 2
    np.testing.assert_allclose(x.velocity, x0.velocity * (1 - 0.01 * rate) ** 20, atol=1e-12)
    assert rate == pytest.approx(3e-3 * 8 * np.pi**2, rel=0.02)


def totals():
    """Drift of momentum and of dye over a run, from a start in which a net current carries the vortices."""
    scene = make("fluid", cells=16, iterations=8, steps=20)
    xs = run(scene, x0=scene.x0._replace(velocity=scene.x0.velocity + 0.2))
    return drift(lambda x: jnp.mean(x.velocity, axis=(1, 2)), xs), drift(lambda x: jnp.mean(x.dye), xs)


def test_fluid_keeps_its_momentum_and_its_dye_whatever_the_pressures_budget():
    momentum, dye = totals()
    assert momentum < 1e-14 and dye < 1e-14


def test_convection_that_is_no_divergence_does_not_keep_momentum(monkeypatch):
    right = fluid.convection
    monkeypatch.setattr(fluid, "convection", lambda v: right(v) * (1 + v[:1]))
    assert totals()[0] > 1e-4


def test_convection_does_no_work_on_an_incompressible_flow():
    psi = jnp.cos(jnp.arange(256.0) ** 1.3).reshape(16, 16)
    v = fluid.swirl(psi)
    assert abs(float(jnp.sum(v * fluid.convection(v)))) < 1e-11 * float(jnp.sum(jnp.abs(v * fluid.convection(v))))


def outflow(step):
    """Largest divergence after one step of a stirred flow."""
    scene = scene_of("fluid", cells=16)
    psi = vortices(16) + 0.1 * np.cos(np.arange(256.0) / 9).reshape(16, 16)
    x = jax.jit(step, static_argnums=2)(scene.x0._replace(velocity=fluid.swirl(psi)), scene.params, scene.h)
    return float(jnp.max(jnp.abs(fluid.divergence(x.velocity))))


def budgeted(**settings):
    return outflow(make("fluid", cells=16, **settings).system.step)


def test_divergence_falls_with_the_pressures_budget():
    few, more, many = (budgeted(iterations=k) for k in (4, 16, 64))
    assert few > 5 * more > 1e4 * many
    assert budgeted(solver=ConjugateGradient(iterations=100)) < 1e-12


def test_jacobi_sweeps_also_project_but_slowly():
    few, many = (budgeted(solver=Jacobi(k, diagonal=fluid.pressure_diagonal(16, 0.01))) for k in (16, 64))
    assert few > many > 10 * budgeted(iterations=64)


def test_a_pressure_that_pushes_the_wrong_way_leaves_the_divergence():
    system = make("fluid", cells=16, iterations=64).system

    def faulty(x, p, h):
        return system.finish(-system.step(x, p, h).pressure, x, p, h)

    assert outflow(faulty) > 1e4 * outflow(system.step)


def test_pressure_diagonal_is_that_of_the_jacobian():
    scene = scene_of("fluid", cells=4)
    x = scene.x0
    residual = lambda p: scene.system.residual(scene.system.finish(p, x, scene.params, 0.01), x, scene.params, 0.01)
    matrix = jax.jit(jax.jacobian(residual))(x.pressure).reshape(16, 16)
    np.testing.assert_allclose(jnp.diag(matrix), fluid.pressure_diagonal(4, 0.01)(x.pressure).ravel(), rtol=1e-12)
    np.testing.assert_allclose(matrix, matrix.T, atol=1e-14)
    assert float(jnp.min(jnp.linalg.eigvalsh(matrix))) > 0


def test_still_fluid_slows_down_only():
    scene = scene_of("fluid", cells=16)
    energy = jax.vmap(fluid.kinetic_energy)(run(scene, params={"stirring": jnp.zeros(4)}))
    assert float(np.max(np.diff(energy))) < 0


def test_fields_refuse_to_be_too_small():
    for name, settings in (("heat", {"cells": 1}), ("wave", {"nodes": 2}), ("fluid", {"cells": 3})):
        with pytest.raises(ValueError, match="write at least"):
            make(name, **settings)
