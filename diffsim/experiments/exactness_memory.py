"""E2, exactness and memory: is constant memory bought with an inexact gradient? (claims C3 and C5)"""

import math
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np

from diffsim import trees
from diffsim.adjoint import AD, Adjoint, CustomAdjoint, Executed
from diffsim.experiments.result import Claim, Result, versions
from diffsim.receipt import rollout_with_receipt
from diffsim.retention import Binomial, Checkpoint, Retention, Reverse, StoreAll, advance
from diffsim.rollout import rollout
from diffsim.scenes import Scene, make

__all__ = [
    "METHODS",
    "OTHER_RUN",
    "Method",
    "bits_lost",
    "compile_gradient",
    "fitted_exponent",
    "measure",
    "run",
    "step_by_step",
]

GRIDS = {"fixed-point": 2.0**-40, "float": None}


@dataclass(frozen=True)
class Method:
    """One way to organise the backward pass of the cloth, and how its memory should grow with the horizon T.

    `retention(T)` may depend on the horizon; None stands for `jax.grad` of the plain loop, the full tape. `longest`
    is the largest horizon that the default setting affords.

    Example:
        >>> METHODS["checkpoint"].adjoint(4096).retention
        Checkpoint(every=64)
    """

    label: str
    growth: str
    state: str = "fixed-point"
    realization: type = AD
    retention: Callable[[int], Retention] | None = None
    longest: int | None = None

    def adjoint(self, steps: int) -> Adjoint | None:
        """The adjoint at a horizon of that many steps, None for the full tape.

        Example:
            >>> METHODS["tape"].adjoint(16) is None
            True
        """
        return self.retention and Adjoint(Executed(), self.realization(), self.retention(steps))


METHODS = {
    "tape": Method("jax.grad of the loop (full tape)", "T", longest=1024),
    "store-all": Method("executed/ad/store-all", "T", retention=lambda T: StoreAll()),
    "custom store-all": Method(
        "executed/custom-adjoint/store-all", "T", realization=CustomAdjoint, retention=lambda T: StoreAll()
    ),
    "checkpoint": Method("executed/ad/checkpoint(√T)", "√T", retention=lambda T: Checkpoint(every=math.isqrt(T))),
    "binomial": Method(
        "executed/ad/binomial(log₂T)", "log T", retention=lambda T: Binomial(snapshots=T.bit_length() - 1)
    ),
    "reverse": Method(
        "executed/custom-adjoint/reverse", "constant", realization=CustomAdjoint, retention=lambda T: Reverse()
    ),
    "float reverse": Method(
        "executed/custom-adjoint/reverse(inf), floats",
        "constant",
        state="float",
        realization=CustomAdjoint,
        retention=lambda T: Reverse(tol=math.inf),
    ),
}
# The exact gradient of the float run, held against that of the fixed-point run.
OTHER_RUN = "exact gradient of the float run"
EXACT = ("store-all", "custom store-all", "checkpoint", "binomial", "reverse")


def step_by_step(scene: Scene):
    """Final state and gradient of a run, one compiled step at a time: no compiled loop, no retention, no table.

    The reference for the executed computation. It shares one line with what it judges, `system.step`.

    Example:
        >>> x_T, gradient = step_by_step(make("cloth", nodes=4, steps=2))
        >>> sorted(gradient)[0]
        'bend_x'
    """
    step, pull = _one_step(scene.system, scene.h)
    states = [scene.x0]
    for _ in range(scene.steps):
        states.append(step(states[-1], scene.params))
    lam = jax.grad(scene.loss)(states[-1])
    gradient = jax.tree.map(jnp.zeros_like, scene.params)
    for x in reversed(states[:-1]):
        lam, share = pull(x, scene.params, lam)
        gradient = trees.add(gradient, share)
    return states[-1], gradient


@cache
def _one_step(system, h):
    step = lambda x, p: system.step(x, p, h)
    return jax.jit(step), jax.jit(lambda x, p, lam: jax.vjp(step, x, p)[1](lam))


def compile_gradient(method: Method, scene: Scene):
    """The method's compiled program, params to ((loss, x_T), gradient). XLA compiles several at once, in threads.

    Example:
        >>> scene = make("cloth", nodes=8, steps=4)
        >>> (loss, x_T), gradient = compile_gradient(METHODS["store-all"], scene)(scene.params)
        >>> loss.shape
        ()
    """
    adjoint = method.adjoint(scene.steps)

    def value(params):
        if adjoint is None:
            x = advance(lambda x: scene.system.step(x, params, scene.h), scene.x0, scene.steps)
        else:
            x = rollout(scene.system, scene.x0, params, h=scene.h, steps=scene.steps, adjoint=adjoint)
        return scene.loss(x), x

    return jax.jit(jax.value_and_grad(value, has_aux=True)).lower(scene.params).compile()


def measure(
    method: Method, scene: Scene, reference, *, compiled=None, forward_s: float = math.nan, repeats: int = 1
) -> dict:
    """Memory, error and time of one method on one scene, as a row of the table.

    Memory is the compiled program's temporary buffer, which XLA reports exactly. The error is the largest
    difference from the reference gradient, relative to its largest entry. The primal gap is the distance of the
    final state from the reference's: 0 when the method differentiates the very run. Times are the best of
    `repeats`, or of as many as fit into a second, compiled beforehand.

    Args:
        reference: final state and gradient, as from `step_by_step`.
        compiled: what `compile_gradient` made; made here when left out.
        forward_s: seconds of the forward run.

    Example:
        >>> scene = make("cloth", nodes=8, steps=64)
        >>> row = measure(METHODS["reverse"], scene, step_by_step(scene))
        >>> row["primal_gap"], row["error"] < 1e-12
        (0.0, True)
    """
    compiled = compiled or compile_gradient(method, scene)
    (_, x_T), gradient = compiled(scene.params)
    temp = cast(Any, compiled.memory_analysis()).temp_size_in_bytes
    return {
        "method": method.label,
        "state": method.state,
        "T": scene.steps,
        "temp_bytes": temp,
        "states": temp / sum(leaf.nbytes for leaf in jax.tree.leaves(scene.x0)),
        "error": _gap(gradient, reference[1]),
        "primal_gap": float(trees.largest_gap(x_T, reference[0])),
        "time_over_forward": _best(compiled, scene.params, repeats) / forward_s,
        "grows_as": method.growth,
        "adjoint": str(method.adjoint(scene.steps) or "-"),
    }


def _gap(a, b):
    # Every parameter is a stiffness in N/m, so the gradient is one vector.
    return float(trees.largest_gap(a, b) / trees.largest(b))


def _best(function, argument, repeats):
    def once():
        started = time.perf_counter()
        jax.block_until_ready(function(argument))
        return time.perf_counter() - started

    times = [once()]
    while len(times) < repeats and sum(times) < 1.0:
        times.append(once())
    return min(times)


def fitted_exponent(horizons, sizes) -> float:
    """Least-squares slope of log(size) over log(horizon): the e of size ∝ T^e.

    Example:
        >>> round(fitted_exponent([1, 4, 16], [5.0, 10.0, 20.0]), 6)
        0.5
    """
    return float(np.polyfit(np.log(horizons), np.log(sizes), 1)[0])


def bits_lost(factor: float, *, bits: int = 20) -> float:
    """Bits per variable that one multiplication by `factor` < 1 destroys on a fixed-point grid, by counting.

    All 2^bits integers are multiplied and rounded; log2 of how many fall on one result is what a bit-exact
    reverse pass would have to store. The count approaches log2(1/factor).

    Example:
        >>> round(bits_lost(0.5), 3)
        1.0
    """
    integers = np.arange(2**bits)
    return bits - math.log2(len(np.unique(np.rint(factor * integers))))


def run(*, full: bool = False, seed: int = 0, progress: Callable[[str], None] = lambda line: None) -> Result:
    """Measure every method over the horizon and check what their memory and exactness are claimed to be.

    Args:
        full: every power of two from 64 to 4096 steps and nine timings each, instead of three horizons and two.
        seed: recorded only; nothing here is random.
        progress: called with one line per measurement.

    Example:
        >>> callable(run)
        True
    """
    settings = {
        "scene": "cloth",
        "nodes": 24,
        "horizons": [2**n for n in range(6, 13)] if full else [256, 1024, 4096],
        "repeats": 9 if full else 2,
        "grid": GRIDS["fixed-point"],
        "dtype": str(jnp.zeros(()).dtype),
        "full": full,
        "seed": seed,
    }
    rows = list(_rows(settings, progress))
    receipts = {state: _receipt(state, settings) for state in GRIDS}
    return Result("exactness-memory", settings, versions(), rows, list(_claims(rows, receipts, settings)))


def _rows(settings, progress) -> Iterator[dict]:
    cloths = {state: make("cloth", nodes=settings["nodes"], grid=grid) for state, grid in GRIDS.items()}
    for steps in settings["horizons"]:
        scenes = {state: replace(cloth, steps=steps) for state, cloth in cloths.items()}
        references = {state: step_by_step(scene) for state, scene in scenes.items()}
        forward = {state: _forward(scene, settings["repeats"]) for state, scene in scenes.items()}
        methods = [m for m in METHODS.values() if settings["full"] or not m.longest or steps <= m.longest]
        with ThreadPoolExecutor() as threads:
            programs = list(threads.map(compile_gradient, methods, [scenes[method.state] for method in methods]))
        for method, compiled in zip(methods, programs, strict=True):
            state = method.state
            row = measure(
                method,
                scenes[state],
                references[state],
                compiled=compiled,
                forward_s=forward[state],
                repeats=settings["repeats"],
            )
            progress(
                f"T={steps:5d}  {method.label:45s} {row['temp_bytes'] / 1e6:9.3f} MB  error {row['error']:.1e}  "
                f"{row['time_over_forward']:5.1f} × forward"
            )
            yield row
        (x, gradient), (x_float, gradient_float) = references["fixed-point"], references["float"]
        yield {
            "method": OTHER_RUN,
            "state": "float",
            "T": steps,
            "error": _gap(gradient_float, gradient),
            "primal_gap": float(trees.largest_gap(x_float, x)),
        }


def _forward(scene, repeats):
    compiled = jax.jit(scene.value).lower(scene.params).compile()
    return _best(compiled, scene.params, repeats)


def _receipt(state, settings):
    scene = make("cloth", nodes=settings["nodes"], grid=GRIDS[state], steps=max(settings["horizons"]))
    return rollout_with_receipt(scene.system, scene.x0, scene.params, h=scene.h, steps=scene.steps)[1]


def _claims(rows, receipts, settings) -> Iterator[Claim]:
    horizons = settings["horizons"]
    longest = horizons[-1]

    def column(key, name):
        return np.array([row[name] for row in rows if row["method"] == METHODS[key].label])

    def exponent(key):
        sizes, beyond = column(key, "temp_bytes"), column("reverse", "temp_bytes")
        return fitted_exponent(column(key, "T"), sizes - beyond[: len(sizes)])

    # What the constant-memory method needs is needed by all: the step's own workspace.
    workspace = column("reverse", "temp_bytes")
    per_doubling = np.polyfit(np.log2(horizons), column("binomial", "states"), 1)[0]
    error = {key: column(key, "error") for key in METHODS}
    memory = {key: column(key, "temp_bytes")[-1] for key in METHODS}

    yield Claim.close("growth-tape", "full tape: memory grows as T^e", exponent("tape"), 1.0, atol=0.05)
    yield Claim.close("growth-store-all", "store-all: memory grows as T^e", exponent("store-all"), 1.0, atol=0.05)
    yield Claim.close(
        "growth-checkpoint", "checkpoint(√T): memory grows as T^e", exponent("checkpoint"), 0.5, atol=0.05
    )
    yield Claim.close("growth-binomial", "binomial(log₂T): states added when T doubles", per_doubling, 1.0, atol=0.05)
    yield Claim.equal(
        "growth-reverse",
        "reverse: bytes at the longest over bytes at the shortest horizon",
        workspace[-1] / workspace[0],
        1.0,
    )
    for key in EXACT:
        yield Claim.at_most(
            f"exact-{key.replace(' ', '-')}",
            f"{METHODS[key].label}: largest error over all horizons",
            np.max(error[key]),
            1e-12,
        )
    for key in EXACT:
        yield Claim.equal(
            f"run-{key.replace(' ', '-')}",
            f"{METHODS[key].label}: largest distance of its final state from the run's, over all horizons",
            np.max(column(key, "primal_gap")),
            0.0,
        )
    yield Claim.at_least(
        "run-tape",
        "full tape: distance of its final state from the run's; compiled with its tape, the same code "
        "rounds differently, and the cloth amplifies it",
        column("tape", "primal_gap")[-1],
        1e-7,
    )
    yield Claim.equal(
        "round-trip-fixed-point",
        f"fixed-point cloth, {longest} steps there and back: distance from the start",
        float(receipts["fixed-point"].round_trip),
        0.0,
    )
    yield Claim.at_most(
        "range",
        "fixed-point cloth: share of the exact range that was used",
        float(receipts["fixed-point"].range_used),
        0.5,
    )
    yield Claim.at_least("drift", f"float reverse: error at T={longest}, useless", error["float reverse"][-1], 1e-2)
    yield Claim.at_least(
        "corner",
        f"store-all over reverse, bytes at T={longest}: the exact, constant-memory corner is occupied",
        memory["store-all"] / memory["reverse"],
        100.0,
    )
    apart = [row["error"] for row in rows if row["method"] == OTHER_RUN]
    yield Claim.at_most(
        "two-runs-short",
        f"two exact gradients, of the fixed-point and of the float run, T={horizons[0]}: gap",
        apart[0],
        1e-6,
    )
    yield Claim.at_least(
        "two-runs-long", f"the same at T={longest}: they are derivatives of two different runs", apart[-1], 1e-2
    )
    for factor in (0.9, 0.99):
        yield Claim.close(
            f"bits-{factor}",
            f"bits lost per variable by one factor γ={factor}",
            bits_lost(factor),
            math.log2(1 / factor),
            atol=1e-3,
        )
