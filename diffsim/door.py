"""What is refused at the door, before anything is traced: what was asked, why it can't be, what to write."""

from functools import lru_cache
from numbers import Integral, Real

import jax
import jax.numpy as jnp
from jaxtyping import PyTree

from diffsim.adjoint import AD, REALIZATIONS, REFERENTS, Adjoint, AdjointSolve, Executed
from diffsim.pullback import PULLBACKS, RECOVERIES
from diffsim.retention import Binomial, Checkpoint, Recompute, Retention, Reverse, StoreAll
from diffsim.system import System

__all__ = ["check_inputs", "check_legal", "supported", "why_not"]

EXAMPLES: tuple[Retention, ...] = (StoreAll(), Checkpoint(every=8), Binomial(snapshots=4), Recompute(), Reverse())

# The cells whose pullback differentiates the code of the step itself.
TRACED = {(Executed, AD), (Executed, AdjointSolve)}


def why_not(system: System, adjoint: Adjoint) -> str | None:
    """Why the system can't offer this adjoint, or None when it can.

    Example:
        >>> print(why_not(System(step=lambda x, p, h: x, name="still"), Adjoint.parse("executed/ad/reverse")))
        the system 'still' has no unstep
    """
    key = type(adjoint.referent), type(adjoint.realization)
    if key not in PULLBACKS:
        return f"there is no pullback for {adjoint.referent.name}/{adjoint.realization.name}"
    needs = [PULLBACKS[key].needs]
    if isinstance(adjoint.retention, Reverse):
        if key[0] not in RECOVERIES:
            return f"no way is known to run the {adjoint.referent.name} referent backwards"
        needs.append(RECOVERIES[key[0]].needs)
    if system.dynamic_stop and key in TRACED:
        return (
            f"the step of {system.name!r} stops after a number of iterations that depends on its data, and JAX can't "
            "reverse-differentiate such a loop (build it with a fixed number of iterations)"
        )
    missing = [name for name in dict.fromkeys(needs) if getattr(system, name) is None]
    return f"the system {system.name!r} has no {' and no '.join(missing)}" if missing else None


def supported(system: System, retentions: tuple[Retention, ...] = EXAMPLES) -> list[Adjoint]:
    """Every legal adjoint of the system, with the given retentions as examples of their kind.

    Example:
        >>> still = System(step=lambda x, p, h: x)
        >>> [str(a) for a in supported(still, (StoreAll(), Reverse()))]
        ['executed/ad/store-all', 'executed/adjoint-solve/store-all']
    """
    cells = (
        Adjoint(referent(), realization(), retention)
        for referent in REFERENTS.values()
        for realization in REALIZATIONS.values()
        for retention in retentions
    )
    return [cell for cell in cells if why_not(system, cell) is None]


def check_legal(system: System, adjoint: Adjoint) -> None:
    """ValueError when the system can't offer the adjoint, TypeError when it is none.

    Example:
        >>> check_legal(System(step=lambda x, p, h: x), Adjoint())
    """
    if not isinstance(adjoint, Adjoint):
        raise TypeError(
            f"adjoint={adjoint!r} is no Adjoint; write Adjoint(…), or Adjoint.parse('executed/ad/store-all') for a claim "
            "given as text."
        )
    for choice in (adjoint.referent, adjoint.realization, adjoint.retention):
        if isinstance(choice, type):
            raise TypeError(
                f"adjoint holds the class {choice.__name__}, not one of its kind; write {choice.__name__}()."
            )
    reason = why_not(system, adjoint)
    if reason:
        retentions: dict[str, list[str]] = {}
        for cell in supported(system):
            claim, _, retention = str(cell).rpartition("/")
            retentions.setdefault(claim, []).append(retention)
        groups: dict[str, list[str]] = {}
        for claim, kept in retentions.items():
            groups.setdefault(", ".join(kept), []).append(claim)
        write = "; or ".join(f"{', '.join(claims)} with {kept}" for kept, claims in groups.items())
        raise ValueError(f"adjoint={adjoint} can't be had: {reason}. Write one of {write}.")


def check_inputs(system: System, x0: PyTree, params: PyTree, *, h: float | int, steps: int):
    """Arrays, step size and step count in the form that the core relies on.

    Example:
        >>> check_inputs(System(step=lambda x, p, h: x), jnp.array(1.0), (), h=1, steps=1)[2]
        1.0
    """
    if not isinstance(h, Real) or isinstance(h, bool):
        raise ValueError(
            f"h is a {type(h).__name__}; the step size is a setting, so write a plain Python number "
            "(to differentiate with respect to a step size, put a factor on it into params)."
        )
    if not 0 < h < float("inf"):
        raise ValueError(f"h={h!r}: time steps run forward; write a finite step size greater than 0.")
    if not isinstance(steps, Integral) or isinstance(steps, bool) or steps < 1:
        raise ValueError(
            f"steps={steps!r}: write a whole number of at least 1 (a plain int, since it sets a loop's length)."
        )
    x0, params = _as_arrays(x0, "x0"), _as_arrays(params, "params")
    if not jax.tree.leaves(x0):
        raise ValueError("x0 has no arrays, so there is no state to advance; write at least one array.")
    _check_step(system, x0, params, float(h))
    return x0, params, float(h)


def _as_arrays(tree: PyTree, name: str) -> PyTree:
    def convert(path, leaf):
        label = name + jax.tree_util.keystr(path)
        try:
            array = jnp.asarray(leaf)
        except (TypeError, ValueError):
            raise TypeError(
                f"{label} is a {type(leaf).__name__}, not an array; keep such settings out of {name}."
            ) from None
        if not jnp.issubdtype(array.dtype, jnp.floating):
            raise ValueError(
                f"{label} has dtype {array.dtype}, which has no derivative; write jnp.asarray(…, float), "
                "or keep whole-number settings inside the step function."
            )
        return array

    return jax.tree_util.tree_map_with_path(convert, tree)


def _check_step(system: System, x0: PyTree, params: PyTree, h: float) -> None:
    leaves, structure = jax.tree.flatten((x0, params))
    _check_shapes(system, h, structure, tuple(jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) for leaf in leaves))


# Tracing a step takes milliseconds, so each kind of input is looked at once.
@lru_cache(maxsize=1024)
def _check_shapes(system, h, structure, leaves):
    before, params = jax.tree.unflatten(structure, leaves)
    try:
        after = jax.eval_shape(lambda x, p: system.step(x, p, h), before, params)
    except (TypeError, ValueError, IndexError, KeyError, AttributeError) as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise TypeError(
            f"step of {system.name!r} can't take this state and these parameters ({reason}); "
            f"it was given x0 = {_shapes(before)} and params = {_shapes(params)}."
        ) from error
    if jax.tree.structure(before) != jax.tree.structure(after):
        raise TypeError(
            f"step of {system.name!r} returns another structure than it is given: x0 is {jax.tree.structure(before)}, "
            f"the result {jax.tree.structure(after)}; return a state of the same structure."
        )
    for (path, a), b in zip(jax.tree_util.tree_leaves_with_path(before), jax.tree.leaves(after), strict=True):
        if (a.shape, a.dtype) != (b.shape, b.dtype):
            label = "x0" + jax.tree_util.keystr(path)
            raise TypeError(
                f"step of {system.name!r} turns {label} from {a.dtype}{list(a.shape)} into {b.dtype}{list(b.shape)}; "
                "give state and parameters one dtype, and return the shape that came in."
            )


def _shapes(tree: PyTree) -> str:
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return ", ".join(f"{jax.tree_util.keystr(path) or '·'}: {leaf.dtype}{list(leaf.shape)}" for path, leaf in leaves)
