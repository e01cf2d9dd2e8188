"""The loop that every solver runs, its stop, and what it watches on the way."""

from collections.abc import Callable
from typing import ClassVar, NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
from jax import lax
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, Int, PyTree

from diffsim import trees
from diffsim.solvers.receipt import SolveReceipt

__all__ = ["Iterative", "Problem", "Solver", "flatten", "iterate", "ratio"]


@runtime_checkable
class Solver(Protocol):
    """What a solver must offer; any frozen, hashable dataclass with these three will do.

    Example:
        >>> from diffsim.solvers import Newton
        >>> Newton(iterations=3).dynamic_stop, Newton(iterations=3, tol=1e-9).dynamic_stop
        (False, True)
    """

    name: ClassVar[str]

    @property
    def dynamic_stop(self) -> bool:
        """The number of iterations depends on the data, so JAX cannot differentiate it in reverse mode."""
        ...

    def solve(
        self, residual: Callable, guess: PyTree, *, energy: Callable | None = None
    ) -> tuple[PyTree, SolveReceipt]:
        """An approximate root u of residual(u) from `guess`; `energy` has `residual` as its gradient, if given."""
        ...


class Iterative:
    """What the solvers' settings have in common: a count, and optionally a tolerance that ends it earlier.

    Without `tol` the count is static: every run does the same operations, and reverse mode goes through all of
    them. With `tol` the loop ends once max|R(u)| <= tol: forward use only.

    Example:
        >>> from diffsim.solvers import Picard
        >>> Picard(iterations=0)
        Traceback (most recent call last):
        ValueError: Picard(iterations=0): it sets the length of a loop; write a whole number of at least 1.
    """

    counts: ClassVar[tuple[str, ...]] = ("iterations",)
    tol: float | None

    def __post_init__(self):
        kind = type(self).__name__
        for field in self.counts:
            value = getattr(self, field)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise ValueError(
                    f"{kind}({field}={value!r}): it sets the length of a loop; write a whole number of at least 1."
                )
        if self.tol is not None and not self.tol > 0:
            raise ValueError(
                f"{kind}(tol={self.tol!r}): a residual never falls below zero; write a number greater than 0, "
                "or leave it out for a static count."
            )

    @property
    def dynamic_stop(self) -> bool:
        return self.tol is not None


class Problem(NamedTuple):
    """A root find on one flat vector.

    Example:
        >>> flatten(lambda u: u, (jnp.array(1.0), jnp.array([2.0]))).guess.tolist()
        [1.0, 2.0]
    """

    residual: Callable
    guess: Float[Array, " n"]
    energy: Callable | None
    unravel: Callable


def flatten(residual: Callable, guess: PyTree, energy: Callable | None = None) -> Problem:
    """The same root find on a flat vector, and the way back to the pytree.

    Example:
        >>> problem = flatten(lambda u: {"q": 2 * u["q"]}, {"q": jnp.array([1.0, 2.0])})
        >>> problem.residual(problem.guess).tolist()
        [2.0, 4.0]
    """
    flat, unravel = ravel_pytree(guess)
    return Problem(
        lambda u: ravel_pytree(residual(unravel(u)))[0], flat, energy and (lambda u: energy(unravel(u))), unravel
    )


def ratio(a: Float[Array, "*s"], b: Float[Array, "*s"]) -> Float[Array, "*s"]:
    """a/b, and 0 where b is 0, with a finite derivative there.

    Example:
        >>> float(ratio(jnp.array(1.0), jnp.array(0.0)))
        0.0
    """
    return jnp.where(b == 0, 0.0, a / jnp.where(b == 0, 1.0, b))


def iterate(
    update: Callable, residual: Callable, guess: PyTree, memory: PyTree = (), *, iterations: int, tol: float | None
) -> tuple[PyTree, SolveReceipt]:
    """Repeat `u, memory = update(u, residual(u), memory)`; return the last u and its receipt.

    Derivative of: with `tol=None`, the executed iterations, in forward and reverse mode; the receipt is
    held constant. With a `tol`, forward mode only: JAX keeps no tape of a loop of unknown length.

    u has the same bits whether or not the receipt is used: the norms are always computed, because a loop from which
    they are pruned is compiled, and rounds, differently. (An optimization barrier does not help: XLA removes it
    before it fuses, jaxlib 0.10.2 on CPU.)

    Example:
        >>> u, _ = iterate(lambda u, r, m: (u - r, m), lambda u: 0.5 * u, jnp.array(8.0), iterations=3, tol=None)
        >>> float(u)
        1.0
    """
    guess = jax.tree.map(jnp.asarray, guess)
    if tol is None:

        def body(_, state):
            u, memory, watch = state
            r = residual(u)
            u, memory = update(u, r, memory)
            return u, memory, _see(watch, r)

        start = _Watch.start(jax.eval_shape(residual, guess))
        u, _, watch = lax.fori_loop(0, iterations, body, (guess, memory, start))
        u = _tied(u, watch)
        return u, _receipt(_see(watch, residual(u)))

    def unfinished(state):
        *_, watch = state
        return (watch.seen <= iterations) & ~(watch.last <= tol)

    def body_to_tolerance(state):
        u, r, memory, watch = state
        u, memory = update(u, r, memory)
        r = residual(u)
        return u, r, memory, _see(watch, r)

    r = residual(guess)
    start = guess, r, memory, _see(_Watch.start(r), r)
    u, _, _, watch = lax.while_loop(unfinished, body_to_tolerance, start)
    return _tied(u, watch), _receipt(watch)


def _tied(u: PyTree, watch: "_Watch") -> PyTree:
    """u, in a way that needs the whole watch: no norm is negative, but the compiler does not know."""
    never = jnp.any(jnp.stack([watch.first, watch.last, *watch.window]) < 0)
    return jax.tree.map(lambda a: jnp.where(never, jnp.nan, a), u)


class _Watch(NamedTuple):
    seen: Int[Array, ""]  # residuals so far
    first: Float[Array, ""]
    last: Float[Array, ""]
    window: Float[Array, "3"]  # the last three norms above round-off

    @staticmethod
    def start(r):
        nan = jnp.full((), jnp.nan, jnp.result_type(*jax.tree.leaves(r)))
        return _Watch(jnp.asarray(0), nan, nan, jnp.stack([nan] * 3))


def _see(watch: _Watch, r: PyTree) -> _Watch:
    norm = trees.largest(lax.stop_gradient(r))
    first = jnp.where(watch.seen == 0, norm, watch.first)
    clear = jnp.isfinite(norm) & (norm > 1000 * jnp.finfo(norm.dtype).eps * first)
    window = jnp.where(clear, jnp.stack([watch.window[1], watch.window[2], norm]), watch.window)
    return _Watch(watch.seen + 1, first, norm, window)


def _receipt(watch: _Watch) -> SolveReceipt:
    return SolveReceipt(watch.seen - 1, watch.last, jnp.sqrt(watch.window[2] / watch.window[0]))
