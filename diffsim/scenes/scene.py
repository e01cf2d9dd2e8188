"""A scene: one piece of physics with its numbers, its loss and its picture."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import jax
from jaxtyping import Array, Float, PyTree

from diffsim.adjoint import Adjoint
from diffsim.rollout import rollout
from diffsim.system import System

__all__ = ["Scene"]


@dataclass(frozen=True)
class Scene:
    """Everything that is needed to run, differentiate and draw one simulation.

    Attributes:
        name: the scene's key in `SCENES`.
        system: the simulator.
        x0: initial state.
        params: parameters, a dict of arrays.
        h: step size [s].
        steps: number of steps.
        loss: `loss(x_T) -> scalar`.
        units: unit of every parameter, and of the loss under `"loss"`.
        draw: `draw(ax, x, params)` paints one state into Matplotlib axes.
        question: what one would want to differentiate here.

    Example:
        >>> from diffsim.scenes import make
        >>> scene = make("pendulum")
        >>> scene.units["length"]
        'm'
    """

    name: str
    system: System
    x0: PyTree
    params: Mapping[str, Array]
    h: float
    steps: int
    loss: Callable[[PyTree], Float[Array, ""]]
    units: Mapping[str, str]
    draw: Callable
    question: str

    def value(
        self, params: PyTree, x0: PyTree = None, *, adjoint: Adjoint = Adjoint(), steps: int | None = None
    ) -> Float[Array, ""]:
        """The loss of a run, as a function that `jax.grad` can differentiate by the given adjoint.

        Example:
            >>> import jax
            >>> from diffsim.scenes import make
            >>> scene = make("pendulum")
            >>> sorted(jax.grad(scene.value)(scene.params))
            ['gravity', 'length']
        """
        start = self.x0 if x0 is None else x0
        return self.loss(rollout(self.system, start, params, h=self.h, steps=steps or self.steps, adjoint=adjoint))

    def value_and_grad(self, adjoint: Adjoint = Adjoint(), steps: int | None = None):
        """Loss, and its gradient with respect to params, at the scene's own numbers.

        Example:
            >>> from diffsim.scenes import make
            >>> value, gradient = make("pendulum").value_and_grad()
            >>> value.shape
            ()
        """
        return jax.value_and_grad(lambda p: self.value(p, adjoint=adjoint, steps=steps))(self.params)
