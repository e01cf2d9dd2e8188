"""Rates of convergence against theory, and the derivatives of a truncated solve against closed forms."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from diffsim.solvers import ConjugateGradient, GradientDescent, Jacobi, Newton, Picard

N = 6
rng = np.random.default_rng(0)
Q = np.linalg.qr(rng.normal(size=(N, N)))[0]
A = Q @ np.diag(np.linspace(1.0, 5.0, N)) @ Q.T
A = (A + A.T) / 2
b = np.arange(1.0, N + 1)
D = np.diag(np.diag(A))


def spectral_radius(M):
    return float(np.max(np.abs(np.linalg.eigvals(M))))


def linear(u):
    return jnp.asarray(A) @ u - jnp.asarray(b)


# Heavy ball is linear in (u_k, u_{k-1}): its rate is the radius of the block matrix.
BALL = np.block([[1.3 * np.eye(N) - 0.25 * A, -0.3 * np.eye(N)], [np.eye(N), np.zeros((N, N))]])

RATES = {
    "picard": (Picard(iterations=80, relaxation=0.25), spectral_radius(np.eye(N) - 0.25 * A)),
    "picard, less": (Picard(iterations=80, relaxation=0.1), spectral_radius(np.eye(N) - 0.1 * A)),
    "gradient-descent": (GradientDescent(iterations=80, rate=0.15), spectral_radius(np.eye(N) - 0.15 * A)),
    "gradient-descent, optimal": (GradientDescent(iterations=60, rate=2 / 6), 4 / 6),
    "gradient-descent, diverging": (GradientDescent(iterations=60, rate=0.45), 0.45 * 5 - 1),
    "jacobi": (Jacobi(iterations=80), spectral_radius(np.eye(N) - np.linalg.solve(D, A))),
    "jacobi, damped": (Jacobi(iterations=80, relaxation=0.6), spectral_radius(np.eye(N) - 0.6 * np.linalg.solve(D, A))),
}


def contraction_is(solver, rho):
    _, receipt = jax.jit(lambda u: solver.solve(linear, u))(jnp.zeros(N))
    return abs(float(receipt.contraction) - rho) < 0.01 * rho


@pytest.mark.parametrize("key", list(RATES))
def test_contraction_equals_theory(key):
    solver, rho = RATES[key]
    assert contraction_is(solver, rho)


def test_the_contraction_check_can_fail():
    wrong = Picard(iterations=80, relaxation=0.25)
    assert not contraction_is(wrong, RATES["picard, less"][1])


def test_heavy_ball_rate():
    """Its leading eigenvalues are complex, so the ratio swings: compare over many iterations."""
    sizes = [
        float(GradientDescent(iterations=k, rate=0.25, momentum=0.3).solve(linear, jnp.zeros(N))[1].residual)
        for k in (10, 40)
    ]
    assert abs((sizes[1] / sizes[0]) ** (1 / 30) - spectral_radius(BALL)) < 0.03


def test_picard_on_backward_euler_contracts_like_h_times_the_field():
    h, decay = 0.1, 4.0
    _, receipt = Picard(iterations=12).solve(lambda u: u - (1.0 - h * decay * u), jnp.array(1.0))
    assert abs(float(receipt.contraction) - h * decay) < 1e-6


def test_conjugate_gradients_end_after_n():
    sizes = [float(ConjugateGradient(iterations=k).solve(linear, jnp.zeros(N))[1].residual) for k in (1, N - 1, N)]
    assert sizes[1] > 1e-3 and sizes[2] < 1e-10


@pytest.mark.parametrize("linear_solve", ["dense", "cg", "gmres"])
def test_newton_squares_the_error(linear_solve):
    def residual(u):
        return jnp.asarray(A) @ u + u**3 - jnp.asarray(b)

    one = Newton(iterations=1, linear=linear_solve, linear_iterations=N, line_search=False)
    step = jax.jit(lambda u: one.solve(residual, u)[0])
    iterates = [jnp.ones(N)]
    for _ in range(12):
        iterates.append(step(iterates[-1]))
    errors = np.array([float(jnp.max(jnp.abs(u - iterates[-1]))) for u in iterates[2:5]])
    slopes = np.diff(np.log(errors))
    assert 1e-12 < errors[-1] and abs(slopes[1] / slopes[0] - 2) < 0.15


def test_newton_is_only_linear_at_a_double_root():
    """The planted fault of the test above: the same slope is 1, and the receipt shows contraction 1/2."""
    _, receipt = Newton(iterations=10, line_search=False).solve(lambda u: u * u, jnp.array(1.0))
    assert abs(float(receipt.contraction) - 0.25) < 1e-6  # of the residual u²: the error halves


@pytest.mark.parametrize("K", [1, 2, 4, 8, 16])
def test_scalar_fixed_point_of_E1(K):
    """x <- x - α(a x - θ) from 0, ρ = 1 - α a: shares of the limit -θ/a² missed, at a = 1."""
    alpha, theta, a = 0.2, 1.7, 1.0
    rho = 1 - alpha * a
    solver = GradientDescent(iterations=K, rate=alpha)

    def end(a):
        return solver.solve(lambda x: a * x - theta, 0.0)[0]

    executed = float(jax.jit(jax.grad(end))(a))
    implicit = -float(end(a)) / a  # of the equation, at the unconverged state
    limit = -theta / a**2
    assert abs((limit - executed) / limit - (rho**K + K * alpha * rho ** (K - 1))) < 1e-13
    assert abs((limit - implicit) / limit - rho**K) < 1e-13
    assert abs((implicit - executed) / limit - K * alpha * rho ** (K - 1)) < 1e-13


def test_E1_numbers_and_where_the_gap_peaks():
    K = np.arange(1, 40)
    shares = [round(v, 3) for v in (0.8**8 + 8 * 0.2 * 0.8**7, 0.8**8, 8 * 0.2 * 0.8**7)]
    assert shares == [0.503, 0.168, 0.336]
    assert abs(K[np.argmax(K * 0.2 * 0.8 ** (K - 1))] + 1 / np.log(0.8)) < 1


@pytest.mark.parametrize("K", [4, 9])
def test_picard_derivative_shares_for_any_slope(K):
    """As documented: ρ^K + K(1-ρ)ρ^{K-1} for a parameter in the slope, ρ^K for one in the right-hand side."""
    omega, theta, a = 0.3, 1.7, 1.4
    rho = 1 - omega * a
    end = lambda a, theta: Picard(iterations=K, relaxation=omega).solve(lambda x: a * x - theta, 0.0)[0]
    slope, side = jax.jit(jax.grad(end, argnums=(0, 1)))(a, theta)
    assert abs(1 - float(slope) / (-theta / a**2) - (rho**K + K * (1 - rho) * rho ** (K - 1))) < 1e-13
    assert abs(1 - float(side) * a - rho**K) < 1e-13


def test_newton_derivative_lags_one_iteration():
    """A derivative of Newton's iteration is as good as the root one iteration before, to first order."""
    end = lambda K, c: Newton(iterations=K, line_search=False).solve(lambda u: u**2 - c, jnp.asarray(1.0))[0]
    both = jax.jit(jax.value_and_grad(end, argnums=1), static_argnums=0)
    roots, gradients = zip(*(both(K, 2.0) for K in (1, 2, 3, 4)), strict=True)
    root_errors = [abs(float(u) - np.sqrt(2)) for u in roots]
    gradient_errors = [abs(float(g) - 0.5 / np.sqrt(2)) for g in gradients[1:]]
    for before, error in zip(root_errors, gradient_errors, strict=False):
        assert error < before
    assert gradient_errors[-1] > 5 * root_errors[-1]
