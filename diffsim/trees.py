"""Arithmetic on pytrees, written once."""

import operator

import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree, Shaped

__all__ = ["add", "all_finite", "axpy", "largest", "largest_gap", "relative_gap", "scale", "subtract"]


def add(a: PyTree, b: PyTree) -> PyTree:
    """Sum of two pytrees of the same structure, leaf by leaf.

    Example:
        >>> add({"q": 1.0}, {"q": 2.0})
        {'q': 3.0}
    """
    return jax.tree.map(operator.add, a, b)


def subtract(a: PyTree, b: PyTree) -> PyTree:
    """Difference of two pytrees of the same structure, leaf by leaf.

    Example:
        >>> subtract({"q": 1.0}, {"q": 2.0})
        {'q': -1.0}
    """
    return jax.tree.map(operator.sub, a, b)


def scale(factor: float | Shaped[Array, ""], x: PyTree) -> PyTree:
    """Every leaf times one number.

    Example:
        >>> scale(2.0, {"q": 1.5})
        {'q': 3.0}
    """
    return jax.tree.map(lambda a: factor * a, x)


def axpy(factor: float | Shaped[Array, ""], x: PyTree, y: PyTree) -> PyTree:
    """factor · x + y, leaf by leaf.

    Example:
        >>> axpy(2.0, {"q": 1.5}, {"q": 1.0})
        {'q': 4.0}
    """
    return jax.tree.map(lambda a, b: factor * a + b, x, y)


def largest(x: PyTree) -> Shaped[Array, ""]:
    """Largest absolute entry over all leaves, NaN if any entry is NaN.

    Example:
        >>> float(largest({"q": jnp.array([1.0, -3.0]), "v": jnp.array(2.0)}))
        3.0
    """
    return jnp.max(jnp.stack([_largest(leaf) for leaf in jax.tree.leaves(x)]))


def _largest(leaf):
    # XLA's vectorised maximum on CPU drops NaN from 4096 entries on (seen with jaxlib 0.10.2).
    return jnp.where(jnp.any(jnp.isnan(leaf)), jnp.nan, jnp.max(jnp.abs(leaf)))


def largest_gap(a: PyTree, b: PyTree) -> Shaped[Array, ""]:
    """Largest absolute difference between two pytrees, in the units of their entries.

    Example:
        >>> float(largest_gap((jnp.array(1.0),), (jnp.array(1.5),)))
        0.5
    """
    return largest(subtract(a, b))


def relative_gap(a: PyTree, b: PyTree) -> Shaped[Array, ""]:
    """Largest difference between two pytrees, each leaf's as a share of that leaf's largest entry in the second.

    Leaf by leaf, because leaves have different units. A leaf of zeros must be met exactly: any other is infinitely far.

    Example:
        >>> float(relative_gap({"k": jnp.array([1.0, 2.0]), "m": 1e9}, {"k": jnp.array([1.0, 4.0]), "m": 1e9}))
        0.5
    """

    def gap(a, b):
        off, size = _largest(a - b), _largest(b)
        return jnp.where(off == 0, 0.0, off / size)

    return largest(jax.tree.map(gap, a, b))


def all_finite(x: PyTree) -> Shaped[Array, ""]:
    """Whether no leaf has a NaN or an infinity.

    Example:
        >>> bool(all_finite((jnp.array([1.0, jnp.inf]),)))
        False
    """
    return jnp.all(jnp.stack([jnp.all(jnp.isfinite(leaf)) for leaf in jax.tree.leaves(x)]))
