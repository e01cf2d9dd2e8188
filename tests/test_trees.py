"""Gaps between pytrees, leaf by leaf."""

import jax.numpy as jnp
import pytest

from diffsim import trees


def test_a_small_leaf_counts_as_much_as_a_large_one():
    exact = {"young": jnp.array([1e6, 2e6]), "density": jnp.array([1e-3])}
    off = {"young": exact["young"], "density": jnp.array([1.1e-3])}
    assert float(trees.relative_gap(off, exact)) == pytest.approx(0.1)
    assert float(trees.largest_gap(off, exact) / trees.largest(exact)) < 1e-9  # what it would be over the whole tree


@pytest.mark.parametrize(("other", "gap"), [(0.0, 0.0), (1e-30, jnp.inf), (jnp.nan, jnp.nan)])
def test_a_leaf_of_zeros_is_met_exactly_or_not_at_all(other, gap):
    got = trees.relative_gap((jnp.array([other]), jnp.array([1.0])), (jnp.array([0.0]), jnp.array([1.0])))
    assert float(got) == pytest.approx(gap, nan_ok=True)
