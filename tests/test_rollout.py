"""`rollout`: its gradient is the one that the adjoint claims, by three independent oracles."""

from collections import Counter
from contextlib import contextmanager
from dataclasses import replace
from functools import cache

import jax
import jax.monitoring
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse as sparse
from jax.flatten_util import ravel_pytree
from scipy.sparse.linalg import spsolve

from diffsim import (
    Adjoint,
    AdjointSolve,
    Binomial,
    Checkpoint,
    Recompute,
    Reverse,
    StoreAll,
    System,
    rollout,
    trajectory,
)
from diffsim.integrators import Phase, fixed_point_leapfrog
from tests.helpers import (
    BACK_SOLVED,
    DUFFING,
    LATTICE,
    LOGISTIC,
    PENDULUM,
    RETENTIONS,
    SLIDE,
    along,
    bits,
    cells,
    central_difference,
    cross,
    directions,
    each_small,
    gap,
    gradient,
    loss,
    pendulum_acceleration,
    plain_gradient,
    primal,
)

ROUND_OFF = 1e-12


# The executed computation -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("small", "adjoint"), cells((LOGISTIC, DUFFING, PENDULUM), {"executed"}) + cross((LATTICE, SLIDE), {"executed"})
)
def test_every_executed_adjoint_is_the_gradient_of_the_plain_loop(small, adjoint):
    value, slopes = gradient(small, adjoint)
    assert gap(slopes, plain_gradient(small)) < ROUND_OFF
    # The primal doesn't depend on the adjoint, not even in its last bit.
    assert bits(value) == bits(primal(small))


@pytest.mark.parametrize("retention", RETENTIONS, ids=str)
def test_a_wrong_formula_is_caught_whatever_the_retention(retention):
    """A planted fault: a share of dL/dp with the wrong sign, in one parameter of two."""

    def wrong(x, x_next, p, h, lam):
        lam, share = DUFFING.system.step_vjp(x, x_next, p, h, lam)
        return lam, {**share, "load": -share["load"]}

    faulty = replace(DUFFING, system=replace(DUFFING.system, step_vjp=wrong))
    slopes = gradient(faulty, replace(Adjoint.parse("executed/custom-adjoint/store-all"), retention=retention))[1]
    assert gap(slopes, plain_gradient(DUFFING)) > 1e-2


@each_small
def test_the_gradient_passes_central_differences(small):
    if small.system.grid:
        # A rounded run jumps by one grid spacing, so its difference quotient is too coarse below the square root of it.
        width, tolerance = 1e-4, 1e-6
    else:
        width, tolerance = 1e-5, 1e-8
    (of_params, of_x0), size = plain_gradient(small), ravel_pytree(plain_gradient(small))[0]
    ours = gradient(small, Adjoint())[1]
    value = jax.jit(small.value)
    for direction in directions((small.params, small.x0), count=3):
        slope = central_difference(lambda both: value(*both), (small.params, small.x0), direction, width)
        assert along(ours, direction) == pytest.approx(slope, abs=tolerance * float(np.max(np.abs(size))))
    # The check can fail: a gradient that is off by a thousandth doesn't pass.
    off = jax.tree.map(lambda a: 1.001 * a, (of_params, of_x0))
    assert along(off, direction) != pytest.approx(slope, abs=tolerance * float(np.max(np.abs(size))))


@pytest.mark.parametrize("small", [DUFFING, LATTICE], ids=lambda small: small.name)
def test_adjoint_solve_is_the_transposed_solve_of_the_whole_run(small):
    """All steps at once: F_n = x_{n+1} - step(x_n, p), its block-bidiagonal Jacobian assembled and solved by scipy."""
    flat_x0, unravel = ravel_pytree(small.x0)
    flat_p, unravel_p = ravel_pytree(small.params)
    T, n = small.steps, flat_x0.size

    @jax.jit
    def blocks(x, p):
        step = lambda x, p: ravel_pytree(small.system.step(unravel(x), unravel_p(p), small.h))[0]
        x_T, xs = jax.lax.scan(lambda x, _: (step(x, p), x), x, length=T)
        return *jax.vmap(jax.jacfwd(step, argnums=(0, 1)), in_axes=(0, None))(xs, p), jax.grad(
            lambda x: loss(unravel(x))
        )(x_T)

    A, B, downstream = (np.asarray(a) for a in blocks(flat_x0, flat_p))

    def solved(below):
        F = sparse.lil_matrix(np.eye(n * T))
        for k, block in enumerate(below, start=1):
            F[k * n : (k + 1) * n, (k - 1) * n : k * n] = -block
        right = np.concatenate([np.zeros(n * (T - 1)), downstream])
        mu = spsolve(F.T.tocsc(), right).reshape(T, n)
        return unravel_p(np.einsum("tnp,tn->p", B, mu)), unravel(A[0].T @ mu[0])

    ours = gradient(small, Adjoint(realization=AdjointSolve()))[1]
    assert gap(ours, solved(A[1:])) < ROUND_OFF
    # The check can fail: with the blocks shifted by one step the solve gives something else.
    assert gap(ours, solved(A[:-1])) > 1e-4


# The other referents ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("small", "adjoint"), cells((DUFFING,), {"converged"}) + cross((SLIDE,), {"converged"}))
def test_at_a_converged_root_the_two_discrete_referents_agree(small, adjoint):
    value, slopes = gradient(small, adjoint)
    assert gap(slopes, plain_gradient(small)) < 1e-11
    assert bits(value) == bits(primal(small))


def test_before_convergence_the_two_discrete_referents_differ():
    """The agreement above is none of the tolerance: with one Newton step less than enough it is gone."""

    def crude(x, p, h):
        u = x.v - SLIDE.system.residual(SLIDE.system.finish(x.v, x, p, h), x, p, h)
        return SLIDE.system.finish(u, x, p, h)

    small = replace(SLIDE, system=replace(SLIDE.system, step=crude))
    slopes = gradient(small, Adjoint.parse("converged/adjoint-solve/store-all"))[1]
    assert gap(slopes, plain_gradient(small)) > 1e-3


@pytest.fixture(scope="module")
def continuous_gradients():
    """Gradients of the continuous referent on the logistic equation, by realization and retention."""
    found = {}
    for case in cells((LOGISTIC,), {"continuous"}, BACK_SOLVED):
        small, adjoint = case.values
        found[adjoint.realization.name, adjoint.retention.name] = gradient(small, adjoint)[1]
    return found


@pytest.mark.parametrize("retention", [r.name for r in RETENTIONS if r.name != "reverse"])
@pytest.mark.parametrize("realization", ["ad", "adjoint-solve", "custom-adjoint"])
def test_continuous_retentions_that_keep_states_agree(continuous_gradients, realization, retention):
    stored = continuous_gradients[realization, "store-all"]
    assert gap(continuous_gradients[realization, retention], stored) < ROUND_OFF


@pytest.mark.parametrize("retention", [r.name for r in RETENTIONS])
def test_continuous_adjoint_equation_by_hand_is_the_one_by_ad(continuous_gradients, retention):
    by_hand, by_ad = (continuous_gradients[name, retention] for name in ("custom-adjoint", "adjoint-solve"))
    assert gap(by_hand, by_ad) < ROUND_OFF


def test_continuous_adjoint_equation_by_hand_works_on_pytrees():
    by_hand, by_ad = (
        gradient(DUFFING, Adjoint.parse(f"continuous/{name}/store-all"))[1]
        for name in ("custom-adjoint", "adjoint-solve")
    )
    assert gap(by_hand, by_ad) < ROUND_OFF


def test_continuous_realizations_meet_with_the_step_size():
    """Sensitivity from x_n, adjoint from x_{n+1}: the states differ by a step's error O(h²), the Jacobians of a step by
    O(h³), and so the gradients by O(h²), one order above the step's own."""
    sizes = (0.05, 0.025, 0.0125)
    gaps = []
    for h in sizes:
        small = replace(LOGISTIC, h=h, steps=round(0.4 / h))
        forwards, backwards = (
            gradient(small, Adjoint.parse(f"continuous/{name}/store-all"))[1] for name in ("ad", "adjoint-solve")
        )
        gaps.append(gap(forwards, backwards))
    assert np.polyfit(np.log(sizes), np.log(gaps), 1)[0] == pytest.approx(2.0, abs=0.2)


# Kinds of state, parameters and precision -------------------------------------------------------------------------


@each_small
def test_gradients_have_the_structure_shapes_and_dtypes_of_what_they_belong_to(small):
    x_T = rollout(small.system, small.x0, small.params, h=small.h, steps=small.steps)
    for ours, theirs in ((x_T, small.x0), *zip(gradient(small, Adjoint())[1], (small.params, small.x0), strict=True)):
        assert jax.tree.structure(ours) == jax.tree.structure(theirs)
        assert [(a.shape, a.dtype) for a in jax.tree.leaves(ours)] == [
            (a.shape, a.dtype) for a in jax.tree.leaves(theirs)
        ]


def single(tree):
    return jax.tree.map(lambda a: np.asarray(a, np.float32), tree)


# 2^24 numbers of single precision have to hold positions and velocities up to a few units.
SINGLE_PENDULUM = replace(
    PENDULUM,
    system=fixed_point_leapfrog(pendulum_acceleration, grid=2.0**-20),
    x0=Phase(q=np.float64(1), v=np.float64(-0.25)),
)


SINGLE = [
    (DUFFING, "executed/ad/store-all"),
    (DUFFING, "executed/custom-adjoint/reverse"),
    (DUFFING, "converged/ad/store-all"),
    (DUFFING, "converged/adjoint-solve/store-all"),
    (DUFFING, "continuous/adjoint-solve/store-all"),
    (SINGLE_PENDULUM, "executed/ad/reverse(0)"),
    (SINGLE_PENDULUM, "executed/custom-adjoint/binomial(2)"),
]


@pytest.mark.parametrize(("small", "claim"), SINGLE, ids=lambda value: getattr(value, "name", value))
def test_single_precision_stays_single_and_is_as_good_as_it_can_be(small, claim):
    narrow = replace(small, x0=single(small.x0), params=single(small.params))
    value, slopes = gradient(narrow, Adjoint.parse(claim))
    assert {a.dtype for a in jax.tree.leaves((value, slopes))} == {np.dtype(np.float32)}
    wide = gradient(small, Adjoint.parse(claim))[1]
    assert 0 < gap(slopes, wide) < 1e-5


def test_numbers_and_empty_parameters_will_do():
    still = System(step=lambda x, p, h: x * (1 - h))
    assert float(jax.grad(lambda x: rollout(still, x, (), h=0.5, steps=2))(1.0)) == 0.25
    assert float(jax.grad(lambda p: rollout(LOGISTIC.system, 0.5, p, h=0.5, steps=1))(1.0)) == 0.125


@pytest.mark.parametrize("retention", RETENTIONS, ids=str)
def test_a_single_step(retention):
    small = replace(DUFFING, steps=1)
    slopes = gradient(small, Adjoint(retention=retention))[1]
    assert gap(slopes, plain_gradient(small)) < ROUND_OFF


# Transformations --------------------------------------------------------------------------------------------------


@cache
def plain_gradient_function():
    return jax.jit(jax.grad(DUFFING.plain_value, argnums=(0, 1)))


@pytest.mark.parametrize("retention", RETENTIONS, ids=str)
def test_batches_of_parameters_and_of_starts(retention):
    adjoint = replace(Adjoint.parse("executed/custom-adjoint/store-all"), retention=retention)
    one = jax.grad(lambda p, x: DUFFING.value(p, x, adjoint), argnums=(0, 1))
    stack = lambda tree: jax.tree.map(lambda a: np.stack([a, 1.1 * a, 0.7 * a]), tree)
    params, starts = stack(DUFFING.params), stack(DUFFING.x0)
    over_params = jax.jit(jax.vmap(one, in_axes=(0, None)))(params, DUFFING.x0)
    over_starts = jax.jit(jax.vmap(one, in_axes=(None, 0)))(DUFFING.params, starts)
    plain = plain_gradient_function()
    for k in range(3):
        pick = lambda tree, k=k: jax.tree.map(lambda a: a[k], tree)
        assert gap(pick(over_params), plain(pick(params), DUFFING.x0)) < ROUND_OFF
        assert gap(pick(over_starts), plain(DUFFING.params, pick(starts))) < ROUND_OFF


def test_a_batch_of_fixed_point_runs_comes_back_to_the_bit():
    adjoint = Adjoint.parse("executed/ad/reverse(0)")
    lengths = np.array([0.5, 0.8, 1.3])
    per_length = jax.vmap(
        jax.grad(lambda length: PENDULUM.value(PENDULUM.params._replace(length=length), PENDULUM.x0, adjoint))
    )
    assert np.all(np.isfinite(per_length(lengths)))


@cache
def plain_hessian():
    """Second derivatives with respect to the parameters by JAX alone, forward over reverse."""
    flat, unravel = ravel_pytree(PENDULUM.params)
    return jax.jit(jax.hessian(lambda p: PENDULUM.plain_value(unravel(p), PENDULUM.x0)))(flat)


@pytest.mark.parametrize("retention", [StoreAll(), Checkpoint(every=3), Reverse()], ids=str)
def test_second_derivatives_in_reverse_over_reverse(retention):
    adjoint = Adjoint(retention=retention)
    flat, unravel = ravel_pytree(PENDULUM.params)
    ours = jax.jit(jax.jacrev(jax.grad(lambda p: PENDULUM.value(unravel(p), PENDULUM.x0, adjoint))))(flat)
    assert gap(ours, plain_hessian()) < 1e-11


@pytest.mark.parametrize("retention", [Binomial(snapshots=2), Recompute()], ids=str)
def test_retentions_that_run_loops_of_varying_length_have_no_second_derivative(retention):
    slope = jax.grad(lambda p: LOGISTIC.value(p, LOGISTIC.x0, Adjoint(retention=retention)))
    with pytest.raises(ValueError, match="Reverse-mode differentiation does not work"):
        jax.grad(slope)(3.0)


@pytest.mark.parametrize("retention", RETENTIONS, ids=str)
def test_second_derivatives_in_forward_over_reverse(retention):
    adjoint = Adjoint(retention=retention)
    flat, unravel = ravel_pytree(PENDULUM.params)
    ours = jax.jit(jax.hessian(lambda p: PENDULUM.value(unravel(p), PENDULUM.x0, adjoint)))(flat)
    assert gap(ours, plain_hessian()) < 1e-11


def test_forward_mode_is_refused_and_trajectory_offers_it():
    run = lambda p: LOGISTIC.value(p, LOGISTIC.x0)
    for forward in (lambda: jax.jvp(run, (3.0,), (1.0,)), lambda: jax.jacfwd(run)(3.0)):
        with pytest.raises(TypeError, match="forward-mode"):
            forward()
    plain = lambda p: LOGISTIC.plain_value(p, LOGISTIC.x0)
    assert jax.jvp(plain, (3.0,), (1.0,))[1] == pytest.approx(float(jax.grad(run)(3.0)), rel=ROUND_OFF)


@contextmanager
def compiled_programs():
    """Counts the programs that XLA compiles."""
    seen = Counter()

    def listen(event, duration, **_):
        seen[event] += 1

    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        yield lambda: seen["/jax/core/compile/backend_compile_duration"]
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)


def test_a_second_call_compiles_nothing():
    system = System(step=lambda x, p, h: x - h * p * x)
    x0, first, second = (jnp.asarray(value) for value in (1.0, 2.0, 3.0))
    run = lambda p, adjoint, steps: rollout(system, x0, p, h=0.1, steps=steps, adjoint=adjoint)
    slope = jax.grad(run)
    with compiled_programs() as count:
        run(first, Adjoint(), 4), slope(first, Adjoint(), 4)
        warm = count()
        assert warm > 0
        run(second, Adjoint.parse("executed/ad/store-all"), 4), slope(second, Adjoint(), 4)
        assert count() == warm
        # The counter can count: another length is another program.
        run(second, Adjoint(), 5)
        assert count() > warm


# The trajectory ---------------------------------------------------------------------------------------------------


@each_small
def test_trajectory_starts_at_x0_and_ends_where_rollout_does(small):
    states = trajectory(small.system, small.x0, small.params, h=small.h, steps=small.steps)
    assert jax.tree.structure(states) == jax.tree.structure(small.x0)
    assert {a.shape[0] for a in jax.tree.leaves(states)} == {small.steps + 1}
    assert bits(jax.tree.map(lambda a: a[0], states)) == bits(small.x0)
    x_T = rollout(small.system, small.x0, small.params, h=small.h, steps=small.steps)
    assert gap(jax.tree.map(lambda a: a[-1], states), x_T) < ROUND_OFF


def test_trajectory_makes_one_step_from_each_state_to_the_next():
    states = trajectory(PENDULUM.system, PENDULUM.x0, PENDULUM.params, h=PENDULUM.h, steps=3)
    for n in range(3):
        x, x_next = (Phase(states.q[k], states.v[k]) for k in (n, n + 1))
        assert gap(PENDULUM.system.step(x, PENDULUM.params, PENDULUM.h), x_next) < ROUND_OFF
