"""Receipts: facts about a run that only its values can tell, returned as data."""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import jax.scipy.linalg
from jax import lax
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, Int, PyTree

from diffsim import trees
from diffsim.door import check_inputs
from diffsim.pullback import step_equation
from diffsim.system import System

__all__ = ["MOST_UNKNOWNS", "Receipt", "rollout_with_receipt"]

# Up to this size the Jacobian is assembled at every step of a watched run.
MOST_UNKNOWNS = 512


class Receipt(NamedTuple):
    """What a run was like. A fact that the system has no function for is NaN.

    Attributes:
        finite_steps: number of steps before the first state with a NaN or an infinity; all of them when healthy.
        steps: number of steps that were run.
        residual: largest |R(x_{n+1}, x_n, p, h)| over the run, in the residual's unit.
        step_inverse: largest |unstep(step(x_n)) - x_n| over the run, relative to the largest state entry.
        round_trip: |x_0 recovered from x_T - x_0|, relative to the largest entry of x_0 (of the run, if x_0 is zero).
        range_used: largest state entry as a share of the exact range of the fixed-point grid; exact below 1.
        off_grid: largest distance of the initial state from the fixed-point grid.
        iterations: most iterations that a step's inner solve took.
        contraction: largest factor by which an inner iteration multiplied its residual; below 1 when it converges.
        correction: largest entry of the Newton correction J^-1 R at the states that were reached, in the unknown's
            unit: how far they are from the root. Not finite where the Jacobian J is singular. Known for up to
            `MOST_UNKNOWNS` unknowns, when there are as many equations.

    Example:
        >>> decay = System(step=lambda x, p, h: x - h * p * x, name="decay")
        >>> _, receipt = rollout_with_receipt(decay, jnp.array(1.0), jnp.array(1.0), h=0.5, steps=3)
        >>> int(receipt.finite_steps), receipt.problems()
        (3, [])
    """

    finite_steps: Int[Array, "*batch"]
    steps: Int[Array, "*batch"]
    residual: Float[Array, "*batch"]
    step_inverse: Float[Array, "*batch"]
    round_trip: Float[Array, "*batch"]
    range_used: Float[Array, "*batch"]
    off_grid: Float[Array, "*batch"]
    iterations: Float[Array, "*batch"]
    contraction: Float[Array, "*batch"]
    correction: Float[Array, "*batch"]

    def problems(self, *, residual: float = 1e-6, round_trip: float = 1e-6) -> list[str]:
        """What is wrong with the run, one sentence each; an empty list when nothing is.

        Example:
            >>> blowup = System(step=lambda x, p, h: x * x)
            >>> _, receipt = rollout_with_receipt(blowup, jnp.array(1e200), (), h=1.0, steps=4)
            >>> receipt.problems()
            ['the state is not finite from step 1 of 4 on; a smaller h is the first thing to try']
        """
        facts = [
            (
                self.finite_steps < self.steps,
                f"the state is not finite from step {jnp.min(self.finite_steps) + 1} of {jnp.max(self.steps)} on; "
                "a smaller h is the first thing to try",
            ),
            (
                self.residual > residual,
                f"the residual reaches {jnp.max(self.residual):.1e}, above {residual:.1e}: the step does not end at "
                "a root of the residual",
            ),
            (
                (self.contraction >= 1) & (self.residual > residual),
                f"an inner iteration multiplies its residual by {jnp.max(self.contraction):.2g}: the solve diverges; "
                "lower its relaxation or rate, take a smaller h, or use Newton",
            ),
            (
                jnp.isinf(self.correction),
                "the Jacobian of the residual is singular at a state that was reached: the converged equation has no "
                "derivative there",
            ),
            (
                self.range_used >= 1,
                f"the state reaches {jnp.max(self.range_used):.2g} times the range in which the fixed-point sums are "
                "exact; use a coarser grid or a wider float",
            ),
            (
                self.off_grid > 0,
                f"the initial state lies {jnp.max(self.off_grid):.1e} off the fixed-point grid; start from snap(x0, grid)",
            ),
            (
                self.round_trip > round_trip,
                f"running back from the last state misses x0 by {jnp.max(self.round_trip):.1e} (one step: "
                f"{jnp.max(self.step_inverse):.1e}): unstep is not the inverse of step over this horizon",
            ),
        ]
        return [sentence for happened, sentence in facts if bool(jnp.any(happened))]

    def raise_if_bad(self, *, residual: float = 1e-6, round_trip: float = 1e-6) -> None:
        """FloatingPointError with the first of `problems`, if there is any.

        Example:
            >>> decay = System(step=lambda x, p, h: x - h * p * x)
            >>> rollout_with_receipt(decay, jnp.array(1.0), jnp.array(1.0), h=0.5, steps=3)[1].raise_if_bad()
        """
        found = self.problems(residual=residual, round_trip=round_trip)
        if found:
            raise FloatingPointError(found[0] + ".")


def rollout_with_receipt(
    system: System, x0: PyTree, params: PyTree, *, h: float | int, steps: int
) -> tuple[PyTree, Receipt]:
    """The state after `steps` steps, and what the run was like.

    The primal of `rollout`, watched; works under jit and vmap. On a fixed-point grid it is the same to the bit, in
    floats the compiler may round the last digit differently. Its derivative is JAX's own.

    Raises the same errors as `rollout`.

    Example:
        >>> drift = System(step=lambda x, p, h: x + h * p, unstep=lambda x, p, h: x - h * p)
        >>> x_T, receipt = rollout_with_receipt(drift, jnp.array(0.0), jnp.array(1.0), h=0.5, steps=4)
        >>> float(x_T), float(receipt.round_trip)
        (2.0, 0.0)
    """
    x0, params, h = check_inputs(system, x0, params, h=h, steps=steps)
    return _watched(system, h, steps, x0, params)


@partial(jax.jit, static_argnums=(0, 1, 2))
def _watched(system, h, steps, x0, params):
    unknown = jnp.full((), jnp.nan, trees.largest(x0).dtype)

    def watch(x, _):
        x_next = system.step(x, params, h)
        info = system.solve_info(x, params, h) if system.solve_info else None
        iterations = jnp.asarray(info.iterations, unknown.dtype) if info else unknown
        contraction = info.contraction if info else unknown
        correction = _correction(system, h, x, x_next, params, unknown)
        inverse = trees.largest_gap(system.unstep(x_next, params, h), x) if system.unstep else unknown
        residual = trees.largest(system.residual(x_next, x, params, h)) if system.residual else unknown
        return x_next, (
            trees.all_finite(x_next),
            trees.largest(x_next),
            inverse,
            residual,
            iterations,
            contraction,
            correction,
        )

    x_T, (finite, sizes, inverse, residual, iterations, contraction, correction) = lax.scan(watch, x0, length=steps)
    largest = jnp.maximum(trees.largest(sizes), trees.largest(x0))
    round_trip = range_used = off_grid = unknown
    if system.unstep:
        x_back = lax.fori_loop(0, steps, lambda _, x: system.unstep(x, params, h), x_T)
        start = trees.largest(x0)
        round_trip = _share(trees.largest_gap(x_back, x0), jnp.where(start == 0, largest, start))
    if system.grid:
        range_used = largest / (system.grid * 2.0 ** (jnp.finfo(largest.dtype).nmant + 1))
        off_grid = trees.largest_gap(x0, jax.tree.map(lambda a: jnp.round(a / system.grid) * system.grid, x0))
    return x_T, Receipt(
        finite_steps=jnp.sum(jnp.cumprod(finite.astype(int))),
        steps=jnp.asarray(steps),
        residual=trees.largest(residual),
        step_inverse=_share(trees.largest(inverse), largest),
        round_trip=round_trip,
        range_used=range_used,
        off_grid=off_grid,
        iterations=trees.largest(iterations),
        contraction=_known_largest(contraction),
        correction=trees.largest(correction),
    )


def _share(part, whole):
    """part/whole, and 0/0 = 0."""
    return jnp.where(part == 0, 0.0, part / whole)


def _known_largest(values):
    """The largest entry that is known; NaN when none is: a solve that arrives at once has no contraction."""
    return jnp.where(jnp.all(jnp.isnan(values)), jnp.nan, jnp.max(jnp.where(jnp.isnan(values), -jnp.inf, values)))


def _correction(system, h, x, x_next, params, unknown):
    """Largest entry of J^-1 R at one step; infinite where J is singular and the state itself is sound."""
    if not system.residual:
        return unknown
    equation, _, u = step_equation(system, h, x_next)
    flat, unravel = ravel_pytree(u)
    residual = lambda u: ravel_pytree(equation(unravel(u), x, params))[0]
    r = residual(flat)
    if flat.size > MOST_UNKNOWNS or r.size != flat.size:
        return unknown
    jacobian = jax.jacfwd(residual)(flat)
    size = trees.largest(jnp.linalg.solve(jacobian, r))
    # LU leaves a pivot of exactly zero, or one that is nothing but rounding.
    pivots = jnp.abs(jnp.diagonal(jax.scipy.linalg.lu_factor(jacobian)[0]))
    singular = jnp.min(pivots) <= flat.size * jnp.finfo(flat.dtype).eps * jnp.max(pivots)
    return jnp.where(singular & jnp.all(jnp.isfinite(r)), jnp.inf, size)
