"""Newton's method."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import PyTree

from diffsim.solvers.iteration import Iterative, flatten, iterate
from diffsim.solvers.line_search import backtrack
from diffsim.solvers.linear import LINEAR
from diffsim.solvers.receipt import SolveReceipt

__all__ = ["Newton"]


@dataclass(frozen=True)
class Newton(Iterative):
    r"""Newton's method: the error squares at every iteration, once close.

    $$u_{k+1} = u_k + t\,d, \qquad J(u_k)\,d = -R(u_k)$$

    Attributes:
        iterations: K, the number of steps; the most of them with a `tol`.
        line_search: t from `backtrack` on |R|_2, or on the energy when `solve` is given one (d is then turned downhill
            where the Hessian is indefinite); t = 1 when False.
        linear: how J d = -R is solved: "dense", "cg" (J symmetric positive definite) or "gmres".
        linear_iterations: number of inner iterations of "cg" and "gmres".
        tol: stop once max|R| <= tol, in the residual's unit; static count when left out.

    Derivative of: the executed iterations, inner ones included, through the second derivatives of R. The root's derivative
    is reached one iteration after the root itself.

    Wrong when: J is singular at an iterate (the receipt's residual is then not finite), or the line search sits in a
    local minimum of |R| that is no root.

    Source: {cite}`nocedal2006numerical`, chapters 3, 7 and 11.

    Example:
        >>> u, receipt = Newton(iterations=6).solve(lambda u: u * u - 4.0, jnp.array(1.0))
        >>> float(u), receipt.problems()
        (2.0, [])
    """

    iterations: int = 10
    line_search: bool = True
    linear: str = "dense"
    linear_iterations: int = 20
    tol: float | None = None
    name: ClassVar[str] = "newton"
    counts: ClassVar[tuple[str, ...]] = ("iterations", "linear_iterations")

    def __post_init__(self):
        super().__post_init__()
        if self.linear not in LINEAR:
            raise ValueError(f"Newton(linear={self.linear!r}): no such linear solve; write one of {', '.join(LINEAR)}.")

    def solve(
        self, residual: Callable, guess: PyTree, *, energy: Callable | None = None
    ) -> tuple[PyTree, SolveReceipt]:
        problem = flatten(residual, guess, energy)

        def update(u, r, memory):
            _, product = jax.linearize(problem.residual, u)
            d = LINEAR[self.linear](product, -r, self.linear_iterations)
            if not self.line_search:
                return u + d, memory
            if problem.energy:
                d = jnp.where(r @ d > 0, -d, d)
                return u + backtrack(problem.energy, u, d, r @ d) * d, memory
            size = jnp.linalg.norm(jax.lax.stop_gradient(r))
            return u + backtrack(lambda u: jnp.linalg.norm(problem.residual(u)), u, d, -size) * d, memory

        u, receipt = iterate(update, problem.residual, problem.guess, iterations=self.iterations, tol=self.tol)
        return problem.unravel(u), receipt
