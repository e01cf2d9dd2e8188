"""A small cluster of argon atoms under the Lennard-Jones potential."""

import jax.numpy as jnp
import numpy as np

from diffsim.integrators import Phase, fixed_point_leapfrog, leapfrog, snap
from diffsim.scenes.scene import Scene

__all__ = ["MASS", "acceleration", "acceleration_vjp", "closest_packed", "energy", "make", "pairs"]

MASS = 66.34  # [1e-27 kg = zJ ps²/nm²], one argon atom


def pairs(atoms: int) -> tuple[np.ndarray, np.ndarray]:
    """Both members of every pair, each pair once. No atom is paired with itself, so no distance is zero
    and there is no diagonal to mask: a mask would hide an infinity in the value and give NaN in the derivative.

    Example:
        >>> [members.tolist() for members in pairs(3)]
        [[0, 0, 1], [1, 2, 2]]
    """
    return np.triu_indices(atoms, 1)


def _attraction(q, p):
    """Per pair: separation d, its square, s = (σ/|d|)⁶, and f of the force f·d on the second member."""
    first, second = pairs(q.shape[0])
    d = q[second] - q[first]
    squared = jnp.sum(d * d, axis=1)
    s = (p["sigma"] ** 2 / squared) ** 3
    return d, squared, s, 24 * p["epsilon"] * (2 * s * s - s) / squared


def acceleration(q, p):
    r"""Acceleration of every atom [nm/ps²].

    A pair with separation d, $r = |d|$, $s = (\sigma/r)^6$ and the potential $4\epsilon(s^2 - s)$ pushes apart by

    $$f\,d, \qquad f = 24\,\epsilon\,(2s^2 - s)/r^2$$

    Args:
        q: positions [nm], shape [atoms, 2 or 3].
        p: `epsilon`, depth of the well ε [zJ]; `sigma`, distance σ of zero energy [nm].

    Example:
        >>> p = {"epsilon": 1.654, "sigma": 0.3405}
        >>> bottom = jnp.array([[0.0, 0.0], [2 ** (1 / 6) * 0.3405, 0.0]])
        >>> float(jnp.max(jnp.abs(acceleration(bottom, p)))) < 1e-4
        True
    """
    first, second = pairs(q.shape[0])
    d, _, _, f = _attraction(q, p)
    push = f[:, None] * d / MASS
    return jnp.zeros_like(q).at[second].add(push).at[first].add(-push)


def acceleration_vjp(q, p, w):
    r"""The transposed Jacobian of `acceleration` applied to w, derived by hand: $(a_q^\top w,\ a_p^\top w)$.

    With $g = (w_2 - w_1)/m$ for one pair, the cotangent of d is $f g + 2 f_{r^2} (d\cdot g)\, d$ with
    $f_{r^2} = -24\,\epsilon\,(14 s^2 - 4 s)/r^4$; those of ε and σ are $f\,(d\cdot g)/\epsilon$ and
    $24\,\epsilon\,(24 s^2 - 6 s)\,(d\cdot g)/(\sigma r^2)$.

    Example:
        >>> scene = make(atoms=3)
        >>> from_q, from_p = acceleration_vjp(scene.x0.q, scene.params, jnp.ones((3, 2)))
        >>> from_q.shape, sorted(from_p)
        ((3, 2), ['epsilon', 'sigma'])
    """
    first, second = pairs(q.shape[0])
    d, squared, s, f = _attraction(q, p)
    g = (w[second] - w[first]) / MASS
    along = jnp.sum(d * g, axis=1)
    bend = -48 * p["epsilon"] * (14 * s * s - 4 * s) / squared**2 * along
    from_d = f[:, None] * g + bend[:, None] * d
    return jnp.zeros_like(q).at[second].add(from_d).at[first].add(-from_d), {
        "epsilon": jnp.sum(f * along) / p["epsilon"],
        "sigma": jnp.sum(24 * p["epsilon"] * (24 * s * s - 6 * s) / squared * along) / p["sigma"],
    }


def energy(x, p):
    """Kinetic and potential energy [zJ] of a state: conserved by the dynamics.

    Example:
        >>> bottom = Phase(jnp.array([[0.0, 0.0], [2 ** (1 / 6), 0.0]]), jnp.zeros((2, 2)))
        >>> round(float(energy(bottom, {"epsilon": 1.5, "sigma": 1.0})), 5)
        -1.5
    """
    _, _, s, _ = _attraction(x.q, p)
    return MASS * jnp.sum(x.v**2) / 2 + 4 * p["epsilon"] * jnp.sum(s * s - s)


def closest_packed(atoms: int, dimension: int) -> np.ndarray:
    """Positions around the origin with nearest neighbours 1 apart: a triangular lattice, or an icosahedron.

    Example:
        >>> closest_packed(7, 2).shape, closest_packed(13, 3).shape
        ((7, 2), (13, 3))
    """
    if dimension == 2:
        i, j = (a.ravel() for a in np.meshgrid(np.arange(-3, 4), np.arange(-3, 4), indexing="ij"))
        sites = np.stack([i + j / 2, j * np.sqrt(3) / 2], axis=1)
    else:
        golden = (1 + np.sqrt(5)) / 2
        corners = [np.roll([0.0, a, b], k) for k in range(3) for a in (-1, 1) for b in (-golden, golden)]
        sites = np.stack([np.zeros(3), *corners]) / np.sqrt(1 + golden**2)
    return sites[np.argsort(np.sum(sites**2, axis=1).round(9), kind="stable")][:atoms]


def make(
    *,
    atoms: int = 7,
    dimension: int = 2,
    grid: float | None = None,
    h: float = 0.01,
    steps: int = 256,
    dtype=None,
) -> Scene:
    """A warm argon cluster; loss: half the squared distance of its squared radius of gyration from 0.15 nm² [nm⁴].

    The scene counts in nm, ps and zJ = 1e-21 J, SI units with prefixes, which keep its numbers near 1.

    Args:
        atoms: number of atoms, 2 to 13.
        dimension: 2 or 3.
        grid: spacing of the fixed-point state [nm, nm/ps], such as 2^-40 in float64; None for ordinary floats.
        h: step size [ps], not s; an atom pair vibrates with a period of about 1.3 ps.
        steps: number of steps.
        dtype: float dtype; JAX's default when left out.

    Example:
        >>> make(atoms=13, dimension=3).x0.q.shape
        (13, 3)
    """
    if not 2 <= atoms <= 13 or dimension not in (2, 3):
        raise ValueError(
            f"atoms={atoms!r}, dimension={dimension!r}: no starting shape is known; write 2 to 13 atoms in 2 or 3 dimensions."
        )
    array = lambda value: jnp.asarray(value, dtype or float)
    turn = 2.4 * np.arange(atoms)[:, None] + np.pi / 2 * np.arange(dimension) ** 2
    wild = 0.12 * np.cos(turn * (1 + np.arange(atoms)[:, None] / 3))
    x0 = Phase(
        q=array(2 ** (1 / 6) * 0.3405 * closest_packed(atoms, dimension)),
        v=array(wild - wild.mean(axis=0)),
    )
    if grid is None:
        system = leapfrog(acceleration, acceleration_vjp=acceleration_vjp, name="Lennard-Jones")
    else:
        system = fixed_point_leapfrog(acceleration, acceleration_vjp=acceleration_vjp, grid=grid, name="Lennard-Jones")
        x0 = snap(x0, grid)

    def loss(x):
        from_centre = x.q - jnp.mean(x.q, axis=0, keepdims=True)
        return (jnp.sum(from_centre**2) / atoms - 0.15) ** 2 / 2

    return Scene(
        name="lennard_jones",
        system=system,
        x0=x0,
        params={"epsilon": array(1.654), "sigma": array(0.3405)},
        h=h,
        steps=steps,
        loss=loss,
        units={"epsilon": "zJ", "sigma": "nm", "loss": "nm⁴"},
        draw=draw,
        question="Which depth and width of the potential does the size of a warm cluster belong to?",
    )


def draw(ax, x, p):
    """Atoms as discs of diameter σ, farther ones first, with velocities as arrows, in nanometres."""
    from matplotlib.patches import Circle

    order = np.argsort(x.q[:, 2]) if x.q.shape[1] == 3 else np.arange(x.q.shape[0])
    for across, up, *_ in np.asarray(x.q)[order]:
        ax.add_patch(Circle((across, up), float(p["sigma"]) / 2, facecolor="C0", edgecolor="black", alpha=0.85))
    arrows = ax.quiver(
        *x.q[:, :2].T, *x.v[:, :2].T, angles="xy", scale_units="xy", scale=0.5, width=6e-3, color="black", zorder=3
    )
    ax.quiverkey(arrows, 0.78, 0.95, 0.1, "0.1 nm/ps", labelpos="E")
    ax.set(xlim=(-0.8, 0.8), ylim=(-0.8, 0.8), aspect="equal", xlabel="x [nm]", ylabel="y [nm]")
