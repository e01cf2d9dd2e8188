"""A pole that swings freely on a driven cart: an articulated body with one motor for two joints."""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from diffsim.integrators import runge_kutta4
from diffsim.scenes.scene import Scene

__all__ = ["GRAVITY", "Driven", "energy", "field", "force", "make", "motion", "tip"]

GRAVITY = 9.81  # [m/s²]
LENGTH = 0.5  # [m], of the pole at the scene's own numbers
ALERTNESS = 0.1  # [s], weighs the tip's speed against its distance in the loss


class Driven(NamedTuple):
    """State: q = (cart [m], angle [rad]) and its rate v; the angle is 0 hanging and π upright. t is the time [s].

    Example:
        >>> Driven(jnp.zeros(2), jnp.zeros(2), jnp.array(0.0)).q.shape
        (2,)
    """

    q: Float[Array, "2"]
    v: Float[Array, "2"]
    t: Float[Array, ""]


def force(x, p, spacing: float):
    """The motor's force [N]: a piecewise linear sequence in time, minus feedback on the distance from upright at rest.

    Args:
        x: a `Driven`.
        p: `force` [N] at the times 0, spacing, 2 spacing, …; `gains` on (cart, angle - π, their rates)
            [N/m, N/rad, N s/m, N s/rad].
        spacing: time between two entries of the sequence [s].

    Example:
        >>> x = Driven(jnp.array([0.0, jnp.pi]), jnp.zeros(2), jnp.array(0.5))
        >>> float(force(x, {"force": jnp.array([0.0, 2.0]), "gains": jnp.ones(4)}, 1.0))
        1.0
    """
    knots = jnp.arange(p["force"].size, dtype=x.t.dtype)
    hats = jnp.maximum(0.0, 1 - jnp.abs(x.t / spacing - knots))
    error = jnp.concatenate([x.q - jnp.array([0.0, jnp.pi], x.q.dtype), x.v])
    return hats @ p["force"] - p["gains"] @ error


def motion(q, v, pushed, p):
    r"""Accelerations [m/s², rad/s²] of cart and pole under the motor's force F.

    $$\ddot x = \frac{F + m\sin\theta\,(\ell\dot\theta^2 + g\cos\theta)}{M + m\sin^2\theta}, \qquad
      \ddot\theta = -\frac{\ddot x\cos\theta + g\sin\theta}{\ell}$$

    Args:
        q, v: position and rate of cart and angle, shape [2].
        pushed: F [N].
        p: `cart` M and `bob` m [kg], `length` ℓ [m].

    Example:
        >>> p = {"cart": 1.0, "bob": 0.5, "length": 0.5}
        >>> motion(jnp.zeros(2), jnp.zeros(2), 2.0, p).tolist()
        [2.0, -4.0]
    """
    sine, cosine = jnp.sin(q[1]), jnp.cos(q[1])
    swing = p["bob"] * sine * (p["length"] * v[1] ** 2 + GRAVITY * cosine)
    cart = (pushed + swing) / (p["cart"] + p["bob"] * sine**2)
    return jnp.stack([cart, -(cart * cosine + GRAVITY * sine) / p["length"]])


def field(x, p, spacing: float):
    """Rates of a `Driven` state; time runs along with rate 1, so that the sequence of forces needs no step counter.

    Example:
        >>> scene = make()
        >>> float(field(scene.x0, scene.params, 0.1).t)
        1.0
    """
    return Driven(q=x.v, v=motion(x.q, x.v, force(x, p, spacing), p), t=jnp.ones_like(x.t))


def energy(x, p):
    r"""$\tfrac12 M \dot x^2 + \tfrac12 m|v_{\mathrm{bob}}|^2 - m g \ell\cos\theta$ [J]: conserved while the motor is off.

    Example:
        >>> x = Driven(jnp.zeros(2), jnp.array([1.0, -2.0]), jnp.array(0.0))
        >>> round(float(energy(x, {"cart": 2.0, "bob": 1.0, "length": 0.5})), 6)
        -3.905
    """
    cosine, sine = jnp.cos(x.q[1]), jnp.sin(x.q[1])
    across, up = x.v[0] + p["length"] * cosine * x.v[1], p["length"] * sine * x.v[1]
    kinetic = p["cart"] * x.v[0] ** 2 / 2 + p["bob"] * (across**2 + up**2) / 2
    return kinetic - p["bob"] * GRAVITY * p["length"] * cosine


def tip(q, length):
    """Position [m] of the bob at the pole's end.

    Example:
        >>> tip(jnp.array([1.0, 0.0]), 0.5).tolist()
        [1.0, -0.5]
    """
    return jnp.stack([q[0] + length * jnp.sin(q[1]), -length * jnp.cos(q[1])])


def make(
    *, integrator: Callable = runge_kutta4, knots: int = 21, h: float = 0.01, steps: int = 200, dtype=None
) -> Scene:
    """The pole hangs at rest and is pumped; loss: how far its bob is from upright and at rest above the middle [m²].

    Half the squared distance, plus half the squared distance that the bob moves in 0.1 s.

    Args:
        integrator: what turns a field into a system.
        knots: entries of the force sequence, spread evenly over the run; at least 2.
        h: step size [s].
        steps: number of steps.
        dtype: float dtype; JAX's default when left out.

    Example:
        >>> make(knots=5).params["force"].shape
        (5,)
    """
    if knots < 2:
        raise ValueError(f"knots={knots!r}: the force is interpolated between entries; write at least 2.")
    array = lambda value: jnp.asarray(value, dtype or float)
    spacing = h * steps / (knots - 1)
    pump = 4.0 * np.cos(np.sqrt(GRAVITY / LENGTH) * spacing * np.arange(knots))

    def loss(x):
        away = tip(x.q, LENGTH) - array([0.0, LENGTH])
        cosine, sine = jnp.cos(x.q[1]), jnp.sin(x.q[1])
        speed = jnp.stack([x.v[0] + LENGTH * cosine * x.v[1], LENGTH * sine * x.v[1]])
        return (jnp.sum(away**2) + jnp.sum((ALERTNESS * speed) ** 2)) / 2

    return Scene(
        name="cartpole",
        system=integrator(partial(field, spacing=spacing), name="cart-pole"),
        x0=Driven(q=array([0.0, 0.0]), v=array([0.0, 0.0]), t=array(0.0)),
        params={
            "force": array(pump),
            "gains": array([0.0, 0.0, 0.0, 0.0]),
            "cart": array(1.0),
            "bob": array(0.3),
            "length": array(LENGTH),
        },
        h=h,
        steps=steps,
        loss=loss,
        units={
            "force": "N",
            "gains": "N/m, N/rad, N s/m, N s/rad",
            "cart": "kg",
            "bob": "kg",
            "length": "m",
            "loss": "m²",
        },
        draw=draw,
        question="Which sequence of forces, or which feedback, swings the pole up and holds it?",
    )


def draw(ax, x, p):
    """Cart, pole and bob, in metres; the cross marks where the bob should be."""
    cart, bob = float(x.q[0]), tip(x.q, p["length"])
    ax.axhline(-0.08, color="gray", lw=1)
    ax.plot([cart - 0.15, cart + 0.15, cart + 0.15, cart - 0.15, cart - 0.15], [-0.08, -0.08, 0.08, 0.08, -0.08], "k-")
    ax.plot([cart, float(bob[0])], [0, float(bob[1])], color="C1", lw=4, solid_capstyle="round")
    ax.plot(float(bob[0]), float(bob[1]), "o", color="C0", ms=14)
    ax.plot(0, LENGTH, "x", color="black", ms=10, mew=2)
    ax.set(xlim=(-1.2, 1.2), ylim=(-0.8, 0.8), aspect="equal", xlabel="x [m]", ylabel="y [m]")
