"""cg and gmres against lineax and against dense solves, their derivatives included."""

import jax
import jax.numpy as jnp
import lineax
import numpy as np
import pytest

from diffsim.solvers.linear import LINEAR

N = 8
rng = np.random.default_rng(3)
S = rng.normal(size=(N, N))
SPD = jnp.asarray(S @ S.T + 2 * np.eye(N))
GENERAL = jnp.asarray(S + 4 * np.eye(N))
b = jnp.asarray(rng.normal(size=N))


def product(M):
    return lambda d: M @ d


def solved(name, M, b, iterations):
    return jax.jit(lambda M, b: LINEAR[name](product(M), b, iterations))(M, b)


@pytest.mark.parametrize(("name", "M"), [("dense", GENERAL), ("cg", SPD), ("gmres", GENERAL), ("gmres", SPD)])
def test_agrees_with_lineax(name, M):
    expected = lineax.linear_solve(lineax.MatrixLinearOperator(M), b).value
    assert np.max(np.abs(solved(name, M, b, N) - expected)) < 1e-11


@pytest.mark.parametrize("iterations", [1, 4])
def test_gmres_minimises_over_the_krylov_space(iterations):
    basis = [b]
    for _ in range(iterations - 1):
        basis.append(GENERAL @ basis[-1])
    K = np.linalg.qr(np.stack(basis, axis=1))[0]
    best = K @ np.linalg.lstsq(np.asarray(GENERAL) @ K, np.asarray(b), rcond=None)[0]
    assert np.max(np.abs(solved("gmres", GENERAL, b, iterations) - best)) < 1e-10


def test_cg_minimises_the_energy_over_the_krylov_space():
    K = np.stack([b, SPD @ b, SPD @ (SPD @ b)], axis=1)
    best = K @ np.linalg.solve(K.T @ SPD @ K, K.T @ b)
    assert np.max(np.abs(solved("cg", SPD, b, 3) - best)) < 1e-10


@pytest.mark.parametrize("name", ["cg", "gmres"])
def test_more_iterations_than_needed_do_no_harm(name):
    """The derivative too: past round-off the direction is noise and must not be followed."""
    M, exact = SPD, np.linalg.solve(SPD, b)

    def solution(s):
        return LINEAR[name](product(M + s * jnp.eye(N)), b, 3 * N)

    assert np.max(np.abs(solved(name, M, b, 3 * N) - exact)) < 1e-11
    expected = -np.linalg.solve(M, exact)
    assert np.max(np.abs(jax.jit(jax.jacrev(solution))(0.0) - expected)) < 1e-9 * np.max(np.abs(expected)) + 1e-10


@pytest.mark.parametrize("name", ["cg", "gmres"])
def test_derivative_is_of_the_executed_iterations(name):
    def solution(s):
        return solved(name, SPD + s * jnp.diag(jnp.arange(N) * 1.0), b, 3)

    eps = 1e-5
    differences = (solution(eps) - solution(-eps)) / (2 * eps)
    assert np.max(np.abs(jax.jit(jax.jacrev(solution))(0.0) - differences)) < 1e-8


@pytest.mark.parametrize("name", ["cg", "gmres"])
def test_invariant_subspace_and_zero(name):
    """b in an invariant subspace ends the basis early; b = 0 has none."""
    M = jnp.diag(jnp.array([2.0, 3.0, 4.0]))
    e = jnp.array([0.0, 1.0, 0.0])
    assert np.max(np.abs(solved(name, M, e, 3) - e / 3)) < 1e-14
    zero = jnp.zeros(3)
    assert np.array_equal(solved(name, M, zero, 3), zero)
    slope = jax.jit(jax.jacrev(lambda s: LINEAR[name](product(M + s * jnp.eye(3)), e, 3)))(0.0)
    assert np.max(np.abs(slope + e / 9)) < 1e-13


def test_cg_is_wrong_on_a_general_matrix_and_gmres_is_not():
    expected = np.linalg.solve(GENERAL, b)
    assert np.max(np.abs(solved("cg", GENERAL, b, N) - expected)) > 1e-3
    assert np.max(np.abs(solved("gmres", GENERAL, b, N) - expected)) < 1e-11


def test_singular_is_data():
    M = jnp.array([[1.0, 1.0], [1.0, 1.0]])
    assert not np.all(np.isfinite(solved("dense", M, jnp.array([1.0, 2.0]), 1)))
