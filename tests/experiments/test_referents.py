"""E1: closed forms to round-off, orders by fitted slopes, and the grid of adjoints on every scene."""

import math

import jax
import numpy as np
import pytest

from diffsim.experiments import referents as e1
from diffsim.scenes import SCENES, make
from diffsim.solvers import GradientDescent


@pytest.mark.parametrize("budget", [1, 2, 4, 8, 16])
def test_scalar_fixed_point_has_its_closed_forms(budget):
    rho, rate = 0.8, 0.2
    gaps = e1.scalar_gaps(budget, rate=rate)
    assert gaps["executed - limit"] == pytest.approx(rho**budget + budget * rate * rho ** (budget - 1), rel=1e-12)
    assert gaps["adjoint - limit"] == pytest.approx(rho**budget, rel=1e-12)
    assert gaps["adjoint - executed"] == pytest.approx(budget * rate * rho ** (budget - 1), rel=1e-12)


def test_the_budget_gap_shrinks_by_the_predicted_contraction():
    budgets = (2, 4, 6, 8)
    gaps = [row["adjoint - limit"] for row in e1.budget_gaps(budgets)]
    slope = np.polyfit(budgets, np.log(gaps), 1)[0]
    assert math.exp(slope) == pytest.approx(0.05 * math.sqrt(9.81), rel=0.05)


@pytest.mark.parametrize("claim", ["executed/ad/store-all", "continuous/adjoint-solve/store-all"])
@pytest.mark.parametrize("name", list(e1.INTEGRATORS))
def test_the_gap_to_the_continuous_derivative_has_the_integrators_order(name, claim):
    sizes = (1 / 64, 1 / 128, 1 / 256)
    slope = np.polyfit(np.log(sizes), np.log(e1.order_gaps(name, claim, sizes)), 1)[0]
    assert slope == pytest.approx(e1.INTEGRATORS[name][0], abs=0.15)


def test_the_grid_has_every_scene():
    assert set(e1.SMALL) == set(SCENES)


def test_compare_finds_gaps_between_referents_only_and_says_what_cannot_be_had():
    scene = make("chain", masses=3, steps=4, solver=GradientDescent(iterations=4, rate=5e-3))
    claims = (
        "executed/ad/store-all",
        "executed/adjoint-solve/checkpoint(2)",
        "converged/ad/store-all",
        "executed/custom-adjoint/store-all",
    )
    run, replayed, solved, refused = e1.compare(scene, claims)
    slopes = jax.grad(scene.value)(scene.params)
    assert run["slopes"] == pytest.approx(
        {name: float(scene.params[name] * slopes[name]) for name in slopes}, rel=1e-12
    )
    assert replayed["slopes"] == pytest.approx(run["slopes"], rel=1e-12)
    assert solved["loss"] == pytest.approx(run["loss"], rel=1e-14)
    assert solved["slopes"] != pytest.approx(run["slopes"], rel=1e-3)
    assert min(run["temporary_bytes"], run["time_over_forward"]) > 0
    assert refused == {"claim": claims[3], "why_not": "the system 'chain' has no step_vjp"}


def test_compare_counts_the_states_that_a_claim_keeps():
    scene = make("pendulum", steps=1024, grid=None)
    all_of_them, few = e1.compare(scene, ("executed/ad/store-all", "executed/ad/checkpoint(32)"))
    state = 2 * 8
    assert all_of_them["temporary_bytes"] - few["temporary_bytes"] == pytest.approx((1024 - 64) * state, rel=0.1)
