"""How far to go along a direction."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

__all__ = ["backtrack"]

TRIALS = 8
SUFFICIENT = 1e-4  # share of the predicted decrease: Nocedal & Wright, section 3.1


def backtrack(
    merit: Callable, u: Float[Array, " n"], d: Float[Array, " n"], slope: Float[Array, ""]
) -> Float[Array, ""]:
    r"""The largest t of 1, 1/2, …, 2^-7 that lowers `merit` by a fair share of what its slope promises.

    $$m(u + t d) \le m(u) + 10^{-4}\, t\, \mathrm{slope} + 8\,\epsilon\,|m(u)|$$

    All trials are evaluated at once, so the number of operations is static. If none passes, t = 1: at round-off
    no step passes, and only a full Newton step makes the derivative as accurate as the root.

    Derivative of: t is piecewise constant in its arguments, and is held constant.

    Source: {cite}`nocedal2006numerical`, algorithm 3.1.

    Example:
        >>> u, d = jnp.array([1.0]), jnp.array([-6.0])
        >>> float(backtrack(lambda u: u @ u, u, d, jnp.array(-12.0)))
        0.25
    """
    t = 0.5 ** jnp.arange(TRIALS, dtype=u.dtype)
    here = merit(u)
    there = jax.vmap(lambda t: merit(u + t * d))(t)
    passed = there <= here + SUFFICIENT * t * slope + 8 * jnp.finfo(u.dtype).eps * jnp.abs(here)
    return lax.stop_gradient(t[jnp.argmax(passed)])
