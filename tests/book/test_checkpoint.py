"""Checkpoints: what passes, what fails, and the table that a reader sees."""

import math
import re

import jax.numpy as jnp
import numpy as np
import pytest

from diffsim.book import CheckFailed, check, check_claims, checkpoint_table
from diffsim.book import checkpoint as module
from diffsim.experiments import Claim, Result


@pytest.fixture(autouse=True)
def fresh_page(monkeypatch):
    monkeypatch.setattr(module, "_rows", [])


PASSES = {
    "equal": (2.0, 2.0, {}),
    "relative": (1.0 + 1e-9, 1.0, {"rtol": 1e-8}),
    "absolute": (1e-9, 0.0, {"atol": 1e-8}),
    "both tolerances add up": (1.15, 1.0, {"rtol": 0.1, "atol": 0.1}),
    "relative to a negative number": (-1.01, -1.0, {"rtol": 0.1}),
    "at most": (1.0, None, {"at_most": 1.0}),
    "at least": (1.0, None, {"at_least": 1.0}),
    "a bound of zero": (-1.0, None, {"at_most": 0}),
    "array": (np.array([1.0, 2.0]), [1.0, 2.0], {}),
    "jax array": (jnp.ones(3), np.ones(3), {}),
    "array below a bound": (np.array([1.0, 2.0]), None, {"at_most": 2.0}),
    "integer against float": (3, 3.0, {}),
    "text": ("leapfrog", "leapfrog", {}),
    "truth": (True, True, {}),
    "false is an expectation": (False, False, {}),
    "zero is an expectation": (0.0, 0.0, {}),
    "truth from NumPy": (np.bool_(True), True, {}),
    "truth from JAX": (jnp.array(True), True, {}),
    "truths": (np.array([True, False]), [True, False], {}),
    "infinity is met by itself": (np.array([math.inf, 1.0]), [math.inf, 1.0], {"rtol": 1e-3}),
    "large integer": (2**70, 2**70, {}),
    "large integer within": (2**60 + 1, 2**60, {"rtol": 1e-15}),
    "large integer at its bound": (2**60, None, {"at_most": 2**60}),
}

FAILS = {
    "unequal": (2.0, 2.0 + 1e-15, {}),
    "relative": (1.0 + 1e-7, 1.0, {"rtol": 1e-8}),
    "relative tolerance around zero": (1e-300, 0.0, {"rtol": 1.0}),
    "absolute": (1e-7, 0.0, {"atol": 1e-8}),
    "at most": (math.nextafter(1.0, 2.0), None, {"at_most": 1.0}),
    "at least": (math.nextafter(1.0, 0.0), None, {"at_least": 1.0}),
    "one entry": (np.array([1.0, 2.1]), [1.0, 2.0], {"rtol": 0.01}),
    "one entry above a bound": (np.array([1.0, 3.0]), None, {"at_most": 2.0}),
    "NaN": (math.nan, 1.0, {"rtol": 1.0, "atol": 1.0}),
    "NaN against NaN": (math.nan, math.nan, {}),
    "NaN below a bound": (math.nan, None, {"at_most": 1.0}),
    "NaN above a bound": (np.array([1.0, math.nan]), None, {"at_least": 0.0}),
    "shape": (np.ones(3), np.ones(2), {"rtol": 1.0}),
    "a shape that would broadcast": (np.ones(3), 1.0, {}),
    "nothing to compare": (np.ones(0), np.ones(0), {}),
    "nothing below a bound": (np.ones(0), None, {"at_most": 1.0}),
    "text": ("leapfrog", "euler", {}),
    "text against a number": ("1.0", 1.0, {"rtol": 1.0}),
    "number against text": (1.0, "1.0", {}),
    "truth": (False, True, {}),
    "one is not true": (1, True, {}),
    "true is not one": (True, 1.0, {}),
    "true is no number below a bound": (True, None, {"at_most": 1.0}),
    "truths": (np.array([True, True]), [True, False], {}),
    "no truths": (np.ones(0, bool), np.ones(0, bool), {}),
    "infinity instead of a number": (math.inf, 1.0, {"rtol": 0.1, "atol": 0.1}),
    "a number instead of infinity": (1.0, math.inf, {"rtol": 0.1}),
    "the other infinity": (-math.inf, math.inf, {"rtol": 0.1}),
    "the last digit of a large integer": (2**53 + 1, 2**53, {}),
    "the last digit in an array": (np.array([2**60 + 1]), np.array([2**60]), {}),
    "a large integer against a float": (2**53 + 1, 2.0**53, {}),
    "a large integer above a bound": (2**60 + 1, None, {"at_most": 2**60}),
    "a stub": (..., 3.0, {"rtol": 0.1}),
    "a stub below a bound": (..., None, {"at_most": 1.0}),
    "a ragged list": ([[1.0], [1.0, 2.0]], [1.0, 2.0], {}),
}


@pytest.mark.parametrize("name", PASSES)
def test_passes(name, capsys):
    got, want, options = PASSES[name]
    check(name, got, want, **options, why="it should")
    assert capsys.readouterr().out.startswith(f"ok: {name}: ")


@pytest.mark.parametrize("name", FAILS)
def test_fails(name, capsys):
    got, want, options = FAILS[name]
    with pytest.raises(CheckFailed, match=f"^FAILED: {re.escape(name)}: "):
        check(name, got, want, **options, why="it should not")
    assert capsys.readouterr().out == ""


def test_a_failed_check_is_an_assertion_error():
    with pytest.raises(AssertionError):
        check("sum", 2, 3, why="counted")


def test_the_message_names_value_expectation_tolerance_and_reason():
    with pytest.raises(CheckFailed) as failure:
        check("energy drift", 0.25, 0.125, rtol=1e-3, atol=1e-6, why="the leapfrog is symplectic")
    message = str(failure.value)
    for part in ("energy drift", "0.25", "0.125", "1e-06 absolute", "0.001 relative", "the leapfrog is symplectic"):
        assert part in message


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"want": 1.0, "at_most": 1.0},
        {"at_most": 1.0, "at_least": 0.0},
        {"want": 1.0, "at_most": 1.0, "at_least": 1.0},
    ],
)
def test_exactly_one_expectation(options):
    with pytest.raises(ValueError, match="exactly one of want, at_most and at_least") as failure:
        check("x", 1.0, **options, why="because")
    assert "'x'" in str(failure.value)
    assert module._rows == []


@pytest.mark.parametrize("bound", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("side", ["at_most", "at_least"])
def test_a_bound_that_cannot_judge(side, bound):
    with pytest.raises(ValueError, match=f"can't judge by {side}=.*; write a finite number."):
        check("x", 1.0, **{side: bound}, why="because")
    assert module._rows == []


@pytest.mark.parametrize("bound", [[1.0, 2.0], "small", ..., np.bool_(True)])
def test_a_bound_that_is_no_number(bound):
    # Under pytest the signature refuses it first, with a TypeError.
    with pytest.raises((ValueError, TypeError)):
        check("x", 1.0, at_most=bound, why="because")
    assert not module._is_finite_number(bound) and module._rows == []


@pytest.mark.parametrize("tolerance", [{"rtol": -1}, {"atol": math.inf}, {"rtol": math.nan}])
def test_a_tolerance_that_cannot_judge(tolerance):
    with pytest.raises(ValueError, match="can't judge within"):
        check("x", 1.0, 1.0, **tolerance, why="because")


@pytest.mark.parametrize(
    ("got", "want", "remark"),
    [
        (np.arange(100.0) + np.eye(100)[37], np.arange(100.0), "worst at [37]: 38.0, not 37.0"),
        ([[1, 2], [3, 2**60 + 1]], [[1, 2], [3, 2**60]], f"worst at [1, 1]: {2**60 + 1}, not {2**60}"),
        ([1.0, math.nan, 9.0], [1.0, 2.0, 3.0], "worst at [1]: nan, not 2.0"),
        (1.0 + 1e-9, 1.0, "to all digits 1.000000001, not 1.0"),
        (np.ones(3), np.ones(2), "of shape (3,) instead of (2,)"),
    ],
)
def test_a_failure_says_where(got, want, remark):
    with pytest.raises(CheckFailed) as failure:
        check("x", got, want, why="because")
    assert remark in str(failure.value)


@pytest.mark.parametrize("why", ["", "  "])
def test_a_reason_is_required(why):
    with pytest.raises(ValueError, match="needs a reason"):
        check("x", 1.0, 1.0, why=why)
    with pytest.raises(TypeError):
        check("x", 1.0, 1.0)
    assert module._rows == []


def test_long_arrays_are_summed_up(capsys):
    check("many", np.arange(100.0), np.arange(100.0), why="the same")
    assert "100 values from 0 to 99" in capsys.readouterr().out


def test_the_table_is_accessible_and_escaped():
    check("a < b", "<script>alert(1)</script>", "<script>alert(1)</script>", why='"quoted" & <b>bold</b>')
    check("bound", 1.0, at_most=2.0, why="small")
    with pytest.raises(CheckFailed):
        check("wrong", 1.0, 2.0, why="no")
    table = checkpoint_table()._repr_html_()
    assert "<script>" not in table and "<b>" not in table
    assert "a &lt; b" in table and "&lt;script&gt;" in table and "&amp;" in table
    assert "<caption>3 checkpoints of this page</caption>" in table
    assert table.count('scope="col"') == 5
    assert table.count('scope="row"') == 3
    assert table.count("<td>yes</td>") == 2 and table.count("<td>NO</td>") == 1
    assert 'tabindex="0"' in table and 'role="region"' in table and "aria-label=" in table


def test_the_table_is_a_snapshot_that_a_terminal_can_show():
    check("one", 1.0, 1.0, why="first")
    before = checkpoint_table()
    check("two", 2.0, 2.0, why="second")
    assert repr(before).splitlines() == ["1 checkpoints", "ok: one: 1, expected 1 exactly. first"]
    assert "two" in repr(checkpoint_table())


def test_claims_become_checkpoints(capsys):
    claims = [Claim.at_most("small", "the error", 1e-16, 1e-12)]
    check_claims(Result("demo", {}, {}, [], claims))
    assert capsys.readouterr().out == "ok: small: 1e-16, expected <= 1e-12. the error\n"
    with pytest.raises(CheckFailed, match="FAILED: big"):
        check_claims(Result("demo", {}, {}, [], [Claim.at_most("big", "the error", 1.0, 1e-12)]))
    assert len(module._rows) == 2
