"""The receipt: silent on a clean solve, one sentence per fault, and never an exception inside jit."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from diffsim.solvers import ConjugateGradient, GradientDescent, Jacobi, Newton, Picard, SolveReceipt


def receipt_of(solver, residual, guess):
    return jax.jit(lambda u: solver.solve(residual, u)[1])(guess)


CLEAN = (Newton(iterations=8), lambda u: u**3 - 2.0, jnp.array([1.0]))
FAULTS = {
    "diverging Picard": (Picard(iterations=30), lambda u: 3.0 * u - 1.0, jnp.array([1.0]), "does not shrink"),
    "Picard past the floats": (Picard(iterations=40), lambda u: u**3 - 9.0, jnp.array([9.0]), "not finite"),
    "rate too high": (
        GradientDescent(iterations=20, rate=1.1),
        lambda u: 2.0 * u - 1.0,
        jnp.array([1.0]),
        "does not shrink",
    ),
    "no root": (Newton(iterations=6, line_search=False), lambda u: u**2 + 1.0, jnp.array([0.3]), "residual"),
    "singular Jacobian": (Newton(iterations=6), lambda u: jnp.full(2, jnp.sum(u) - 1.0), jnp.zeros(2), "not finite"),
    "Jacobian zero at the guess": (Newton(iterations=6), lambda u: u**2 - 1.0, jnp.zeros(1), "not finite"),
    "zero on the diagonal": (Jacobi(iterations=6), lambda u: u[::-1] - 1.0, jnp.zeros(2), "not finite"),
    "NaN in the residual": (Newton(iterations=6), lambda u: jnp.log(u), jnp.array([-1.0]), "not finite"),
    "too few iterations": (Picard(iterations=5), lambda u: 0.1 * u - 1.0, jnp.array([1.0]), "about .* more"),
    "one iteration": (Picard(iterations=1), lambda u: 0.1 * u - 1.0, jnp.array([1.0]), "more iterations"),
}


def test_silent_on_a_clean_solve():
    receipt = receipt_of(*CLEAN)
    assert receipt.problems() == []
    receipt.raise_if_bad()


@pytest.mark.parametrize("fault", list(FAULTS))
def test_each_fault_is_reported(fault):
    *case, words = FAULTS[fault]
    receipt = receipt_of(*case)
    assert len(receipt.problems()) == 1
    with pytest.raises(FloatingPointError, match=words):
        receipt.raise_if_bad()


@pytest.mark.parametrize("linear", ["dense", "cg", "gmres"])
def test_singular_jacobian_with_every_linear_solve(linear):
    """cg and gmres answer a consistent singular system; an inconsistent one stays unsolved. Neither passes as solved."""
    solver = Newton(iterations=6, linear=linear, linear_iterations=2)
    receipt = receipt_of(solver, lambda u: jnp.array([1.0, 1.0]) * jnp.sum(u) - jnp.array([1.0, 2.0]), jnp.zeros(2))
    assert receipt.problems()


def test_the_count_that_it_predicts_is_enough():
    _, short = Picard(iterations=5).solve(lambda u: 0.1 * u - 1.0, jnp.array([1.0]))
    more = int(short.problems()[0].split("about ")[1].split()[0])
    assert Picard(iterations=5 + more).solve(lambda u: 0.1 * u - 1.0, jnp.array([1.0]))[1].problems() == []
    assert Picard(iterations=4 + more).solve(lambda u: 0.1 * u - 1.0, jnp.array([1.0]))[1].problems() != []


def test_contraction_needs_three_residuals():
    one, two = (Picard(iterations=k).solve(lambda u: 0.5 * u - 1.0, 0.0)[1].contraction for k in (1, 2))
    assert np.isnan(one) and float(two) == 0.5


def test_contraction_ignores_the_floor():
    """After convergence the residual only flickers at round-off: the estimate must keep the earlier ratio."""
    _, receipt = Picard(iterations=200).solve(lambda u: u - (0.5 * u + jnp.pi), 0.0)
    assert abs(float(receipt.contraction) - 0.5) < 1e-3


def test_exact_guess():
    u, receipt = Picard(iterations=3).solve(lambda u: u - 2.0, jnp.array(2.0))
    assert float(u) == 2.0 and receipt.problems() == [] and np.isnan(receipt.contraction)
    u, receipt = ConjugateGradient(iterations=3, tol=1e-9).solve(lambda u: u - 2.0, jnp.array([2.0]))
    assert int(receipt.iterations) == 0 and receipt.problems() == []


def test_a_batch_reports_its_worst_lane():
    def run(a):
        return Picard(iterations=30).solve(lambda u: a * u - 1.0, jnp.array(0.0))[1]

    receipts = jax.jit(jax.vmap(run))(jnp.array([0.9, 1.0, 2.5, 0.1]))
    assert isinstance(receipts, SolveReceipt) and receipts.residual.shape == (4,)
    assert len(receipts.problems()) == 2  # lane 2 diverges, lane 3 is slow
    assert jax.jit(jax.vmap(run))(jnp.array([0.9, 1.0])).problems() == []


def test_a_diverging_while_loop_ends():
    u, receipt = jax.jit(lambda u: Picard(iterations=50, tol=1e-9).solve(lambda u: u**3 - 9.0, u))(jnp.array([9.0]))
    assert int(receipt.iterations) == 50 and receipt.problems()
