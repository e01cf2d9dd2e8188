"""Pullbacks: one step's vector–Jacobian product, in a table keyed by (referent, realization).

Each rule takes the cotangent lam_{n+1} of the state after the step and returns the cotangent lam_n of the
state before it, and the step's share of dL/dp. Which Jacobian it transposes is the referent's business.
"""

from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import PyTree

from diffsim import trees
from diffsim.adjoint import AD, AdjointSolve, Continuous, Converged, CustomAdjoint, Executed
from diffsim.flow import rk4
from diffsim.linear import solve_transposed
from diffsim.system import System

__all__ = ["PULLBACKS", "RECOVERIES", "Recovery", "Rule", "step_equation"]


@dataclass(frozen=True)
class Rule:
    """A pullback and the function of `System` without which it has nothing to differentiate.

    `pull(system, realization, h, x_n, x_{n+1}, p, lam_{n+1}) -> (lam_n, dL/dp share)`.

    Example:
        >>> PULLBACKS[Executed, CustomAdjoint].needs
        'step_vjp'
    """

    pull: Callable
    needs: str


@dataclass(frozen=True)
class Recovery:
    """How the `Reverse` retention gets x_n from x_{n+1} for one referent, and what it needs for that.

    `unstep(system, h, x_{n+1}, p) -> x_n`.

    Example:
        >>> RECOVERIES[Executed].needs
        'unstep'
    """

    unstep: Callable
    needs: str


def executed_ad(system: System, how: AD, h: float, x: PyTree, x_next: PyTree, p: PyTree, lam: PyTree):
    """lam_n = (d step/dx)^T lam_{n+1}: JAX traces the step, inner iterations included.

    Example:
        >>> spring = System(step=lambda x, p, h: x - h * p * x)
        >>> [float(g) for g in executed_ad(spring, AD(), 0.5, 1.0, 0.0, 2.0, 1.0)]
        [0.0, -0.5]
    """
    _, vjp = jax.vjp(lambda x, p: system.step(x, p, h), x, p)
    return vjp(lam)


def executed_solve(system: System, how: AdjointSolve, h: float, x: PyTree, x_next: PyTree, p: PyTree, lam: PyTree):
    """One block of the discrete adjoint: the whole run is one system F(x_1, …, x_T; x_0, p) = 0.

    F_n = x_{n+1} - step(x_n, p, h). Its Jacobian is block bidiagonal with the identity on the diagonal and
    -A_n, A_n = d step/dx, below it. The transposed solve is therefore back-substitution: mu_n = lam_{n+1},
    lam_n = A_n^T mu_n, and dL/dp collects B_n^T mu_n with B_n = d step/dp. The blocks are linearised in
    forward mode and transposed as linear operators, never assembled.

    Example:
        >>> spring = System(step=lambda x, p, h: x - h * p * x)
        >>> [float(g) for g in executed_solve(spring, AdjointSolve(), 0.5, 1.0, 0.0, 2.0, 1.0)]
        [0.0, -0.5]
    """
    _, linearised = jax.linearize(lambda x, p: system.step(x, p, h), x, p)
    return jax.linear_transpose(linearised, x, p)(lam)


def executed_custom(system: System, how: CustomAdjoint, h: float, x: PyTree, x_next: PyTree, p: PyTree, lam: PyTree):
    """The system's own formula for the executed step.

    Example:
        >>> def vjp(x, x_next, p, h, lam):
        ...     return (1 - h * p) * lam, -h * x * lam
        >>> spring = System(step=lambda x, p, h: x - h * p * x, step_vjp=vjp)
        >>> executed_custom(spring, CustomAdjoint(), 0.5, 1.0, 0.0, 2.0, 1.0)
        (0.0, -0.5)
    """
    return system.step_vjp(x, x_next, p, h, lam)


def step_equation(system: System, h: float, x_next: PyTree):
    """The converged equation G(u, x, p) = 0 of one step, how u completes to a state, and the u that was reached.

    A system that solves for its whole new state has u = x_{n+1}.

    Example:
        >>> half = System(step=lambda x, p, h: x / p, residual=lambda x_next, x, p, h: p * x_next - x)
        >>> equation, complete, u = step_equation(half, 1.0, 0.5)
        >>> equation(u, 1.0, 2.0), complete(u, 1.0, 2.0)
        (0.0, 0.5)
    """
    finish = system.finish or (lambda u, x, p, h: u)
    u = system.unknown(x_next) if system.unknown else x_next

    def complete(u, x, p):
        return finish(u, x, p, h)

    def equation(u, x, p):
        return system.residual(complete(u, x, p), x, p, h)

    return equation, complete, u


def converged_ad(system: System, how: AD, h: float, x: PyTree, x_next: PyTree, p: PyTree, lam: PyTree):
    r"""AD through one Newton step at the stopped root: $u^+ = \bar u - \bar J^{-1} G(\bar u, x, p)$, bars stopped.

    Its derivative is that of the implicit function theorem, $-J^{-1} G_x$ and $-J^{-1} G_p$. The Jacobian is
    stopped too, so at a state that is not converged this agrees with the adjoint solve there. It is
    assembled densely: for many unknowns use the adjoint solve.

    Example:
        >>> half = System(step=lambda x, p, h: x / p, residual=lambda x_next, x, p, h: p * x_next - x)
        >>> [float(g) for g in converged_ad(half, AD(), 1.0, jnp.array(1.0), jnp.array(0.5), jnp.array(2.0), jnp.array(1.0))]
        [0.5, -0.25]
    """
    equation, complete, u = step_equation(system, h, x_next)
    flat_u, unravel = ravel_pytree(u)
    jacobian = jax.jacobian(lambda flat: ravel_pytree(equation(unravel(flat), x, p))[0])(flat_u)

    def newton(x, p):
        return complete(unravel(flat_u - jnp.linalg.solve(jacobian, ravel_pytree(equation(u, x, p))[0])), x, p)

    _, vjp = jax.vjp(newton, x, p)
    return vjp(lam)


def converged_solve(system: System, how: AdjointSolve, h: float, x: PyTree, x_next: PyTree, p: PyTree, lam: PyTree):
    r"""The implicit function theorem, transposed: one linear solve, whatever the solver that found the root.

    $$\left(\frac{\partial G}{\partial u}\right)^{\!\top} \mu = \lambda_u, \qquad
      \lambda_n = -G_x^\top \mu, \qquad dL/dp \mathrel{+}= -G_p^\top \mu$$

    plus what reaches x_n and p past the solve, where u completes to the whole state. The Jacobian is taken at the
    state that was reached: at a truncated solve the result belongs to no referent, it approaches `Converged`.

    Source: {cite}`blondel2022efficient`.

    Example:
        >>> half = System(step=lambda x, p, h: x / p, residual=lambda x_next, x, p, h: p * x_next - x)
        >>> cell = half, AdjointSolve(), 1.0, jnp.array(1.0), jnp.array(0.5), jnp.array(2.0), jnp.array(1.0)
        >>> [float(g) for g in converged_solve(*cell)]
        [0.5, -0.25]
    """
    equation, complete, u = step_equation(system, h, x_next)
    lam_u, lam_x, share = jax.vjp(complete, u, x, p)[1](lam)
    precondition = system.precondition and (lambda r: system.precondition(x_next, x, p, h, r))
    mu = solve_transposed(how.linear, lambda u: equation(u, x, p), u, lam_u, precondition)
    from_x, from_p = jax.vjp(lambda x, p: equation(u, x, p), x, p)[1](mu)
    return trees.subtract(lam_x, from_x), trees.subtract(share, from_p)


def converged_custom(system: System, how: CustomAdjoint, h: float, x: PyTree, x_next: PyTree, p: PyTree, lam: PyTree):
    """The system's own formula for the converged equation: a closed-form factor of the implicit function theorem.

    Example:
        >>> def root_vjp(x, x_next, p, h, lam):
        ...     return lam / p, -x_next * lam / p
        >>> half = System(step=lambda x, p, h: x / p, root_vjp=root_vjp)
        >>> converged_custom(half, CustomAdjoint(), 1.0, 1.0, 0.5, 2.0, 1.0)
        (0.5, -0.25)
    """
    return system.root_vjp(x, x_next, p, h, lam)


def continuous_ad(system: System, how: AD, h: float, x: PyTree, x_next: PyTree, p: PyTree, lam: PyTree):
    r"""The forward sensitivity equation over one step, $\dot{\delta x} = f_x\,\delta x + f_p\,\delta p$, transposed.

    It is integrated from x_n by one Runge–Kutta step of fourth order. Being linear in $(\delta x, \delta p)$, it is
    transposed as an operator: its columns, one per parameter, are never formed.

    Example:
        >>> decay = System(step=lambda x, p, h: x, field=lambda x, p: -p * x)
        >>> lam, share = continuous_ad(decay, AD(), 0.1, jnp.array(1.0), None, jnp.array(1.0), jnp.array(1.0))
        >>> round(float(lam), 5), round(float(share), 5)
        (0.90484, -0.09048)
    """

    def sensitivity(dx, dp):
        def rate(state):
            x, dx = state
            return jax.jvp(system.field, (x, p), (dx, dp))

        return rk4(rate, (x, dx), h)[1]

    return jax.linear_transpose(sensitivity, x, p)(lam)


def continuous_solve(system: System, how: AdjointSolve, h: float, x: PyTree, x_next: PyTree, p: PyTree, lam: PyTree):
    r"""The adjoint equation, integrated backwards over one step from the state that the retention supplies.

    $$\dot\lambda = -f_x^\top \lambda, \qquad dL/dp = \int f_p^\top \lambda \, dt$$

    With a stored or recomputed x_{n+1} every step is re-anchored on the run. With `Reverse` the states
    themselves come from integrating the dynamics backwards (full back-solve). Not recommended: where the
    dynamics contract, the reversed ones expand, and the recovered states leave the run
    {cite}`gholami2019anode`.

    Source: {cite}`chen2018neural`.

    Example:
        >>> decay = System(step=lambda x, p, h: x, field=lambda x, p: -p * x)
        >>> cell = decay, AdjointSolve(), 0.1, None, jnp.array(0.904837), jnp.array(1.0), jnp.array(1.0)
        >>> [round(float(g), 5) for g in continuous_solve(*cell)]
        [0.90484, -0.09048]
    """

    def costate(x, p, lam):
        from_x, rate = jax.vjp(system.field, x, p)[1](lam)
        return trees.scale(-1.0, from_x), rate

    return _backwards(system.field, costate, h, x_next, p, lam)


def continuous_custom(system: System, how: CustomAdjoint, h: float, x: PyTree, x_next: PyTree, p: PyTree, lam: PyTree):
    """The same backward integration with the scene's own co-state equation.

    Example:
        >>> decay = System(step=lambda x, p, h: x, field=lambda x, p: -p * x, costate=lambda x, p, lam: (p * lam, -x * lam))
        >>> cell = decay, CustomAdjoint(), 0.1, None, jnp.array(0.904837), jnp.array(1.0), jnp.array(1.0)
        >>> [round(float(g), 5) for g in continuous_custom(*cell)]
        [0.90484, -0.09048]
    """
    return _backwards(system.field, system.costate, h, x_next, p, lam)


def _backwards(field, costate, h, x_next, p, lam):
    def rate(state):
        x, lam, _ = state
        lam_rate, share_rate = costate(x, p, lam)
        return field(x, p), lam_rate, trees.scale(-1.0, share_rate)

    _, lam, share = rk4(rate, (x_next, lam, jax.tree.map(jnp.zeros_like, p)), -h)
    return lam, share


PULLBACKS = {
    (Executed, AD): Rule(executed_ad, "step"),
    (Executed, AdjointSolve): Rule(executed_solve, "step"),
    (Executed, CustomAdjoint): Rule(executed_custom, "step_vjp"),
    (Converged, AD): Rule(converged_ad, "residual"),
    (Converged, AdjointSolve): Rule(converged_solve, "residual"),
    (Converged, CustomAdjoint): Rule(converged_custom, "root_vjp"),
    (Continuous, AD): Rule(continuous_ad, "field"),
    (Continuous, AdjointSolve): Rule(continuous_solve, "field"),
    (Continuous, CustomAdjoint): Rule(continuous_custom, "costate"),
}

RECOVERIES = {
    Executed: Recovery(lambda system, h, x_next, p: system.unstep(x_next, p, h), "unstep"),
    Converged: Recovery(lambda system, h, x_next, p: system.unstep(x_next, p, h), "unstep"),
    Continuous: Recovery(lambda system, h, x_next, p: rk4(lambda x: system.field(x, p), x_next, -h), "field"),
}
