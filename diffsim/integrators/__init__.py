"""Integrators: one file per family, each turning a force, a field or a potential into a `System`."""

from diffsim.integrators.explicit import runge_kutta4, symplectic_euler
from diffsim.integrators.implicit import backward_euler, implicit_euler_potential, implicit_midpoint
from diffsim.integrators.leapfrog import Phase, fixed_point_leapfrog, leapfrog, snap

__all__ = [
    "Phase",
    "backward_euler",
    "fixed_point_leapfrog",
    "implicit_euler_potential",
    "implicit_midpoint",
    "leapfrog",
    "runge_kutta4",
    "snap",
    "symplectic_euler",
]
