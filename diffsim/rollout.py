"""`rollout`: run a system, and give `jax.grad` the backward pass that the adjoint claims."""

from functools import partial

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import PyTree

from diffsim import trees
from diffsim.adjoint import Adjoint
from diffsim.door import check_inputs, check_legal
from diffsim.pullback import PULLBACKS, RECOVERIES
from diffsim.retention import advance
from diffsim.system import System

__all__ = ["rollout", "trajectory"]


def rollout(
    system: System, x0: PyTree, params: PyTree, *, h: float | int, steps: int, adjoint: Adjoint = Adjoint()
) -> PyTree:
    r"""The state after `steps` steps; its derivative is the one that `adjoint` claims.

    $$x_{n+1} = \mathrm{step}(x_n, p, h), \quad n = 0, \dots, T-1$$

    Args:
        system: the simulator.
        x0: initial state, a pytree of floating-point arrays.
        params: parameters p, a pytree of floating-point arrays.
        h: step size [s], a Python number greater than 0. It is a setting: to differentiate with respect to it,
            make it a parameter.
        steps: number of steps T, a Python integer of at least 1.
        adjoint: referent, realization and retention of the derivative. The primal does not depend on it.

    Returns:
        x_T, with the structure, shapes and dtypes of x0.

    Derivative of: what `adjoint.referent` says, with respect to x0 and params. Reverse mode only, since every
    adjoint is a custom rule: for forward mode (`jax.jvp`, `jax.jacfwd`) use `trajectory`; JAX's own message about a
    custom_vjp means this. `jax.hessian`, forward over reverse, works, and differentiates the backward pass as it is.

    Raises:
        ValueError: the system can't offer the adjoint, or an input has the wrong kind or range.
        TypeError: state, parameters and step don't fit together.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> decay = System(step=lambda x, p, h: x - h * p * x, name="decay")
        >>> loss = lambda p: rollout(decay, jnp.array(1.0), p, h=0.5, steps=3)
        >>> float(loss(jnp.array(1.0))), float(jax.grad(loss)(jnp.array(1.0)))
        (0.125, -0.375)
    """
    check_legal(system, adjoint)
    x0, params, h = check_inputs(system, x0, params, h=h, steps=steps)
    return _run(system, adjoint, h, steps, x0, params)


def trajectory(system: System, x0: PyTree, params: PyTree, *, h: float | int, steps: int) -> PyTree:
    """All states x_0 … x_T, stacked along a new first axis of length steps + 1.

    Derivative of: the executed computation, by JAX alone, in forward and reverse mode, with JAX's own tape
    (every intermediate of every step is stored). For pictures and forward mode.

    Raises the same errors as `rollout`.

    Example:
        >>> import jax.numpy as jnp
        >>> decay = System(step=lambda x, p, h: x - h * p * x)
        >>> trajectory(decay, jnp.array(1.0), jnp.array(1.0), h=0.5, steps=3).tolist()
        [1.0, 0.5, 0.25, 0.125]
    """
    x0, params, h = check_inputs(system, x0, params, h=h, steps=steps)
    return _states(system, h, steps, x0, params)


@partial(jax.jit, static_argnums=(0, 1, 2))
def _states(system, h, steps, x0, params):
    _, xs = lax.scan(lambda x, _: (system.step(x, params, h),) * 2, x0, length=steps)
    return jax.tree.map(lambda first, rest: jnp.concatenate([first[None], rest]), x0, xs)


@partial(jax.custom_vjp, nondiff_argnums=(0, 1, 2, 3))
def _primal(system, adjoint, h, steps, x0, params):
    return advance(lambda x: system.step(x, params, h), x0, steps)


def _forward(system, adjoint, h, steps, x0, params):
    x_T, saved = adjoint.retention.forward(lambda x: system.step(x, params, h), x0, steps)
    return x_T, (saved, params)


def _backward(system, adjoint, h, steps, kept, lam):
    saved, params = kept
    pull = PULLBACKS[type(adjoint.referent), type(adjoint.realization)].pull
    recovery = RECOVERIES.get(type(adjoint.referent))

    def consume(x, x_next, carry):
        lam, gradient = carry
        lam, share = pull(system, adjoint.realization, h, x, x_next, params, lam)
        return lam, trees.add(gradient, share)

    return adjoint.retention.backward(
        lambda x: system.step(x, params, h),
        recovery and (lambda x_next: recovery.unstep(system, h, x_next, params)),
        saved,
        steps,
        consume,
        (lam, jax.tree.map(jnp.zeros_like, params)),
    )


_primal.defvjp(_forward, _backward)
# Under jit so that a second call with the same system and settings is not compiled again.
_run = jax.jit(_primal, static_argnums=(0, 1, 2, 3))
