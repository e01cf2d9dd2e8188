"""The grid of adjoints on cartpole, double_pendulum, pendulum, lennard_jones; one file per group so that two workers share the compiling."""

import pytest

from tests.grid.checks import check_grid


@pytest.mark.parametrize("name", ["cartpole", "double_pendulum", "pendulum", "lennard_jones"])
def test_within_a_referent_nothing_else_matters(name):
    check_grid(name)
