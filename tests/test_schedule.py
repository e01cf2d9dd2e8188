"""The binomial schedule against dynamic programming, and replayed in plain Python."""

from functools import cache

import numpy as np
import pytest

from diffsim.schedule import binomial_schedule, minimal_advances


@cache
def cheapest(length: int, snapshots: int) -> int:
    """Fewest advances by trying every place of the next snapshot: nothing but the definition of the problem."""
    if length <= 1:
        return 0
    if snapshots == 1:
        return length * (length - 1) // 2
    return min(m + cheapest(length - m, snapshots - 1) + cheapest(m, snapshots) for m in range(1, length))


class Broken(Exception):
    """The schedule reads what isn't there, or reverses the wrong step."""


def replay(schedule, steps: int, snapshots: int) -> tuple[int, int]:
    """(advances made, slots used) of a schedule, on states that are their own step numbers."""
    slots = {0: 0}
    advances = 0
    for item in range(steps):
        slot, count, first = (int(a[item]) for a in (schedule.source, schedule.advances, schedule.first))
        if slot >= snapshots or slot not in slots:
            raise Broken(f"item {item} starts from slot {slot}, which keeps nothing")
        at = slots[slot]
        for j in range(count):
            at += 1
            advances += 1
            target = int(schedule.target[first + j])
            if target < snapshots:
                slots[target] = at
            elif target != snapshots:
                raise Broken(f"item {item} writes to slot {target} of {snapshots}")
        if at != steps - 1 - item:
            raise Broken(f"item {item} arrives at step {at}, not at {steps - 1 - item}")
    return advances, len(slots)


def test_minimal_advances_is_the_dynamic_programming_optimum():
    for snapshots in range(1, 9):
        for length in range(1, 61):
            assert minimal_advances(length, snapshots) == cheapest(length, snapshots), (length, snapshots)


def test_the_oracle_notices_a_schedule_that_is_one_advance_too_dear():
    assert minimal_advances(10, 3) + 1 != cheapest(10, 3)


@pytest.mark.parametrize(
    ("length", "snapshots", "advances"),
    # One snapshot: 9 + 8 + … + 1. As many snapshots as steps: each step once, the last not at all.
    [(10, 1, 45), (10, 3, 15), (10, 10, 9), (10, 99, 9), (1, 1, 0), (2, 1, 1), (56, 5, 140)],
)
def test_facts_of_revolve(length, snapshots, advances):
    assert minimal_advances(length, snapshots) == advances == cheapest(length, snapshots)


@pytest.mark.parametrize(("snapshots", "per_step"), [(5, 6.28), (10, 3.64), (20, 2.75)])
def test_a_thousand_steps_with_few_snapshots(snapshots, per_step):
    assert minimal_advances(1000, snapshots) / 1000 == pytest.approx(per_step, abs=0.005)


def test_advances_per_step_with_log2_snapshots_stay_below_the_logarithm():
    for doublings in range(2, 15):
        steps = 2**doublings
        assert minimal_advances(steps, doublings) / steps < doublings / 2 + 1


@pytest.mark.parametrize("snapshots", [1, 2, 3, 5, 8, 40, 300])
def test_replay_meets_every_step_once_within_the_slots_at_the_least_cost(snapshots):
    for steps in [*range(1, 41), 127]:
        advances, used = replay(binomial_schedule(steps, snapshots), steps, snapshots)
        assert advances == minimal_advances(steps, snapshots)
        assert used <= min(snapshots, steps)


# Every wrong source or count is met; some writes are idle, so that a wrong place for them does no harm.
@pytest.mark.parametrize(("column", "share"), [("source", 1.0), ("advances", 1.0), ("first", 0.3), ("target", 0.5)])
def test_replay_catches_a_table_with_one_wrong_entry(column, share):
    steps, snapshots = 20, 3
    schedule = binomial_schedule(steps, snapshots)
    good = replay(schedule, steps, snapshots)
    entries = getattr(schedule, column)
    caught = 0
    for place in range(len(entries)):
        wrong = np.array(entries, int)
        wrong[place] = wrong[place] + 1 if column != "target" else (wrong[place] + 1) % (snapshots + 1)
        try:
            caught += replay(schedule._replace(**{column: wrong}), steps, snapshots) != good
        except (Broken, IndexError):
            caught += 1
    assert caught >= share * len(entries)


def test_the_tables_are_small_integers_that_can_hold_their_entries():
    for steps, snapshots in ((300, 3), (257, 255), (257, 256)):
        schedule = binomial_schedule(steps, snapshots)
        assert int(schedule.target.max()) <= snapshots
        assert replay(schedule, steps, snapshots)[0] == minimal_advances(steps, snapshots)
        assert schedule.target.itemsize == (1 if snapshots < 256 else 4)
