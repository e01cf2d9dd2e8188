"""E1, same physics, three derivatives: what agrees to round-off, and how fast the rest comes together (C1, C2)."""

import math
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np

from diffsim import trees
from diffsim.adjoint import Adjoint, AdjointSolve, Converged, Executed
from diffsim.door import supported, why_not
from diffsim.experiments.result import Claim, Result, versions
from diffsim.integrators import Phase, implicit_midpoint, leapfrog, runge_kutta4, symplectic_euler
from diffsim.retention import Binomial, Checkpoint, Recompute, Reverse, StoreAll
from diffsim.rollout import rollout
from diffsim.scenes import Scene, fixed_point, make
from diffsim.scenes import pendulum as physics
from diffsim.solvers import Newton, Picard
from diffsim.system import System

__all__ = [
    "INTEGRATORS",
    "SMALL",
    "budget_gaps",
    "compare",
    "gradient",
    "grid_deviations",
    "order_gaps",
    "pendulum_field",
    "run",
    "scalar_gaps",
]

# Small enough that the whole grid of adjoints compiles in a few minutes on two cores; the step sizes of the stiff scenes
# are small enough for the explicit stages that the continuous referent integrates with.
NEWTON = Newton(iterations=3, line_search=False)
SMALL: dict[str, dict] = {
    "beam": {"along": 3, "across": 1, "solver": NEWTON, "h": 1e-3, "steps": 4},
    "cartpole": {"steps": 20},
    "chain": {"masses": 4, "solver": NEWTON, "h": 2e-3, "steps": 10},
    "cloth": {"nodes": 6, "steps": 40},
    "double_pendulum": {"steps": 40},
    "fixed_point": {},
    "fluid": {"cells": 8, "iterations": 10, "steps": 4},
    "heat": {"cells": 5, "steps": 6},
    "lennard_jones": {"steps": 40},
    "pendulum": {"steps": 40},
    "wave": {"nodes": 9, "steps": 40},
}
RETENTIONS = (StoreAll(), Checkpoint(every=7), Binomial(snapshots=3), Recompute(), Reverse(tol=math.inf))
INTEGRATORS = {
    "symplectic Euler": (1, lambda: symplectic_euler(physics.acceleration)),
    "leapfrog": (2, lambda: leapfrog(physics.acceleration)),
    "implicit midpoint": (2, lambda: implicit_midpoint(pendulum_field, solver=Picard(iterations=30))),
    "Runge–Kutta 4": (4, lambda: runge_kutta4(pendulum_field)),
}


def pendulum_field(x: Phase, p) -> Phase:
    """The pendulum as a first-order system: angle [rad] and angular velocity [rad/s] to their rates.

    Example:
        >>> rate = pendulum_field(Phase(0.0, 1.0), {"gravity": 9.81, "length": 1.0})
        >>> float(rate.q), float(rate.v)
        (1.0, -0.0)
    """
    return Phase(x.v, physics.acceleration(x.q, p))


def gradient(system: System, scene: Scene, claim: str, *, h: float, steps: int):
    """Gradient of the scene's loss with respect to its parameters, through another system for the same physics.

    Example:
        >>> scene = make("pendulum", grid=None)
        >>> sorted(gradient(scene.system, scene, "executed/ad/store-all", h=0.01, steps=8))
        ['gravity', 'length']
    """
    adjoint = Adjoint.parse(claim)

    def value(params):
        return scene.loss(rollout(system, scene.x0, params, h=h, steps=steps, adjoint=adjoint))

    return jax.jit(jax.grad(value))(scene.params)


def scalar_gaps(budget: int, *, rate: float = 0.2) -> dict[str, float]:
    """The three gaps of the scalar fixed point at one budget K, as measured, for d/d stiffness at a = θ = 1.

    Example:
        >>> gaps = scalar_gaps(8)
        >>> [round(gaps[name], 3) for name in ("executed - limit", "adjoint - limit", "adjoint - executed")]
        [0.503, 0.168, 0.336]
    """
    scene = fixed_point.make(iterations=budget, rate=rate)
    slopes = {
        referent.name: float(scene.value_and_grad(Adjoint(referent, AdjointSolve()))[1]["stiffness"])
        for referent in (Executed(), Converged())
    }
    limit = -1.0
    return {
        "executed - limit": abs(slopes["executed"] - limit),
        "adjoint - limit": abs(slopes["converged"] - limit),
        "adjoint - executed": abs(slopes["converged"] - slopes["executed"]),
    }


def budget_gaps(budgets, *, angle: float = 1e-3, h: float = 0.1, steps: int = 20) -> list[dict]:
    """Implicit midpoint with K Picard iterations on a pendulum: gaps to the converged derivative, per budget K.

    At a small angle [rad] the iteration is linear and contracts by ρ = (h/2) √(g/ℓ) per iteration. Its matrix
    turns by a right angle, so the gap falls in pairs of iterations: compare budgets of one parity.

    Example:
        >>> rows = budget_gaps((2, 4))
        >>> rows[0]["adjoint - limit"] > rows[1]["adjoint - limit"]
        True
    """
    scene = make("pendulum", grid=None)
    x0 = Phase(q=jnp.full_like(scene.x0.q, angle), v=scene.x0.v)

    def slopes(iterations, claim):
        system = implicit_midpoint(pendulum_field, solver=Picard(iterations=iterations))

        def value(p):
            return rollout(system, x0, p, h=h, steps=steps, adjoint=Adjoint.parse(claim)).q

        return jax.grad(value)(scene.params)

    limit = slopes(60, "converged/adjoint-solve/store-all")
    rows = []
    for budget in budgets:
        run, adjoint = (slopes(budget, f"{name}/store-all") for name in ("executed/ad", "converged/adjoint-solve"))
        rows.append(
            {
                "budget": budget,
                "executed - limit": _gap(run, limit),
                "adjoint - limit": _gap(adjoint, limit),
                "adjoint - executed": _gap(adjoint, run),
            }
        )
    return rows


def order_gaps(name: str, claim: str, step_sizes, *, duration: float = 1.5) -> list[float]:
    """Gap between a claim's gradient and that of the continuous pendulum, for each step size [s].

    The truth is the gradient through Runge–Kutta steps of fourth order, 4096 of them.

    Example:
        >>> coarse, fine = order_gaps("leapfrog", "executed/ad/store-all", (0.05, 0.025))
        >>> 3.5 < coarse / fine < 4.5
        True
    """
    scene = make("pendulum", grid=None)
    truth = gradient(runge_kutta4(pendulum_field), scene, "executed/ad/store-all", h=duration / 4096, steps=4096)
    system = INTEGRATORS[name][1]()
    return [_gap(gradient(system, scene, claim, h=h, steps=round(duration / h)), truth) for h in step_sizes]


def grid_deviations(scene: Scene) -> list[dict]:
    """Every legal adjoint of a scene beside the plainest cell of its referent: relative gap of the gradients.

    `of` says what the row varies against its reference: the realization, or the retention.

    Example:
        >>> rows = grid_deviations(make("fixed_point"))
        >>> max(row["gap"] for row in rows) < 1e-12
        True
    """
    rows: list[dict] = []
    references: dict = {}
    for adjoint in supported(scene.system, RETENTIONS):
        cell = adjoint.referent.name, adjoint.realization.name
        slopes = _slopes(scene, adjoint)
        first = adjoint.referent.name not in references
        plain = references.setdefault(adjoint.referent.name, slopes)
        stored = references.setdefault(cell, slopes)
        of = "reference" if first else "realization" if stored is slopes else "retention"
        rows.append(
            {
                "scene": scene.name,
                "adjoint": str(adjoint),
                "referent": adjoint.referent.name,
                "of": of,
                "gap": _gap(slopes, plain if of == "realization" else stored),
            }
        )
    return rows


def _slopes(scene, adjoint):
    program = jax.jit(jax.grad(lambda p: scene.value(p, adjoint=adjoint))).lower(scene.params)
    # Compiling is all the work here, and unoptimised code compiles in half the time.
    return program.compile(compiler_options={"xla_backend_optimization_level": 0})(scene.params)


def compare(scene: Scene, claims: Iterable[str]) -> list[dict]:
    """What each claim costs and returns on a scene, for those it offers; the others say why they can't be had.

    `slopes` has one number per parameter leaf, the change of the loss per relative change of the whole leaf, Σ p ∂L/∂p, in
    the loss's unit: leaves of different units stand side by side. `temporary_bytes` is what the compiled gradient needs
    beside its inputs and outputs; `time_over_forward` compares best times in this process.

    Example:
        >>> row, refused = compare(make("pendulum", steps=4), ("executed/ad/store-all", "converged/ad/store-all"))
        >>> sorted(row["slopes"]), refused["why_not"]
        (['gravity', 'length'], "the system 'pendulum' has no residual")
    """
    forward = jax.jit(scene.value).lower(scene.params).compile()
    forward_s = _best_seconds(forward, scene.params)
    rows: list[dict] = []
    for claim in claims:
        adjoint = Adjoint.parse(claim)
        reason = why_not(scene.system, adjoint)
        if reason:
            rows.append({"claim": claim, "why_not": reason})
            continue
        program = jax.jit(jax.value_and_grad(partial(scene.value, adjoint=adjoint))).lower(scene.params).compile()
        value, slopes = program(scene.params)
        rows.append(
            {
                "claim": claim,
                "loss": float(value),
                "slopes": {name: float(jnp.sum(g * scene.params[name])) for name, g in slopes.items()},
                "temporary_bytes": cast(Any, program.memory_analysis()).temp_size_in_bytes,
                "time_over_forward": _best_seconds(program, scene.params) / forward_s,
            }
        )
    return rows


def _best_seconds(program, argument, repeats=5):
    best = math.inf
    for _ in range(repeats):
        started = time.perf_counter()
        jax.block_until_ready(program(argument))
        best = min(best, time.perf_counter() - started)
    return best


def run(*, full: bool = False, seed: int = 0, progress: Callable[[str], None] = lambda line: None) -> Result:
    """Measure the grid's agreements and the orders of its gaps.

    Args:
        full: the grid over all scenes of `SMALL`, instead of three of them.
        seed: recorded only; nothing here is random.
        progress: called with one line per measurement.

    Example:
        >>> callable(run)
        True
    """
    scenes = list(SMALL) if full else ["pendulum", "chain", "fixed_point"]
    settings = {"scenes": scenes, "budgets": [2, 4, 6, 8, 10], "full": full, "seed": seed}
    grid = []
    for name in scenes:
        rows = grid_deviations(make(name, **SMALL[name]))
        progress(f"{name}: {len(rows)} adjoints")
        grid += rows
    budgets = budget_gaps(settings["budgets"])
    progress(f"budget: gaps for {len(budgets)} budgets")
    scalar = [{"budget": budget, **scalar_gaps(budget)} for budget in (1, 2, 4, 8, 16)]
    orders = []
    for name, (order, _) in INTEGRATORS.items():
        sizes = [1 / 64, 1 / 128, 1 / 256]
        for claim in ("executed/ad/store-all", "continuous/adjoint-solve/store-all"):
            gaps = order_gaps(name, claim, sizes)
            orders.append({"integrator": name, "claim": claim, "order": order, "fitted": _slope(sizes, gaps)})
        progress(f"order: {name}")
    rows = [{"table": table, **row} for table, part in _tables(grid, budgets, scalar, orders) for row in part]
    return Result("referents", settings, versions(), rows, list(_claims(grid, budgets, scalar, orders)))


def _gap(a, b):
    return float(trees.relative_gap(a, b))


def _tables(grid, budgets, scalar, orders):
    return (("grid", grid), ("budget", budgets), ("scalar", scalar), ("order", orders))


def _slope(sizes, gaps):
    return float(np.polyfit(np.log(sizes), np.log(gaps), 1)[0])


def _claims(grid, budgets, scalar, orders) -> Iterator[Claim]:
    for referent in (Executed, Converged):
        gaps = [row["gap"] for row in grid if row["referent"] == referent.name and row["of"] == "realization"]
        yield Claim.at_most(
            f"realizations-{referent.name}", f"{referent.name}: largest gap between realizations", max(gaps), 1e-11
        )
    kept = [row for row in grid if row["of"] == "retention" and not row["adjoint"].endswith("reverse(inf)")]
    yield Claim.at_most(
        "retentions", "largest gap between retentions that keep states", max(r["gap"] for r in kept), 1e-11
    )

    for row in scalar:
        K, rho = row["budget"], 0.8
        for name, want in {
            "executed - limit": rho**K + K * 0.2 * rho ** (K - 1),
            "adjoint - limit": rho**K,
            "adjoint - executed": K * 0.2 * rho ** (K - 1),
        }.items():
            yield Claim.close(
                f"scalar-{name.replace(' ', '')}-{K}", f"scalar fixed point, K={K}: {name}", row[name], want, rtol=1e-12
            )

    rho = 0.1 / 2 * math.sqrt(9.81)
    fitted = np.polyfit([row["budget"] for row in budgets], np.log([row["adjoint - limit"] for row in budgets]), 1)[0]
    yield Claim.close(
        "budget-rate",
        "implicit midpoint, Picard: contraction of the gap per iteration",
        math.exp(fitted),
        rho,
        rtol=0.05,
    )
    hybrid = min(min(row["adjoint - limit"], row["adjoint - executed"]) for row in budgets if row["budget"] <= 4)
    yield Claim.at_least(
        "hybrid", "the adjoint at an unconverged state matches neither run nor limit: smaller gap", hybrid, 1e-6
    )
    for row in orders:
        yield Claim.close(
            f"order-{row['integrator']}-{row['claim'].split('/')[0]}",
            f"{row['integrator']}, {row['claim']}: order of the gap to the continuous derivative",
            row["fitted"],
            float(row["order"]),
            atol=0.15,
        )
