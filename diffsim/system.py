"""What a simulator offers: plain functions of state, parameters and step size."""

from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["System"]


@dataclass(frozen=True)
class System:
    """The functions that define one simulator; arrays enter only as their arguments.

    A state `x` and parameters `p` are pytrees of floating-point arrays; `h` is the step size [s].
    Only `step` is required. Each further function opens cells of the grid
    referent × realization × retention (`diffsim.supported` lists them).

    Attributes:
        step: `x_{n+1} = step(x_n, p, h)`, the executed computation.
        residual: `R(x_{n+1}, x_n, p, h) = 0`, the converged equation; same structure as the state.
        field: `dx/dt = field(x, p)`, the continuous dynamics.
        unstep: `x_n = unstep(x_{n+1}, p, h)`, the exact inverse of `step`.
        step_vjp: `(x_n, x_{n+1}, p, h, lam_{n+1}) -> (lam_n, dL/dp share)`, hand-derived,
            the vector–Jacobian product *of the executed step*.
        root_vjp: same signature, hand-derived, *of the converged equation*.
        costate: `(x, p, lam) -> (dlam/dt, dL/dp rate)`, hand-derived, *of the continuous dynamics*:
            `dlam/dt = -f_x^T lam` and the rate `f_p^T lam`.
        unknown: `u = unknown(x_{n+1})`, the part of the new state that the residual is solved for;
            the whole state when left out.
        finish: `x_{n+1} = finish(u, x_n, p, h)`, the whole new state from the solved part. With `unknown` and
            `finish` the residual has the structure of u, for example positions without velocities.
        precondition: `z = precondition(x_{n+1}, x_n, p, h, r)`, an approximate solve with the Jacobian of the
            residual with respect to u (symmetric, or already transposed), for the matrix-free adjoint solves.
        solve_info: `(x_n, p, h) -> SolveReceipt`, the facts about the solve inside one step.
        dynamic_stop: the step halts after a number of iterations that depends on its data.
        grid: spacing of a fixed-point state, or None for an ordinary float state.
        name: how messages call it.

    Example:
        >>> decay = System(step=lambda x, p, h: x - h * p * x, name="decay")
        >>> decay.step(1.0, 2.0, 0.25)
        0.5
        >>> decay.unstep is None
        True
    """

    step: Callable
    residual: Callable | None = None
    field: Callable | None = None
    unstep: Callable | None = None
    step_vjp: Callable | None = None
    root_vjp: Callable | None = None
    costate: Callable | None = None
    unknown: Callable | None = None
    finish: Callable | None = None
    precondition: Callable | None = None
    solve_info: Callable | None = None
    dynamic_stop: bool = False
    grid: float | None = None
    name: str = "system"
