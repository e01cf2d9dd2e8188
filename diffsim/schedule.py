"""The binomial checkpointing schedule, computed before tracing, as a table that a compiled loop can follow."""

from functools import cache, lru_cache
from math import comb
from typing import NamedTuple

import numpy as np

__all__ = ["Schedule", "binomial_schedule", "minimal_advances"]


class Schedule(NamedTuple):
    """One item per step to be reversed, from the last to the first.

    Item i starts from the state in slot `source[i]`, advances `advances[i]` steps, and keeps the state after
    advance j in slot `target[first[i] + j]`; the slot number `snapshots` means: keep nothing.

    Example:
        >>> binomial_schedule(3, 1).advances.tolist()
        [2, 1, 0]
    """

    source: np.ndarray
    advances: np.ndarray
    first: np.ndarray
    target: np.ndarray


def minimal_advances(length: int, snapshots: int) -> int:
    """Fewest steps that must be (re)run to reverse `length` steps, the pulled steps themselves not counted.

    t(l, s) = r l - C(s+r, r-1), r the least integer with C(s+r, s) >= l {cite}`griewank2000revolve`.

    Example:
        >>> minimal_advances(10, 1), minimal_advances(10, 3), minimal_advances(10, 10)
        (45, 15, 9)
    """
    r = 0
    while comb(snapshots + r, snapshots) < length:
        r += 1
    return r * length - comb(snapshots + r, r - 1) if r else 0


@cache
def _split(length: int, snapshots: int) -> int:
    """How far to advance before keeping the next state, so that the two halves cost least together."""
    return min(
        range(1, length),
        key=lambda m: m + minimal_advances(length - m, snapshots - 1) + minimal_advances(m, snapshots),
    )


@lru_cache(maxsize=32)
def binomial_schedule(steps: int, snapshots: int) -> Schedule:
    """The schedule that reverses `steps` steps with at most `snapshots` kept states, x_0 being the first.

    Example:
        >>> schedule = binomial_schedule(10, 3)
        >>> int(schedule.advances.sum()) == minimal_advances(10, 3)
        True
    """
    source: list[int] = []
    count: list[int] = []
    first: list[int] = []
    target: list[int] = []
    # What is left to reverse: segments [start, stop) whose first state lies in a slot, nearest last.
    pending = [(0, steps, 0)]
    while pending:
        start, stop, slot = pending.pop()
        source.append(slot)
        first.append(len(target))
        at, kept = start, slot
        while stop - at > 1:
            if kept + 1 < snapshots:
                move = _split(stop - at, snapshots - kept)
                pending.append((at, at + move, kept))
                keep_in = kept + 1 if stop - at - move > 1 else snapshots
            else:
                move = stop - at - 1
                pending.append((at, stop - 1, kept))
                keep_in = snapshots
            target += [snapshots] * (move - 1) + [keep_in]
            at, kept = at + move, kept + 1
        count.append(len(target) - first[-1])
    slots = np.uint8 if snapshots < 256 else np.int32
    # One step advances nowhere, and a compiled loop cannot index an empty table even if it never does.
    target = target or [snapshots]
    return Schedule(
        np.array(source, slots), np.array(count, np.int32), np.array(first, np.int32), np.array(target, slots)
    )
