"""The two seams: a pullback and a retention written here, in a few lines each, work like the built-in ones."""

import inspect
from dataclasses import dataclass, replace
from functools import reduce
from itertools import accumulate
from typing import ClassVar

import jax
import jax.numpy as jnp
import pytest

from diffsim import AD, Adjoint, System, rollout, supported, why_not
from diffsim.adjoint import REFERENTS
from diffsim.pullback import PULLBACKS, RECOVERIES, Recovery, Rule, executed_ad
from diffsim.retention import RETENTIONS
from tests.helpers import DUFFING, PENDULUM, bits, gap, gradient, plain_gradient, primal


@dataclass(frozen=True)
class SmallAngle:
    """A referent of our own: the pendulum's linearised equation of motion, whatever was run."""

    name: ClassVar[str] = "small-angle"


def small_angle(system, how, h, x, x_next, p, lam):
    def step(x, p):
        v = x.v - h * p.gravity / p.length * (x.q + h / 2 * x.v)
        return type(x)(x.q + h / 2 * (x.v + v), v)

    return jax.vjp(step, x, p)[1](lam)


@dataclass(frozen=True)
class Unrolled:
    name: ClassVar[str] = "unrolled"

    def forward(self, step, x0, steps):
        xs = list(accumulate(range(steps), lambda x, _: step(x), initial=x0))
        return xs[-1], xs

    def backward(self, step, unstep, saved, steps, consume, carry):
        return reduce(lambda carry, n: consume(saved[n], saved[n + 1], carry), reversed(range(steps)), carry)


@pytest.mark.parametrize("seam", [small_angle, Unrolled], ids=["pullback", "retention"])
def test_it_takes_eight_lines(seam):
    lines = [line for line in inspect.getsource(seam).splitlines() if line.strip()]
    assert len(lines) <= 8


@pytest.fixture
def referent(monkeypatch):
    monkeypatch.setitem(REFERENTS, SmallAngle.name, SmallAngle)
    monkeypatch.setitem(PULLBACKS, (SmallAngle, AD), Rule(small_angle, "step"))


@pytest.fixture
def retention(monkeypatch):
    monkeypatch.setitem(RETENTIONS, Unrolled.name, Unrolled)


def test_without_their_table_entries_neither_is_known():
    with pytest.raises(ValueError, match="'small-angle' is no referent; write one of executed, converged, continuous"):
        Adjoint.parse("small-angle/ad/store-all")
    with pytest.raises(ValueError, match="'unrolled' is no retention"):
        Adjoint.parse("executed/ad/unrolled")
    assert "there is no pullback for small-angle/ad" in why_not(PENDULUM.system, Adjoint(referent=SmallAngle()))


def test_a_referent_in_the_table_is_parsed_and_listed(referent):
    assert Adjoint.parse("small-angle/ad/checkpoint(3)").referent == SmallAngle()
    listed = [str(a) for a in supported(PENDULUM.system) if a.referent == SmallAngle()]
    # No way to run it backwards is known, and so `reverse` is missing.
    assert listed == [f"small-angle/ad/{r}" for r in ("store-all", "checkpoint(8)", "binomial(4)", "recompute")]
    assert why_not(PENDULUM.system, Adjoint.parse("small-angle/ad/reverse")) == (
        "no way is known to run the small-angle referent backwards"
    )


def test_its_gradient_is_that_of_the_linearised_run(referent):
    linear = System(step=lambda x, p, h: type(x)(*_linear_step(x, p, h)))
    last = lambda system, claim: jax.grad(
        lambda p: rollout(system, PENDULUM.x0, p, h=0.05, steps=7, adjoint=Adjoint.parse(claim)).q
    )(PENDULUM.params)
    # The pullback is evaluated along the run, which is not linear: the two agree as the angle becomes small.
    small = replace(PENDULUM, x0=jax.tree.map(lambda a: 1e-5 * a, PENDULUM.x0))
    assert gap(last(PENDULUM.system, "small-angle/ad/store-all"), last(linear, "executed/ad/store-all")) > 1e-3
    near = lambda system, claim: gradient(replace(small, system=system), Adjoint.parse(claim))[1]
    coarse = replace(PENDULUM.system, grid=None)
    assert gap(near(coarse, "small-angle/ad/store-all"), near(linear, "executed/ad/store-all")) < 1e-6


def _linear_step(x, p, h):
    v = x.v - h * p.gravity / p.length * (x.q + h / 2 * x.v)
    return x.q + h / 2 * (x.v + v), v


def test_it_works_with_every_retention_and_leaves_the_primal_alone(referent):
    cells = [a for a in supported(PENDULUM.system) if a.referent == SmallAngle()]
    found = [gradient(PENDULUM, adjoint) for adjoint in cells]
    for value, slopes in found:
        assert bits(value) == bits(primal(PENDULUM))
        assert gap(slopes, found[0][1]) < 1e-12
    assert gap(found[0][1], plain_gradient(PENDULUM)) > 1e-3


def test_with_a_recovery_in_its_table_it_can_be_reversed_too(referent, monkeypatch):
    unstep = Recovery(lambda system, h, x_next, p: system.unstep(x_next, p, h), "unstep")
    monkeypatch.setitem(RECOVERIES, SmallAngle, unstep)
    slopes = gradient(PENDULUM, Adjoint.parse("small-angle/ad/reverse(0)"))[1]
    assert gap(slopes, gradient(PENDULUM, Adjoint.parse("small-angle/ad/store-all"))[1]) < 1e-12


def test_a_retention_in_the_table_is_parsed_and_listed(retention):
    assert Adjoint.parse("executed/custom-adjoint/unrolled").retention == Unrolled()
    assert len(supported(DUFFING.system, (Unrolled(),))) == len(PULLBACKS)


@pytest.mark.parametrize("cell", ["executed/custom-adjoint", "converged/adjoint-solve", "continuous/ad"])
def test_it_works_with_the_pullbacks_of_every_referent(retention, cell):
    short = replace(DUFFING, steps=3)
    ours, stored = (gradient(short, Adjoint.parse(f"{cell}/{retention}")) for retention in ("unrolled", "store-all"))
    assert gap(ours, stored) < 1e-12


def test_a_retention_need_not_be_in_the_table_to_be_used():
    slope = jax.grad(
        lambda p: rollout(DUFFING.system, DUFFING.x0, p, h=0.05, steps=3, adjoint=Adjoint(retention=Unrolled()))[
            "q"
        ].sum()
    )
    assert gap(slope(DUFFING.params), jax.grad(lambda p: _by_hand(p))(DUFFING.params)) < 1e-12


def _by_hand(p):
    x = jax.tree.map(jnp.asarray, DUFFING.x0)
    for _ in range(3):
        x = DUFFING.system.step(x, p, 0.05)
    return x["q"].sum()


def test_a_planted_wrong_pullback_is_noticed(referent, monkeypatch):
    """A rule under a built-in key is used, and a wrong one shows: the table is what counts."""
    doubled = Rule(lambda *cell: jax.tree.map(lambda a: 2 * a, executed_ad(*cell)), "step")
    monkeypatch.setitem(PULLBACKS, (SmallAngle, AD), doubled)
    fresh = replace(DUFFING, system=replace(DUFFING.system, name="fresh"), steps=1)
    slopes = gradient(fresh, Adjoint(referent=SmallAngle()))[1]
    twice = jax.tree.map(lambda a: 2 * a, plain_gradient(replace(DUFFING, steps=1)))
    assert gap(slopes, twice) < 1e-12
