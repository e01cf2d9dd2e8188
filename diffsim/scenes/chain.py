"""Point masses on stiffening springs between two hooks: the chain falls, sags and swings out."""

import jax.numpy as jnp

from diffsim.integrators import Phase, implicit_euler_potential
from diffsim.scenes.scene import Scene
from diffsim.solvers import Newton, Solver

__all__ = ["elongations", "energy", "make", "potential"]

GRAVITY = 9.81  # [m/s²]
SPAN = 1.0  # [m], between the hooks and of the chain at rest
MASS = 0.18  # [kg], of the whole chain


def elongations(q):
    """Elongation [m] of every spring, shape [masses + 1], from the positions of the free masses [masses, 2].

    Example:
        >>> elongations(jnp.array([[0.5, 0.0]])).tolist()
        [0.0, 0.0]
    """
    ends = jnp.array([[0.0, 0.0], [SPAN, 0.0]], q.dtype)
    d = jnp.diff(jnp.concatenate([ends[:1], q, ends[1:]]), axis=0)
    return jnp.sqrt(jnp.sum(d * d, axis=1)) - SPAN / d.shape[0]


def potential(q, p):
    r"""Elastic energy [J] of the springs: with elongation s, the tension is $k_1 s + k_2 s^3$.

    $$V(q, k) = \sum_{\text{springs}} \tfrac12 k_1 s^2 + \tfrac14 k_2 s^4$$

    Args:
        q: positions of the free masses [m], shape [masses, 2].
        p: `k1` [N/m] and `k2` [N/m³], numbers or one entry per spring.

    Example:
        >>> p = {"k1": 4.0, "k2": 0.0}
        >>> round(float(potential(jnp.array([[0.5, 1.2]]), p)), 6)
        2.56
    """
    squared = elongations(q) ** 2
    return jnp.sum(p["k1"] * squared / 2 + p["k2"] * squared**2 / 4)


def energy(x, p):
    """Kinetic, elastic and gravitational energy [J] of a state: conserved by the dynamics, lost by implicit Euler.

    Example:
        >>> scene = make(masses=3)
        >>> float(energy(scene.x0, scene.params))
        0.0
    """
    mass = MASS / x.q.shape[0]
    return mass * (jnp.sum(x.v**2) / 2 + GRAVITY * jnp.sum(x.q[:, 1])) + potential(x.q, p)


def make(
    *,
    masses: int = 9,
    solver: Solver = Newton(iterations=6, line_search=False),
    h: float = 0.02,
    steps: int = 32,
    dtype=None,
) -> Scene:
    """The chain, let go straight; loss: half the squared distance of its middle mass from a point [m²].

    Args:
        masses: free masses, at least 1; there is one spring more.
        solver: what minimises the incremental potential. At the defaults its Hessian lies in 50 … 300 N/m, so
            `GradientDescent(iterations=8, rate=5e-3)` [m/N] is a truncated solve.
        h: step size [s].
        steps: number of steps.
        dtype: float dtype; JAX's default when left out.

    Example:
        >>> make(masses=3).x0.q.tolist()
        [[0.25, 0.0], [0.5, 0.0], [0.75, 0.0]]
    """
    if masses < 1:
        raise ValueError(f"masses={masses!r}: a chain without masses has no state; write at least 1.")
    array = lambda value: jnp.asarray(value, dtype or float)
    q0 = [[SPAN * i / (masses + 1), 0.0] for i in range(1, masses + 1)]
    target = array([0.5, -0.3])
    return Scene(
        name="chain",
        system=implicit_euler_potential(
            potential,
            MASS / masses,
            gravity=lambda p: array([[0.0, -GRAVITY]]),
            solver=solver,
            name="chain",
        ),
        x0=Phase(q=array(q0), v=jnp.zeros((masses, 2), dtype or float)),
        params={"k1": array(20.0), "k2": array(1e4)},
        h=h,
        steps=steps,
        loss=lambda x: jnp.sum((x.q[masses // 2] - target) ** 2) / 2,
        units={"k1": "N/m", "k2": "N/m³", "loss": "m²"},
        draw=draw,
        question="Which stiffnesses does the observed shape of a sagging chain belong to?",
    )


def draw(ax, x, p):
    """Masses, springs and hooks, in metres."""
    ax.plot([0, *x.q[:, 0], SPAN], [0, *x.q[:, 1], 0], color="C0", lw=1.5, zorder=1)
    ax.plot(x.q[:, 0], x.q[:, 1], "o", color="C0", ms=8)
    ax.plot([0, SPAN], [0, 0], "s", color="black")
    ax.set(xlim=(-0.1, 1.1), ylim=(-0.8, 0.2), aspect="equal", xlabel="x [m]", ylabel="y [m]")
