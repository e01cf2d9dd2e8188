"""The leapfrog, in floats and on fixed-point numbers."""

import math
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import PyTree

from diffsim import trees
from diffsim.system import System

__all__ = ["Phase", "fixed_point_leapfrog", "leapfrog", "snap"]


class Phase(NamedTuple):
    """A mechanical state: positions q and velocities v, pytrees of the same structure.

    Example:
        >>> Phase(q=0.5, v=0.0).q
        0.5
    """

    q: PyTree
    v: PyTree


def snap(x: PyTree, grid: float) -> PyTree:
    """The nearest fixed-point numbers: whole multiples of `grid`, a power of two, held in floats.

    Derivative of: the identity. Rounding itself has derivative zero almost everywhere, which says nothing;
    it is passed straight through, here as in every fixed-point system.

    Example:
        >>> float(snap(0.3, 0.25)), float(jax.grad(snap)(0.3, 0.25))
        (0.25, 1.0)
    """
    return jax.tree.map(lambda a: a + jax.lax.stop_gradient(jnp.round(a / grid) * grid - a), x)


def leapfrog(acceleration: Callable, *, acceleration_vjp: Callable | None = None, name: str = "leapfrog") -> System:
    r"""Drift–kick–drift leapfrog, second order, symplectic, and its own inverse under h → -h.

    $$q_{1/2} = q_n + \tfrac h2 v_n, \quad v_{n+1} = v_n + h\,a(q_{1/2}, p), \quad q_{n+1} = q_{1/2} + \tfrac h2 v_{n+1}$$

    `unstep` inverts `step` in exact arithmetic only: in floats every addition rounds, and the round trip
    drifts. Use `fixed_point_leapfrog` when the way back must be exact to the bit.

    Args:
        acceleration: `a(q, p)` [length/s²], positions to accelerations of the same structure.
        acceleration_vjp: `(q, p, w) -> (a_q^T w, a_p^T w)`, hand-derived; JAX's own when left out.
        name: how messages call the system.

    Derivative of: `step_vjp` is the hand-derived adjoint of the executed step.

    Source: {cite}`hairer2006geometric`.

    Example:
        >>> spring = leapfrog(lambda q, p: -p * q)
        >>> x = spring.step(Phase(1.0, 0.0), 4.0, 0.5)
        >>> back = spring.unstep(x, 4.0, 0.5)
        >>> float(x.q), float(x.v), float(back.q), float(back.v)
        (0.5, -2.0, 1.0, 0.0)
    """
    return _leapfrog(acceleration, acceleration_vjp, lambda y: y, None, name)


def fixed_point_leapfrog(
    acceleration: Callable, *, grid: float, acceleration_vjp: Callable | None = None, name: str = "fixed-point leapfrog"
) -> System:
    """The leapfrog on fixed-point numbers: `unstep` inverts `step` to the bit, for any force.

    Every increment is rounded to a whole multiple of `grid` before it is added, so positions and velocities
    stay whole multiples k · grid. As long as |k| < 2^53 in float64 (2^24 in float32), such sums are exact: it is
    integer arithmetic, carried out by the floating-point unit. The way back subtracts the same integers.
    `rollout_with_receipt` reports how much of the range a run has used.

    Start from `snap(x0, grid)`. Dissipation is not covered: a factor γ < 1 destroys log2(1/γ) bits per
    variable and step, which would have to be stored.

    Derivative of: the executed step with its rounding passed straight through (see `snap`), so exact along its
    own trajectory; it is not the derivative of the rounded map, which is zero almost everywhere.

    Args:
        grid: spacing of positions and of velocities, a power of two, in their own units.
        acceleration, acceleration_vjp, name: as for `leapfrog`.

    Raises:
        ValueError: `grid` is not a power of two.

    Source: {cite}`rein2018janus,stam2022exact`.

    Example:
        >>> spring = fixed_point_leapfrog(lambda q, p: -p * q, grid=2.0**-20)
        >>> x0 = snap(Phase(jnp.array(1.0), jnp.array(0.1)), 2.0**-20)
        >>> x1 = spring.step(x0, 4.0, 0.01)
        >>> spring.unstep(x1, 4.0, 0.01) == x0
        True
    """
    if not (grid > 0 and math.frexp(grid)[0] == 0.5):
        raise ValueError(f"grid={grid!r}: sums are exact only on a power of two; write for example grid=2.0**-40.")
    return _leapfrog(acceleration, acceleration_vjp, lambda y: snap(y, grid), grid, name)


def _leapfrog(acceleration, acceleration_vjp, rounded, grid, name) -> System:
    vjp = acceleration_vjp or (lambda q, p, w: jax.vjp(acceleration, q, p)[1](w))

    def increment(rate, duration):
        return rounded(trees.scale(duration, rate))

    def kick(q_half, p, h):
        # The barriers keep the compiler from fusing the force with its surroundings, which differ between
        # `step` and `unstep`: fused differently, it would round differently.
        q_half = jax.lax.optimization_barrier(q_half)
        return increment(jax.lax.optimization_barrier(acceleration(q_half, p)), h)

    def step(x, p, h):
        q_half = trees.add(x.q, increment(x.v, h / 2))
        v = trees.add(x.v, kick(q_half, p, h))
        return Phase(trees.add(q_half, increment(v, h / 2)), v)

    def unstep(x, p, h):
        q_half = trees.subtract(x.q, increment(x.v, h / 2))
        v = trees.subtract(x.v, kick(q_half, p, h))
        return Phase(trees.subtract(q_half, increment(v, h / 2)), v)

    def step_vjp(x, x_next, p, h, lam):
        q_half = trees.subtract(x_next.q, increment(x_next.v, h / 2))
        lam_v = trees.axpy(h / 2, lam.q, lam.v)
        from_force, share = vjp(q_half, p, trees.scale(h, lam_v))
        lam_q = trees.add(lam.q, from_force)
        return Phase(lam_q, trees.axpy(h / 2, lam_q, lam_v)), share

    def costate(x, p, lam):
        from_force, rate = vjp(x.q, p, lam.v)
        return Phase(trees.scale(-1.0, from_force), trees.scale(-1.0, lam.q)), rate

    return System(
        step=step,
        field=lambda x, p: Phase(x.v, acceleration(x.q, p)),
        unstep=unstep,
        step_vjp=step_vjp,
        costate=costate,
        grid=grid,
        name=name,
    )
