"""Explicit integrators: symplectic Euler and the classical Runge–Kutta method."""

from collections.abc import Callable

import jax
from jaxtyping import PyTree

from diffsim import trees
from diffsim.flow import rk4
from diffsim.integrators.leapfrog import Phase
from diffsim.system import System

__all__ = ["runge_kutta4", "symplectic_euler"]


def symplectic_euler(
    acceleration: Callable, *, acceleration_vjp: Callable | None = None, name: str = "symplectic Euler"
) -> System:
    r"""Kick, then drift: first order, symplectic, one force per step.

    $$v_{n+1} = v_n + h\,a(q_n, p), \quad q_{n+1} = q_n + h\,v_{n+1}$$

    `unstep` inverts `step` in exact arithmetic only: in floats the round trip drifts.

    Args:
        acceleration: `a(q, p)` [length/s²], positions to accelerations of the same structure.
        acceleration_vjp: `(q, p, w) -> (a_q^T w, a_p^T w)`, hand-derived; JAX's own when left out.
        name: how messages call the system.

    Derivative of: `step_vjp` is the hand-derived adjoint of the executed step.

    Wrong when: h exceeds 2 over the highest angular frequency: unstable. Below, the energy error is O(h) and stays so.

    Source: {cite}`hairer2006geometric`, section VI.3.

    Example:
        >>> spring = symplectic_euler(lambda q, p: -p * q)
        >>> x = spring.step(Phase(1.0, 0.0), 4.0, 0.5)
        >>> back = spring.unstep(x, 4.0, 0.5)
        >>> float(x.q), float(x.v), float(back.q), float(back.v)
        (0.0, -2.0, 1.0, 0.0)
    """
    vjp = acceleration_vjp or (lambda q, p, w: jax.vjp(acceleration, q, p)[1](w))

    def step(x, p, h):
        v = trees.axpy(h, acceleration(x.q, p), x.v)
        return Phase(trees.axpy(h, v, x.q), v)

    def unstep(x, p, h):
        q = trees.axpy(-h, x.v, x.q)
        return Phase(q, trees.axpy(-h, acceleration(q, p), x.v))

    def step_vjp(x, x_next, p, h, lam):
        lam_v = trees.axpy(h, lam.q, lam.v)
        from_force, share = vjp(x.q, p, trees.scale(h, lam_v))
        return Phase(trees.add(lam.q, from_force), lam_v), share

    def costate(x, p, lam):
        from_force, rate = vjp(x.q, p, lam.v)
        return Phase(trees.scale(-1.0, from_force), trees.scale(-1.0, lam.q)), rate

    return System(
        step=step,
        field=lambda x, p: Phase(x.v, acceleration(x.q, p)),
        unstep=unstep,
        step_vjp=step_vjp,
        costate=costate,
        name=name,
    )


def runge_kutta4(field: Callable, *, field_vjp: Callable | None = None, name: str = "Runge–Kutta 4") -> System:
    r"""The classical Runge–Kutta method: fourth order, four fields per step.

    $$k_1 = f(x_n), \quad k_2 = f(x_n + \tfrac h2 k_1), \quad k_3 = f(x_n + \tfrac h2 k_2), \quad k_4 = f(x_n + h k_3)$$
    $$x_{n+1} = x_n + \tfrac h6 (k_1 + 2 k_2 + 2 k_3 + k_4)$$

    Args:
        field: `f(x, p)` [state/s], a state (any pytree) to its rate of the same structure.
        field_vjp: `(x, p, w) -> (f_x^T w, f_p^T w)`, hand-derived; JAX's own when left out.
        name: how messages call the system.

    Derivative of: `step_vjp` is the hand-derived adjoint of the executed step: with the stages' cotangents
    w_i, g_i = f_x(stage i)ᵀ w_i, lam_n = lam + Σ g_i. It is no Runge–Kutta step of the co-state equation.

    Wrong when: h times the largest eigenvalue leaves the stability region (2.78 on the negative axis, 2.83 on the
    imaginary one). There is no `unstep`: a step with -h inverts it up to O(h⁵) only.

    Source: {cite}`hairer1993solving`, section II.1.

    Example:
        >>> decay = runge_kutta4(lambda x, p: -p * x)
        >>> round(float(decay.step(1.0, 1.0, 1.0)), 6)
        0.375
    """
    vjp = field_vjp or (lambda x, p, w: jax.vjp(field, x, p)[1](w))

    def stages(x, p, h):
        x2 = trees.axpy(h / 2, field(x, p), x)
        x3 = trees.axpy(h / 2, field(x2, p), x)
        return x2, x3, trees.axpy(h, field(x3, p), x)

    def step_vjp(x, x_next, p, h, lam):
        x2, x3, x4 = stages(x, p, h)
        sixth, third = trees.scale(h / 6, lam), trees.scale(h / 3, lam)
        g4, share4 = vjp(x4, p, sixth)
        g3, share3 = vjp(x3, p, trees.axpy(h, g4, third))
        g2, share2 = vjp(x2, p, trees.axpy(h / 2, g3, third))
        g1, share1 = vjp(x, p, trees.axpy(h / 2, g2, sixth))
        return _sum(lam, g1, g2, g3, g4), _sum(share1, share2, share3, share4)

    def costate(x, p, lam):
        from_field, rate = vjp(x, p, lam)
        return trees.scale(-1.0, from_field), rate

    return System(
        step=lambda x, p, h: rk4(lambda x: field(x, p), x, h),
        field=field,
        step_vjp=step_vjp,
        costate=costate,
        name=name,
    )


def _sum(first: PyTree, *others: PyTree) -> PyTree:
    for other in others:
        first = trees.add(first, other)
    return first
