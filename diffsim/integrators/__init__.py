"""Integrators: one file per family, each turning a force, a field or a potential into a `System`."""

from diffsim.integrators.leapfrog import Phase, fixed_point_leapfrog, leapfrog, snap

__all__ = ["Phase", "fixed_point_leapfrog", "leapfrog", "snap"]
