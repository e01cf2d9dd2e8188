"""The claim: frozen, hashable, and what it prints is what it reads."""

from dataclasses import FrozenInstanceError, fields
from itertools import product
from math import inf

import pytest

from diffsim import (
    AD,
    Adjoint,
    AdjointSolve,
    Binomial,
    Checkpoint,
    Continuous,
    Converged,
    CustomAdjoint,
    Executed,
    Recompute,
    Reverse,
    StoreAll,
)
from diffsim.adjoint import REALIZATIONS, REFERENTS
from diffsim.linear import LINEAR_SOLVES
from diffsim.retention import RETENTIONS
from tests.helpers import types_unchecked

REFERENT = (Executed(), Converged(), Continuous())
REALIZATION = (AD(), AdjointSolve(), *(AdjointSolve(linear=name) for name in LINEAR_SOLVES), CustomAdjoint())
RETENTION = (
    StoreAll(),
    Checkpoint(every=64),
    Checkpoint(every=1),
    Binomial(snapshots=12),
    Recompute(),
    Reverse(),
    Reverse(tol=0.0),
    Reverse(tol=1e-5),
    Reverse(tol=inf),
)
EVERY = [Adjoint(*choice) for choice in product(REFERENT, REALIZATION, RETENTION)]


def test_the_lists_above_hold_every_kind():
    for choices, table in ((REFERENT, REFERENTS), (REALIZATION, REALIZATIONS), (RETENTION, RETENTIONS)):
        assert {type(choice) for choice in choices} == set(table.values())


@pytest.mark.parametrize("adjoint", EVERY, ids=str)
def test_parse_reads_what_str_prints(adjoint):
    again = Adjoint.parse(str(adjoint))
    assert again == adjoint
    assert hash(again) == hash(adjoint)
    assert str(again) == str(adjoint)


def test_different_claims_are_spelled_differently():
    assert len({str(adjoint) for adjoint in EVERY}) == len(set(EVERY))


@pytest.mark.parametrize(
    ("claim", "adjoint"),
    [
        ("executed/ad/store-all", Adjoint()),
        ("executed/custom-adjoint/reverse", Adjoint(Executed(), CustomAdjoint(), Reverse())),
        ("converged/adjoint-solve/checkpoint(32)", Adjoint(Converged(), AdjointSolve(), Checkpoint(every=32))),
        ("converged/adjoint-solve(cg)/store-all", Adjoint(Converged(), AdjointSolve(linear="cg"), StoreAll())),
        ("continuous/adjoint-solve/binomial(12)", Adjoint(Continuous(), AdjointSolve(), Binomial(snapshots=12))),
        ("continuous/ad/recompute", Adjoint(Continuous(), AD(), Recompute())),
        ("executed/custom-adjoint/reverse(inf)", Adjoint(Executed(), CustomAdjoint(), Reverse(tol=inf))),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_claims_of_the_design_are_spelled_so(claim, adjoint):
    assert Adjoint.parse(claim) == adjoint
    assert str(adjoint) == claim


def test_spaces_around_a_claim_and_its_settings_do_not_matter():
    assert Adjoint.parse(" executed/ad/checkpoint( 64 )\n") == Adjoint(retention=Checkpoint(every=64))


@pytest.mark.parametrize("adjoint", EVERY[:: len(EVERY) // 8], ids=str)
def test_an_adjoint_and_its_axes_are_frozen(adjoint):
    for thing in (adjoint, adjoint.referent, adjoint.realization, adjoint.retention):
        for name in [f.name for f in fields(thing)] or ["name"]:
            with pytest.raises(FrozenInstanceError):
                setattr(thing, name, None)


def test_one_setting_makes_another_adjoint():
    assert Adjoint(retention=Checkpoint(every=8)) != Adjoint(retention=Checkpoint(every=9))
    assert Adjoint(retention=Reverse()) != Adjoint(retention=Reverse(tol=inf))
    assert len({Adjoint(), Adjoint(), Adjoint(retention=StoreAll())}) == 1


@pytest.mark.parametrize(
    ("claim", "word", "write"),
    [
        ("", "''", "referent/realization/retention"),
        ("executed/ad", "'executed/ad'", "referent/realization/retention"),
        ("executed/ad/store-all/x", "'executed/ad/store-all/x'", "referent/realization/retention"),
        ("exact/ad/store-all", "'exact'", "executed, converged, continuous"),
        ("Executed/ad/store-all", "'Executed'", "executed, converged, continuous"),
        ("executed/autodiff/store-all", "'autodiff'", "ad, adjoint-solve, custom-adjoint"),
        ("executed/ad/everything", "'everything'", "store-all, checkpoint, binomial, recompute, reverse"),
        ("executed/ad/", "''", "store-all, checkpoint"),
        ("executed/ad/checkpoint", "'checkpoint'", "write checkpoint(every)"),
        ("executed/ad/checkpoint()", "'checkpoint()'", "write checkpoint(every)"),
        ("executed/ad/checkpoint(8,9)", "'checkpoint(8,9)'", "write checkpoint(every)"),
        ("executed/ad/binomial", "'binomial'", "write binomial(snapshots)"),
        ("executed/ad/store-all(3)", "'store-all(3)'", "write store-all"),
        ("executed(2)/ad/store-all", "'executed(2)'", "write executed"),
        ("executed/ad/checkpoint(0)", "'checkpoint(0)'", "write a whole number of at least 1"),
        ("executed/ad/checkpoint(-4)", "'checkpoint(-4)'", "write a whole number of at least 1"),
        ("executed/ad/reverse(-1)", "'reverse(-1)'", "write Reverse()"),
        ("executed/ad/reverse(nan)", "'reverse(nan)'", "write Reverse()"),
        ("converged/adjoint-solve(lu)/store-all", "'adjoint-solve(lu)'", "write one of dense, cg, gmres"),
        ("executed/ad/checkpoint(8", "'checkpoint(8'", "store-all, checkpoint"),
    ],
)
def test_a_claim_that_cannot_be_read_is_answered_with_the_word_and_what_to_write(claim, word, write):
    with pytest.raises(ValueError) as caught:
        Adjoint.parse(claim)
    message = str(caught.value)
    assert word in message
    assert write in message
    assert "\n" not in message and message.endswith(".")


@pytest.mark.parametrize("text", ["sqrt", "6.5", "1e3"])
def test_a_setting_that_is_no_number_is_named_with_what_it_should_be(text):
    with pytest.raises(ValueError) as caught:
        Adjoint.parse(f"executed/ad/checkpoint({text})")
    assert f"checkpoint({text})" in str(caught.value)
    assert "write checkpoint(every)" in str(caught.value)


@pytest.mark.parametrize("every", [0, -1, 2.0, True, "8"], ids=repr)
@pytest.mark.parametrize(("kind", "setting"), [(Checkpoint, "every"), (Binomial, "snapshots")])
def test_a_count_of_states_is_a_whole_number_of_at_least_one(kind, setting, every):
    with (
        types_unchecked(),
        pytest.raises(ValueError, match=rf"{kind.__name__}\({setting}=.*whole number of at least 1"),
    ):
        kind(every)


def test_a_negative_tolerance_is_refused():
    with pytest.raises(ValueError, match="relative error cannot be negative"):
        Reverse(tol=-1.0)
