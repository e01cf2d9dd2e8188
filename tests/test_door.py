"""What is refused, before anything is compiled: what was asked, why it can't be, what to write instead."""

from dataclasses import dataclass, replace
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from diffsim import (
    AD,
    Adjoint,
    AdjointSolve,
    Binomial,
    Continuous,
    Converged,
    CustomAdjoint,
    Executed,
    Reverse,
    StoreAll,
    System,
    rollout,
    rollout_with_receipt,
    supported,
    trajectory,
    why_not,
)
from diffsim.adjoint import REALIZATIONS, REFERENTS
from tests.helpers import DUFFING, RETENTIONS, SMALL, each_small, types_unchecked

# Supported --------------------------------------------------------------------------------------------------------


@each_small
def test_supported_lists_exactly_what_the_small_system_declares(small):
    listed = {(a.referent.name, a.realization.name, a.retention.name) for a in supported(small.system, RETENTIONS)}
    wanted = {
        (*cell, retention.name) for cell in small.cells for retention in RETENTIONS if retention.name != "reverse"
    }
    # The continuous dynamics run backwards without an unstep, the steps don't.
    wanted |= {(*cell, "reverse") for cell in small.cells if small.reversible or cell[0] == "continuous"}
    assert listed == wanted
    assert all(why_not(small.system, adjoint) is None for adjoint in supported(small.system))


def test_the_small_systems_open_every_cell_of_the_table():
    assert set().union(*(small.cells for small in SMALL)) == {(r, how) for r in REFERENTS for how in REALIZATIONS}


@pytest.mark.parametrize("field", ["residual", "field", "unstep", "step_vjp", "root_vjp", "costate"])
def test_without_a_function_the_cells_that_need_it_are_gone_and_say_so(field):
    poorer = replace(DUFFING.system, **{field: None})
    gone = set(supported(DUFFING.system, RETENTIONS)) - set(supported(poorer, RETENTIONS))
    assert gone
    for adjoint in gone:
        assert field in why_not(poorer, adjoint)
    left = supported(poorer, RETENTIONS)
    assert left and set(left) < set(supported(DUFFING.system, RETENTIONS))


def test_two_missing_functions_are_named_together():
    bare = System(step=lambda x, p, h: x, name="bare")
    reason = why_not(bare, Adjoint.parse("executed/custom-adjoint/reverse"))
    assert reason == "the system 'bare' has no step_vjp and no unstep"


def test_a_step_that_stops_by_its_data_is_not_differentiated_by_its_code():
    halting = replace(DUFFING.system, dynamic_stop=True)
    left = {(a.referent, type(a.realization)) for a in supported(halting)}
    assert (Executed(), AD) not in left and (Executed(), AdjointSolve) not in left
    assert {(Executed(), CustomAdjoint), (Converged(), AdjointSolve), (Continuous(), AD)} <= left
    assert "fixed number of iterations" in why_not(halting, Adjoint())


# Refusals ---------------------------------------------------------------------------------------------------------


def decay_step(x, p, h):
    return x - h * p * x


@dataclass(frozen=True)
class Shadow:
    """A referent that has no pullback."""

    name: ClassVar[str] = "shadow"


class Counted:
    """A step that counts how often it is called."""

    def __init__(self, step):
        self.step, self.calls = step, 0

    def __call__(self, x, p, h):
        self.calls += 1
        return self.step(x, p, h)


@dataclass(frozen=True)
class Refusal:
    """A bad call: what of it differs from a good one, and what the message has to say.

    `asked`, `why` and `write` are the parts of the message; `calls` is how often `step` may have been called, which
    is never more than once, abstractly.
    """

    id: str
    change: dict
    error: type
    asked: str
    why: str
    write: str
    calls: int = 0


H_IS_A_SETTING = dict(why="the step size is a setting", write="write a plain Python number")
H_RUNS_FORWARD = dict(why="time steps run forward", write="write a finite step size greater than 0")
A_COUNT = dict(why="sets a loop's length", write="write a whole number of at least 1")
NO_DERIVATIVE = dict(why="which has no derivative", write="write jnp.asarray(…, float)")
CANNOT_TAKE = dict(error=TypeError, asked="step of 'decay' can't take this state", write="it was given x0", calls=1)

REFUSALS = [
    Refusal("h=0", dict(h=0), ValueError, "h=0", **H_RUNS_FORWARD),
    Refusal("h=0.0", dict(h=0.0), ValueError, "h=0.0", **H_RUNS_FORWARD),
    Refusal("h<0", dict(h=-0.1), ValueError, "h=-0.1", **H_RUNS_FORWARD),
    Refusal("h=nan", dict(h=float("nan")), ValueError, "h=nan", **H_RUNS_FORWARD),
    Refusal("h=inf", dict(h=float("inf")), ValueError, "h=inf", **H_RUNS_FORWARD),
    Refusal("h is an array", dict(h=jnp.asarray(0.1)), ValueError, "h is a", **H_IS_A_SETTING),
    Refusal("h is a numpy array", dict(h=np.asarray(0.1)), ValueError, "h is a ndarray", **H_IS_A_SETTING),
    Refusal("h is text", dict(h="0.1"), ValueError, "h is a str", **H_IS_A_SETTING),
    Refusal("h=True", dict(h=True), ValueError, "h is a bool", **H_IS_A_SETTING),
    Refusal("h=None", dict(h=None), ValueError, "h is a NoneType", **H_IS_A_SETTING),
    Refusal("steps=0", dict(steps=0), ValueError, "steps=0", **A_COUNT),
    Refusal("steps=-1", dict(steps=-1), ValueError, "steps=-1", **A_COUNT),
    Refusal("steps=2.5", dict(steps=2.5), ValueError, "steps=2.5", **A_COUNT),
    Refusal("steps=3.0", dict(steps=3.0), ValueError, "steps=3.0", **A_COUNT),
    Refusal("steps=True", dict(steps=True), ValueError, "steps=True", **A_COUNT),
    Refusal("steps is text", dict(steps="3"), ValueError, "steps='3'", **A_COUNT),
    Refusal("steps is an array", dict(steps=jnp.asarray(3)), ValueError, "steps=", **A_COUNT),
    Refusal("integer state", dict(x0=jnp.arange(3)), ValueError, "x0 has dtype int64", **NO_DERIVATIVE),
    Refusal("Python integer state", dict(x0=1), ValueError, "x0 has dtype int64", **NO_DERIVATIVE),
    Refusal("bool state", dict(x0=jnp.array(True)), ValueError, "x0 has dtype bool", **NO_DERIVATIVE),
    Refusal("complex state", dict(x0=jnp.array(1j)), ValueError, "x0 has dtype complex128", why="", write="write "),
    Refusal("integer parameter", dict(params={"k": 2}), ValueError, "params['k'] has dtype int64", **NO_DERIVATIVE),
    Refusal("bool parameter", dict(params=(1.0, True)), ValueError, "params[1] has dtype bool", **NO_DERIVATIVE),
    Refusal("text among the parameters", dict(params={"k": 1.0, "solver": "cg"}), TypeError, "params['solver'] is a str", "not an array", "keep such settings out of params"),
    Refusal("a function in the state", dict(x0={"f": len}), TypeError, "x0['f'] is a builtin_function_or_method", "not an array", "keep such settings out of x0"),
    Refusal("empty state", dict(x0=()), ValueError, "x0 has no arrays", "no state to advance", "write at least one array"),
    Refusal("state of None", dict(x0=None), ValueError, "x0 has no arrays", "no state to advance", "write at least one array"),
    Refusal("shapes that don't fit", dict(x0=jnp.ones(3), params=jnp.ones(4)), why="(3,)", **CANNOT_TAKE),
    Refusal("parameters of another structure", dict(step=lambda x, p, h: x * p["k"], params=jnp.ones(2)), why="", **CANNOT_TAKE),
    Refusal("a parameter that isn't there", dict(step=lambda x, p, h: x * p["k"], params={"m": 1.0}), why="'k'", **CANNOT_TAKE),
    Refusal("an attribute that isn't there", dict(step=lambda x, p, h: x.q), why="no attribute", **CANNOT_TAKE),
    Refusal("another structure", dict(step=lambda x, p, h: (x, x)), TypeError, "step of 'decay' returns another structure", "PyTreeDef", "return a state of the same structure", 1),
    Refusal("a result of None", dict(step=lambda x, p, h: None), TypeError, "step of 'decay' returns another structure", "PyTreeDef", "return a state of the same structure", 1),
    Refusal("another shape", dict(step=lambda x, p, h: jnp.stack([x, x])), TypeError, "step of 'decay' turns x0 from", "float64[3] into float64[2, 3]", "return the shape that came in", 1),
    Refusal("another dtype", dict(x0=jnp.ones(3, jnp.float32), params=jnp.ones(3)), TypeError, "step of 'decay' turns x0 from", "float32[3] into float64[3]", "give state and parameters one dtype", 1),
    Refusal("one leaf of another dtype", dict(x0={"q": jnp.ones(2), "v": jnp.ones(2, jnp.float32)}, step=lambda x, p, h: {"q": x["q"], "v": x["v"] + h * x["q"]}), TypeError, "x0['v']", "float32[2] into float64[2]", "one dtype", 1),
    Refusal("no unstep", dict(adjoint=Adjoint(retention=Reverse())), ValueError, "adjoint=executed/ad/reverse can't be had", "the system 'decay' has no unstep", "Write one of executed/ad"),
    Refusal("no step_vjp", dict(adjoint=Adjoint(realization=CustomAdjoint())), ValueError, "adjoint=executed/custom-adjoint/store-all", "the system 'decay' has no step_vjp", "Write one of executed/ad"),
    Refusal("no residual", dict(adjoint=Adjoint(Converged(), AdjointSolve())), ValueError, "adjoint=converged/adjoint-solve/store-all", "the system 'decay' has no residual", "Write one of executed/ad"),
    Refusal("no field", dict(adjoint=Adjoint(Continuous(), AD(), Binomial(snapshots=3))), ValueError, "adjoint=continuous/ad/binomial(3)", "the system 'decay' has no field", "Write one of executed/ad"),
    Refusal("a referent without pullback", dict(adjoint=Adjoint(referent=Shadow())), ValueError, "adjoint=shadow/ad/store-all can't be had", "there is no pullback for shadow/ad", "Write one of executed/ad"),
]  # fmt: skip


def call(change, function=rollout):
    """Make the good call with one thing changed; returns how often `step` was called, and what was raised."""
    good = {"step": decay_step, "x0": jnp.ones(3), "params": jnp.ones(3), "h": 0.1, "steps": 3, "adjoint": Adjoint()}
    arguments = {**good, **change}
    step = Counted(arguments.pop("step"))
    x0, params = arguments.pop("x0"), arguments.pop("params")
    if function is not rollout:
        del arguments["adjoint"]
    with types_unchecked():
        try:
            function(System(step=step, name="decay"), x0, params, **arguments)
        except Exception as error:
            return step.calls, error
    return step.calls, None


@pytest.mark.parametrize("refusal", REFUSALS, ids=lambda refusal: refusal.id)
def test_a_bad_call_is_refused_in_one_line_before_anything_is_compiled(refusal):
    calls, error = call(refusal.change)
    assert type(error) is refusal.error
    message = str(error)
    for part in (refusal.asked, refusal.why, refusal.write):
        assert part in message
    assert "\n" not in message
    assert calls == refusal.calls


def test_the_good_call_that_all_of_these_differ_from_is_accepted():
    calls, error = call({})
    assert error is None
    assert calls > 1  # once abstractly, and again to compile


@pytest.mark.parametrize("refusal", [r for r in REFUSALS if "adjoint" not in r.change], ids=lambda refusal: refusal.id)
@pytest.mark.parametrize("function", [trajectory, rollout_with_receipt])
def test_the_other_runs_refuse_the_same(function, refusal):
    calls, error = call(refusal.change, function)
    assert (calls, str(error)) == (refusal.calls, str(call(refusal.change)[1]))


def test_a_traced_step_size_is_refused():
    run = lambda h: rollout(System(step=decay_step), jnp.ones(3), jnp.ones(3), h=h, steps=3)
    with (
        types_unchecked(),
        pytest.raises(ValueError, match="the step size is a setting.*put a factor on it into params"),
    ):
        jax.jit(run)(0.1)


def test_the_claims_that_a_refusal_offers_can_be_read_and_are_legal():
    poorer = replace(DUFFING.system, step_vjp=None, unstep=None)
    with pytest.raises(ValueError, match="Write one of ") as caught:
        rollout(poorer, DUFFING.x0, DUFFING.params, h=0.1, steps=2, adjoint=Adjoint(realization=CustomAdjoint()))
    offered = set()
    for group in str(caught.value).split("Write one of ")[1].rstrip(".").split("; or "):
        cells, retentions = (words.split(", ") for words in group.split(" with "))
        offered |= {Adjoint.parse(f"{cell}/{retention}") for cell in cells for retention in retentions}
    assert offered == set(supported(poorer))


@pytest.mark.parametrize(
    "wrong", ["executed/ad/store-all", None, Adjoint, StoreAll()], ids=["text", "none", "class", "retention"]
)
def test_an_adjoint_of_the_wrong_kind_is_answered_with_how_to_write_one(wrong):
    _, error = call({"adjoint": wrong})
    assert type(error) is TypeError
    assert "adjoint" in str(error) and "Adjoint.parse(" in str(error)


@pytest.mark.parametrize(
    "adjoint",
    [Adjoint(referent=Executed), Adjoint(realization=AD), Adjoint(retention=StoreAll)],
    ids=["referent", "realization", "retention"],
)
def test_a_class_in_the_place_of_a_choice_is_answered_with_brackets(adjoint):
    _, error = call({"adjoint": adjoint})
    assert type(error) is TypeError
    assert "()" in str(error)


@pytest.mark.parametrize("h", [1, 0.5, np.float64(0.5), np.float32(0.5)], ids=repr)
@pytest.mark.parametrize("steps", [2, np.int64(2)], ids=repr)
def test_numbers_of_any_kind_will_do_for_settings(h, steps):
    calls, error = call({"h": h, "steps": steps})
    assert error is None
