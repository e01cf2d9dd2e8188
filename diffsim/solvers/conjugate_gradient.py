"""Conjugate gradients on an incremental potential."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import PyTree

from diffsim.solvers.iteration import Iterative, flatten, iterate, ratio
from diffsim.solvers.line_search import backtrack
from diffsim.solvers.receipt import SolveReceipt

__all__ = ["ConjugateGradient"]


@dataclass(frozen=True)
class ConjugateGradient(Iterative):
    r"""Nonlinear conjugate gradients (Polak–Ribière⁺); on a quadratic energy, the linear method.

    $$d_k = -g_k + \beta_k d_{k-1}, \quad \beta_k = \max\!\Big(0, \frac{g_k^T (g_k - g_{k-1})}{g_{k-1}^T g_{k-1}}\Big),
    \quad u_{k+1} = u_k + t_k\,d_k, \quad t_k = \frac{-g_k^T d_k}{|d_k^T H d_k|}$$

    g = ∇E(u_k) is the residual and H d, one Jacobian–vector product of it, the curvature along d. When `solve` is given the
    energy, t is halved until the energy falls.

    Attributes:
        iterations: K, the number of steps; the most of them with a `tol`. On a quadratic of n unknowns n suffice.
        tol: stop once max|g| <= tol, in the gradient's unit; static count when left out.

    Derivative of: the executed iterations. Nonlinear in the right-hand side even on a quadratic, so its derivative
    converges later than its solution.

    Wrong when: the residual is not a gradient (its Jacobian not symmetric): use `Newton(linear="gmres")`.

    Source: {cite}`nocedal2006numerical`, chapter 5.

    Example:
        >>> A = jnp.array([[2.0, 1.0], [1.0, 3.0]])
        >>> u, receipt = ConjugateGradient(iterations=2).solve(lambda u: A @ u - jnp.array([3.0, 4.0]), jnp.zeros(2))
        >>> [round(float(a), 5) for a in u]
        [1.0, 1.0]
    """

    iterations: int
    tol: float | None = None
    name: ClassVar[str] = "conjugate-gradient"

    def solve(
        self, residual: Callable, guess: PyTree, *, energy: Callable | None = None
    ) -> tuple[PyTree, SolveReceipt]:
        problem = flatten(residual, guess, energy)

        def update(u, g, memory):
            d, g_before = memory
            d = jnp.maximum(ratio(g @ (g - g_before), g_before @ g_before), 0.0) * d - g
            _, Hd = jax.jvp(problem.residual, (u,), (d,))
            t = ratio(-(g @ d), jnp.abs(d @ Hd))
            if problem.energy:
                t = t * backtrack(problem.energy, u, t * d, t * (g @ d))
            return u + t * d, (d, g)

        nothing = jnp.zeros_like(problem.guess)
        u, receipt = iterate(
            update, problem.residual, problem.guess, (nothing, nothing), iterations=self.iterations, tol=self.tol
        )
        return problem.unravel(u), receipt
