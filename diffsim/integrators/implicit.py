"""Implicit integrators: a step is the root of an equation, found by the solver that is given."""

from collections.abc import Callable
from dataclasses import replace

import jax
import jax.numpy as jnp
from jaxtyping import PyTree

from diffsim import trees
from diffsim.integrators.leapfrog import Phase
from diffsim.solvers import IncrementalPotential, Newton, Solver
from diffsim.solvers.potential import spread
from diffsim.system import System

__all__ = ["backward_euler", "implicit_euler_potential", "implicit_midpoint"]


def backward_euler(
    field: Callable, *, solver: Solver = Newton(), guess: Callable | None = None, name: str = "backward Euler"
) -> System:
    r"""Backward Euler: first order, damps what it cannot resolve, stable for any h on a decaying field.

    $$R(x_{n+1}, x_n, p, h) = x_{n+1} - x_n - h f(x_{n+1}, p) = 0$$

    Args:
        field: `f(x, p)` [state/s], a state (any pytree) to its rate of the same structure.
        solver: how the root is found. The residual has the form u - G(u), so `Picard` suits it for h|f_x| < 1.
        guess: `(x_n, p, h) -> u_0`, the warm start, part of the executed computation and differentiated with it;
            x_n when left out.
        name: how messages call the system.

    Derivative of: AD of `step` goes through every iteration of the solver, from the guess on.

    Wrong when: the solver has not converged: then `step` and `residual` are two different systems. `solve_info`
    says how far it got. Not recommended for long conservative motion: energy decays at the rate h ω².

    Source: {cite}`hairer1996solving`, section IV.3.

    Example:
        >>> decay = backward_euler(lambda x, p: -p * x)
        >>> round(float(decay.step(jnp.array(1.0), 1.0, 1.0)), 6)
        0.5
    """

    def residual(x_next, x, p, h):
        return trees.subtract(x_next, trees.axpy(h, field(x_next, p), x))

    return _implicit(residual, solver, guess, field=field, name=name)


def implicit_midpoint(
    field: Callable, *, solver: Solver = Newton(), guess: Callable | None = None, name: str = "implicit midpoint"
) -> System:
    r"""The implicit midpoint rule: second order, symplectic, conserves every quadratic invariant.

    $$R(x_{n+1}, x_n, p, h) = x_{n+1} - x_n - h f\!\big(\tfrac{x_n + x_{n+1}}{2}, p\big) = 0$$

    `unstep` is a solve with -h: the rule is its own inverse, up to the solver's convergence and rounding. The round
    trip in floats drifts.

    Args:
        field, solver, guess, name: as for `backward_euler`; `Picard` suits it for h|f_x| < 2.

    Derivative of: AD of `step` goes through every iteration of the solver, from the guess on.

    Wrong when: the solver has not converged; the invariants then drift too. Fast decay is not damped but alternates.

    Source: {cite}`hairer2006geometric`, sections II.1, IV.2 and VI.4.

    Example:
        >>> spring = implicit_midpoint(lambda x, p: Phase(x.v, -p * x.q))
        >>> x = spring.step(Phase(jnp.array(1.0), jnp.array(0.0)), 4.0, 1.0)
        >>> round(float(x.q), 6), round(float(x.v), 6)
        (0.0, -2.0)
    """

    def residual(x_next, x, p, h):
        middle = trees.scale(0.5, trees.add(x, x_next))
        return trees.subtract(x_next, trees.axpy(h, field(middle, p), x))

    system = _implicit(residual, solver, guess, field=field, name=name)
    return replace(system, unstep=lambda x, p, h: system.step(x, p, -h))


def implicit_euler_potential(
    potential: Callable,
    mass: PyTree | Callable,
    *,
    gravity: Callable | None = None,
    solver: Solver = Newton(),
    guess: Callable | None = None,
    name: str = "implicit Euler on a potential",
) -> System:
    r"""Backward Euler for a mechanical system, as the minimum of an incremental potential over new positions u only.

    $$E(u) = \tfrac{1}{2h^2}(u-\tilde q)^T M (u-\tilde q) + V(u, p), \qquad \tilde q = q_n + h\,v_n + h^2 g(p)$$
    $$R = \nabla E(u) = 0, \qquad q_{n+1} = u, \quad v_{n+1} = (u - q_n)/h$$

    The unknown of `residual` is u = x_{n+1}.q alone, and its Jacobian M/h² + ∇²V is symmetric. State: `Phase`.

    Args:
        potential: `V(q, p)` [J]; a `Constraints` for `XPBD`.
        mass: M [kg], a number, an array that broadcasts to q, a pytree of such, or a function of p that returns one.
        gravity: `g(p)` [length/s²], an acceleration that broadcasts to q without new axes, such as (1, d) to (n, d).
        solver: how E is minimised; it gets E too. `GradientDescent`'s rate is in [m/N], about h²/M for soft potentials.
        guess: `(x_n, p, h) -> u_0`, the warm start, part of the executed computation and differentiated with it;
            q̃, free flight under gravity, when left out.
        name: how messages call the system.

    Derivative of: AD of `step` goes through every iteration of the solver, from the guess on.

    Wrong when: the solver has not converged; or V is not convex at h (M/h² + ∇²V indefinite) and E has several minima.

    Source: {cite}`martin2011example`.

    Example:
        >>> spring = implicit_euler_potential(lambda q, p: 0.5 * p * q**2, 1.0)
        >>> x = spring.step(Phase(jnp.array(1.0), jnp.array(0.0)), 3.0, 1.0)
        >>> round(float(x.q), 6), round(float(x.v), 6)
        (0.25, -0.75)
    """
    mass_of = mass if callable(mass) else lambda p: mass

    def accelerated(x, p):
        return jax.tree.map(lambda a, g: a + g, x, spread(gravity(p), x, "gravity")) if gravity else x

    def target(x, p, h):
        v = trees.axpy(h, accelerated(jax.tree.map(jnp.zeros_like, x.v), p), x.v)
        return trees.axpy(h, v, x.q)

    def energy(x, p, h):
        return IncrementalPotential(potential, mass_of(p), target(x, p, h), p, h)

    def field(x, p):
        pull = jax.grad(potential)(x.q, p)
        fall = jax.tree.map(lambda m, f: -f / m, spread(mass_of(p), pull, "mass"), pull)
        return Phase(x.v, accelerated(fall, p))

    return _implicit(
        lambda x_next, x, p, h: energy(x, p, h).gradient(x_next.q),
        solver,
        guess or target,
        energy=energy,
        unknown=lambda x: x.q,
        finish=lambda u, x, p, h: Phase(u, trees.scale(1 / h, trees.subtract(u, x.q))),
        field=field,
        name=name,
    )


def _implicit(residual, solver, guess, *, field, name, energy=None, unknown=None, finish=None) -> System:
    """The system whose step solves `residual` from `guess`; with an `energy` the residual is its gradient."""
    start = guess or (lambda x, p, h: x)

    def solve(x, p, h):
        if energy:
            E = energy(x, p, h)
            return solver.solve(E.gradient, start(x, p, h), energy=E)
        return solver.solve(lambda u: residual(u, x, p, h), start(x, p, h))

    def step(x, p, h):
        u = solve(x, p, h)[0]
        return finish(u, x, p, h) if finish else u

    return System(
        step=step,
        residual=residual,
        field=field,
        unknown=unknown,
        finish=finish,
        solve_info=lambda x, p, h: solve(x, p, h)[1],
        dynamic_stop=solver.dynamic_stop,
        name=name,
    )
