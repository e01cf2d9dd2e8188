"""Linear solves of the equation-level adjoint, by name; a solve that did not succeed gives NaN, never a number."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jax.scipy.sparse.linalg import cg, gmres
from jaxtyping import Array, Float, PyTree

__all__ = ["LINEAR_SOLVES", "solve_transposed"]

Flat = Float[Array, " n"]


def _dense(product: Callable, b: Flat, precondition: Callable | None) -> Flat:
    """Assemble the matrix column by column and factor it: n products, n² memory."""
    columns = jax.vmap(product)(jnp.eye(b.size, dtype=b.dtype))
    return jnp.linalg.solve(columns.T, b)


def _conjugate_gradients(product: Callable, b: Flat, precondition: Callable | None) -> Flat:
    """For symmetric positive definite matrices only."""
    return cg(product, b, tol=_tolerance(b), maxiter=10 * b.size, M=precondition)[0]


def _gmres(product: Callable, b: Flat, precondition: Callable | None) -> Flat:
    """For any matrix; restarted, so a good preconditioner decides whether it arrives."""
    return gmres(product, b, tol=_tolerance(b), restart=min(50, b.size), maxiter=20, M=precondition)[0]


LINEAR_SOLVES = {"dense": _dense, "cg": _conjugate_gradients, "gmres": _gmres}


def _tolerance(b):
    return 50 * float(jnp.finfo(b.dtype).eps)


def solve_transposed(
    name: str, function: Callable[[PyTree], PyTree], u: PyTree, b: PyTree, precondition: Callable | None = None
) -> PyTree:
    r"""Solve $(\partial G/\partial u)^\top \mu = b$ for $\mu$.

    Args:
        name: one of `LINEAR_SOLVES`. `cg` takes a symmetric positive definite Jacobian for granted.
        function: G(u), of u's structure.
        u: where the Jacobian is taken.
        b: right-hand side, of u's structure.
        precondition: `r -> z`, an approximate solve with the transposed Jacobian, structures as for b.

    Returns:
        mu, or NaN in every entry when the relative residual of the solve exceeds the square root of the
        dtype's precision: a singular Jacobian, or an iteration that did not arrive. The guard bounds the residual; mu may be
        off by the Jacobian's condition number times as much.

    Example:
        >>> float(solve_transposed("dense", lambda u: 4.0 * u, jnp.array(1.0), jnp.array(2.0)))
        0.5
    """
    flat_b, unravel = ravel_pytree(b)
    _, vjp = jax.vjp(function, u)

    def product(mu):
        return ravel_pytree(vjp(unravel(mu)))[0]

    flat_precondition = precondition and (lambda r: ravel_pytree(precondition(unravel(r)))[0])
    mu = LINEAR_SOLVES[name](product, flat_b, flat_precondition)
    off = jnp.linalg.norm(product(mu) - flat_b)
    arrived = off <= jnp.sqrt(jnp.finfo(flat_b.dtype).eps) * jnp.linalg.norm(flat_b)
    return unravel(jnp.where(arrived, mu, jnp.nan))
