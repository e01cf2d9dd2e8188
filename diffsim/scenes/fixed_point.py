"""One scalar equation, solved by a fixed number of damped iterations: every referent in closed form."""

import jax
import jax.numpy as jnp

from diffsim.scenes.scene import Scene
from diffsim.system import System

__all__ = ["make"]


def make(*, iterations: int = 8, rate: float = 0.2, steps: int = 1, dtype=None) -> Scene:
    r"""A spring of stiffness a under the load θ, relaxed to equilibrium; loss: its extension x [m].

    From $x_0 = 0$, the step runs K times $x \leftarrow x - \alpha\,(a x - \theta)$. With $\rho = 1 - \alpha a$ the
    derivatives with respect to a, at a = θ = 1, are known:

    - limit: $-1$, the derivative of the converged equation $a x = \theta$;
    - executed: off the limit by $\rho^K + K\alpha\rho^{K-1}$;
    - the equation's adjoint at the unconverged $x_K$: off the limit by $\rho^K$, off the executed one by
      $K\alpha\rho^{K-1}$.

    Args:
        iterations: the budget K.
        rate: the damping α [m/N].
        steps: number of steps; each starts its iteration from 0, so one step says it all.
        dtype: float dtype; JAX's default when left out.

    Example:
        >>> scene = make(iterations=8)
        >>> round(float(scene.value(scene.params)), 4) == round(1 - 0.8**8, 4)
        True
    """

    def step(x, p, h):
        relax = lambda _, x: x - rate * (p["stiffness"] * x - p["load"])
        return jax.lax.fori_loop(0, iterations, relax, jnp.zeros_like(x))

    def root_vjp(x, x_next, p, h, lam):
        scaled = lam / p["stiffness"]
        return jnp.zeros_like(x), {"stiffness": -x_next * scaled, "load": scaled}

    return Scene(
        name="fixed_point",
        system=System(
            step=step,
            residual=lambda x_next, x, p, h: p["stiffness"] * x_next - p["load"],
            root_vjp=root_vjp,
            name="fixed_point",
        ),
        x0=jnp.zeros((), dtype or float),
        params={"stiffness": jnp.ones((), dtype or float), "load": jnp.ones((), dtype or float)},
        h=1.0,
        steps=steps,
        loss=lambda x: x,
        units={"stiffness": "N/m", "load": "N", "loss": "m"},
        draw=draw,
        question="How does the extension change with the stiffness: as computed, or as the equation says?",
    )


def draw(ax, x, p):
    """The spring's extension beside its equilibrium, in metres."""
    ax.barh(["reached", "equilibrium"], [float(x), float(p["load"] / p["stiffness"])])
    ax.set(xlabel="extension [m]")
