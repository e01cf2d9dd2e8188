"""The grid of adjoints on fixed_point, heat, wave, fluid, cloth; one file per group so that two workers share the compiling."""

import pytest

from tests.grid.checks import check_grid


@pytest.mark.parametrize("name", ["fixed_point", "heat", "wave", "fluid", "cloth"])
def test_within_a_referent_nothing_else_matters(name):
    check_grid(name)
