"""A plane pendulum on a massless rod, released at an angle."""

import jax.numpy as jnp

from diffsim.integrators import Phase, fixed_point_leapfrog, leapfrog, snap
from diffsim.scenes.scene import Scene

__all__ = ["acceleration", "energy", "make"]


def acceleration(angle, p):
    r"""Angular acceleration [rad/s²] at an angle [rad] from the vertical: $\ddot\theta = -(g/\ell)\sin\theta$.

    Example:
        >>> float(acceleration(0.0, {"gravity": 9.81, "length": 1.0}))
        -0.0
    """
    return -p["gravity"] / p["length"] * jnp.sin(angle)


def acceleration_vjp(angle, p, w):
    """The transposed Jacobian of `acceleration` applied to w, derived by hand."""
    rate = p["gravity"] / p["length"]
    falling = w * jnp.sin(angle)
    return -rate * jnp.cos(angle) * w, {"gravity": -falling / p["length"], "length": falling * rate / p["length"]}


def energy(x, p):
    r"""Energy per mass and length², $\tfrac12\dot\theta^2 - (g/\ell)\cos\theta$ [1/s²]: conserved by the dynamics.

    Example:
        >>> float(energy(Phase(0.0, 1.0), {"gravity": 9.81, "length": 9.81}))
        -0.5
    """
    return x.v**2 / 2 - p["gravity"] / p["length"] * jnp.cos(x.q)


def make(*, grid: float | None = 2.0**-40, h: float = 0.01, steps: int = 256, dtype=None) -> Scene:
    """The pendulum, let go at 1 rad; loss: half the squared angle at the end [rad²].

    Args:
        grid: spacing of the fixed-point state [rad, rad/s], or None for ordinary floats.
        h: step size [s].
        steps: number of steps.
        dtype: float dtype; JAX's default when left out.

    Example:
        >>> make(grid=None).system.grid is None
        True
    """
    number = lambda value: jnp.asarray(value, dtype or float)
    x0 = Phase(q=number(1.0), v=number(0.0))
    if grid is None:
        system = leapfrog(acceleration, acceleration_vjp=acceleration_vjp, name="pendulum")
    else:
        system = fixed_point_leapfrog(acceleration, acceleration_vjp=acceleration_vjp, grid=grid, name="pendulum")
        x0 = snap(x0, grid)
    return Scene(
        name="pendulum",
        system=system,
        x0=x0,
        params={"gravity": number(9.81), "length": number(1.0)},
        h=h,
        steps=steps,
        loss=lambda x: x.q**2 / 2,
        units={"gravity": "m/s²", "length": "m", "loss": "rad²"},
        draw=draw,
        question="Which rod length makes the pendulum hang straight down at a given time?",
    )


def draw(ax, x, p):
    """Rod and bob at one state, in metres."""
    length = float(p["length"])
    bob = length * float(jnp.sin(x.q)), -length * float(jnp.cos(x.q))
    ax.plot([0, bob[0]], [0, bob[1]], color="black", lw=2)
    ax.plot(*bob, "o", ms=18)
    ax.plot(0, 0, "s", color="black")
    ax.set(xlim=(-1.2 * length, 1.2 * length), ylim=(-1.3 * length, 0.3 * length), aspect="equal")
    ax.set(xlabel="x [m]", ylabel="y [m]")
