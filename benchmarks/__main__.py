"""`python -m benchmarks`: the matrix-free converged adjoint on a large beam, over its forward solve."""

import json
import time

import jax

jax.config.update("jax_enable_x64", True)

from diffsim import Adjoint, trees  # noqa: E402
from diffsim.experiments.result import versions  # noqa: E402
from diffsim.scenes import make  # noqa: E402
from diffsim.solvers import Newton  # noqa: E402


def seconds(function, argument, repeats=3):
    """Best wall time of a compiled function."""
    best = float("inf")
    for _ in range(repeats):
        started = time.perf_counter()
        jax.block_until_ready(function(argument))
        best = min(best, time.perf_counter() - started)
    return best


def beam(along, across, linear_iterations):
    """One implicit Euler step of the beam: time of the adjoint solve over the forward solve, and its accuracy."""
    solver = Newton(iterations=3, line_search=False, linear="cg", linear_iterations=linear_iterations)
    scene = make("beam", along=along, across=across, solver=solver, steps=1)
    claim = Adjoint.parse("converged/adjoint-solve(cg)/store-all")
    forward = jax.jit(scene.value).lower(scene.params).compile()
    both = jax.jit(jax.value_and_grad(lambda p: scene.value(p, adjoint=claim))).lower(scene.params).compile()
    gradient = both(scene.params)[1]
    name, largest = max(scene.params.items(), key=lambda item: item[1].size)
    step = 1e-5 * float(trees.largest(largest))
    plus, minus = ({**scene.params, name: largest + sign * step} for sign in (1, -1))
    secant = (forward(plus) - forward(minus)) / (2 * step)
    forward_s, both_s = seconds(forward, scene.params), seconds(both, scene.params)
    return {
        "unknowns": 2 * along * (across + 1),
        "forward_s": forward_s,
        "adjoint_over_forward": (both_s - forward_s) / forward_s,
        "error_against_secant": abs(float(gradient[name].sum() - secant)) / abs(float(secant)),
    }


if __name__ == "__main__":
    print(json.dumps({"versions": versions(), "beam": [beam(16, 2, 200), beam(168, 14, 1200)]}, indent=1))
