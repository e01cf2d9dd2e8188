"""Extended position-based dynamics: constraints projected one after the other."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from diffsim.solvers.iteration import Iterative, iterate, ratio
from diffsim.solvers.potential import Constraints, IncrementalPotential
from diffsim.solvers.receipt import SolveReceipt

__all__ = ["XPBD"]


@dataclass(frozen=True)
class XPBD(Iterative):
    r"""Constraint projection with compliance, in coloured Gauss–Seidel or in Jacobi sweeps.

    For each constraint C_j with multiplier λ_j, gradient ∇C_j and α̃_j = α_j/h², in turn

    $$\Delta\lambda = \frac{-C_j - \tilde\alpha_j \lambda_j}{\nabla C_j^T M^{-1} \nabla C_j + \tilde\alpha_j}, \qquad
    \lambda_j \mathrel{+}= \omega\,\Delta\lambda, \qquad u \mathrel{+}= \omega\,M^{-1} \nabla C_j\,\Delta\lambda$$

    `solve` needs `energy=IncrementalPotential(Constraints(…), …)`, which `implicit_euler_potential` hands it when
    its potential is a `Constraints`. It starts from λ = 0, and so its guess has to be the energy's target q̃.

    Attributes:
        sweeps: passes over all constraints; the most of them with a `tol`.
        relaxation: ω. For order "jacobi" at most 1 over the number of constraints that meet in a point, roughly.
        order: "gauss-seidel" goes through the colours of the constraints, whose members share no point and move at
            once; "jacobi" moves all constraints at once, from the same positions.
        tol: stop once max|∇E| <= tol [N]; static count when left out.

    Derivative of: the executed sweeps.

    Wrong when: C is nonlinear. Earlier moves keep the gradients of earlier positions, so the sweeps settle near
    the root of ∇E, not at it, and the receipt's residual levels off; for linear C they converge to it. Pinned
    points: leave them out of u. For α = 0 the projection is fine but E and the receipt's residual are not finite.

    Source: {cite}`macklin2016xpbd`.

    Example:
        >>> spring = Constraints(lambda x, _: x[1, 0] - x[0, 0] - 1.0, ((0, 1),), compliance=lambda p: 1 / p)
        >>> E = IncrementalPotential(spring, 1.0, jnp.array([[0.0], [2.0]]), jnp.array([1.0]), 1.0)
        >>> u, receipt = XPBD(sweeps=2).solve(E.gradient, E.target, energy=E)
        >>> [round(float(a), 4) for a in u[:, 0]], receipt.problems()
        ([0.3333, 1.6667], [])
    """

    sweeps: int
    relaxation: float = 1.0
    order: str = "gauss-seidel"
    tol: float | None = None
    name: ClassVar[str] = "xpbd"
    counts: ClassVar[tuple[str, ...]] = ("sweeps",)

    def __post_init__(self):
        super().__post_init__()
        if self.order not in ("gauss-seidel", "jacobi"):
            raise ValueError(f"XPBD(order={self.order!r}): no such order; write 'gauss-seidel' or 'jacobi'.")

    def solve(
        self, residual: Callable, guess: Float[Array, "n d"], *, energy: Callable | None = None
    ) -> tuple[Float[Array, "n d"], SolveReceipt]:
        if not (isinstance(energy, IncrementalPotential) and isinstance(energy.potential, Constraints)):
            raise TypeError(
                f"XPBD projects constraints, and energy={energy!r} has none to show; write "
                "energy=IncrementalPotential(Constraints(…), …), or use another solver."
            )
        constraints, p = energy.potential, energy.params
        compliance = constraints.compliance(p) / energy.h**2
        theta = constraints.parameters(p)
        lightness = jnp.broadcast_to(1 / jnp.asarray(energy.mass, guess.dtype), guess.shape)
        groups = constraints.colours() if self.order == "gauss-seidel" else (np.arange(len(constraints.points)),)

        def project(u, multiplier, group):
            points = np.array(constraints.points)[group]
            C, slope = jax.vmap(jax.value_and_grad(constraints.value))(
                u[points], jax.tree.map(lambda a: a[group], theta)
            )
            softness = compliance[group]
            move = lightness[points] * slope
            change = ratio(-C - softness * multiplier[group], jnp.sum(slope * move, axis=(1, 2)) + softness)
            change = self.relaxation * change
            return u.at[points].add(move * change[:, None, None]), multiplier.at[group].add(change)

        def sweep(u, r, multiplier):
            for group in groups:
                u, multiplier = project(u, multiplier, group)
            return u, multiplier

        return iterate(sweep, residual, guess, jnp.zeros_like(compliance), iterations=self.sweeps, tol=self.tol)
