"""Receipts: each fact has a run that shows it, and a clean run that doesn't."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from diffsim import System, rollout, rollout_with_receipt
from diffsim.integrators import Phase, fixed_point_leapfrog, leapfrog
from tests.helpers import DUFFING, PENDULUM, SLIDE, SMALL, bits, each_small, gap, pendulum_acceleration

FACTS = ("residual", "step_inverse", "round_trip", "range_used", "off_grid")


def receipt_of(system, x0, params=(), *, h=0.1, steps=8):
    return rollout_with_receipt(system, x0, params, h=h, steps=steps)[1]


def small_receipt(small):
    return receipt_of(small.system, small.x0, small.params, h=small.h, steps=small.steps)


@each_small
def test_the_watched_run_is_the_run(small):
    x_T, receipt = rollout_with_receipt(small.system, small.x0, small.params, h=small.h, steps=small.steps)
    plain = rollout(small.system, small.x0, small.params, h=small.h, steps=small.steps)
    # Compiled together with what watches it, a step on floats may round differently; on a grid it cannot.
    assert bits(x_T) == bits(plain) if small.system.grid else gap(x_T, plain) < 1e-14
    assert int(receipt.steps) == int(receipt.finite_steps) == small.steps


@each_small
def test_a_clean_run_has_no_problems(small):
    receipt = small_receipt(small)
    assert receipt.problems() == []
    receipt.raise_if_bad()


@each_small
def test_a_fact_is_nan_exactly_when_the_system_has_no_function_for_it(small):
    receipt, system = small_receipt(small), small.system
    has = {
        "residual": system.residual,
        "step_inverse": system.unstep,
        "round_trip": system.unstep,
        "range_used": system.grid,
        "off_grid": system.grid,
    }
    assert {name: bool(np.isnan(getattr(receipt, name))) for name in FACTS} == {name: not has[name] for name in FACTS}


# Finite steps -----------------------------------------------------------------------------------------------------

SQUARE = System(step=lambda x, p, h: x * x, name="square")


@pytest.mark.parametrize("steps", [1, 8, 9, 10, 20])
def test_finite_steps_counts_the_steps_before_the_blow_up(steps):
    # x_n = 2^(2^n) is finite up to n = 9 in double precision, whose range ends below 2^1024.
    receipt = receipt_of(SQUARE, jnp.array(2.0), steps=steps)
    assert int(receipt.finite_steps) == min(steps, 9)
    assert (receipt.problems() == []) == (steps <= 9)


def test_finite_steps_does_not_count_states_that_come_back_from_infinity():
    pole = System(step=lambda x, p, h: 1 / (x - 1))
    # 2 → 1 → inf → 0 → -1: the state is finite again, the run isn't.
    receipt = receipt_of(pole, jnp.array(2.0), steps=4)
    assert int(receipt.finite_steps) == 1


def test_one_leaf_that_is_not_finite_is_enough():
    log = System(step=lambda x, p, h: {"a": x["a"], "b": jnp.log(x["b"])})
    receipt = receipt_of(log, {"a": jnp.ones(3), "b": jnp.full(2, 0.5)}, steps=2)
    assert int(receipt.finite_steps) == 1
    assert receipt.problems() == ["the state is not finite from step 2 of 2 on; a smaller h is the first thing to try"]


# Residual ---------------------------------------------------------------------------------------------------------


def test_residual_is_the_largest_over_entries_and_steps():
    # The step falls short of the root 0 by its own time: |R| is 0.1·n, largest at the end.
    short = System(
        step=lambda x, p, h: {"t": x["t"] + h, "y": jnp.stack([x["t"] + h, -(x["t"] + h) / 2])},
        residual=lambda x_next, x, p, h: x_next["y"],
    )
    receipt = receipt_of(short, {"t": jnp.array(0.0), "y": jnp.zeros(2)}, steps=5)
    assert float(receipt.residual) == pytest.approx(0.5, rel=1e-12)
    assert receipt.problems() == [
        "the residual reaches 5.0e-01, above 1.0e-06: the step does not end at a root of the residual"
    ]
    assert receipt.problems(residual=0.6) == []


def test_residual_shows_a_solve_that_stops_early():
    def crude(x, p, h):
        return SLIDE.system.finish(x.v - SLIDE.system.residual(SLIDE.system.finish(x.v, x, p, h), x, p, h), x, p, h)

    early = replace(SLIDE, system=replace(SLIDE.system, step=crude))
    assert float(small_receipt(SLIDE).residual) < 1e-13
    assert float(small_receipt(early).residual) > 1e-3


# The way back -----------------------------------------------------------------------------------------------------


def test_an_exact_inverse_makes_both_errors_zero():
    receipt = small_receipt(PENDULUM)
    assert float(receipt.step_inverse) == float(receipt.round_trip) == 0.0


def test_a_drifting_inverse_shows_its_drift():
    drifting = leapfrog(pendulum_acceleration)
    receipts = [receipt_of(drifting, PENDULUM.x0, PENDULUM.params, h=0.05, steps=steps) for steps in (10, 1000)]
    assert all(0 < float(r.step_inverse) < 1e-15 for r in receipts)
    assert 0 < float(receipts[0].round_trip) < float(receipts[1].round_trip) < 1e-10
    assert receipts[1].problems() == []
    assert "misses x0 by" in receipts[1].problems(round_trip=1e-16)[0]


def test_an_unstep_that_is_no_inverse_shows_by_how_much():
    # Forward x(1-hp), back by x/(1-hp) + 0.01: one step misses by 0.01, and so does each step of the way back.
    off = System(step=lambda x, p, h: x * (1 - h * p), unstep=lambda x, p, h: x / (1 - h * p) + 0.01)
    receipt = receipt_of(off, jnp.array(2.0), jnp.array(1.0), h=0.5, steps=3)
    assert float(receipt.step_inverse) == pytest.approx(0.01 / 2, rel=1e-12)
    assert float(receipt.round_trip) == pytest.approx(0.01 * (1 + 2 + 4) / 2, rel=1e-12)
    assert receipt.problems()[0].endswith("unstep is not the inverse of step over this horizon")


def test_the_way_back_from_a_run_that_starts_at_zero_is_relative_to_the_run():
    push = System(step=lambda x, p, h: x + h * p * (1 + x), unstep=lambda x, p, h: (x - h * p) / (1 + h * p))
    receipt = receipt_of(push, jnp.array(0.0), jnp.array(0.7), steps=50)
    assert 0 < float(receipt.round_trip) < 1e-12
    assert receipt.problems() == []


# The fixed-point grid ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("power", "exact"), [(-40, True), (-52, True), (-53, False), (-60, False)])
def test_range_used_crosses_one_when_the_grid_is_too_fine(power, exact):
    # The pendulum from rest at 1 rad: its angle never exceeds 1, its velocity reaches less than 2 = 2^53 · 2^-52.
    system = fixed_point_leapfrog(pendulum_acceleration, grid=2.0**power)
    receipt = receipt_of(system, Phase(jnp.array(1.0), jnp.array(0.0)), PENDULUM.params._replace(gravity=3.0), steps=20)
    used = float(receipt.range_used)
    assert 2.0 ** (-power - 53) <= used < 2.0 ** (-power - 52)
    assert (used < 1) == exact
    assert any("use a coarser grid or a wider float" in sentence for sentence in receipt.problems()) != exact


def test_range_used_knows_single_precision():
    system = fixed_point_leapfrog(pendulum_acceleration, grid=2.0**-20)
    single = lambda tree: jax.tree.map(lambda a: jnp.asarray(a, jnp.float32), tree)
    x0 = single(Phase(q=1.0, v=0.0))
    receipt = receipt_of(system, x0, single(PENDULUM.params._replace(gravity=0.1)), steps=2)
    assert float(receipt.range_used) == 2.0**-4  # 1 / (2^-20 · 2^24)
    assert receipt.range_used.dtype == jnp.float32


def test_off_grid_is_the_distance_of_the_start_from_the_grid():
    system = fixed_point_leapfrog(lambda q, p: -q, grid=0.25)
    receipt = receipt_of(system, Phase(q=jnp.array([0.5, 0.8]), v=jnp.zeros(2)), steps=2)
    assert float(receipt.off_grid) == pytest.approx(0.05, rel=1e-12)
    assert any("start from snap(x0, grid)" in sentence for sentence in receipt.problems())
    assert float(receipt_of(system, Phase(q=jnp.array([0.5, 0.75]), v=jnp.zeros(2)), steps=2).off_grid) == 0.0


# Sentences --------------------------------------------------------------------------------------------------------

BAD = {
    "finite": (SQUARE, jnp.array(1e200), "the state is not finite from step 1 of 8 on"),
    "residual": (System(step=lambda x, p, h: x, residual=lambda y, x, p, h: y), jnp.array(1.0), "the residual reaches 1.0e+00"),
    "range": (fixed_point_leapfrog(lambda q, p: -q, grid=2.0**-60), Phase(jnp.array(1.0), jnp.array(0.0)), "the state reaches 1.3e+02 times"),
    "off grid": (fixed_point_leapfrog(lambda q, p: 0 * q, grid=1.0), Phase(jnp.array(0.25), jnp.array(0.0)), "the initial state lies 2.5e-01 off"),
    "round trip": (System(step=lambda x, p, h: x + 1, unstep=lambda x, p, h: x), jnp.array(1.0), "running back from the last state misses x0 by 8.0e+00"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_raise_if_bad_says_one_sentence(name):
    system, x0, start = BAD[name]
    receipt = receipt_of(system, x0)
    with pytest.raises(FloatingPointError) as caught:
        receipt.raise_if_bad()
    message = str(caught.value)
    assert message.startswith(start)
    assert message.endswith(".") and "\n" not in message and ". " not in message
    assert message == receipt.problems()[0] + "."


# Transformations --------------------------------------------------------------------------------------------------


def test_a_receipt_works_under_jit():
    run = lambda p: rollout_with_receipt(DUFFING.system, DUFFING.x0, p, h=0.05, steps=7)[1]
    for inside, outside in zip(jax.jit(run)(DUFFING.params), run(DUFFING.params), strict=True):
        assert np.array_equal(inside, outside, equal_nan=True)


def test_a_batch_of_runs_gives_a_batch_of_facts_and_the_worst_is_told():
    starts = jnp.array([1.0, 2.0, 1e200, 0.5])
    _, receipt = jax.vmap(lambda x: rollout_with_receipt(SQUARE, x, (), h=1.0, steps=12))(starts)
    assert receipt.finite_steps.tolist() == [12, 9, 0, 12]
    assert receipt.problems() == ["the state is not finite from step 1 of 12 on; a smaller h is the first thing to try"]


def test_a_batch_is_clean_when_every_run_is():
    starts = jnp.array([1.0, 0.5])
    _, receipt = jax.vmap(lambda x: rollout_with_receipt(SQUARE, x, (), h=1.0, steps=12))(starts)
    assert receipt.problems() == []


def test_the_watched_run_can_be_differentiated():
    small = SMALL[0]
    watched = jax.grad(lambda p: rollout_with_receipt(small.system, small.x0, p, h=0.05, steps=7)[0])(small.params)
    plain = jax.grad(lambda p: rollout(small.system, small.x0, p, h=0.05, steps=7))(small.params)
    assert float(watched) == pytest.approx(float(plain), rel=1e-12)
