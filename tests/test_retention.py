"""Retentions: the same pairs in the same order, to the bit; and the memory that each is meant to take."""

from dataclasses import dataclass, replace
from functools import cache, partial
from math import inf, isqrt

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from diffsim import (
    AD,
    Adjoint,
    Binomial,
    Checkpoint,
    CustomAdjoint,
    Executed,
    Recompute,
    Reverse,
    StoreAll,
    System,
    rollout,
)
from diffsim.retention import RETENTIONS
from tests.helpers import bits, slope, types_unchecked

MODULUS = 2.0**26
FACTOR = 5.0


# A pseudo-random sequence of whole numbers: every state differs from every other, and no operation rounds.
def shuffle(x):
    return {"a": jnp.mod(FACTOR * x["a"] + 3.0, MODULUS), "b": jnp.flip(x["b"]) + x["a"]}


def unshuffle(x):
    a = _divided(x["a"] - 3.0)
    return {"a": a, "b": jnp.flip(x["b"] - a)}


def _divided(b):
    """The a in [0, 2^26) with 5 a = b modulo 2^26."""
    lifted = b + MODULUS * jnp.arange(5.0)
    return jnp.sum(jnp.where(jnp.mod(lifted, FACTOR) == 0, jnp.mod(lifted / FACTOR, MODULUS), 0.0))


# Deterministic chaos: a state that is off by one rounding is soon off altogether.
def chaos(x):
    return {"a": 3.9 * x["a"] * (1 - x["a"]), "b": x["b"] + x["a"]}


STARTS = {
    shuffle: {"a": np.float64(12345.0), "b": np.array([1.0, 2.0, 4.0])},
    chaos: {"a": np.float64(0.3), "b": np.zeros(3)},
}
LONGEST = 150


@partial(jax.jit, static_argnums=(0, 1, 2, 4))
def collect(retention, step, unstep, x0, steps):
    """Everything that `consume` is handed, in the order in which it is handed: (pairs, x_T, number of calls)."""

    def consume(x, x_next, carry):
        calls, befores, afters = carry
        write = lambda row, a: row.at[calls].set(a)
        return calls + 1, jax.tree.map(write, befores, x), jax.tree.map(write, afters, x_next)

    # One row more than there are steps, so that a call too many shows.
    rows = jax.tree.map(lambda a: jnp.zeros((steps + 1, *jnp.shape(a))), x0)
    x_T, saved = retention.forward(step, x0, steps)
    calls, befores, afters = retention.backward(step, unstep, saved, steps, consume, (0, rows, rows))
    return (befores, afters), x_T, calls


@cache
def plain_states(step):
    """x_0 … x_LONGEST of one plain run."""
    x0 = STARTS[step]
    _, xs = jax.jit(lambda x: jax.lax.scan(lambda x, _: (step(x), x), x, length=LONGEST + 1))(x0)
    return jax.tree.map(np.asarray, xs)


def expected(step, steps):
    """The pairs from the last to the first, and the last state."""
    states = jax.tree.map(lambda a: a[: steps + 1], plain_states(step))
    padded = lambda a: np.concatenate([a, np.zeros_like(a[:1])])
    befores = jax.tree.map(lambda a: padded(a[:-1][::-1]), states)
    afters = jax.tree.map(lambda a: padded(a[1:][::-1]), states)
    return (befores, afters), jax.tree.map(lambda a: a[-1], states)


def hands_the_right_pairs(retention, step, unstep, steps) -> bool:
    pairs, x_T, calls = collect(retention, step, unstep, STARTS[step], steps)
    right, last = expected(step, steps)
    return int(calls) == steps and bits(x_T) == bits(last) and bits(pairs) == bits(right)


# Every awkward meeting of a length and a setting: one step, fewer steps than a segment, a rest, more snapshots than steps.
LENGTHS = [
    (StoreAll(), (1, 2, 13)),
    (Checkpoint(every=1), (1, 5)),
    (Checkpoint(every=4), (1, 3, 4, 5, 12, 13)),
    (Checkpoint(every=100), (1, 13)),
    (Binomial(snapshots=1), (1, 2, 9)),
    (Binomial(snapshots=3), (1, 2, 3, 4, 13, 40)),
    (Binomial(snapshots=50), (1, 13)),
    (Recompute(), (1, 2, 13)),
    (Reverse(tol=0.0), (1, 2, 13)),
]


def test_the_list_has_every_retention():
    assert {type(retention) for retention, _ in LENGTHS} == set(RETENTIONS.values())


@pytest.mark.parametrize(
    ("retention", "steps"),
    [pytest.param(r, steps, id=f"{Adjoint(retention=r)}-{steps}") for r, lengths in LENGTHS for steps in lengths],
)
def test_every_retention_hands_the_same_pairs_in_the_same_order(retention, steps):
    assert hands_the_right_pairs(retention, shuffle, unshuffle, steps)


@pytest.mark.parametrize("retention", [StoreAll(), Checkpoint(every=16), Binomial(snapshots=6), Recompute()], ids=str)
def test_states_that_are_run_again_are_the_same_to_the_last_bit(retention):
    assert hands_the_right_pairs(retention, chaos, None, LONGEST)


@dataclass(frozen=True)
class Late(StoreAll):
    """A planted fault: the state after the one that is due."""

    def backward(self, step, unstep, saved, steps, consume, carry):
        xs, x_T = saved
        late = jax.tree.map(lambda a, last: jnp.concatenate([a[1:], last[None]]), xs, x_T)
        return super().backward(step, unstep, (late, x_T), steps, consume, carry)


@dataclass(frozen=True)
class Forwards(StoreAll):
    """A planted fault: the right pairs, from the first to the last."""

    def backward(self, step, unstep, saved, steps, consume, carry):
        return jax.lax.scan(lambda c, x: (consume(x, step(x), c), None), carry, saved[0])[0]


@dataclass(frozen=True)
class OneMissing(StoreAll):
    """A planted fault: the first step is never pulled back."""

    def backward(self, step, unstep, saved, steps, consume, carry):
        xs, x_T = saved
        return super().backward(step, unstep, (jax.tree.map(lambda a: a[1:], xs), x_T), steps, consume, carry)


@dataclass(frozen=True)
class ShortSegments(Checkpoint):
    """A planted fault: the rest after the last whole segment is forgotten."""

    def backward(self, step, unstep, saved, steps, consume, carry):
        return super().backward(step, unstep, saved, steps - steps % self.every, consume, carry)


@pytest.mark.parametrize(
    "faulty", [Late(), Forwards(), OneMissing(), ShortSegments(every=4)], ids=lambda r: type(r).__name__
)
def test_a_faulty_retention_is_caught(faulty):
    assert not hands_the_right_pairs(faulty, shuffle, unshuffle, 13)


def test_reverse_hands_out_what_unstep_recovers():
    """With an unstep that is off, the pairs are off: the pairs are those that unstep gives, not stored ones."""
    shifted = lambda x: jax.tree.map(lambda a: a + 1.0, unshuffle(x))
    assert not hands_the_right_pairs(Reverse(tol=inf), shuffle, shifted, 5)


# Memory -----------------------------------------------------------------------------------------------------------

STATE = 1024  # entries; so large that a state outweighs everything that the loops keep besides
SWIRL = System(
    step=lambda x, p, h: jnp.sin(p * x) + h,
    unstep=lambda x, p, h: jnp.arcsin(x - h) / p,
    step_vjp=lambda x, x_next, p, h, lam: (p * jnp.cos(p * x) * lam, jnp.cos(p * x) * x * lam),
    name="swirl",
)


def temporary_states(adjoint, steps) -> float:
    """Temporary memory of the compiled gradient, in states; compiled, never run."""

    def value(p):
        return jnp.sum(rollout(SWIRL, jnp.full(STATE, 0.5), p, h=0.01, steps=steps, adjoint=adjoint))

    compiled = jax.jit(jax.grad(value)).lower(jnp.full(STATE, 0.9)).compile()
    return compiled.memory_analysis().temp_size_in_bytes / (8 * STATE)


HORIZONS = (64, 256, 1024)
GROWTH = {
    "store-all": lambda T: StoreAll(),
    "checkpoint": lambda T: Checkpoint(every=isqrt(T)),
    "binomial": lambda T: Binomial(snapshots=T.bit_length() - 1),
    "recompute": lambda T: Recompute(),
    "reverse": lambda T: Reverse(tol=inf),
}


@pytest.fixture(scope="module")
def states():
    """Temporary memory [states] of every retention over the horizons."""
    return {
        name: np.array([temporary_states(Adjoint(Executed(), AD(), retention(T)), T) for T in HORIZONS])
        for name, retention in GROWTH.items()
    }


def test_memory_of_store_all_grows_like_the_number_of_steps(states):
    assert slope(HORIZONS, states["store-all"] - states["reverse"]) == pytest.approx(1.0, abs=0.05)


def test_memory_of_checkpoint_grows_like_the_square_root(states):
    assert slope(HORIZONS, states["checkpoint"] - states["reverse"]) == pytest.approx(0.5, abs=0.05)


def test_memory_of_binomial_grows_by_one_state_when_the_steps_double(states):
    per_doubling = np.diff(states["binomial"]) / np.diff(np.log2(HORIZONS))
    assert per_doubling == pytest.approx(1.0, abs=0.1)


@pytest.mark.parametrize("name", ["recompute", "reverse"])
def test_memory_does_not_grow(states, name):
    assert np.ptp(states[name]) <= 0.01
    assert states[name][0] < 10


def test_the_growth_tests_tell_the_retentions_apart(states):
    """A retention in another's place would be noticed: the fitted exponents lie well apart."""
    fitted = {name: slope(HORIZONS, states[name]) for name in GROWTH}
    assert fitted["reverse"] < 0.01 < 0.1 < fitted["binomial"] < 0.3 < fitted["checkpoint"] < 0.6 < fitted["store-all"]


def test_a_reverse_that_keeps_all_states_would_be_noticed():
    @dataclass(frozen=True)
    class Hoarder(Reverse):
        """A planted fault: the backward pass also reads a tape."""

        def forward(self, step, x0, steps):
            x_T, (xs, _) = StoreAll().forward(step, x0, steps)
            return x_T, (x0, x_T, xs)

        def backward(self, step, unstep, saved, steps, consume, carry):
            x0, x_T, xs = saved
            return StoreAll().backward(step, unstep, (xs, x_T), steps, consume, carry)

    grown = [temporary_states(Adjoint(Executed(), CustomAdjoint(), Hoarder()), T) for T in HORIZONS[:2]]
    assert np.ptp(grown) > 100


# Reverse and its guard --------------------------------------------------------------------------------------------

DECAY = System(
    step=lambda x, p, h: x - h * p * x,
    unstep=lambda x, p, h: x / (1 - h * p),
    step_vjp=lambda x, x_next, p, h, lam: ((1 - h * p) * lam, -h * x * lam),
    name="decay",
)
FORGETFUL = replace(DECAY, unstep=lambda x, p, h: x, name="decay without a way back")
H, STEPS, RATE = 0.1, 6, 1.5


def decay_slope(system, retention, x0=1.0):
    adjoint = Adjoint(Executed(), CustomAdjoint(), retention)
    return float(
        jax.grad(lambda p: rollout(system, jnp.array(x0), p, h=H, steps=STEPS, adjoint=adjoint))(jnp.array(RATE))
    )


def test_reverse_with_an_inverse_gives_the_derivative():
    right = -H * STEPS * (1 - H * RATE) ** (STEPS - 1)
    assert decay_slope(DECAY, Reverse()) == pytest.approx(right, rel=1e-12)


def test_reverse_with_an_unstep_that_is_no_inverse_gives_nan_not_a_number():
    assert np.isnan(decay_slope(FORGETFUL, Reverse()))


def test_an_infinite_tolerance_asks_for_the_wrong_number_and_gets_it():
    # Every recovered state is x_T, so the share of step n is -h x_T times the cotangent (1 - h p)^(T-1-n).
    factor = 1 - H * RATE
    wrong = -H * factor**STEPS * sum(factor**n for n in range(STEPS))
    assert decay_slope(FORGETFUL, Reverse(tol=inf)) == pytest.approx(wrong, rel=1e-12)
    assert abs(wrong - decay_slope(DECAY, Reverse())) > 0.1


def test_the_tolerance_is_relative_to_the_start():
    """An unstep that is off by a factor 1 + 1e-5 comes back off by 6e-5, whatever the size of the state."""
    rough = replace(DECAY, unstep=lambda x, p, h: (1 + 1e-5) * x / (1 - h * p))
    for x0 in (1.0, 1e6, 1e-6):
        assert np.isfinite(decay_slope(rough, Reverse(tol=1e-4), x0))
        assert np.isnan(decay_slope(rough, Reverse(tol=1e-5), x0))


def test_a_run_that_starts_at_zero_may_round_on_its_way_back():
    """From x_0 = 0 there is no entry to be relative to; the run's last state sets the scale then."""
    push = System(
        step=lambda x, p, h: x + h * p * (1 + x),
        unstep=lambda x, p, h: (x - h * p) / (1 + h * p),
    )
    slopes = [
        float(
            jax.grad(
                lambda p, a=Adjoint(retention=retention): rollout(push, jnp.array(0.0), p, h=H, steps=50, adjoint=a)
            )(jnp.array(0.7))
        )
        for retention in (StoreAll(), Reverse())
    ]
    assert slopes[1] == pytest.approx(slopes[0], rel=1e-9)


def test_a_state_that_is_not_finite_gives_nan():
    burst = replace(DECAY, step=lambda x, p, h: x / 0.0 * p, unstep=lambda x, p, h: x)
    assert np.isnan(decay_slope(burst, Reverse()))


def test_the_guard_looks_at_each_run_of_a_batch():
    """One run of the batch comes back, the other does not: only that one is NaN."""
    half = replace(DECAY, unstep=lambda x, p, h: jnp.where(p > 1, x / (1 - h * p), x), name="half reversible")
    adjoint = Adjoint(Executed(), CustomAdjoint(), Reverse())
    slopes = jax.vmap(jax.grad(lambda p: rollout(half, jnp.array(1.0), p, h=H, steps=STEPS, adjoint=adjoint)))(
        jnp.array([0.5, 1.5])
    )
    assert np.isnan(slopes[0]) and np.isfinite(slopes[1])


@pytest.mark.parametrize("kind", [Checkpoint, Binomial])
def test_a_count_from_numpy_is_a_count(kind):
    with types_unchecked():
        counted = kind(np.int64(8))
    assert counted == kind(8) and str(Adjoint(retention=counted)) == str(Adjoint(retention=kind(8)))
