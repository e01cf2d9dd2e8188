"""One classical Runge–Kutta step, used both to advance a state and to integrate sensitivities and co-states."""

from collections.abc import Callable

from jaxtyping import Array, Float, PyTree

from diffsim import trees

__all__ = ["rk4"]


def rk4(rate: Callable[[PyTree], PyTree], x: PyTree, h: float | Float[Array, ""]) -> PyTree:
    """The state after one step of size h of dx/dt = rate(x); fourth order; h < 0 runs backwards.

    Derivative of: the executed stages, by JAX.

    Example:
        >>> abs(rk4(lambda x: -x, 1.0, 0.1) - 0.904837418) < 1e-6
        True
    """
    k1 = rate(x)
    k2 = rate(trees.axpy(h / 2, k1, x))
    k3 = rate(trees.axpy(h / 2, k2, x))
    k4 = rate(trees.axpy(h, k3, x))
    middle = trees.scale(2.0, trees.add(k2, k3))
    return trees.axpy(h / 6, trees.add(trees.add(k1, k4), middle), x)
