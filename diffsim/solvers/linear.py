"""Linear solves J d = b from products with J, each a fixed number of operations.

JAX's own `scipy.sparse.linalg.cg` stops on data and is differentiated as if it had converged: another referent
than the computation that ran. These are differentiated as they run.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from diffsim.solvers.iteration import ratio

__all__ = ["LINEAR", "cg", "dense", "gmres"]


def dense(product: Callable, b: Float[Array, " n"], iterations: int = 1) -> Float[Array, " n"]:
    """The solution by LU factors of the assembled J: n products, n² numbers, n³ operations; NaN or inf if J is singular.

    Derivative of: the solution, exact to round-off, so executed and converged linear solve coincide.

    Example:
        >>> dense(lambda d: 2.0 * d, jnp.array([2.0, 4.0])).tolist()
        [1.0, 2.0]
    """
    return jnp.linalg.solve(jax.vmap(product, out_axes=1)(jnp.eye(b.size, dtype=b.dtype)), b)


def cg(product: Callable, b: Float[Array, " n"], iterations: int) -> Float[Array, " n"]:
    """Conjugate gradients from zero, for symmetric positive definite J; exact after n iterations but for rounding.

    Once the residual is at round-off the remaining iterations change nothing: there, its direction is noise.

    Derivative of: the executed iterations. Wrong when: J is not symmetric positive definite; use `gmres`.
    Source: {cite}`hestenes1952methods`.

    Example:
        >>> jnp.round(cg(lambda d: jnp.array([1.0, 4.0]) * d, jnp.array([1.0, 2.0]), 2), 6).tolist()
        [1.0, 0.5]
    """
    floor = (jnp.finfo(b.dtype).eps ** 2) * (b @ b)

    def body(_, state):
        d, r, s, rr = state
        Js = product(s)
        alpha = jnp.where(rr > floor, ratio(rr, s @ Js), 0.0)
        r_next = r - alpha * Js
        rr_next = r_next @ r_next
        return d + alpha * s, r_next, r_next + jnp.where(rr > floor, ratio(rr_next, rr), 0.0) * s, rr_next

    return lax.fori_loop(0, iterations, body, (jnp.zeros_like(b), b, b, b @ b))[0]


def gmres(product: Callable, b: Float[Array, " n"], iterations: int) -> Float[Array, " n"]:
    """The d in span(b, Jb, …) with the least |J d - b|, for any J; not restarted, so it keeps `iterations` vectors.

    Arnoldi's basis V and Hessenberg matrix H with J V_m = V_{m+1} H, then y = argmin |H y - |b| e_1|. A vector
    that adds nothing is left at zero, with a one in H that keeps the small problem regular.

    Derivative of: the executed iterations. Source: {cite}`saad1986gmres`.

    Example:
        >>> turn = lambda d: jnp.array([-d[1], d[0]])
        >>> jnp.round(gmres(turn, jnp.array([1.0, 2.0]), 2), 6).tolist()
        [2.0, -1.0]
    """
    size = _norm(b)
    V = jnp.zeros((iterations + 1, b.size), b.dtype).at[0].set(b * ratio(jnp.ones_like(size), size))

    def body(j, state):
        V, H = state
        w = product(V[j])
        before = lax.stop_gradient(_norm(w))
        h = V @ w
        w = w - h @ V
        again = V @ w  # a second pass keeps V orthogonal in floats
        w = w - again @ V
        fresh = _norm(w) > 1000 * jnp.finfo(b.dtype).eps * before
        length = jnp.where(fresh, _norm(jnp.where(fresh, w, 1.0)), 0.0)
        column = (h + again).at[j].add(jnp.where(jnp.any(V[j] != 0), 0.0, 1.0)).at[j + 1].add(length)
        return V.at[j + 1].set(jnp.where(fresh, w, 0.0) * ratio(jnp.ones_like(length), length)), H.at[:, j].set(column)

    V, H = lax.fori_loop(0, iterations, body, (V, jnp.zeros((iterations + 1, iterations), b.dtype)))
    Q, R = jnp.linalg.qr(H)
    return jax.scipy.linalg.solve_triangular(R, size * Q[0]) @ V[:-1]


def _norm(x):
    """2-norm with derivative 0 at 0."""
    square = x @ x
    return jnp.where(square == 0, 0.0, jnp.sqrt(jnp.where(square == 0, 1.0, square)))


LINEAR = {"dense": dense, "cg": cg, "gmres": gmres}
