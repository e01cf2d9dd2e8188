"""Waves on a square membrane with a fixed rim and a speed that differs from place to place."""

import jax.numpy as jnp
import numpy as np

from diffsim.integrators import Phase, fixed_point_leapfrog, leapfrog, snap
from diffsim.scenes.scene import Scene

__all__ = ["SIDE", "acceleration", "acceleration_vjp", "energy", "laplacian", "make", "places"]

SIDE = 1.0  # [m]
LIFT = 0.05  # [m], height of the initial bump


def places(nodes: int) -> np.ndarray:
    """Coordinates [m] of the inner nodes along one side; the rim lies at 0 and `SIDE`.

    Example:
        >>> places(3).tolist()
        [0.25, 0.5, 0.75]
    """
    return np.arange(1, nodes + 1) * SIDE / (nodes + 1)


def laplacian(q):
    r"""The five-point $\nabla^2 q$ [1/m] with q = 0 on the rim; symmetric.

    Example:
        >>> laplacian(jnp.ones((1, 1))).tolist()
        [[-16.0]]
    """
    padded = jnp.pad(q, 1)
    neighbours = padded[2:, 1:-1] + padded[:-2, 1:-1] + padded[1:-1, 2:] + padded[1:-1, :-2]
    return (neighbours - 4 * q) * ((q.shape[0] + 1) / SIDE) ** 2


def acceleration(q, p):
    r"""$\ddot q = c^2\, \nabla^2 q$ [m/s²].

    Args:
        q: displacement of the inner nodes [m], shape [nodes, nodes].
        p: `speed`, the wave speed c [m/s] at every inner node, same shape.

    Example:
        >>> acceleration(jnp.ones((1, 1)), {"speed": jnp.full((1, 1), 2.0)}).tolist()
        [[-64.0]]
    """
    return p["speed"] ** 2 * laplacian(q)


def acceleration_vjp(q, p, w):
    r"""The transposed Jacobian of `acceleration` applied to w, by hand: $\nabla^2 (c^2 w)$ and $2c\,(\nabla^2 q)\,w$.

    Example:
        >>> from_q, from_p = acceleration_vjp(jnp.ones((1, 1)), {"speed": jnp.ones((1, 1))}, jnp.ones((1, 1)))
        >>> from_q.tolist(), from_p["speed"].tolist()
        ([[-16.0]], [[-32.0]])
    """
    return laplacian(p["speed"] ** 2 * w), {"speed": 2 * p["speed"] * laplacian(q) * w}


def energy(x, p):
    r"""Energy per tension, $\tfrac12\int \dot q^2/c^2 + |\nabla q|^2$ [m²]: conserved by the dynamics.

    Example:
        >>> float(energy(Phase(jnp.ones((1, 1)), jnp.zeros((1, 1))), {"speed": jnp.ones((1, 1))}))
        2.0
    """
    cell = (SIDE / (x.q.shape[0] + 1)) ** 2
    return cell / 2 * (jnp.sum((x.v / p["speed"]) ** 2) - jnp.sum(x.q * laplacian(x.q)))


def make(*, nodes: int = 47, grid: float | None = None, h: float = 0.01, steps: int = 100, dtype=None) -> Scene:
    """A bump let go left of a slow lens; loss: half the squared distance of a receiver's displacement from 1 cm [m²].

    Args:
        nodes: inner nodes along one side, at least 3.
        grid: spacing of the fixed-point state [m, m/s], such as 2^-40 in float64; None for ordinary floats.
        h: step size [s]; must stay below Δx/(c √2) ≈ 0.0147 s at 47 nodes.
        steps: number of steps.
        dtype: float dtype; JAX's default when left out.

    Example:
        >>> make(nodes=5, grid=2.0**-20).system.grid == 2.0**-20
        True
    """
    if nodes < 3:
        raise ValueError(f"nodes={nodes!r}: bump, lens and receiver need room; write at least 3.")
    array = lambda value: jnp.asarray(value, dtype or float)
    x, y = np.meshgrid(places(nodes), places(nodes), indexing="ij")
    bump = LIFT * np.exp(-((x - 0.25) ** 2 + (y - 0.5) ** 2) / (2 * 0.05**2))
    lens = 1.0 - 0.3 * np.exp(-((x - 0.55) ** 2 + (y - 0.5) ** 2) / (2 * 0.1**2))
    x0 = Phase(q=array(bump), v=jnp.zeros((nodes, nodes), dtype or float))
    if grid is None:
        system = leapfrog(acceleration, acceleration_vjp=acceleration_vjp, name="wave")
    else:
        system = fixed_point_leapfrog(acceleration, acceleration_vjp=acceleration_vjp, grid=grid, name="wave")
        x0 = snap(x0, grid)
    receiver = round(0.85 * (nodes + 1)) - 1, (nodes + 1) // 2 - 1
    return Scene(
        name="wave",
        system=system,
        x0=x0,
        params={"speed": array(lens)},
        h=h,
        steps=steps,
        loss=lambda x: (x.q[receiver] - 0.01) ** 2 / 2,
        units={"speed": "m/s", "loss": "m²"},
        draw=draw,
        question="Which distribution of wave speeds does the signal at a receiver belong to?",
    )


def draw(ax, x, p):
    """Displacement in colour, lines of equal wave speed, and the receiver as a triangle, in metres."""
    along, limit = places(x.q.shape[0]), LIFT / 2
    rim = np.concatenate([[0.0], along, [SIDE]])
    painted = ax.pcolormesh(rim, rim, np.pad(x.q.T, 1), cmap="RdBu_r", vmin=-limit, vmax=limit, shading="gouraud")
    if float(jnp.ptp(p["speed"])) > 0:
        lines = ax.contour(along, along, p["speed"].T, levels=4, colors="black", linewidths=0.6)
        ax.clabel(lines, fmt="%.2g m/s", fontsize=7)
    bar = ax.figure.colorbar(painted, cax=ax.inset_axes([1.03, 0.0, 0.04, 1.0]), extend="both")
    bar.set_label("displacement [m]")
    ax.plot(0.85, 0.5, "^", color="black", ms=8)
    ax.set(xlim=(0, SIDE), ylim=(0, SIDE), aspect="equal", xlabel="x [m]", ylabel="y [m]")
