"""What a receipt says about the solve inside a step: each fault is planted, and a sound run reports nothing."""

import jax
import jax.numpy as jnp
import pytest

from diffsim import Adjoint, System, rollout, rollout_with_receipt, why_not
from diffsim.integrators import Phase, backward_euler
from diffsim.scenes import make
from diffsim.solvers import Newton, Picard


def stiff(x, p):
    return -p * x


def receipt(system, p, **settings):
    return rollout_with_receipt(system, jnp.array(1.0), jnp.array(p), **{"h": 0.1, "steps": 5, **settings})[1]


def test_a_converged_run_reports_nothing():
    sound = receipt(backward_euler(stiff, solver=Newton(iterations=4)), 2.0)
    assert sound.problems() == []
    assert float(sound.iterations) == 4
    assert float(sound.correction) < 1e-12


def test_a_diverging_solve_is_named():
    found = receipt(backward_euler(stiff, solver=Picard(iterations=6)), 20.0)
    assert float(found.contraction) == pytest.approx(2.0, rel=1e-6)
    assert any("diverges" in problem for problem in found.problems())


def test_a_residual_whose_root_is_not_the_steps_output_is_named():
    wrong = System(step=lambda x, p, h: x - h * p * x, residual=lambda x_next, x, p, h: x_next - x + h * p * x_next)
    found = receipt(wrong, 2.0)
    assert any("root of the residual" in problem for problem in found.problems())
    # R(x_1) = x_1 - x_0 + h p x_1 = 0.8 - 1 + 0.16 and J = 1.2.
    assert float(found.correction) == pytest.approx(0.04 / 1.2, rel=1e-12)


def test_a_singular_jacobian_is_named_and_gives_no_gradient():
    flat = System(
        step=lambda x, p, h: x,
        residual=lambda x_next, x, p, h: (x_next - x) ** 2 * p,
        name="flat",
    )
    found = receipt(flat, 2.0)
    assert any("singular" in problem for problem in found.problems())
    with pytest.raises(FloatingPointError, match="singular"):
        found.raise_if_bad()
    adjoint = Adjoint.parse("converged/adjoint-solve/store-all")
    gradient = jax.grad(lambda p: rollout(flat, jnp.array(1.0), p, h=0.1, steps=2, adjoint=adjoint))(jnp.array(2.0))
    assert bool(jnp.isnan(gradient))


def test_cg_on_a_nonsymmetric_jacobian_gives_no_number():
    def spin(x, p):
        return Phase(p * x.v, -p * x.q)

    system = backward_euler(spin)
    x0 = Phase(jnp.array(1.0), jnp.array(0.0))

    def value(p, claim):
        return rollout(system, x0, p, h=1.0, steps=1, adjoint=Adjoint.parse(claim)).q

    by_cg = jax.grad(value)(jnp.array(3.0), "converged/adjoint-solve(cg)/store-all")
    dense = jax.grad(value)(jnp.array(3.0), "converged/adjoint-solve/store-all")
    by_gmres = jax.grad(value)(jnp.array(3.0), "converged/adjoint-solve(gmres)/store-all")
    assert bool(jnp.isnan(by_cg)) or float(by_cg) == pytest.approx(float(dense), rel=1e-6)
    assert float(by_gmres) == pytest.approx(float(dense), rel=1e-9)


def test_a_data_dependent_stop_is_refused_for_the_executed_referent_only():
    system = backward_euler(stiff, solver=Newton(iterations=20, tol=1e-10))
    assert "depends on its data" in (why_not(system, Adjoint.parse("executed/ad/store-all")) or "")
    assert why_not(system, Adjoint.parse("converged/adjoint-solve/store-all")) is None
    with pytest.raises(ValueError, match="fixed number of iterations"):
        rollout(system, jnp.array(1.0), jnp.array(2.0), h=0.1, steps=2)


def test_receipts_of_scenes_with_a_solve_are_clean():
    scene = make("chain", masses=3, steps=4)
    found = rollout_with_receipt(scene.system, scene.x0, scene.params, h=scene.h, steps=scene.steps)[1]
    assert found.problems() == []
