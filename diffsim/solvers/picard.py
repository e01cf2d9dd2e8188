"""Fixed-point iteration."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import PyTree

from diffsim import trees
from diffsim.solvers.iteration import Iterative, iterate
from diffsim.solvers.receipt import SolveReceipt

__all__ = ["Picard"]


@dataclass(frozen=True)
class Picard(Iterative):
    r"""Picard's fixed-point iteration, relaxed, for residuals of the form R(u) = u - G(u).

    $$u_{k+1} = u_k - \omega R(u_k) = (1-\omega)\,u_k + \omega\,G(u_k)$$

    Linear, with ρ = the spectral radius of I - ω J, which for a backward Euler step with field Jacobian A is that
    of (1-ω) I + ω h A.

    Attributes:
        iterations: K, the number of steps; the most of them with a `tol`.
        relaxation: ω; 1 is the plain iteration, less damps it. In units of u per residual.
        tol: stop once max|R| <= tol, in the residual's unit; static count when left out.

    Derivative of: the executed iterations. On a linear scalar problem it differs from the root's derivative by
    the share ρ^K + K (1-ρ) ρ^{K-1} when the parameter sits in the slope, and ρ^K when it sits in the right-hand side.

    Wrong when: ρ >= 1, for example for a step size above 1/|A|.

    Example:
        >>> u, receipt = Picard(iterations=20).solve(lambda u: u - (0.5 * u + 1.0), 0.0)
        >>> round(float(u), 4), float(receipt.contraction)
        (2.0, 0.5)
    """

    iterations: int = 20
    relaxation: float = 1.0
    tol: float | None = None
    name: ClassVar[str] = "picard"

    def solve(
        self, residual: Callable, guess: PyTree, *, energy: Callable | None = None
    ) -> tuple[PyTree, SolveReceipt]:
        def update(u, r, memory):
            return trees.axpy(-self.relaxation, r, u), memory

        return iterate(update, residual, guess, iterations=self.iterations, tol=self.tol)
