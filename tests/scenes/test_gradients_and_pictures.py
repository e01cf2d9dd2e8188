"""What holds for each scene of one list: dtypes, picture, and the gradient against difference quotients."""

from functools import lru_cache

import jax
import jax.numpy as jnp
import pytest
from jax.flatten_util import ravel_pytree
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from diffsim import Adjoint
from diffsim.scenes import SCENES, make
from diffsim.solvers import GradientDescent
from tests.scenes.checks import along, central_difference, scene_of

CHEAP = {
    "beam": {"along": 8, "across": 1, "steps": 4},
    "cartpole": {"steps": 100},
    "chain": {"masses": 5, "steps": 16},
    "double_pendulum": {"steps": 100},
    "fluid": {"cells": 8, "iterations": 8, "steps": 10},
    "heat": {"cells": 8, "steps": 5},
    "lennard_jones": {"steps": 64},
    "wave": {"nodes": 19, "h": 0.02, "steps": 50},
}
# Scenes and settings whose run differs in kind from the default one.
VARIANTS = {
    "chain, truncated": ("chain", {"masses": 5, "steps": 16, "solver": GradientDescent(iterations=8, rate=5e-3)}),
    "Lennard-Jones, fixed point": ("lennard_jones", {"grid": 2.0**-40, "steps": 64}),
    "wave, fixed point": ("wave", {"nodes": 19, "h": 0.02, "steps": 50, "grid": 2.0**-44}),
}
CASES = {**{name: (name, settings) for name, settings in CHEAP.items()}, **VARIANTS}


def test_every_scene_here_is_registered():
    assert set(CHEAP) <= set(SCENES)


@pytest.mark.parametrize("name", CHEAP)
def test_single_precision_is_kept_where_double_is_the_default(name):
    scene = make(name, dtype=jnp.float32, **CHEAP[name])
    assert {a.dtype for a in jax.tree.leaves((scene.x0, scene.params))} == {jnp.dtype(jnp.float32)}
    value, gradient = jax.eval_shape(jax.value_and_grad(scene.value), scene.params)
    assert value.shape == () and {a.dtype for a in jax.tree.leaves((value, gradient))} == {jnp.dtype(jnp.float32)}


@pytest.mark.parametrize("name", CHEAP)
def test_picture_has_axes_with_units_and_something_in_it(name):
    scene = scene_of(name, **CHEAP[name])
    figure = Figure()
    ax = figure.subplots()
    scene.draw(ax, scene.x0, scene.params)
    FigureCanvasAgg(figure).draw()
    assert ax.get_xlabel().endswith("m]") and ax.get_ylabel().endswith("m]")
    assert ax.lines or ax.images or ax.collections or ax.patches
    colour_bars = [a.get_ylabel() for a in ax.child_axes]
    assert all(colour_bars)


def direction_of(params, name):
    """A fixed direction in one parameter, 1 in its largest entry relative to the parameter's own size."""
    flat, unravel = ravel_pytree(params[name])
    size = jnp.maximum(jnp.max(jnp.abs(flat)), 1e-3)
    chosen = unravel(size * jnp.cos(1.7 * jnp.arange(flat.size, dtype=flat.dtype)))
    return {**jax.tree.map(jnp.zeros_like, dict(params)), name: chosen}


@lru_cache
def executed_gradient(name, **settings):
    scene = scene_of(name, **settings)
    return jax.jit(jax.grad(scene.value))(scene.params)


def quotient(scene, parameter):
    """The difference quotient along one parameter's direction, and the direction."""
    direction = direction_of(scene.params, parameter)
    # On a grid the executed loss is a staircase: the shifts must be many stairs long.
    return central_difference(scene.value, scene.params, direction, 1e-3 if scene.system.grid else 1e-4), direction


@pytest.mark.parametrize("case", CASES)
def test_gradient_is_the_difference_quotient(case):
    name, settings = CASES[case]
    scene = scene_of(name, **settings)
    for parameter in scene.params:
        want, direction = quotient(scene, parameter)
        got = along(executed_gradient(name, **settings), direction)
        assert got == pytest.approx(want, rel=1e-5 if scene.system.grid else 1e-7), parameter


def equation_gradient(name, linear, **settings):
    scene, adjoint = scene_of(name, **settings), Adjoint.parse(f"converged/adjoint-solve({linear})/store-all")
    return jax.jit(jax.grad(lambda p: scene.value(p, adjoint=adjoint)))(scene.params)


def test_a_wrong_gradient_is_not_the_difference_quotient():
    """The check above can fail: the same comparison, with the adjoint of an equation that was not solved."""
    name, settings = CASES["chain, truncated"]
    want, direction = quotient(scene_of(name, **settings), "k1")
    assert along(equation_gradient(name, "dense", **settings), direction) != pytest.approx(want, rel=1e-3)


@pytest.mark.parametrize(
    ("name", "settings", "linear"),
    [
        ("beam", CHEAP["beam"], "cg"),
        ("chain", CHEAP["chain"], "dense"),
        ("heat", CHEAP["heat"], "cg"),
        ("fluid", {"cells": 4, "iterations": 100, "steps": 3}, "dense"),
    ],
)
def test_at_a_root_the_equation_gives_the_executed_gradient(name, settings, linear):
    """Ties `residual`, `unknown`, `finish` and `precondition` to `step`."""
    executed = ravel_pytree(executed_gradient(name, **settings))[0]
    converged = ravel_pytree(equation_gradient(name, linear, **settings))[0]
    assert float(jnp.linalg.norm(converged - executed)) < 1e-8 * float(jnp.linalg.norm(executed))
