"""What the scenes' tests measure with: runs, drifts, orders and difference quotients."""

from functools import lru_cache

import jax
import numpy as np

from diffsim.scenes import make


@lru_cache(maxsize=32)
def scene_of(name, **settings):
    """The same scene object for the same settings, so that what was compiled for it is used again."""
    return make(name, **settings)


@lru_cache(maxsize=32)
def _compiled(function):
    return jax.jit(function)


def run(scene, *, x0=None, params=None, h=None, steps=None):
    """All states of a run of the scene, with some of its numbers replaced; compiled once for all step sizes."""
    step = _compiled(scene.system.step)
    xs = [scene.x0 if x0 is None else x0]
    for _ in range(steps or scene.steps):
        xs.append(step(xs[-1], {**scene.params, **(params or {})}, h or scene.h))
    return jax.tree.map(lambda *states: np.stack(states), *xs)


def at(xs, n):
    return jax.tree.map(lambda a: a[n], xs)


def drift(invariant, xs):
    """Largest departure of an invariant from its start over a run, in its own unit."""
    values = np.asarray(jax.jit(jax.vmap(invariant))(xs))
    return float(np.max(np.abs(values - values[:1])))


def order(h, errors):
    """Slope of log(error) over log(h)."""
    return float(np.polyfit(np.log(h), np.log(errors), 1)[0])


def central_difference(f, p, direction, size):
    """Derivative of f at p along a direction, with the error of second order removed."""
    shift = lambda t: jax.tree.map(lambda a, d: a + t * d, p, direction)
    wide, narrow = ((f(shift(t)) - f(shift(-t))) / (2 * t) for t in (2 * size, size))
    return float(4 * narrow - wide) / 3


def along(gradient, direction):
    pairs = zip(jax.tree.leaves(gradient), jax.tree.leaves(direction), strict=True)
    return float(sum(np.sum(np.asarray(g) * np.asarray(d)) for g, d in pairs))
