"""Gradient descent on an incremental potential."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import PyTree

from diffsim import trees
from diffsim.solvers.iteration import Iterative, iterate
from diffsim.solvers.receipt import SolveReceipt

__all__ = ["GradientDescent"]


@dataclass(frozen=True)
class GradientDescent(Iterative):
    r"""Gradient descent with a fixed rate, optionally with momentum; the residual is the gradient of an energy E.

    $$u_{k+1} = u_k - \alpha\,\nabla E(u_k) + \beta\,(u_k - u_{k-1})$$

    Linear. With the Hessian's eigenvalues in [a, b] and β = 0, ρ = max(|1 - α a|, |1 - α b|), least at α = 2/(a+b);
    with momentum √β at best.

    Attributes:
        iterations: K, the number of steps; the most of them with a `tol`.
        rate: α, in units of u per gradient, for example [m/N]; it must stay below 2(1+β)/b.
        momentum: β in [0, 1).
        tol: stop once max|∇E| <= tol, in the gradient's unit; static count when left out.

    Derivative of: the executed iterations.

    Wrong when: α b >= 2(1+β), where it diverges. Not recommended for stiff potentials: ρ is close to 1.

    Source: {cite}`polyak1964some`.

    Example:
        >>> u, receipt = GradientDescent(iterations=8, rate=0.2).solve(lambda u: u - 3.0, 0.0)
        >>> round(float(u), 4), round(float(receipt.contraction), 4)
        (2.4967, 0.8)
    """

    iterations: int
    rate: float
    momentum: float = 0.0
    tol: float | None = None
    name: ClassVar[str] = "gradient-descent"

    def solve(
        self, residual: Callable, guess: PyTree, *, energy: Callable | None = None
    ) -> tuple[PyTree, SolveReceipt]:
        def update(u, r, move):
            move = trees.axpy(-self.rate, r, trees.scale(self.momentum, move))
            return trees.add(u, move), move

        still = jax.tree.map(jnp.zeros_like, guess)
        return iterate(update, residual, guess, still, iterations=self.iterations, tol=self.tol)
