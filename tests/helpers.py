"""Small systems and the capabilities they declare: one list, imported by every property test."""

from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from math import inf
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import jaxtyping
import numpy as np
import pytest

from diffsim import (
    AD,
    Adjoint,
    Binomial,
    Checkpoint,
    Recompute,
    Reverse,
    StoreAll,
    System,
    rollout,
    supported,
    trajectory,
)
from diffsim.integrators import Phase, fixed_point_leapfrog, snap

GRID = 2.0**-40

# With 7 steps all of them are awkward: 7 is no multiple of 3, and 2 snapshots are fewer than are comfortable.
RETENTIONS = (StoreAll(), Checkpoint(every=3), Binomial(snapshots=2), Recompute(), Reverse())
# The dynamics run backwards do not invert a step, so back-solving them has to be asked for.
BACK_SOLVED = (*RETENTIONS[:-1], Reverse(tol=inf))


@dataclass(frozen=True, eq=False)
class Small:
    """A system of a few numbers, with a start and parameters; numpy arrays, so that importing runs nothing."""

    name: str
    system: System
    x0: Any
    params: Any
    # (referent, realization) pairs that it declares, and whether it has a way back.
    cells: frozenset[tuple[str, str]]
    reversible: bool
    h: float = 0.05
    steps: int = 7

    def value(self, params, x0, adjoint=Adjoint()):
        return loss(rollout(self.system, x0, params, h=self.h, steps=self.steps, adjoint=adjoint))

    def plain_value(self, params, x0):
        """The same loss without a custom rule: JAX differentiates the loop by itself."""
        states = trajectory(self.system, x0, params, h=self.h, steps=self.steps)
        return loss(jax.tree.map(lambda a: a[-1], states))


def loss(x):
    """A scalar in which every entry of the state has its own weight and curvature."""
    leaves = [jnp.ravel(leaf) for leaf in jax.tree.leaves(x)]
    flat = jnp.concatenate(leaves)
    weight = jnp.linspace(0.5, 1.5, flat.size, dtype=flat.dtype)
    return jnp.sum(weight * flat + flat**2 / 3)


def logistic_step(x, p, h):
    return x + h * p * x * (1 - x)


def logistic_costate(x, p, lam):
    return -p * (1 - 2 * x) * lam, x * (1 - x) * lam


# Duffing springs under one load, symplectic Euler, everything by hand: the state is a dict, the parameters nest.
def _duffing(q, p):
    return p["load"] - p["spring"]["k"] * q - q**3


def duffing_step(x, p, h):
    v = x["v"] + h * _duffing(x["q"], p)
    return {"q": x["q"] + h * v, "v": v}


def duffing_unstep(x, p, h):
    q = x["q"] - h * x["v"]
    return {"q": q, "v": x["v"] - h * _duffing(q, p)}


def duffing_residual(x_next, x, p, h):
    return {
        "q": x_next["q"] - x["q"] - h * x_next["v"],
        "v": x_next["v"] - x["v"] - h * _duffing(x["q"], p),
    }


def duffing_vjp(x, x_next, p, h, lam):
    lam_v = lam["v"] + h * lam["q"]
    slope = p["spring"]["k"] + 3 * x["q"] ** 2
    share = {"spring": {"k": -h * x["q"] * lam_v}, "load": h * jnp.sum(lam_v)}
    return {"q": lam["q"] - h * slope * lam_v, "v": lam_v}, share


def duffing_costate(x, p, lam):
    slope = p["spring"]["k"] + 3 * x["q"] ** 2
    rate = {"spring": {"k": -x["q"] * lam["v"]}, "load": jnp.sum(lam["v"])}
    return {"q": slope * lam["v"], "v": -lam["q"]}, rate


class Rod(NamedTuple):
    gravity: Any
    length: Any


def pendulum_acceleration(angle, rod):
    return -rod.gravity / rod.length * jnp.sin(angle)


def lattice_acceleration(q, p):
    """Two bodies in two leaves, drawn to 0 and coupled by cubic terms (Hénon and Heiles): chaotic."""
    x, y = q["across"], q["along"]
    return {"across": -p["k"] * x - 2 * p["coupling"] * x * y, "along": -p["k"] * y - p["coupling"] * (x**2 - y**2)}


class Slide(NamedTuple):
    q: Any
    v: Any


# Implicit Euler with cubic drag, solved for the new velocity u alone; three Newton steps reach round-off.
def slide_residual(x_next, x, p, h):
    u = x_next.v
    return u - x.v + h * (p["k"] * (x.q + h * u) + p["c"] * u**3)


def slide_finish(u, x, p, h):
    return Slide(q=x.q + h * u, v=u)


def slide_slope(u, p, h):
    return 1 + h * (h * p["k"] + 3 * p["c"] * u**2)


def slide_step(x, p, h):
    u = x.v
    for _ in range(3):
        u = u - slide_residual(slide_finish(u, x, p, h), x, p, h) / slide_slope(u, p, h)
    return slide_finish(u, x, p, h)


def slide_root_vjp(x, x_next, p, h, lam):
    u = x_next.v
    mu = (lam.v + h * lam.q) / slide_slope(u, p, h)
    share = {"k": -h * (x.q + h * u) * mu, "c": -h * u**3 * mu}
    return Slide(q=lam.q - h * p["k"] * mu, v=mu), share


def _snapped(x):
    return jax.tree.map(lambda a: np.rint(np.asarray(a) / GRID) * GRID, x)


TRACED = {("executed", "ad"), ("executed", "adjoint-solve")}
BY_HAND = {("executed", "custom-adjoint")}
FLOW = {("continuous", "ad"), ("continuous", "adjoint-solve"), ("continuous", "custom-adjoint")}
ROOT = {("converged", "ad"), ("converged", "adjoint-solve"), ("converged", "custom-adjoint")}

LOGISTIC = Small(
    name="logistic",
    system=System(step=logistic_step, field=lambda x, p: p * x * (1 - x), costate=logistic_costate, name="logistic"),
    x0=np.float64(0.2),
    params=np.float64(3.0),
    cells=frozenset(TRACED | FLOW),
    reversible=False,
)
DUFFING = Small(
    name="duffing",
    system=System(
        step=duffing_step,
        residual=duffing_residual,
        field=lambda x, p: {"q": x["v"], "v": _duffing(x["q"], p)},
        unstep=duffing_unstep,
        step_vjp=duffing_vjp,
        root_vjp=duffing_vjp,
        costate=duffing_costate,
        name="duffing",
    ),
    x0={"q": np.array([0.7, -0.4, 1.1]), "v": np.array([0.1, 0.3, -0.2])},
    params={"spring": {"k": np.array([2.0, 5.0, 9.0])}, "load": np.float64(0.5)},
    cells=frozenset(TRACED | BY_HAND | ROOT | FLOW),
    reversible=True,
)
PENDULUM = Small(
    name="pendulum",
    system=fixed_point_leapfrog(pendulum_acceleration, grid=GRID, name="pendulum"),
    x0=_snapped(Phase(q=np.float64(1.0), v=np.float64(-0.3))),
    params=Rod(gravity=np.float64(9.81), length=np.float64(0.8)),
    cells=frozenset(TRACED | BY_HAND | FLOW),
    reversible=True,
)
LATTICE = Small(
    name="lattice",
    system=fixed_point_leapfrog(lattice_acceleration, grid=GRID, name="lattice"),
    x0=_snapped(
        Phase(
            q={"across": np.array([0.3, -0.5]), "along": np.array([0.2, 0.1])},
            v={"across": np.array([0.0, 0.4]), "along": np.array([-0.1, 0.2])},
        )
    ),
    params={"k": np.float64(4.0), "coupling": np.float64(3.0)},
    cells=frozenset(TRACED | BY_HAND | FLOW),
    reversible=True,
)
SLIDE = Small(
    name="slide",
    system=System(
        step=slide_step,
        residual=slide_residual,
        root_vjp=slide_root_vjp,
        unknown=lambda x: x.v,
        finish=slide_finish,
        name="slide",
    ),
    x0=Slide(q=np.float64(1.2), v=np.float64(1.5)),
    params={"k": np.float64(6.0), "c": np.float64(0.1)},
    cells=frozenset(TRACED | ROOT),
    reversible=False,
)

SMALL = (LOGISTIC, DUFFING, PENDULUM, LATTICE, SLIDE)
each_small = pytest.mark.parametrize("small", SMALL, ids=lambda small: small.name)


def cells(smalls, referents, retentions=RETENTIONS):
    """Test parameters (small, adjoint), one per legal cell, named as the claim is spelled."""
    return [
        pytest.param(small, adjoint, id=f"{small.name}-{adjoint}")
        for small in smalls
        for adjoint in supported(small.system, retentions)
        if adjoint.referent.name in referents
    ]


def cross(smalls, referents):
    """The cells of one row and one column: every realization with `StoreAll`, every retention with AD."""
    return [
        case
        for case in cells(smalls, referents)
        if case.values[1].retention == StoreAll() or case.values[1].realization == AD()
    ]


@cache
def gradient(small, adjoint=Adjoint()):
    """Loss, and its gradient with respect to (params, x0)."""
    function = jax.value_and_grad(lambda p, x: small.value(p, x, adjoint), argnums=(0, 1))
    return jax.jit(function)(small.params, small.x0)


@cache
def plain_gradient(small):
    """Gradient with respect to (params, x0) by JAX alone, with its own tape."""
    return jax.jit(jax.grad(small.plain_value, argnums=(0, 1)))(small.params, small.x0)


@cache
def primal(small):
    """The loss, with no derivative asked for."""
    return jax.jit(small.value)(small.params, small.x0)


def gap(a, b) -> float:
    """Largest difference of two pytrees over the largest entry of the second; in numpy, apart from what is judged."""
    assert jax.tree.structure(a) == jax.tree.structure(b)
    a, b = (np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(tree)]) for tree in (a, b))
    return float(np.max(np.abs(a - b)) / np.max(np.abs(b)))


def bits(x) -> list[bytes]:
    """The bytes of every leaf: equal when two pytrees are equal to the last bit."""
    return [np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(x)]


def slope(xs, ys) -> float:
    """Least-squares slope of log(y) over log(x): the e of y ∝ x^e."""
    return float(np.polyfit(np.log(xs), np.log(ys), 1)[0])


def central_difference(function: Callable, tree, direction, width: float) -> float:
    """Derivative of a scalar function of a pytree along a direction."""
    moved = [jax.tree.map(lambda a, d, s=s: a + s * width * d, tree, direction) for s in (1, -1)]
    return float(function(moved[0]) - function(moved[1])) / (2 * width)


def directions(tree, count: int, seed: int = 0):
    """Fixed pseudo-random pytrees of the tree's structure and shapes."""
    random = np.random.default_rng(seed)
    return [jax.tree.map(lambda a: random.uniform(-1, 1, np.shape(a)), tree) for _ in range(count)]


def along(gradient, direction) -> float:
    """Scalar product of two pytrees."""
    pairs = zip(jax.tree.leaves(gradient), jax.tree.leaves(direction), strict=True)
    return float(sum(np.sum(np.asarray(a) * np.asarray(b)) for a, b in pairs))


def snapped(x, grid=GRID):
    """`snap` of a pytree that may hold numpy arrays."""
    return snap(jax.tree.map(jnp.asarray, x), grid)


@contextmanager
def types_unchecked():
    """What users meet: no type checks at run time, so that a wrong kind of argument reaches our own messages."""
    before = jaxtyping.config.jaxtyping_disable
    jaxtyping.config.update("jaxtyping_disable", True)
    try:
        yield
    finally:
        jaxtyping.config.update("jaxtyping_disable", before)
