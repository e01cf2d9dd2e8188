"""Energies whose minimum is one implicit step, and potentials made of constraints."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from diffsim import trees

__all__ = ["Constraints", "IncrementalPotential", "spread"]


class IncrementalPotential(NamedTuple):
    r"""The energy that a backward Euler step of a mechanical system minimises.

    $$E(u) = \tfrac{1}{2h^2}(u-\tilde q)^T M (u-\tilde q) + V(u, p)$$

    Attributes:
        potential: `V(q, p)` [J], a scalar.
        mass: M [kg], a number or arrays that broadcast to q without adding axes, or a pytree of such with q's structure.
        target: q̃, the position reached with no force from V, a pytree of positions.
        params: p.
        h: step size [s].

    Source: {cite}`martin2011example`.

    Example:
        >>> E = IncrementalPotential(lambda q, p: 0.5 * p * q**2, 1.0, jnp.array(1.0), 3.0, 1.0)
        >>> float(E(jnp.array(0.25))), float(E.gradient(jnp.array(0.25)))
        (0.375, 0.0)
    """

    potential: Callable
    mass: PyTree
    target: PyTree
    params: PyTree
    h: float

    def __call__(self, u: PyTree) -> Float[Array, ""]:
        """E(u) [J]."""
        gap = trees.subtract(u, self.target)
        inertia = jax.tree.map(lambda a, b: jnp.sum(a * b), self._weighted(gap), gap)
        return 0.5 * sum(jax.tree.leaves(inertia)) + self.potential(u, self.params)

    def gradient(self, u: PyTree) -> PyTree:
        """∇E(u) = M (u - q̃)/h² + ∇V(u, p) [N]; its Jacobian is symmetric."""
        return trees.add(self._weighted(trees.subtract(u, self.target)), jax.grad(self.potential)(u, self.params))

    def _weighted(self, gap):
        return jax.tree.map(lambda m, a: m * a / self.h**2, spread(self.mass, gap, "mass"), gap)


def spread(value: PyTree, q: PyTree, what: str) -> PyTree:
    """One value for every leaf of q: `value` itself when it has q's structure, otherwise the same for all leaves.

    Example:
        >>> spread(2.0, (jnp.array(1.0), jnp.array([3.0])), "mass")
        (2.0, 2.0)
    """
    same = cast(Any, jax.tree.structure(value)) == jax.tree.structure(q)
    each = value if same else jax.tree.map(lambda _: value, q)
    for one, leaf in zip(jax.tree.leaves(each), jax.tree.leaves(q), strict=True):
        if jnp.ndim(one) not in (0, jnp.ndim(leaf)):
            raise ValueError(
                f"{what} has shape {jnp.shape(one)} and the positions {jnp.shape(leaf)}; write a number, or an array with "
                f"as many axes as the positions, for example {what}[:, None] or {what}[None, :]."
            )
    return each


@dataclass(frozen=True)
class Constraints:
    r"""A potential made of m compliant constraints, each on k of the n points.

    $$V(q, p) = \sum_j \frac{C_j(q)^2}{2\,\alpha_j(p)}$$

    It is callable like any potential `V(q, p)`, so every solver takes it; `XPBD` also looks inside.

    Attributes:
        value: `C(x, theta)`, one constraint's scalar from its points x (k, d) and its own parameters.
        points: m tuples of k point numbers each.
        compliance: `α(p)` (m,), the inverse of a stiffness: [m/N] for a C in [m]. Positive; as it goes to 0, V stiffens.
        parameters: `theta(p)`, a pytree with leading axis m, for example rest lengths; nothing when left out.

    Example:
        >>> spring = Constraints(lambda x, rest: jnp.linalg.norm(x[1] - x[0]) - rest, ((0, 1),),
        ...                      compliance=lambda p: 1 / p["k"], parameters=lambda p: p["rest"])
        >>> q, p = jnp.array([[0.0, 0.0], [2.0, 0.0]]), {"k": jnp.array([10.0]), "rest": jnp.array([1.5])}
        >>> float(spring(q, p))
        1.25
    """

    value: Callable
    points: tuple[tuple[int, ...], ...]
    compliance: Callable
    parameters: Callable = lambda p: ()

    def __call__(self, q: Float[Array, "n d"], p: PyTree) -> Float[Array, ""]:
        C = jax.vmap(self.value)(q[np.array(self.points)], self.parameters(p))
        return jnp.sum(C**2 / (2 * self.compliance(p)))

    def colours(self) -> tuple[np.ndarray, ...]:
        """Constraint numbers in groups of which no two share a point, greedily.

        Example:
            >>> chain = Constraints(lambda x, _: x[1] - x[0], ((0, 1), (1, 2), (2, 3)), lambda p: p)
            >>> [group.tolist() for group in chain.colours()]
            [[0, 2], [1]]
        """
        groups: list[tuple[list[int], set[int]]] = []
        for j, points in enumerate(self.points):
            members, taken = next((g for g in groups if g[1].isdisjoint(points)), ([], set()))
            if not members:
                groups.append((members, taken))
            members.append(j)
            taken.update(points)
        return tuple(np.array(members) for members, _ in groups)
