"""Implicit integrators: order, agreement with diffrax and optimistix, invariants, and what the solver leaves open."""

from functools import lru_cache

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
import optimistix
import pytest

from diffsim import Adjoint, Converged, System, rollout, supported, trajectory, trees, why_not
from diffsim.integrators import Phase, backward_euler, implicit_euler_potential, implicit_midpoint
from diffsim.solvers import ConjugateGradient, GradientDescent, Jacobi, Newton, Picard

X0 = Phase(jnp.array([1.0, 0.4]), jnp.array([0.2, -0.3]))
P = jnp.array([2.0, 0.7])
MASS = jnp.array([1.0, 2.5])
NEWTON = Newton(iterations=5, line_search=False)


def potential(q, p):
    return -p[0] * jnp.sum(jnp.cos(q)) + 0.5 * p[1] * (q[1] - q[0]) ** 2


def field(x, p):
    return Phase(x.v, -jax.grad(potential)(x.q, p) / MASS)


def energy(x):
    return 0.5 * jnp.sum(MASS * x.v**2) + potential(x.q, P)


SYSTEMS = {
    "backward Euler": (backward_euler(field, solver=NEWTON), 1),
    "implicit midpoint": (implicit_midpoint(field, solver=NEWTON), 2),
    "implicit Euler on a potential": (implicit_euler_potential(potential, MASS, solver=NEWTON), 1),
}
each_system = pytest.mark.parametrize("name", list(SYSTEMS))


@lru_cache
def reference():
    control = diffrax.PIDController(rtol=1e-12, atol=1e-12)
    term = diffrax.ODETerm(lambda t, x, p: field(x, p))
    found = diffrax.diffeqsolve(term, diffrax.Dopri8(), 0.0, 1.0, 0.01, X0, args=P, stepsize_controller=control)
    return jax.tree.map(lambda a: a[0], found.ys)


def fitted_order(system, counts=(16, 64)):
    ends = [rollout(system, X0, P, h=1.0 / n, steps=n) for n in counts]
    errors = [float(trees.largest_gap(end, reference())) for end in ends]
    return -np.polyfit(np.log(counts), np.log(errors), 1)[0]


@each_system
def test_order(name):
    system, order = SYSTEMS[name]
    assert abs(fitted_order(system) - order) < 0.15


def test_the_order_check_can_fail():
    """A midpoint taken at one third is of first order."""

    def residual(x_next, x, p, h):
        middle = jax.tree.map(lambda a, b: (2 * a + b) / 3, x, x_next)
        return trees.subtract(x_next, trees.axpy(h, field(middle, p), x))

    off = System(step=lambda x, p, h: NEWTON.solve(lambda u: residual(u, x, p, h), x)[0])
    assert abs(fitted_order(off) - 2) > 0.5


@each_system
def test_field_is_the_continuous_dynamics(name):
    """The same for all, though one of them is given a potential and masses only."""
    assert float(trees.largest_gap(SYSTEMS[name][0].field(X0, P), field(X0, P))) < 1e-15


@each_system
def test_a_step_is_the_root_that_optimistix_finds(name):
    system, h = SYSTEMS[name][0], 0.2
    x_next = jax.jit(system.step)(X0, P, h)
    finish, unknown = system.finish or (lambda u, *_: u), system.unknown or (lambda x: x)
    found = optimistix.root_find(
        lambda u, _: system.residual(finish(u, X0, P, h), X0, P, h),
        optimistix.Newton(rtol=1e-12, atol=1e-12),
        unknown(X0),
    )
    assert float(trees.largest_gap(finish(found.value, X0, P, h), x_next)) < 1e-12
    assert float(trees.largest(system.residual(x_next, X0, P, h))) < 1e-12
    receipt = jax.jit(system.solve_info)(X0, P, h)
    assert receipt.problems() == [] and int(receipt.iterations) == 5
    assert system.name == name and not system.dynamic_stop


def test_backward_euler_agrees_with_diffrax():
    solver = diffrax.ImplicitEuler(root_finder=optimistix.Newton(rtol=1e-11, atol=1e-11))
    found = diffrax.diffeqsolve(
        diffrax.ODETerm(lambda t, x, p: field(x, p)), solver, 0.0, 1.0, 0.125, X0, args=P,
        stepsize_controller=diffrax.ConstantStepSize(),
    )  # fmt: skip
    ours = rollout(SYSTEMS["backward Euler"][0], X0, P, h=0.125, steps=8)
    assert float(trees.largest_gap(jax.tree.map(lambda a: a[0], found.ys), ours)) < 1e-8


def test_the_potential_form_is_backward_euler():
    whole, reduced = (
        rollout(SYSTEMS[n][0], X0, P, h=0.1, steps=20) for n in ("backward Euler", "implicit Euler on a potential")
    )
    assert float(trees.largest_gap(whole, reduced)) < 1e-12


def test_the_jacobian_of_the_potential_form_is_symmetric():
    system, h = SYSTEMS["implicit Euler on a potential"][0], 0.1
    J = jax.jit(jax.jacfwd(lambda u: system.residual(system.finish(u, X0, P, h), X0, P, h)))(X0.q + 0.1)
    assert np.max(np.abs(J - J.T)) < 1e-13
    assert np.max(np.abs(J - (np.diag(MASS) / h**2 + jax.hessian(potential)(X0.q + 0.1, P)))) < 1e-11


@pytest.mark.parametrize(
    "solver",
    [
        ConjugateGradient(iterations=12),
        Jacobi(iterations=30),
        GradientDescent(iterations=200, rate=0.004),
        Picard(iterations=200, relaxation=0.004),
        Newton(iterations=5, linear="cg", linear_iterations=2),
    ],
    ids=lambda s: s.name,
)
def test_every_solver_reaches_the_same_step(solver):
    system = implicit_euler_potential(potential, MASS, solver=solver)
    got, want = (jax.jit(s.step)(X0, P, 0.1) for s in (system, SYSTEMS["implicit Euler on a potential"][0]))
    assert float(trees.largest_gap(got, want)) < 1e-10
    assert jax.jit(system.solve_info)(X0, P, 0.1).problems(residual=1e-8) == []


def test_picard_contracts_at_half_h_times_the_field_in_the_midpoint_rule():
    """ρ is the spectral radius of h/2 f_x, here h ω/2."""
    h, omega = 0.2, 1.7
    system = implicit_midpoint(lambda x, p: Phase(x.v, -(p**2) * x.q), solver=Picard(iterations=8))
    receipt = jax.jit(system.solve_info)(Phase(jnp.array(1.0), jnp.array(0.3)), omega, h)
    assert abs(float(receipt.contraction) - h * omega / 2) < 1e-6


def rigid_body(x, p):
    return jnp.cross(x, x / p)


def test_implicit_midpoint_conserves_quadratic_invariants():
    """Euler's equations keep |L|² and the kinetic energy; backward Euler keeps neither."""
    L, inertia = jnp.array([1.0, 0.5, -0.3]), jnp.array([1.0, 2.0, 3.0])
    drift = {}
    for build in (implicit_midpoint, backward_euler):
        xs = trajectory(build(rigid_body, solver=NEWTON), L, inertia, h=0.2, steps=500)
        quantities = jnp.stack([jnp.sum(xs**2, axis=1), jnp.sum(xs**2 / inertia[None], axis=1)])
        drift[build] = float(jnp.max(jnp.abs(quantities - quantities[:, :1])))
    assert drift[implicit_midpoint] < 1e-13 and drift[backward_euler] > 1e-2


def test_a_truncated_midpoint_drifts():
    """The planted fault: two Picard iterations are another map, which has no such invariant."""
    L, inertia = jnp.array([1.0, 0.5, -0.3]), jnp.array([1.0, 2.0, 3.0])
    xs = trajectory(implicit_midpoint(rigid_body, solver=Picard(iterations=2)), L, inertia, h=0.2, steps=500)
    assert float(jnp.max(jnp.abs(jnp.sum(xs**2, axis=1) - jnp.sum(L**2)))) > 1e-3


def test_backward_euler_damps_an_oscillation_as_documented():
    """Energy decays at the rate h ω²."""
    h, omega, steps = 0.01, 2.0, 200
    system = implicit_euler_potential(lambda q, p: 0.5 * p**2 * q**2, 1.0, solver=Newton(iterations=2))
    xs = trajectory(system, Phase(jnp.array(1.0), jnp.array(0.0)), omega, h=h, steps=steps)
    E = np.asarray(0.5 * xs.v**2 + 0.5 * omega**2 * xs.q**2)
    assert abs(-np.log(E[-1] / E[0]) / (h * steps) / (h * omega**2) - 1) < 0.05


def test_implicit_midpoint_is_its_own_inverse():
    system = SYSTEMS["implicit midpoint"][0]
    back = jax.jit(lambda x: system.unstep(system.step(x, P, 0.2), P, 0.2))(X0)
    assert float(trees.largest_gap(back, X0)) < 1e-14
    loose = implicit_midpoint(field, solver=Picard(iterations=2))
    assert float(trees.largest_gap(loose.unstep(loose.step(X0, P, 0.2), P, 0.2), X0)) > 1e-4


def gradient(system, adjoint, start=X0):
    return jax.grad(lambda p: jnp.sum(rollout(system, start, p, h=0.1, steps=4, adjoint=adjoint).q ** 2))(P)


@each_system
def test_executed_and_converged_derivatives_meet_at_convergence(name):
    system = SYSTEMS[name][0]
    executed, converged = gradient(system, Adjoint()), gradient(system, Adjoint(Converged()))
    assert float(trees.largest_gap(executed, converged)) < 1e-11


def test_executed_and_converged_derivatives_differ_before():
    loose = implicit_midpoint(field, solver=Picard(iterations=2))
    assert float(trees.largest_gap(gradient(loose, Adjoint()), gradient(loose, Adjoint(Converged())))) > 1e-6


def test_the_warm_start_is_part_of_the_executed_derivative():
    """From x_n or from the explicit prediction: other numbers at two iterations, the same at many."""
    predict = lambda x, p, h: trees.axpy(h, field(x, p), x)
    gaps = []
    for iterations in (2, 30):
        pair = [
            gradient(backward_euler(field, solver=Picard(iterations=iterations), guess=guess), Adjoint())
            for guess in (None, predict)
        ]
        gaps.append(float(trees.largest_gap(*pair)))
    assert gaps[0] > 1e-4 and gaps[1] < 1e-13


def test_a_dynamic_stop_is_refused_for_the_executed_referent_only():
    stopping = Newton(iterations=10, tol=1e-10)
    for system in (backward_euler(field, solver=stopping), implicit_euler_potential(potential, MASS, solver=stopping)):
        assert system.dynamic_stop
        assert "fixed number of iterations" in why_not(system, Adjoint())
        assert "converged/adjoint-solve/store-all" in [str(a) for a in supported(system)]
    with pytest.raises(ValueError, match="fixed number of iterations"):
        rollout(system, X0, P, h=0.1, steps=2)
    static = gradient(SYSTEMS["implicit Euler on a potential"][0], Adjoint(Converged()))
    assert float(trees.largest_gap(gradient(system, Adjoint(Converged())), static)) < 1e-9


def test_receipts_show_a_solve_that_failed():
    system = implicit_euler_potential(potential, MASS, solver=GradientDescent(iterations=30, rate=0.1))
    receipts = jax.jit(jax.vmap(lambda h: system.solve_info(X0, P, h)))(jnp.array([0.1, 0.5]))
    assert len(receipts.problems()) >= 1 and bool(receipts.residual[0] > 1.0)
    with pytest.raises(FloatingPointError, match="does not shrink"):
        receipts.raise_if_bad()


def test_gravity_and_masses_may_be_parameters_and_trees():
    """Free fall: one step of backward Euler gains h g, whatever the mass; a heavier mass moves less in a spring."""
    system = implicit_euler_potential(
        lambda q, p: 0.5 * p["k"] * jnp.sum(q["a"] ** 2),
        lambda p: {"a": p["m"]},
        gravity=lambda p: p["g"],
        solver=NEWTON,
    )
    x = Phase({"a": jnp.ones((2, 1))}, {"a": jnp.zeros((2, 1))})
    p = {"k": jnp.array(0.0), "m": jnp.array([[1.0], [2.0]]), "g": jnp.array(-9.81)}
    assert np.allclose(jax.jit(system.step)(x, p, 0.1).v["a"], -0.981)
    assert np.allclose(system.field(x, p).v["a"], -9.81)
    slope = jax.jit(jax.grad(lambda m: system.step(x, {**p, "k": jnp.array(5.0), "m": m}, 0.1).v["a"].sum()))(p["m"])
    assert np.all(slope > 0)
    flat = implicit_euler_potential(lambda q, p: jnp.sum(q**2), jnp.ones(2))
    with pytest.raises(ValueError, match=r"mass\[:, None\]"):
        flat.step(Phase(jnp.ones((2, 3)), jnp.zeros((2, 3))), p, 0.1)


@each_system
def test_float32(name):
    x0, p = jax.tree.map(lambda a: a.astype(jnp.float32), (X0, P))
    system = SYSTEMS[name][0]
    if system.unknown:
        system = implicit_euler_potential(potential, MASS.astype(jnp.float32), solver=NEWTON)
    else:
        mass = MASS.astype(jnp.float32)
        narrow = lambda x, p: Phase(x.v, -jax.grad(potential)(x.q, p) / mass)
        system = {"backward Euler": backward_euler, "implicit midpoint": implicit_midpoint}[name](narrow, solver=NEWTON)
    x = rollout(system, x0, p, h=0.1, steps=10)
    assert all(a.dtype == jnp.float32 for a in jax.tree.leaves(x))
    assert float(trees.largest_gap(x, rollout(SYSTEMS[name][0], X0, P, h=0.1, steps=10))) < 1e-5
