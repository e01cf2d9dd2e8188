"""Retention: how the backward pass gets the states that it needs.

A retention runs the primal once (`forward`) and then hands the pairs (x_n, x_{n+1}) from the last to the
first to `consume` (`backward`). It never sees a derivative. Whatever the retention, `consume` meets the same
pairs: retention changes memory and time, not the gradient, unless the states it recovers differ.
"""

from collections.abc import Callable
from dataclasses import dataclass
from numbers import Integral
from typing import ClassVar, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import PyTree

from diffsim import trees
from diffsim.schedule import binomial_schedule

__all__ = ["RETENTIONS", "Binomial", "Checkpoint", "Recompute", "Retention", "Reverse", "StoreAll"]

Step = Callable[[PyTree], PyTree]
Consume = Callable[[PyTree, PyTree, PyTree], PyTree]


@runtime_checkable
class Retention(Protocol):
    """What a retention must offer; any frozen dataclass with these two methods will do.

    Example:
        >>> isinstance(StoreAll().name, str)
        True
    """

    name: ClassVar[str]

    def forward(self, step: Step, x0: PyTree, steps: int) -> tuple[PyTree, PyTree]:
        """Run `steps` steps from x0; return (x_T, what is retained)."""
        ...

    def backward(self, step: Step, unstep: Step | None, saved: PyTree, steps: int, consume: Consume, carry: PyTree):
        """Fold `carry = consume(x_n, x_{n+1}, carry)` over n = steps-1, …, 0; return the carry."""
        ...


def advance(step: Step, x: PyTree, steps) -> PyTree:
    """The state after `steps` more steps."""
    return lax.fori_loop(0, steps, lambda _, x: step(x), x)


@dataclass(frozen=True)
class StoreAll:
    """Keep every state: T states of memory, no step repeated.

    Example:
        >>> str(StoreAll.name)
        'store-all'
    """

    name: ClassVar[str] = "store-all"

    def forward(self, step, x0, steps):
        x_T, xs = lax.scan(lambda x, _: (step(x), x), x0, length=steps)
        return x_T, (xs, x_T)

    def backward(self, step, unstep, saved, steps, consume, carry):
        def body(state, x):
            x_next, carry = state
            return (x, consume(x, x_next, carry)), None

        xs, x_T = saved
        return lax.scan(body, (x_T, carry), xs, reverse=True)[0][1]


@dataclass(frozen=True)
class Checkpoint:
    """Keep one state in `every`; rerun each segment once: T/every + every states, T extra steps.

    `every` near √T makes both terms equal {cite}`chen2016training`.

    Example:
        >>> Checkpoint(every=64)
        Checkpoint(every=64)
    """

    every: int
    name: ClassVar[str] = "checkpoint"

    def __post_init__(self):
        _positive(self, "every")

    def forward(self, step, x0, steps):
        segments, rest = divmod(steps, self.every)
        x_tail, starts = lax.scan(lambda x, _: (advance(step, x, self.every), x), x0, length=segments)
        return advance(step, x_tail, rest), (starts, x_tail)

    def backward(self, step, unstep, saved, steps, consume, carry):
        def segment(start, length, carry):
            _, states = StoreAll().forward(step, start, length)
            return StoreAll().backward(step, unstep, states, length, consume, carry)

        starts, x_tail = saved
        carry = segment(x_tail, steps % self.every, carry)
        return lax.scan(lambda c, x: (segment(x, self.every, c), None), carry, starts, reverse=True)[0]


@dataclass(frozen=True)
class Binomial:
    """Keep at most `snapshots` states, placed so that the fewest steps are repeated.

    With `s` snapshots (x_0 is one of them) a chain of `l` steps needs t(l, s) = r l - C(s+r, r-1) advances,
    r the least integer with C(s+r, s) >= l. Source: {cite}`griewank2000revolve`.

    Example:
        >>> Binomial(snapshots=12)
        Binomial(snapshots=12)
    """

    snapshots: int
    name: ClassVar[str] = "binomial"

    def __post_init__(self):
        _positive(self, "snapshots")

    def forward(self, step, x0, steps):
        # One slot more than there are snapshots: it takes the writes that keep nothing.
        slots = jax.tree.map(lambda a: jnp.broadcast_to(a, (self.snapshots + 1, *jnp.shape(a))), x0)
        x_last, slots = self._descend(step, slots, steps, item=0, first=0)
        return step(x_last), (x_last, slots)

    def backward(self, step, unstep, saved, steps, consume, carry):
        first = jnp.asarray(binomial_schedule(steps, self.snapshots).first)

        def body(item, state):
            slots, carry = state
            x, slots = self._descend(step, slots, steps, item, first[item])
            return slots, consume(x, step(x), carry)

        x_last, slots = saved
        carry = consume(x_last, step(x_last), carry)
        return lax.fori_loop(1, steps, body, (slots, carry))[1]

    def _descend(self, step, slots, steps, item, first):
        """Go from a kept state to the one that is due, keeping states on the way as scheduled."""
        schedule = binomial_schedule(steps, self.snapshots)
        source, count, target = (jnp.asarray(a) for a in (schedule.source, schedule.advances, schedule.target))

        def body(i, state):
            x, slots = state
            x = step(x)
            return x, jax.tree.map(lambda s, a: s.at[target[first + i]].set(a), slots, x)

        x = jax.tree.map(lambda s: s[source[item]], slots)
        return lax.fori_loop(0, count[item], body, (x, slots))


@dataclass(frozen=True)
class Recompute:
    """Keep x_0 only and rerun from the start for every step: one state, T²/2 extra steps.

    Not recommended beyond short horizons: `Binomial` with few snapshots costs hardly more memory.

    Example:
        >>> Recompute.name
        'recompute'
    """

    name: ClassVar[str] = "recompute"

    def forward(self, step, x0, steps):
        return advance(step, x0, steps), x0

    def backward(self, step, unstep, saved, steps, consume, carry):
        def body(i, carry):
            x = advance(step, saved, steps - 1 - i)
            return consume(x, step(x), carry)

        return lax.fori_loop(0, steps, body, carry)


@dataclass(frozen=True)
class Reverse:
    """Keep the two ends and recover every state by `unstep`: two states, T extra steps.

    The pairs are exact only if `unstep` inverts `step` to the bit; a float inverse drifts. So the state that
    arrives back at the start is compared with x_0: when it is off by more than `tol` (relative to the largest
    entry of x_0), the gradient is NaN rather than a plausible wrong number. `Reverse(tol=inf)` asks for the
    drifting gradient.

    Example:
        >>> Reverse()
        Reverse(tol=0.001)
    """

    tol: float = 1e-3
    name: ClassVar[str] = "reverse"

    def __post_init__(self):
        if not self.tol >= 0:
            raise ValueError(f"Reverse(tol={self.tol!r}): a relative error cannot be negative; write Reverse().")

    def forward(self, step, x0, steps):
        x_T = advance(step, x0, steps)
        return x_T, (x0, x_T)

    def backward(self, step, unstep, saved, steps, consume, carry):
        def body(_, state):
            x_next, carry = state
            # Merged with the pullback, the recovery would round differently from the forward pass. The barrier asks the
            # compiler not to merge them; the comparison with x_0 below is what makes sure.
            x = lax.optimization_barrier(unstep(x_next))
            return x, consume(x, x_next, carry)

        x0, x_T = saved
        x_back, carry = lax.fori_loop(0, steps, body, (x_T, carry))
        size = jnp.where(trees.largest(x0) == 0, trees.largest(x_T), trees.largest(x0))
        returned = trees.largest_gap(x_back, x0) <= self.tol * size if self.tol < jnp.inf else True
        return jax.tree.map(lambda a: jnp.where(returned, a, jnp.nan), carry)


RETENTIONS = {kind.name: kind for kind in (StoreAll, Checkpoint, Binomial, Recompute, Reverse)}


def _positive(retention, field: str) -> None:
    value = getattr(retention, field)
    if not isinstance(value, Integral) or isinstance(value, bool) or value < 1:
        kind = type(retention).__name__
        raise ValueError(f"{kind}({field}={value!r}): it counts states; write a whole number of at least 1.")
    object.__setattr__(retention, field, int(value))
