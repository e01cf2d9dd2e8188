"""Two rods that swing in a plane, one hung from the other: two unknown angles, and chaos."""

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

from diffsim.integrators import runge_kutta4
from diffsim.scenes.scene import Scene

__all__ = ["Swing", "at_rest", "bobs", "energy", "field", "make", "spins"]


class Swing(NamedTuple):
    """Canonical state: two angles from the vertical [rad] and their angular momenta [kg m²/s].

    Example:
        >>> Swing(angle=jnp.zeros(2), momentum=jnp.zeros(2)).angle.shape
        (2,)
    """

    angle: Float[Array, "2"]
    momentum: Float[Array, "2"]


def spins(x, p):
    r"""Angular velocities $\omega = M(\theta)^{-1}\pi$ [rad/s] of both rods.

    $$M(\theta) = \begin{pmatrix}(m_1+m_2)\,\ell_1^2 & m_2\ell_1\ell_2\cos\delta\\
      m_2\ell_1\ell_2\cos\delta & m_2\ell_2^2\end{pmatrix}, \qquad \delta = \theta_1 - \theta_2$$

    Example:
        >>> p = {"gravity": 9.81, "length": jnp.ones(2), "mass": jnp.ones(2)}
        >>> spins(Swing(jnp.zeros(2), jnp.array([3.0, 2.0])), p).tolist()
        [1.0, 1.0]
    """
    (l1, l2), (m1, m2) = p["length"], p["mass"]
    cosine = jnp.cos(x.angle[0] - x.angle[1])
    a, b, c = (m1 + m2) * l1**2, m2 * l1 * l2 * cosine, m2 * l2**2
    return jnp.stack([c * x.momentum[0] - b * x.momentum[1], a * x.momentum[1] - b * x.momentum[0]]) / (a * c - b * b)


def field(x, p):
    r"""Hamilton's equations for point masses $m_i$ at the ends of massless rods $\ell_i$.

    $$\dot\theta = \omega, \qquad
      \dot\pi_1 = -s - (m_1+m_2)\, g\,\ell_1 \sin\theta_1, \quad
      \dot\pi_2 = +s - m_2\, g\,\ell_2 \sin\theta_2, \qquad s = m_2 \ell_1 \ell_2\, \omega_1\omega_2 \sin\delta$$

    Args:
        x: a `Swing`.
        p: `gravity` g [m/s²], `length` ℓ [m] and `mass` m [kg], the latter two of shape [2].

    Example:
        >>> p = {"gravity": 9.81, "length": jnp.ones(2), "mass": jnp.ones(2)}
        >>> bool(jnp.all(field(at_rest(jnp.zeros(2)), p).momentum == 0))
        True
    """
    (l1, l2), (m1, m2) = p["length"], p["mass"]
    omega = spins(x, p)
    coupling = m2 * l1 * l2 * omega[0] * omega[1] * jnp.sin(x.angle[0] - x.angle[1])
    fall = p["gravity"] * jnp.stack([(m1 + m2) * l1, m2 * l2]) * jnp.sin(x.angle)
    return Swing(angle=omega, momentum=jnp.stack([-coupling, coupling]) - fall)


def energy(x, p):
    r"""The Hamiltonian $\tfrac12\pi\cdot\omega - (m_1+m_2)\,g\,\ell_1\cos\theta_1 - m_2\,g\,\ell_2\cos\theta_2$ [J]: conserved.

    Example:
        >>> p = {"gravity": 10.0, "length": jnp.ones(2), "mass": jnp.ones(2)}
        >>> float(energy(at_rest(jnp.zeros(2)), p))
        -30.0
    """
    (l1, l2), (m1, m2) = p["length"], p["mass"]
    weight = p["gravity"] * jnp.stack([(m1 + m2) * l1, m2 * l2])
    return jnp.sum(x.momentum * spins(x, p)) / 2 - jnp.sum(weight * jnp.cos(x.angle))


def at_rest(angle) -> Swing:
    """The state at rest at these two angles [rad].

    Example:
        >>> at_rest(jnp.ones(2)).momentum.tolist()
        [0.0, 0.0]
    """
    return Swing(angle=angle, momentum=jnp.zeros_like(angle))


def bobs(x, p):
    """Positions [m] of the pivot and the two masses, shape [3, 2].

    Example:
        >>> bobs(at_rest(jnp.zeros(2)), {"length": jnp.ones(2)})[2].tolist()
        [0.0, -2.0]
    """
    rods = p["length"][:, None] * jnp.stack([jnp.sin(x.angle), -jnp.cos(x.angle)], axis=1)
    return jnp.concatenate([jnp.zeros_like(rods[:1]), jnp.cumsum(rods, axis=0)])


def make(*, integrator: Callable = runge_kutta4, h: float = 0.01, steps: int = 256, dtype=None) -> Scene:
    """The double pendulum, let go at 115° and 143°; loss: half the squared distance of its angles from 0 [rad²].

    Nearby runs part like exp(λt), with λ about 2.5/s over these 256 steps and 1.1/s in the long run, and so do
    gradients grow.

    Args:
        integrator: what turns a field into a system; `implicit_midpoint` is symplectic here, the state being canonical.
        h: step size [s].
        steps: number of steps.
        dtype: float dtype; JAX's default when left out.

    Example:
        >>> from diffsim.integrators import implicit_midpoint
        >>> make(integrator=implicit_midpoint).system.residual is not None
        True
    """
    array = lambda value: jnp.asarray(value, dtype or float)
    return Scene(
        name="double_pendulum",
        system=integrator(field, name="double pendulum"),
        x0=at_rest(array([2.0, 2.5])),
        params={"gravity": array(9.81), "length": array([1.0, 0.7]), "mass": array([1.0, 0.6])},
        h=h,
        steps=steps,
        loss=lambda x: jnp.sum(x.angle**2) / 2,
        units={"gravity": "m/s²", "length": "m", "mass": "kg", "loss": "rad²"},
        draw=draw,
        question="Which rod lengths make both rods hang straight down at a given time?",
    )


def draw(ax, x, p):
    """Rods and bobs at one state, in metres; the area of a bob shows its mass."""
    across, up = bobs(x, p).T
    ax.plot(across, up, color="black", lw=2, zorder=1)
    ax.scatter(across[1:], up[1:], s=300 * p["mass"], c=["C0", "C1"], zorder=2)
    ax.plot(0, 0, "s", color="black")
    reach = 1.15 * float(jnp.sum(p["length"]))
    ax.set(xlim=(-reach, reach), ylim=(-reach, reach), aspect="equal", xlabel="x [m]", ylabel="y [m]")
