"""Pullbacks: one step's vector–Jacobian product, in a table keyed by (referent, realization).

Each rule takes the cotangent lam_{n+1} of the state after the step and returns the cotangent lam_n of the
state before it, and the step's share of dL/dp. Which Jacobian it transposes is the referent's business.
"""

from collections.abc import Callable
from dataclasses import dataclass

import jax
from jaxtyping import PyTree

from diffsim.adjoint import AD, AdjointSolve, CustomAdjoint, Executed
from diffsim.system import System

__all__ = ["PULLBACKS", "RECOVERIES", "Recovery", "Rule"]


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


PULLBACKS = {
    (Executed, AD): Rule(executed_ad, "step"),
    (Executed, AdjointSolve): Rule(executed_solve, "step"),
    (Executed, CustomAdjoint): Rule(executed_custom, "step_vjp"),
}

RECOVERIES = {
    Executed: Recovery(lambda system, h, x_next, p: system.unstep(x_next, p, h), "unstep"),
}
