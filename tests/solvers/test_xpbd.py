"""XPBD against Newton on the same energy, and against the Gauss–Seidel theory on linear constraints."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from diffsim.integrators import Phase, implicit_euler_potential
from diffsim.solvers import XPBD, Constraints, IncrementalPotential, Newton

N = 6
EDGES = tuple((i, i + 1) for i in range(N - 1))
H = 0.1
MASS = 1.0 + 0.1 * jnp.arange(N)[:, None]
LINEAR = Constraints(lambda x, rest: x[1, 0] - x[0, 0] - rest, EDGES, lambda p: 1 / p, lambda p: jnp.full(N - 1, 0.8))
LENGTHS = Constraints(
    lambda x, rest: jnp.linalg.norm(x[1] - x[0]) - rest, EDGES, lambda p: 1 / p, lambda p: jnp.full(N - 1, 0.8)
)
K = jnp.linspace(100.0, 300.0, N - 1)


def chain(d):
    q = jnp.zeros((N, d)).at[:, 0].set(jnp.arange(N) * 1.0)
    return q if d == 1 else q.at[:, 1].set(0.3 * jnp.sin(jnp.arange(N) * 1.0))


def solve(constraints, solver, d, k=K):
    E = IncrementalPotential(constraints, MASS, chain(d), k, H)
    return jax.jit(lambda: solver.solve(E.gradient, E.target, energy=E))()


def gauss_seidel_rate(order):
    """Radius of the sweep on (G W G^T + α̃) λ = -C, in the order of the colours."""
    G = np.eye(N)[1:] - np.eye(N)[:-1]
    M = G @ np.diag(1 / np.asarray(MASS)[:, 0]) @ G.T + np.diag(1 / np.asarray(K)) / H**2
    permutation = np.concatenate(LINEAR.colours())
    M = M[np.ix_(permutation, permutation)]
    below = np.tril(M) if order == "gauss-seidel" else 2 * np.diag(np.diag(M))
    return float(np.max(np.abs(np.linalg.eigvals(np.eye(N - 1) - np.linalg.solve(below, M)))))


@pytest.mark.parametrize(("order", "relaxation"), [("gauss-seidel", 1.0), ("jacobi", 0.5)])
def test_linear_constraints_converge_to_newton_at_the_rate_of_theory(order, relaxation):
    exact, _ = solve(LINEAR, Newton(), 1)
    u, receipt = solve(LINEAR, XPBD(sweeps=160, order=order, relaxation=relaxation), 1)
    assert np.max(np.abs(u - exact)) < 1e-9
    _, receipt = solve(LINEAR, XPBD(sweeps=20, order=order, relaxation=relaxation), 1)
    assert abs(float(receipt.contraction) - gauss_seidel_rate(order)) < 0.02


def test_gauss_seidel_is_not_jacobi():
    """The rates differ, so the test above would notice a swap."""
    assert abs(gauss_seidel_rate("gauss-seidel") - gauss_seidel_rate("jacobi")) > 0.1


def test_nonlinear_constraints_leave_a_floor_that_more_sweeps_do_not_remove():
    exact, clean = solve(LENGTHS, Newton(), 2)
    u, few = solve(LENGTHS, XPBD(sweeps=100), 2)
    u, many = solve(LENGTHS, XPBD(sweeps=400), 2)
    assert clean.problems() == []
    assert 1e-6 < float(many.residual) and abs(float(many.residual) / float(few.residual) - 1) < 1e-3
    assert 1e-7 < np.max(np.abs(u - exact)) < 1e-2


def test_momentum_is_conserved_by_every_sweep():
    u, _ = solve(LENGTHS, XPBD(sweeps=1), 2)
    assert np.max(np.abs(np.sum(MASS * (u - chain(2)), axis=0))) < 1e-14


def test_hard_constraints_hold():
    rigid = Constraints(LENGTHS.value, EDGES, lambda p: jnp.zeros(N - 1), LENGTHS.parameters)
    u, _ = solve(rigid, XPBD(sweeps=300), 2)
    assert np.max(np.abs(np.linalg.norm(np.diff(u, axis=0), axis=1) - 0.8)) < 1e-10


def test_reverse_mode_through_the_sweeps():
    @partial(jax.jit, static_argnums=1)
    def end(k, sweeps=3):
        return jnp.sum(solve(LENGTHS, XPBD(sweeps=sweeps), 2, k)[0] ** 2)

    gradient = jax.jit(jax.grad(end))(K)
    direction = jnp.linspace(1.0, 2.0, N - 1)
    differences = (end(K + 1e-3 * direction) - end(K - 1e-3 * direction)) / 2e-3
    assert abs(float(gradient @ direction - differences)) < 1e-8 * float(jnp.linalg.norm(gradient)) + 1e-9


def test_colours_share_no_point_and_miss_no_constraint():
    grid = Constraints(LENGTHS.value, tuple((i, j) for i in range(6) for j in range(i)), LENGTHS.compliance)
    groups = grid.colours()
    assert sorted(np.concatenate(groups).tolist()) == list(range(15))
    for group in groups:
        points = [p for j in group for p in grid.points[j]]
        assert len(points) == len(set(points))


def test_in_an_integrator():
    x = Phase(chain(2), jnp.zeros((N, 2)))
    gravity = lambda p: jnp.array([[0.0, -9.81]])
    systems = [implicit_euler_potential(LENGTHS, MASS, gravity=gravity, solver=s) for s in (Newton(), XPBD(sweeps=60))]
    newton, xpbd = (jax.jit(s.step)(x, K, 0.01) for s in systems)
    assert np.max(np.abs(newton.q - xpbd.q)) < 1e-5
    assert jax.jit(systems[1].solve_info)(x, K, 0.01).iterations == 60
    momentum = np.sum(np.asarray(MASS) * np.asarray(xpbd.v), axis=0)
    assert np.allclose(momentum, [0.0, -9.81 * 0.01 * float(jnp.sum(MASS))])


@pytest.mark.parametrize("setting", [{"sweeps": 0}, {"sweeps": 2, "order": "random"}, {"sweeps": 2, "tol": 0.0}])
def test_bad_settings_are_refused(setting):
    with pytest.raises(ValueError, match="write"):
        XPBD(**setting)


def test_tolerance():
    u, receipt = solve(LINEAR, XPBD(sweeps=200, tol=1e-6), 1)
    assert XPBD(sweeps=200, tol=1e-6).dynamic_stop and not XPBD(sweeps=200).dynamic_stop
    assert int(receipt.iterations) < 60 and float(receipt.residual) <= 1e-6
