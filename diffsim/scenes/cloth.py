"""A square mass–spring cloth that hangs from two corners and swings."""

import jax.numpy as jnp

from diffsim.integrators import Phase, fixed_point_leapfrog, leapfrog, snap
from diffsim.scenes.scene import Scene

__all__ = ["SPRINGS", "acceleration", "acceleration_vjp", "energy", "make", "rest_lengths"]

# Each family of springs joins node (i, j) to node (i, j) + offset.
SPRINGS = {
    "stretch_x": (1, 0),
    "stretch_y": (0, 1),
    "shear_up": (1, 1),
    "shear_down": (1, -1),
    "bend_x": (2, 0),
    "bend_y": (0, 2),
}
GRAVITY = 9.81  # [m/s²]
SIDE = 1.0  # [m]
MASS = 0.25  # [kg], of the whole cloth


def _ends(offset, nodes):
    """Slices that pick the two ends of every spring of a family out of an array [3, nodes, nodes]."""
    first = tuple(slice(max(0, -d), nodes - max(0, d)) for d in offset)
    second = tuple(slice(max(0, d), nodes + min(0, d)) for d in offset)
    return (slice(None), *first), (slice(None), *second)


def rest_lengths(nodes: int) -> dict[str, float]:
    """Rest length [m] of each family of springs.

    Example:
        >>> rest_lengths(2)["stretch_x"]
        1.0
    """
    return {name: SIDE / (nodes - 1) * (dx * dx + dy * dy) ** 0.5 for name, (dx, dy) in SPRINGS.items()}


def _dot(a, b):
    """Scalar product over the first axis, written out: the compiler vectorises this, not a sum over three."""
    return a[0] * b[0] + a[1] * b[1] + a[2] * b[2]


def _held(nodes):
    """1 where a node is free to move, 0 at the two corners that are held."""
    return jnp.ones((nodes, nodes)).at[jnp.array([0, -1]), jnp.array([-1, -1])].set(0.0)


def acceleration(q, p):
    r"""Acceleration of every node [m/s²].

    A spring between nodes a and b with $d = q_b - q_a$, stiffness $k$ and rest length $L$ pulls a with
    $k (|d| - L)\, d / |d|$ and b with the opposite force.

    Args:
        q: positions [m], shape [3, nodes, nodes].
        p: `{family: stiffness [N/m]}`, one array per family of `SPRINGS`.

    Example:
        >>> scene = make(nodes=3)
        >>> acceleration(scene.x0.q, scene.params).shape
        (3, 3, 3)
    """
    nodes = q.shape[-1]
    force = jnp.zeros_like(q)
    for name, length in rest_lengths(nodes).items():
        a, b = _ends(SPRINGS[name], nodes)
        d = q[b] - q[a]
        pull = (p[name] * (1 - length / jnp.sqrt(_dot(d, d))))[None] * d
        force = force.at[a].add(pull).at[b].add(-pull)
    free = _held(nodes).astype(q.dtype)
    weight = jnp.array([0.0, 0.0, -GRAVITY], q.dtype)[:, None, None]
    return free[None] * (force * (nodes * nodes / MASS) + weight)


def acceleration_vjp(q, p, w):
    r"""The transposed Jacobian of `acceleration` applied to w, derived by hand: $(a_q^\top w,\ a_p^\top w)$.

    With $u = w/m$ and $g = u_a - u_b$ for one spring, the cotangent of $d$ is
    $k\,[(1 - L/|d|)\, g + (L/|d|^3)(d\cdot g)\, d]$, that of $k$ is $(1 - L/|d|)(d \cdot g)$.

    Example:
        >>> scene = make(nodes=3)
        >>> from_q, from_p = acceleration_vjp(scene.x0.q, scene.params, jnp.ones((3, 3, 3)))
        >>> from_q.shape, from_p["bend_x"].shape
        ((3, 3, 3), (1, 3))
    """
    nodes = q.shape[-1]
    u = _held(nodes).astype(q.dtype)[None] * w * (nodes * nodes / MASS)
    from_q, from_p = jnp.zeros_like(q), {}
    for name, length in rest_lengths(nodes).items():
        a, b = _ends(SPRINGS[name], nodes)
        d, g = q[b] - q[a], u[a] - u[b]
        squared, along = _dot(d, d), _dot(d, g)
        ratio = length / jnp.sqrt(squared)
        from_d = (p[name] * (1 - ratio))[None] * g + (p[name] * ratio * along / squared)[None] * d
        from_q = from_q.at[a].add(-from_d).at[b].add(from_d)
        from_p[name] = (1 - ratio) * along
    return from_q, from_p


def energy(x, p):
    """Kinetic, elastic and gravitational energy [J] of a state, up to a constant: conserved by the dynamics.

    Example:
        >>> scene = make(nodes=3)
        >>> energy(scene.x0, scene.params).shape
        ()
    """
    nodes = x.q.shape[-1]
    node_mass = MASS / nodes**2
    total = node_mass * (jnp.sum(x.v**2) / 2 + GRAVITY * jnp.sum(x.q[2]))
    for name, length in rest_lengths(nodes).items():
        a, b = _ends(SPRINGS[name], nodes)
        stretch = jnp.sqrt(jnp.sum((x.q[b] - x.q[a]) ** 2, axis=0)) - length
        total = total + jnp.sum(p[name] * stretch**2) / 2
    return total


def make(*, nodes: int = 24, grid: float | None = 2.0**-40, h: float = 1e-3, steps: int = 256, dtype=None) -> Scene:
    """The cloth, let go while it lies flat; loss: half the squared distance of its centre from a point [m²].

    Args:
        nodes: nodes along one side, at least 3.
        grid: spacing of the fixed-point state [m, m/s], or None for ordinary floats.
        h: step size [s]; the stiffest mode needs h < 2/ω ≈ 2.4e-3 s at 24 nodes.
        steps: number of steps.
        dtype: float dtype; JAX's default when left out.

    Example:
        >>> make(nodes=4).x0.q.shape
        (3, 4, 4)
    """
    if nodes < 3:
        raise ValueError(f"nodes={nodes!r}: bending springs span three nodes; write at least 3.")
    dtype = dtype or float
    side = jnp.linspace(0.0, SIDE, nodes, dtype=dtype)
    x, y = jnp.meshgrid(side, side, indexing="ij")
    x0 = Phase(q=jnp.stack([x, y, jnp.zeros_like(x)]), v=jnp.zeros((3, nodes, nodes), dtype))
    if grid is None:
        system = leapfrog(acceleration, acceleration_vjp=acceleration_vjp, name="cloth")
    else:
        system = fixed_point_leapfrog(acceleration, acceleration_vjp=acceleration_vjp, grid=grid, name="cloth")
        x0 = snap(x0, grid)
    stiffness = {"stretch": 60.0, "shear": 30.0, "bend": 5.0}
    target = jnp.array([0.5, 0.2, -0.6], dtype)
    return Scene(
        name="cloth",
        system=system,
        x0=x0,
        params={
            name: jnp.full((nodes - abs(dx), nodes - abs(dy)), stiffness[name.split("_")[0]], dtype)
            for name, (dx, dy) in SPRINGS.items()
        },
        h=h,
        steps=steps,
        loss=lambda x: jnp.sum((x.q[:, nodes // 2, nodes // 2] - target) ** 2) / 2,
        units={**dict.fromkeys(SPRINGS, "N/m"), "loss": "m²"},
        draw=draw,
        question="Which spring stiffnesses bring the middle of the cloth to a given point at a given time?",
    )


def draw(ax, x, p):
    """The cloth seen from the side, its threads as lines, in metres."""
    across, up = x.q[1] + 0.35 * x.q[0], x.q[2] + 0.15 * x.q[0]
    ax.plot(across, up, lw=0.6, color="C0")
    ax.plot(across.T, up.T, lw=0.6, color="C0")
    held = [0, -1]
    ax.plot(across[held, -1], up[held, -1], "s", color="black", ms=5)
    ax.set(xlim=(-0.1, 1.5), ylim=(-1.2, 0.5), aspect="equal", xlabel="across [m]", ylabel="up [m]")
