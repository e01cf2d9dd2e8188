"""E2 on a small cloth: its measures are right, and its claims fail when what they guard is broken."""

import math
from dataclasses import dataclass, replace

import jax
import numpy as np
import pytest

from diffsim.experiments import exactness_memory as e2
from diffsim.retention import StoreAll
from diffsim.scenes import make

SETTINGS = {"nodes": 6, "horizons": [64, 256], "repeats": 1, "full": True}


@pytest.fixture(scope="module")
def scenes():
    return {state: make("cloth", nodes=8, grid=grid, steps=64) for state, grid in e2.GRIDS.items()}


@pytest.fixture(scope="module")
def references(scenes):
    return {state: e2.step_by_step(scene) for state, scene in scenes.items()}


@pytest.mark.parametrize("key", e2.EXACT)
def test_exact_methods_differentiate_the_very_run(key, scenes, references):
    method = e2.METHODS[key]
    row = e2.measure(method, scenes[method.state], references[method.state])
    assert row["primal_gap"] == 0.0
    assert row["error"] < 1e-12
    assert row["temp_bytes"] > 0


@dataclass(frozen=True)
class ForgetsTheLastStep(StoreAll):
    """A planted fault: the last pair is never pulled."""

    def backward(self, step, unstep, saved, steps, consume, carry):
        xs, x_T = saved
        without = jax.tree.map(lambda a: a[:-1], xs), jax.tree.map(lambda a: a[-1], xs)
        return super().backward(step, unstep, without, steps - 1, consume, carry)


def test_the_error_finds_a_retention_that_forgets_a_step(scenes, references):
    faulty = replace(e2.METHODS["store-all"], retention=lambda T: ForgetsTheLastStep())
    assert e2.measure(faulty, scenes["fixed-point"], references["fixed-point"])["error"] > 1e-3


def test_fitted_exponent_and_bits_lost():
    horizons = np.array([64, 256, 1024])
    assert e2.fitted_exponent(horizons, 7.0 * horizons**0.5) == pytest.approx(0.5, abs=1e-12)
    for factor in (0.5, 0.9, 0.99):
        assert e2.bits_lost(factor) == pytest.approx(math.log2(1 / factor), abs=1e-3)


def test_every_claim_can_fail(scenes):
    """Spoil one column at a time and see the claims that guard it fall."""
    rows = list(e2._rows(SETTINGS, lambda line: None))
    receipts = {state: e2._receipt(state, SETTINGS) for state in e2.GRIDS}

    def failing(rows):
        return {claim.id for claim in e2._claims(rows, receipts, SETTINGS) if not claim.holds}

    honest = failing(rows)
    # Too small and too short a cloth to drift apart, so these claims of the full-size one do not hold here.
    assert honest <= {"drift", "two-runs-long", "corner", "growth-checkpoint", "run-tape"}

    def spoiled(label, **change):
        return [row | change if row["method"] == label and row["T"] == 256 else row for row in rows]

    label = {key: method.label for key, method in e2.METHODS.items()}
    for key in e2.EXACT:
        name = key.replace(" ", "-")
        assert failing(spoiled(label[key], error=1e-9)) - honest == {f"exact-{name}"}
        assert failing(spoiled(label[key], primal_gap=1e-15)) - honest == {f"run-{name}"}
        assert f"exact-{name}" in failing(spoiled(label[key], error=math.nan))
    constant = next(row["temp_bytes"] for row in rows if row["method"] == label["reverse"])
    assert "growth-reverse" in failing(spoiled(label["reverse"], temp_bytes=constant + 8))
    assert "growth-store-all" in failing(spoiled(label["store-all"], temp_bytes=10**6))
    assert "growth-binomial" in failing(spoiled(label["binomial"], states=99.0))
    assert "two-runs-short" in failing([row | {"error": 1.0} if row["method"] == e2.OTHER_RUN else row for row in rows])
