"""A square metal plate with a hot spot and insulated edges: heat spreads, its total stays."""

import jax.numpy as jnp
import numpy as np

from diffsim.integrators import backward_euler
from diffsim.scenes.scene import Scene
from diffsim.solvers import ConjugateGradient, Solver

__all__ = ["SIDE", "centres", "content", "field", "make"]

SIDE = 0.1  # [m]
HOT = 100.0  # [K] above the surroundings, in the middle of the spot


def centres(cells: int) -> np.ndarray:
    """Coordinates [m] of the cells' centres along one side.

    Example:
        >>> centres(2).tolist()
        [0.025, 0.07500000000000001]
    """
    return (np.arange(cells) + 0.5) * SIDE / cells


def _between(k):
    """Conductivity across the face between neighbours along the first axis: their harmonic mean."""
    return 2 * k[1:] * k[:-1] / (k[1:] + k[:-1])


def _gain(flux):
    """What each cell gains from the fluxes through its faces along the first axis; none through the edges."""
    padded = jnp.pad(flux, ((1, 1), (0, 0)))
    return padded[1:] - padded[:-1]


def field(u, p):
    r"""Rate of the temperature [K/s] of every cell: $c\,\partial_t u = \nabla\cdot(k \nabla u)$ by finite volumes.

    The flux between two cells is $k_{ab}(u_b - u_a)/\Delta x$ with the harmonic mean $k_{ab}$; edges are insulated.

    Args:
        u: temperature above the surroundings [K], shape [cells, cells].
        p: `conductivity` k [W/(m K)] of every cell, shape [cells, cells]; `capacity` c [J/(m³ K)].

    Example:
        >>> p = {"conductivity": jnp.ones((2, 2)), "capacity": jnp.array(1.0)}
        >>> field(jnp.ones((2, 2)), p).tolist()
        [[0.0, 0.0], [0.0, 0.0]]
    """
    k = p["conductivity"]
    down = _gain(_between(k) * (u[1:] - u[:-1]))
    across = _gain(_between(k.T) * (u.T[1:] - u.T[:-1])).T
    return (down + across) / (p["capacity"] * (SIDE / u.shape[0]) ** 2)


def content(u, p):
    """Heat [J] per metre of thickness, above the surroundings: conserved, edges being insulated.

    Example:
        >>> round(float(content(jnp.ones((4, 4)), {"capacity": 100.0})), 6)
        1.0
    """
    return p["capacity"] * (SIDE / u.shape[0]) ** 2 * jnp.sum(u)


def make(
    *,
    cells: int = 16,
    solver: Solver = ConjugateGradient(iterations=20),
    h: float = 0.2,
    steps: int = 20,
    dtype=None,
) -> Scene:
    """An aluminium plate; loss: half the mean squared distance of its right edge from 10 K [K²].

    Args:
        cells: cells along one side, at least 2.
        solver: what solves each backward Euler step; its Jacobian is symmetric positive definite.
        h: step size [s].
        steps: number of steps.
        dtype: float dtype; JAX's default when left out.

    Example:
        >>> make(cells=4).params["conductivity"].shape
        (4, 4)
    """
    if cells < 2:
        raise ValueError(f"cells={cells!r}: heat flows between cells; write at least 2.")
    array = lambda value: jnp.asarray(value, dtype or float)
    x, y = np.meshgrid(centres(cells), centres(cells), indexing="ij")
    spot = HOT * np.exp(-((x - 0.03) ** 2 + (y - 0.06) ** 2) / (2 * 0.02**2))
    return Scene(
        name="heat",
        system=backward_euler(field, solver=solver, name="heat"),
        x0=array(spot),
        params={"conductivity": jnp.full((cells, cells), 237.0, dtype or float), "capacity": array(2.43e6)},
        h=h,
        steps=steps,
        loss=lambda u: jnp.mean((u[-1] - 10.0) ** 2) / 2,
        units={"conductivity": "W/(m K)", "capacity": "J/(m³ K)", "loss": "K²"},
        draw=draw,
        question="Where must the plate conduct better for its right edge to reach a given temperature in time?",
    )


def draw(ax, u, p):
    """Temperature of every cell, contour lines 10 K apart, over centimetres."""
    centimetres = 100 * centres(u.shape[0])
    painted = ax.imshow(u.T, origin="lower", extent=(0, 100 * SIDE, 0, 100 * SIDE), cmap="inferno", vmin=0, vmax=HOT)
    lines = ax.contour(centimetres, centimetres, u.T, levels=np.arange(10, HOT, 10), colors="white", linewidths=0.8)
    ax.clabel(lines, fmt="%d K", fontsize=8)
    bar = ax.figure.colorbar(painted, cax=ax.inset_axes([1.03, 0.0, 0.04, 1.0]))
    bar.set_label("temperature above surroundings [K]")
    ax.set(xlabel="x [cm]", ylabel="y [cm]")
