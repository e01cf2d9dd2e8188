"""What every solver must do: one list, every property."""

import itertools
from dataclasses import FrozenInstanceError, dataclass, replace
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optimistix
import pytest

from diffsim.integrators import Phase, backward_euler, implicit_euler_potential
from diffsim.solvers import (
    SOLVERS,
    XPBD,
    ConjugateGradient,
    GradientDescent,
    Jacobi,
    Newton,
    Picard,
    iteration,
)

N = 5
A = jnp.asarray(np.diag([2.0, 2.5, 3.0, 2.2, 2.8]) - 0.5 * (np.eye(N, k=1) + np.eye(N, k=-1)))


class Bowl(NamedTuple):
    """E(u) = u·Au/2 - b·u + Σ c u⁴/4, a convex energy."""

    b: jax.Array
    c: jax.Array

    def energy(self, u):
        return 0.5 * u @ (A.astype(u.dtype) @ u) - self.b @ u + self.c * jnp.sum(u**4) / 4

    def residual(self, u):
        return A.astype(u.dtype) @ u - self.b + self.c * u**3


# One list; a new solver is tested by being added to it. `with_energy` says whether the energy is handed over too.
GRID = {
    "newton": (Newton(iterations=8), True),
    "newton, |R|": (Newton(iterations=8), False),
    "newton, full step": (Newton(iterations=8, line_search=False), False),
    "newton cg": (Newton(iterations=8, linear="cg", linear_iterations=6), True),
    "newton gmres": (Newton(iterations=8, linear="gmres", linear_iterations=5), False),
    "picard": (Picard(iterations=120, relaxation=0.3), False),
    "jacobi": (Jacobi(iterations=80), False),
    "jacobi, damped": (Jacobi(iterations=80, relaxation=0.8), False),
    "gradient-descent": (GradientDescent(iterations=120, rate=0.3), True),
    "gradient-descent, momentum": (GradientDescent(iterations=120, rate=0.4, momentum=0.1), True),
    "conjugate-gradient": (ConjugateGradient(iterations=30), True),
    "conjugate-gradient, no energy": (ConjugateGradient(iterations=30), False),
}
each_solver = pytest.mark.parametrize("key", list(GRID))
one_of_each = pytest.mark.parametrize("key", ["newton", "picard", "jacobi", "gradient-descent", "conjugate-gradient"])


def changed(key, **settings):
    solver, with_energy = GRID[key]
    return replace(solver, **settings), with_energy


def problem(dtype=jnp.float64):
    return Bowl(jnp.linspace(-1.0, 2.0, N, dtype=dtype), jnp.asarray(0.3, dtype))


def of(bowl):
    return bowl.residual, jnp.zeros_like(bowl.b)


@partial(jax.jit, static_argnums=(0, 1))
def solve(solver, with_energy, bowl):
    return solver.solve(*of(bowl), energy=bowl.energy if with_energy else None)


@pytest.fixture(scope="module")
def root():
    bowl = problem()
    found = optimistix.root_find(
        lambda u, _: bowl.residual(u), optimistix.Newton(rtol=1e-13, atol=1e-13), jnp.zeros(N), max_steps=100
    )
    return found.value


def implicit_derivative(u, bowl):
    """d u / d c · 1 by the implicit function theorem, with numpy."""
    return np.linalg.solve(np.asarray(A) + np.diag(3 * bowl.c * u**2), -(np.asarray(u) ** 3))


def test_table():
    assert {name: kind.name for name, kind in SOLVERS.items()} == {name: name for name in SOLVERS}
    assert {type(solver) for solver, _ in GRID.values()} | {XPBD} == set(SOLVERS.values())


@each_solver
def test_agrees_with_optimistix(key, root):
    u, receipt = solve(*GRID[key], problem())
    assert np.max(np.abs(u - root)) < 1e-12
    assert receipt.problems(residual=1e-11) == []
    assert int(receipt.iterations) == GRID[key][0].iterations


@one_of_each
def test_float32_stays_float32(key, root):
    u, receipt = solve(*GRID[key], problem(jnp.float32))
    assert u.dtype == receipt.residual.dtype == receipt.contraction.dtype == jnp.float32
    assert np.max(np.abs(u - root)) < 3e-6


@one_of_each
def test_reverse_mode_through_a_static_count(key, root):
    """At convergence, the executed derivative is the implicit function theorem's, checked with numpy."""
    gradient = jax.jit(jax.jacrev(lambda c: solve(*GRID[key], problem()._replace(c=c))[0]))(0.3)
    assert np.max(np.abs(gradient - implicit_derivative(root, problem()))) < 1e-8


@one_of_each
def test_derivative_is_of_the_executed_iterations(key):
    """At two iterations AD must agree with finite differences of the run, not with the root's derivative."""
    solver, with_energy = changed(key, iterations=2)

    def end(c):
        return solve(solver, with_energy, problem()._replace(c=c))[0]

    eps = 1e-5
    differences = (end(jnp.asarray(0.3 + eps)) - end(jnp.asarray(0.3 - eps))) / (2 * eps)
    assert np.max(np.abs(jax.jit(jax.jacrev(end))(0.3) - differences)) < 1e-8
    assert np.max(np.abs(differences - implicit_derivative(end(jnp.asarray(0.3)), problem()))) > 1e-5


@one_of_each
def test_tolerance_stops_early_and_forward_only(key, root):
    static, _ = GRID[key]
    solver, with_energy = changed(key, tol=1e-5)
    assert solver.dynamic_stop and not static.dynamic_stop
    u, receipt = solve(solver, with_energy, problem())
    assert 0 < int(receipt.iterations) < static.iterations
    assert float(receipt.residual) <= 1e-5 and np.max(np.abs(u - root)) < 1e-4

    def end(c):
        return solve(solver, with_energy, problem()._replace(c=c))[0]

    with pytest.raises(ValueError, match="[Rr]everse-mode differentiation"):
        jax.jacrev(end)(0.3)
    if key == "picard":
        assert np.all(np.isfinite(jax.jacfwd(end)(0.3)))


@pytest.mark.parametrize("key", ["newton", "picard", "conjugate-gradient"])
def test_vmap_equals_loop(key):
    """Lanes that stop at different counts keep their own."""
    for solver, with_energy in (GRID[key], changed(key, tol=1e-5)):
        cs = [0.0, 2.0]
        us, receipts = jax.vmap(lambda c, s=solver, e=with_energy: solve(s, e, problem()._replace(c=c)))(jnp.array(cs))
        for i, c in enumerate(cs):
            u, receipt = solve(solver, with_energy, problem()._replace(c=jnp.asarray(c)))
            assert np.max(np.abs(us[i] - u)) < 1e-12
            assert int(receipts.iterations[i]) == int(receipt.iterations)


def bits_agree(key, **settings):
    solver, with_energy = changed(key, **settings)
    alone = jax.jit(lambda bowl: solver.solve(*of(bowl), energy=bowl.energy if with_energy else None)[0])(problem())
    together, _ = solve(solver, with_energy, problem())
    return np.array_equal(alone, together)


# These two differed, in float64 on a CPU, as long as the norms could be pruned.
@pytest.mark.parametrize("key", ["jacobi", "gradient-descent, momentum", "newton", "conjugate-gradient"])
@pytest.mark.parametrize("settings", [{"iterations": 1}, {"iterations": 3}, {"iterations": 3, "tol": 1e-30}], ids=str)
def test_bits_do_not_depend_on_the_receipt(key, settings):
    assert bits_agree(key, **settings)


def test_the_bits_check_sees_the_last_bit(monkeypatch):
    """Whether a pruned norm changes bits is the compiler's choice, so the planted fault moves one bit itself."""
    programs = itertools.count()

    def moved(u, watch):
        one_bit = jnp.inf if next(programs) else -jnp.inf
        return jax.tree.map(lambda a: jnp.nextafter(a, one_bit), u)

    monkeypatch.setattr(iteration, "_tied", moved)
    jax.clear_caches()
    assert not bits_agree("jacobi", iterations=3)
    jax.clear_caches()


@pytest.mark.parametrize("key", ["newton", "picard"])
def test_receipt_carries_no_derivative(key):
    solver, with_energy = GRID[key]
    tangent = jax.jvp(lambda c: solve(solver, with_energy, problem()._replace(c=c))[1].residual, (0.3,), (1.0,))[1]
    assert tangent == 0.0


@one_of_each
def test_pytrees(key):
    solver, with_energy = GRID[key]
    bowl = problem()
    split = lambda u: {"a": u[:2].reshape(2, 1), "b": (u[2:],)}
    join = lambda tree: jnp.concatenate([tree["a"][:, 0], tree["b"][0]])
    energy = (lambda tree: bowl.energy(join(tree))) if with_energy else None
    u, receipt = jax.jit(
        lambda guess: solver.solve(lambda tree: split(bowl.residual(join(tree))), guess, energy=energy)
    )(split(jnp.zeros(N)))
    flat, expected = solve(solver, with_energy, bowl)
    assert np.max(np.abs(join(u) - flat)) < 1e-13
    assert float(receipt.residual) < 1e-11


@each_solver
def test_settings_are_frozen_hashable_and_checked(key):
    solver, _ = GRID[key]
    assert hash(solver) == hash(replace(solver))
    with pytest.raises(FrozenInstanceError):
        solver.iterations = 3
    with pytest.raises(ValueError, match="write a whole number of at least 1"):
        replace(solver, iterations=0)
    with pytest.raises(ValueError, match="greater than 0"):
        replace(solver, tol=-1.0)


def test_unknown_linear_solve_is_refused():
    with pytest.raises(ValueError, match="write one of dense, cg, gmres"):
        Newton(linear="lu")


def test_supplied_diagonal_is_used():
    bowl = problem()
    supplied = Jacobi(iterations=80, diagonal=lambda u: jnp.diag(A) + 3 * 0.3 * u**2)
    assert np.max(np.abs(solve(supplied, False, bowl)[0] - solve(Jacobi(iterations=80), False, bowl)[0])) < 1e-14
    wrong = Jacobi(iterations=3, diagonal=lambda u: 2 * jnp.diag(A))
    assert np.max(np.abs(solve(wrong, False, bowl)[0] - solve(Jacobi(iterations=3), False, bowl)[0])) > 1e-2


def test_newton_with_an_energy_finds_the_minimum():
    """From where the Hessian is indefinite: without the energy it goes to the maximum at 0."""
    energy = lambda u: jnp.sum((u**2 - 1.0) ** 2)
    guess = jnp.array([0.2, -0.3])
    without, _ = Newton(iterations=20).solve(jax.grad(energy), guess)
    minimum, receipt = Newton(iterations=20).solve(jax.grad(energy), guess, energy=energy)
    assert np.max(np.abs(without)) < 1e-8
    assert np.allclose(minimum, [1.0, -1.0]) and receipt.problems() == []


def test_line_search_rescues_newton():
    residual = jnp.arctan
    guess = jnp.array([2.0])
    _, full = Newton(iterations=8, line_search=False).solve(residual, guess)
    u, searched = Newton(iterations=8).solve(residual, guess)
    assert full.problems() and not searched.problems() and abs(float(u[0])) < 1e-12


@dataclass(frozen=True)
class Chord:
    """A solver defined outside the package: Newton with the first Jacobian."""

    iterations: int
    name = "chord"
    dynamic_stop = False

    def solve(self, residual, guess, *, energy=None):
        J = jax.jacfwd(residual)(guess)
        u = jax.lax.fori_loop(0, self.iterations, lambda _, u: u - jnp.linalg.solve(J, residual(u)), guess)
        return u, None


def test_the_seam_is_open():
    x = Phase(jnp.array([1.0, 0.5]), jnp.zeros(2))
    build = lambda solver: implicit_euler_potential(lambda q, p: p * jnp.sum(q**4), 1.0, solver=solver)
    own, theirs = (build(s).step(x, 3.0, 0.1).q for s in (Newton(), Chord(iterations=20)))
    assert np.allclose(own, theirs, rtol=1e-12)


@pytest.mark.parametrize("name", [n for n in SOLVERS if n != "xpbd"])
def test_dynamic_stop_reaches_the_system(name):
    extra = {"iterations": 5, "rate": 0.1} if name == "gradient-descent" else {"iterations": 5}
    for tol in (None, 1e-8):
        solver = SOLVERS[name](**extra, tol=tol)
        assert backward_euler(lambda x, p: -p * x, solver=solver).dynamic_stop == (tol is not None)
        assert implicit_euler_potential(lambda q, p: q, 1.0, solver=solver).dynamic_stop == (tol is not None)


def test_xpbd_needs_constraints():
    with pytest.raises(TypeError, match="write energy=IncrementalPotential"):
        XPBD(sweeps=2).solve(lambda u: u, jnp.zeros((2, 1)))
