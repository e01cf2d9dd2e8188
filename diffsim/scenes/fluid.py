"""Stirred incompressible flow in a periodic square, with a dye: the pressure comes from a truncated solve."""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from diffsim.scenes.scene import Scene
from diffsim.solvers import GradientDescent, Solver
from diffsim.system import System

__all__ = [
    "Flow",
    "convection",
    "divergence",
    "flow_system",
    "kinetic_energy",
    "make",
    "pressure_diagonal",
    "pressure_sweeps",
    "swirl",
]

SIDE = 1.0  # [m]
VORTICES = (0.8, -0.9, -1.0, 0.9)  # [m/s], the initial flow around the rotors
DIFFUSIVITY = 3e-3  # [m²/s], of the dye
ROTORS = ((0.25, 0.25), (0.75, 0.25), (0.25, 0.75), (0.75, 0.75))  # [m]
ROTOR_SIZE = 0.1  # [m]


class Flow(NamedTuple):
    """State on a staggered grid, periodic in both directions.

    Attributes:
        velocity: [2, n, n] in m/s; component a of cell (i, j) sits on the cell's lower face along axis a.
        pressure: [n, n], pressure over density in m²/s², in the cells. It is the last solve's result and the next
            one's guess, and drives nothing else.
        dye: [n, n], concentration in the cells.

    Example:
        >>> Flow(jnp.zeros((2, 4, 4)), jnp.zeros((4, 4)), jnp.zeros((4, 4))).velocity.shape
        (2, 4, 4)
    """

    velocity: Float[Array, "2 n n"]
    pressure: Float[Array, "n n"]
    dye: Float[Array, "n n"]


def _up(a, axis):
    """The next cell's entry along an axis."""
    return jnp.roll(a, -1, axis)


def _down(a, axis):
    """The previous cell's entry along an axis."""
    return jnp.roll(a, 1, axis)


def _spacing(a):
    return SIDE / a.shape[-1]


def divergence(velocity):
    """Net outflow per volume [1/s] of every cell.

    Example:
        >>> float(jnp.max(jnp.abs(divergence(swirl(jnp.eye(4))))))
        0.0
    """
    return sum(_up(velocity[a], a) - velocity[a] for a in (0, 1)) / _spacing(velocity)


def _gradient(pressure):
    """On the faces; minus its transpose is `divergence`."""
    return jnp.stack([pressure - _down(pressure, a) for a in (0, 1)]) / _spacing(pressure)


def _laplacian(a):
    return sum(_up(a, axis) + _down(a, axis) - 2 * a for axis in (-2, -1)) / _spacing(a) ** 2


def swirl(stream):
    r"""The velocity $(\partial_y\psi, -\partial_x\psi)$ of a stream function on the cells' lower corners: free of divergence.

    Example:
        >>> swirl(jnp.ones((4, 4))).shape
        (2, 4, 4)
    """
    return jnp.stack([_up(stream, 1) - stream, stream - _up(stream, 0)]) / _spacing(stream)


def convection(velocity):
    r"""$\nabla\cdot(v\,v)$ [m/s²] by central finite volumes: it only moves momentum from face to face.

    Where `divergence(velocity)` is 0 it does no work either: $\sum v\cdot\nabla\cdot(v\,v) = 0$.

    Example:
        >>> bool(jnp.all(convection(jnp.ones((2, 4, 4))) == 0))
        True
    """

    def carried(a, b):
        """What is carried along axis a of component b's momentum: in the cells for a = b, else on lower corners."""
        if a == b:
            middle = (velocity[a] + _up(velocity[a], a)) / 2
            return middle * middle - _down(middle * middle, a)
        flux = (velocity[a] + _down(velocity[a], b)) / 2 * ((velocity[b] + _down(velocity[b], a)) / 2)
        return _up(flux, a) - flux

    return jnp.stack([carried(0, b) + carried(1, b) for b in (0, 1)]) / _spacing(velocity)


def _dye_rate(x):
    flux = [
        x.velocity[a] * (x.dye + _down(x.dye, a)) / 2 - DIFFUSIVITY * (x.dye - _down(x.dye, a)) / _spacing(x.dye)
        for a in (0, 1)
    ]
    return -sum(_up(flux[a], a) - flux[a] for a in (0, 1)) / _spacing(x.dye)


def kinetic_energy(x):
    r"""$\tfrac12 \int |v|^2$ [m⁴/s²], over density and per depth.

    Example:
        >>> float(kinetic_energy(Flow(jnp.ones((2, 4, 4)), jnp.zeros((4, 4)), jnp.zeros((4, 4)))))
        1.0
    """
    return jnp.sum(x.velocity**2) * _spacing(x.velocity) ** 2 / 2


def flow_system(stirrers, solver: Solver) -> System:
    r"""Advection, viscosity and stirring by an explicit step, then the pressure that removes the divergence.

    $$v^* = v_n + h\,\big(-\nabla\cdot(v_n v_n) + \nu\nabla^2 v_n + \sum_k s_k f_k\big), \qquad
      v_{n+1} = v^* - h\,\nabla\pi, \qquad R = \nabla\cdot v_{n+1} + \tfrac{h}{\Delta x^2}\,\overline{\pi} = 0$$

    The unknown is the pressure π alone; `finish` completes it to the state. The last term fixes the mean of π,
    which no velocity feels, so the Jacobian is symmetric and positive definite. Of no `field`: with the pressure
    this is a differential–algebraic system, not an ordinary differential equation.

    Args:
        stirrers: force fields f_k, shape [rotors, 2, n, n], without unit.
        solver: how π is found, from the last step's π; a truncated solve leaves divergence behind.

    Derivative of: `step` differentiates every iteration of the solver; `residual` stands for the incompressible flow.

    Wrong when: h exceeds Δx/|v|, Δx²/(4ν) or 2ν/|v|²: the explicit part grows.

    Source: {cite}`chorin1968numerical,harlow1965numerical`.

    Example:
        >>> system = flow_system(jnp.zeros((1, 2, 4, 4)), pressure_sweeps(4, 0.01, iterations=5))
        >>> system.field is None and system.unknown is not None
        True
    """

    def pushed(x, p, h):
        force = jnp.tensordot(p["stirring"], stirrers.astype(x.velocity.dtype), 1)
        return x.velocity + h * (force + p["viscosity"] * _laplacian(x.velocity) - convection(x.velocity))

    def finish(pressure, x, p, h):
        return Flow(pushed(x, p, h) - h * _gradient(pressure), pressure, x.dye + h * _dye_rate(x))

    def residual(x_next, x, p, h):
        return divergence(x_next.velocity) + h / _spacing(x_next.pressure) ** 2 * jnp.mean(x_next.pressure)

    def solve(x, p, h):
        free = pushed(x, p, h)

        def leftover(pressure):
            return residual(Flow(free - h * _gradient(pressure), pressure, x.dye), x, p, h)

        return solver.solve(leftover, x.pressure)

    return System(
        step=lambda x, p, h: finish(solve(x, p, h)[0], x, p, h),
        residual=residual,
        unknown=lambda x: x.pressure,
        finish=finish,
        solve_info=lambda x, p, h: solve(x, p, h)[1],
        dynamic_stop=solver.dynamic_stop,
        name="fluid",
    )


def pressure_diagonal(cells: int, h: float):
    """The diagonal of the pressure equation's Jacobian, for `Jacobi(iterations, diagonal=…)`.

    Example:
        >>> pressure_diagonal(4, 0.01)(jnp.zeros((4, 4))).shape
        (4, 4)
    """
    return lambda pressure: jnp.full_like(pressure, h * (cells / SIDE) ** 2 * (4 + cells**-2))


def pressure_sweeps(cells: int, h: float, *, iterations: int) -> Solver:
    r"""Jacobi sweeps with momentum for the pressure equation, at a rate and momentum that suit spectrum and budget.

    The diagonal being constant, they are gradient descent. With the Jacobian's eigenvalues in [a, b], momentum r² and
    rate $(1+r)^2/b$ contract by r per sweep in the long run, the least r being
    $(\sqrt b - \sqrt a)/(\sqrt b + \sqrt a)$, 0.87 at 32 cells. On the way the fastest mode is multiplied by
    $(1 + (1+r)K)\,r^K$; r is lowered until that is at most 1/2, or few sweeps a step would make the run explode.

    Unlike that of conjugate gradients, the result is linear in what was left over. They are faster but, stopped early,
    magnify rounding: with 16 of them on 16 cells the loss after ten steps scatters by 1e-9 of its value, which spoils
    difference quotients.

    Source: {cite}`polyak1964some`.

    Example:
        >>> [round(pressure_sweeps(32, 0.01, iterations=k).momentum ** 0.5, 2) for k in (2, 10, 40)]
        [0.36, 0.7, 0.87]
    """
    low, high = 2 * np.sin(np.pi / cells), np.sqrt(8)
    r = float((high - low) / (high + low))
    while (1 + (1 + r) * iterations) * r**iterations > 0.5:
        r *= 0.99
    return GradientDescent(iterations=iterations, rate=(1 + r) ** 2 * SIDE**2 / (8 * h * cells**2), momentum=r * r)


def make(
    *,
    cells: int = 32,
    iterations: int = 40,
    solver: Solver | None = None,
    h: float = 0.01,
    steps: int = 100,
    dtype=None,
) -> Scene:
    """Four vortices and four rotors stir a blob of dye; loss: half the mean squared distance of the dye from a blob elsewhere.

    Args:
        cells: cells along one side, at least 4.
        iterations: budget of the pressure solve by `pressure_sweeps`; unused with a `solver`.
        solver: another way to find the pressure, such as `ConjugateGradient(iterations=30)` or
            `Jacobi(iterations=40, diagonal=pressure_diagonal(cells, h))`.
        h: step size [s].
        steps: number of steps.
        dtype: float dtype; JAX's default when left out.

    Example:
        >>> make(cells=8).x0.dye.shape
        (8, 8)
    """
    if cells < 4:
        raise ValueError(f"cells={cells!r}: four rotors need room; write at least 4.")
    array = lambda value: jnp.asarray(value, dtype or float)
    lower = np.arange(cells) * SIDE / cells
    middle = lower + SIDE / (2 * cells)

    def blob(at, size, places):
        x, y = np.meshgrid(places, places, indexing="ij")
        dx, dy = ((d - c + SIDE / 2) % SIDE - SIDE / 2 for d, c in zip((x, y), at, strict=True))
        return np.exp(-(dx**2 + dy**2) / (2 * size**2))

    stirrers = jnp.stack([swirl(array(ROTOR_SIZE * blob(at, ROTOR_SIZE, lower))) for at in ROTORS])
    # Vortices of a broad spectrum: on a few Fourier modes alone, conjugate gradients end after as many iterations, and
    # the derivative of what they do at round-off is noise.
    start = sum(turn * swirl(array(0.15 * blob(at, 0.15, lower))) for turn, at in zip(VORTICES, ROTORS, strict=True))
    target = array(blob((0.2, 0.3), 0.1, middle))
    return Scene(
        name="fluid",
        system=flow_system(stirrers, solver or pressure_sweeps(cells, h, iterations=iterations)),
        x0=Flow(start, jnp.zeros_like(target), array(blob((0.4, 0.5), 0.1, middle))),
        params={"stirring": array([1.0, -0.5, 0.5, -1.0]), "viscosity": array(3e-3)},
        h=h,
        steps=steps,
        loss=lambda x: jnp.mean((x.dye - target) ** 2) / 2,
        units={"stirring": "m/s²", "viscosity": "m²/s", "loss": "1"},
        draw=draw,
        question="How hard must each rotor stir for the dye to end up in a given place?",
    )


def draw(ax, x, p):
    """Dye concentration in colour and velocity as arrows, in metres."""
    n = x.dye.shape[0]
    middle = (np.arange(n) + 0.5) * SIDE / n
    painted = ax.imshow(x.dye.T, origin="lower", extent=(0, SIDE, 0, SIDE), cmap="Blues", vmin=0, vmax=1)
    skip = slice(max(1, n // 32), None, max(1, n // 16))
    u, v = ((x.velocity[a] + _up(x.velocity[a], a)) / 2 for a in (0, 1))
    arrows = ax.quiver(
        middle[skip], middle[skip], u.T[skip, skip], v.T[skip, skip], angles="xy", scale=9, width=4e-3, color="black"
    )
    ax.quiverkey(arrows, 0.85, 1.04, 0.5, "0.5 m/s", labelpos="E", fontproperties={"size": 8})
    bar = ax.figure.colorbar(painted, cax=ax.inset_axes([1.03, 0.0, 0.04, 1.0]))
    bar.set_label("dye concentration")
    ax.set(xlim=(0, SIDE), ylim=(0, SIDE), aspect="equal", xlabel="x [m]", ylabel="y [m]")
