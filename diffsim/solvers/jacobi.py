"""Jacobi's method: every unknown solved for on its own."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, PyTree

from diffsim.solvers.iteration import Iterative, flatten, iterate
from diffsim.solvers.receipt import SolveReceipt

__all__ = ["Jacobi", "diagonal_of_jacobian"]


def diagonal_of_jacobian(residual: Callable, u: Float[Array, " n"]) -> Float[Array, " n"]:
    """The diagonal ∂R_i/∂u_i, by n Jacobian–vector products: n² work, no n × n matrix is kept.

    Example:
        >>> diagonal_of_jacobian(lambda u: jnp.array([3.0 * u[0] + u[1], u[0] * u[1]]), jnp.array([2.0, 5.0])).tolist()
        [3.0, 2.0]
    """
    _, product = jax.linearize(residual, u)
    return jax.vmap(lambda e: e @ product(e))(jnp.eye(u.size, dtype=u.dtype))


@dataclass(frozen=True)
class Jacobi(Iterative):
    r"""Jacobi's method, relaxed: the residual divided by the diagonal D of the Jacobian at the iterate.

    $$u_{k+1} = u_k - \omega\, D(u_k)^{-1} R(u_k)$$

    Linear, with ρ = the spectral radius of I - ω D⁻¹ J.

    Attributes:
        iterations: K, the number of sweeps; the most of them with a `tol`.
        relaxation: ω; less than 1 damps. For an elastic chain, 1 is on the edge and 2/3 smooths best.
        diagonal: `u -> D(u)`, of u's structure; computed by one Jacobian–vector product per unknown when left out.
        tol: stop once max|R| <= tol, in the residual's unit; static count when left out.

    Derivative of: the executed iterations, D included.

    Wrong when: J is far from diagonally dominant (ρ >= 1), or D has a zero (the receipt's residual is not finite).

    Source: {cite}`saad2003iterative`, chapter 4.

    Example:
        >>> u, receipt = Jacobi(iterations=12).solve(
        ...     lambda u: jnp.array([[2.0, 1.0], [1.0, 2.0]]) @ u - 3.0, jnp.zeros(2)
        ... )
        >>> [round(float(a), 2) for a in u], round(float(receipt.contraction), 4)
        ([1.0, 1.0], 0.5)
    """

    iterations: int
    relaxation: float = 1.0
    diagonal: Callable | None = None
    tol: float | None = None
    name: ClassVar[str] = "jacobi"

    def solve(
        self, residual: Callable, guess: PyTree, *, energy: Callable | None = None
    ) -> tuple[PyTree, SolveReceipt]:
        problem = flatten(residual, guess)

        def diagonal(u):
            if self.diagonal:
                return ravel_pytree(self.diagonal(problem.unravel(u)))[0]
            return diagonal_of_jacobian(problem.residual, u)

        def update(u, r, memory):
            return u - self.relaxation * r / diagonal(u), memory

        u, receipt = iterate(update, problem.residual, problem.guess, iterations=self.iterations, tol=self.tol)
        return problem.unravel(u), receipt
