"""What must hold in the grid of one scene: within a referent, realization and retention do not matter."""

import math

from diffsim.experiments.referents import SMALL, grid_deviations
from diffsim.scenes import make

ROUND_OFF = 1e-10


def check_grid(name: str) -> None:
    """Every legal adjoint of the scene `name` against the plainest cell of its referent."""
    rows = grid_deviations(make(name, **SMALL[name]))
    assert len(rows) >= 8
    for row in rows:
        if "reverse" in row["adjoint"] and row["referent"] != "executed":
            # States integrated backwards are not those of the run; chapter 3 measures how far they are off.
            continue
        if row["of"] == "retention" or row["referent"] != "continuous":
            assert row["gap"] <= ROUND_OFF, row
        else:
            # Two ways to integrate the sensitivities: they meet as h goes to 0, at no fixed h.
            assert math.isfinite(row["gap"]), row
