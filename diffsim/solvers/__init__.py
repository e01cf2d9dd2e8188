"""Solvers: one file per method, each a frozen dataclass with `solve(residual, guess, *, energy=None)`.

A solver returns `(u, SolveReceipt)`. Its count is static, so that the executed iterations can be differentiated, unless
it is given a `tol`; then `solver.dynamic_stop` is True and the system built with it says so too.
"""

from diffsim.solvers.conjugate_gradient import ConjugateGradient
from diffsim.solvers.gradient_descent import GradientDescent
from diffsim.solvers.iteration import Solver
from diffsim.solvers.jacobi import Jacobi
from diffsim.solvers.newton import Newton
from diffsim.solvers.picard import Picard
from diffsim.solvers.potential import Constraints, IncrementalPotential
from diffsim.solvers.receipt import SolveReceipt
from diffsim.solvers.xpbd import XPBD

__all__ = [
    "SOLVERS",
    "XPBD",
    "ConjugateGradient",
    "Constraints",
    "GradientDescent",
    "IncrementalPotential",
    "Jacobi",
    "Newton",
    "Picard",
    "SolveReceipt",
    "Solver",
]

SOLVERS = {kind.name: kind for kind in (Newton, Picard, Jacobi, GradientDescent, ConjugateGradient, XPBD)}
