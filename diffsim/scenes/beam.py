"""A rubber beam held at one end, by finite elements: neo-Hookean triangles in plane strain."""

from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from diffsim.integrators import Phase, implicit_euler_potential
from diffsim.scenes.scene import Scene
from diffsim.solvers import Newton, Solver

__all__ = ["Mesh", "energy", "energy_density", "make", "mesh", "nodal_mass", "potential", "precondition"]

GRAVITY = 9.81  # [m/s²]
LENGTH, HEIGHT, WIDTH = 0.5, 0.05, 0.05  # [m]
POISSON = 0.3
DENSE_LIMIT = 300  # unknowns up to which factoring the Hessian beats conjugate gradients


class Mesh(NamedTuple):
    """Nodes, linear triangles, and what the energy needs of them.

    Attributes:
        rest: rest positions [m], [nodes, 2]; the first `across + 1` nodes are held.
        corners: the three nodes of each triangle, [triangles, 3].
        slopes: gradients of the three shape functions [1/m], [triangles, 3, 2].
        volume: of one triangle times `WIDTH` [m³]; all are the same.

    Example:
        >>> mesh(2, 1).corners.shape
        (4, 3)
    """

    rest: np.ndarray
    corners: np.ndarray
    slopes: np.ndarray
    volume: float


@lru_cache(maxsize=16)
def mesh(along: int, across: int) -> Mesh:
    """The beam cut into along × across cells, each into two triangles with diagonals in turns.

    Example:
        >>> m = mesh(8, 2)
        >>> bool(np.isclose(m.volume * len(m.corners), LENGTH * HEIGHT * WIDTH))
        True
    """
    x, y = np.meshgrid(np.linspace(0, LENGTH, along + 1), np.linspace(0, HEIGHT, across + 1), indexing="ij")
    rest = np.stack([x.ravel(), y.ravel()], axis=1)
    node = np.arange(rest.shape[0]).reshape(x.shape)
    a, b, c, d = node[:-1, :-1], node[1:, :-1], node[1:, 1:], node[:-1, 1:]
    even = (np.add.outer(np.arange(along), np.arange(across)) % 2 == 0)[..., None]
    lower = np.where(even, np.stack([a, b, c], -1), np.stack([a, b, d], -1))
    upper = np.where(even, np.stack([a, c, d], -1), np.stack([b, c, d], -1))
    corners = np.stack([lower, upper], axis=2).reshape(-1, 3)
    edges = rest[corners[:, 1:]] - rest[corners[:, :1]]
    others = np.linalg.inv(edges).transpose(0, 2, 1)
    slopes = np.concatenate([-others.sum(axis=1, keepdims=True), others], axis=1)
    return Mesh(rest, corners, slopes, LENGTH * HEIGHT * WIDTH / (2 * along * across))


def _deformation(q):
    """Deformation gradient F of every triangle as its four entries F11, F12, F21, F22, and the mesh."""
    m = mesh(q.shape[0], q.shape[1] - 1)
    held = jnp.asarray(m.rest[: q.shape[1]], q.dtype)
    corners = jnp.concatenate([held, q.reshape(-1, 2)])[m.corners]
    slopes = jnp.asarray(m.slopes, q.dtype)
    entries = (sum(corners[:, a, i] * slopes[:, a, j] for a in range(3)) for i in range(2) for j in range(2))
    return *entries, m


def _moduli(p):
    """Shear modulus μ and plane bulk modulus κ = λ + μ [Pa] of every triangle."""
    young = jnp.repeat(p["young"].ravel(), 2)
    mu = young / (2 * (1 + POISSON))
    return mu, mu / (1 - 2 * POISSON)


def energy_density(q, p):
    r"""Elastic energy per volume [J/m³] of every triangle, for the compressible neo-Hookean solid in plane strain

    $$W(F) = \tfrac{\mu}{2}\,(|F|^2 - 2J) + \tfrac{\kappa}{2}\,(J - 1)^2, \qquad J = \det F$$

    the form without a logarithm, which stays finite when a triangle turns inside out. At small strain it is
    Hooke's law with shear modulus μ and plane bulk modulus κ = λ + μ. In the code
    $|F|^2 - 2J = (F_{11}-F_{22})^2 + (F_{12}+F_{21})^2$, which doesn't cancel.

    Args:
        q: positions of the free nodes [m], shape [along, across + 1, 2].
        p: `young`, Young's modulus [Pa] of every cell, shape [along, across].

    Source: {cite}`smith2018stable`.

    Example:
        >>> scene = make(along=4, across=1)
        >>> float(jnp.max(energy_density(scene.x0.q, scene.params))) < 1e-20
        True
    """
    f11, f12, f21, f22, _ = _deformation(q)
    mu, kappa = _moduli(p)
    growth = f11 * f22 - f12 * f21 - 1
    return mu / 2 * ((f11 - f22) ** 2 + (f12 + f21) ** 2) + kappa / 2 * growth**2


def potential(q, p):
    """Elastic energy [J]: nodes are gathered into triangles, so a Hessian–vector product costs O(triangles).

    Example:
        >>> scene = make(along=4, across=1)
        >>> potential(1.1 * scene.x0.q, scene.params) > 0
        Array(True, dtype=bool)
    """
    return mesh(q.shape[0], q.shape[1] - 1).volume * jnp.sum(energy_density(q, p))


def _scattered(values, m: Mesh, shape):
    """Sum over the triangles that meet in each free node; values [triangles, 3, k] to [along, across + 1, k]."""
    total = jnp.zeros((m.rest.shape[0], values.shape[-1]), values.dtype).at[m.corners].add(values)
    return total[shape[1] :].reshape(*shape, values.shape[-1])


def nodal_mass(p):
    """Mass [kg] of every free node, a third of the triangles around it: shape [along, across + 1, 1].

    Example:
        >>> scene = make(along=4, across=1)
        >>> float(jnp.sum(nodal_mass(scene.params))) < 1100 * LENGTH * HEIGHT * WIDTH
        True
    """
    along, across = p["young"].shape
    m = mesh(along, across)
    third = jnp.full((*m.corners.shape, 1), m.volume / 3, p["density"].dtype)
    return p["density"] * _scattered(third, m, (along, across + 1))


def precondition(x_next, x, p, h, r):
    r"""Solve with the 2 × 2 diagonal blocks of $M/h^2 + \nabla^2 V$: one block per node, in closed form.

    A node moves F by $d\,b^\top$, of rank one, and det is linear along it, so each triangle of volume $V_e$ adds

    $$V_e\,\big[\mu\,|b|^2\,I + \kappa\,c\,c^\top\big], \qquad c = \operatorname{cof}(F)\, b$$

    which is positive definite even where the Hessian isn't. b is the node's shape-function gradient.

    Example:
        >>> scene = make(along=4, across=1)
        >>> precondition(scene.x0, scene.x0, scene.params, 0.01, scene.x0.q).shape
        (4, 2, 2)
    """
    f11, f12, f21, f22, m = _deformation(x_next.q)
    mu, kappa = _moduli(p)
    b = jnp.asarray(m.slopes, r.dtype)
    c1 = f22[:, None] * b[..., 0] - f21[:, None] * b[..., 1]
    c2 = f11[:, None] * b[..., 1] - f12[:, None] * b[..., 0]
    spread = mu[:, None] * jnp.sum(b * b, axis=-1)
    bulk = kappa[:, None]
    entries = jnp.stack([spread + bulk * c1 * c1, bulk * c1 * c2, spread + bulk * c2 * c2], axis=-1)
    inertia = nodal_mass(p)[..., 0] / h**2
    block = m.volume * _scattered(entries, m, r.shape[:2])
    a, c, d = block[..., 0] + inertia, block[..., 1], block[..., 2] + inertia
    return (
        jnp.stack([d * r[..., 0] - c * r[..., 1], a * r[..., 1] - c * r[..., 0]], axis=-1) / (a * d - c * c)[..., None]
    )


def energy(x, p):
    """Kinetic, elastic and gravitational energy [J] of a state: conserved by the dynamics, lost by implicit Euler.

    Example:
        >>> scene = make(along=4, across=1)
        >>> energy(scene.x0, scene.params).shape
        ()
    """
    mass = nodal_mass(p)
    return jnp.sum(mass * (x.v**2 / 2)) + GRAVITY * jnp.sum(mass[..., 0] * x.q[..., 1]) + potential(x.q, p)


def make(
    *,
    along: int = 16,
    across: int = 2,
    solver: Solver | None = None,
    h: float = 0.02,
    steps: int = 16,
    dtype=None,
) -> Scene:
    """The beam, let go straight; loss: half the squared distance of its tip from a point [m²].

    Unknowns: 2 · along · (across + 1), so 96 at the defaults and 5,040 at `along=168, across=14`. Linear triangles
    bend too stiffly while few lie across: beside Euler and Bernoulli the static deflection is 40 % short with 2
    square cells across, 12 % with 4, 3 % with 8, 0.4 % with 14.

    Args:
        along, across: cells along and across the beam, each at least 1.
        solver: what minimises the incremental potential. Left out, 4 full Newton steps: factored
            up to 300 unknowns, above by 6 · along conjugate-gradient iterations each, about what they take.
        h: step size [s].
        steps: number of steps.
        dtype: float dtype; JAX's default when left out.

    Example:
        >>> make().x0.q.shape, make(along=168, across=14).x0.q.size
        ((16, 3, 2), 5040)
    """
    if along < 1 or across < 1:
        raise ValueError(f"along={along!r}, across={across!r}: the beam has no cells; write at least 1 for each.")
    array = lambda value: jnp.asarray(value, dtype or float)
    q0 = array(mesh(along, across).rest[across + 1 :].reshape(along, across + 1, 2))
    if solver is None:
        dense = q0.size <= DENSE_LIMIT
        linear = "dense" if dense else "cg"
        # A line search on the energy would choose at round-off, and leave jumps of 1e-6 of the gradient's size.
        solver = Newton(iterations=4, line_search=False, linear=linear, linear_iterations=6 * along)
    system = implicit_euler_potential(
        potential,
        nodal_mass,
        gravity=lambda p: array([[[0.0, -GRAVITY]]]),
        solver=solver,
        # Free flight would start every step far up the stiff side of the energy.
        guess=lambda x, p, h: x.q + h * x.v,
        name="beam",
    )
    target = array([0.45, -0.15])
    return Scene(
        name="beam",
        system=replace(system, precondition=precondition),
        x0=Phase(q=q0, v=jnp.zeros_like(q0)),
        params={"young": jnp.full((along, across), 2e6, dtype or float), "density": array(1100.0)},
        h=h,
        steps=steps,
        loss=lambda x: jnp.sum((jnp.mean(x.q[-1], axis=0) - target) ** 2) / 2,
        units={"young": "Pa", "density": "kg/m³", "loss": "m²"},
        draw=draw,
        question="How stiff must each part of the beam be for its tip to reach a given point?",
    )


def draw(ax, x, p):
    """The deformed mesh, coloured by the elastic energy density around each node, and the outline at rest, in metres."""
    along, rows = x.q.shape[:2]
    m = mesh(along, rows - 1)
    held = m.rest[:rows]
    nodes = np.concatenate([held, np.asarray(x.q).reshape(-1, 2)])
    density = np.repeat(np.asarray(energy_density(x.q, p)) / 1e3, 3)
    around = np.bincount(m.corners.ravel(), density) / np.bincount(m.corners.ravel())
    painted = ax.tripcolor(*nodes.T, m.corners, around, shading="gouraud", cmap="viridis", vmin=0, vmax=2)
    ax.triplot(*nodes.T, m.corners, color="black", lw=0.2)
    bar = ax.figure.colorbar(painted, cax=ax.inset_axes([1.03, 0.0, 0.03, 1.0]), extend="max")
    bar.set_label("elastic energy [kJ/m³]")
    ax.plot([0, LENGTH, LENGTH, 0], [0, 0, HEIGHT, HEIGHT], ls="--", color="gray", lw=1)
    ax.plot(held[:, 0], held[:, 1], "s", color="black", ms=4)
    ax.set(xlim=(-0.05, 0.55), ylim=(-0.35, 0.1), aspect="equal", xlabel="x [m]", ylabel="y [m]")
