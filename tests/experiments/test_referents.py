"""E1: closed forms to round-off, orders by fitted slopes, and the grid of adjoints on every scene."""

import math

import numpy as np
import pytest

from diffsim.experiments import referents as e1
from diffsim.scenes import SCENES


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
