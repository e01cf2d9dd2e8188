"""What a solve was like, returned as data."""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

__all__ = ["SolveReceipt"]


class SolveReceipt(NamedTuple):
    r"""How far an iterative solve got. It carries no derivative.

    $$r_k = \max_i |R_i(u_k)|, \qquad \rho \approx \sqrt{r_k / r_{k-2}}$$

    Attributes:
        iterations: number of iterations that were run.
        residual: r after the last of them, the largest |R_i(u)|, in the residual's unit.
        contraction: ρ, the factor by which an iteration multiplies r, from the last three iterates with r above
            round-off (1000 machine epsilons of the first r); NaN when there are fewer than three.

    Wrong when: convergence is not linear. For Newton's method ρ only says how the last two steps went, and for
    conjugate gradients r need not fall at every step.

    Example:
        >>> from diffsim.solvers import Picard
        >>> u, receipt = Picard(iterations=6).solve(lambda u: u - (0.5 * u + 1.0), jnp.array(0.0))
        >>> int(receipt.iterations), float(receipt.residual), float(receipt.contraction)
        (6, 0.015625, 0.5)
    """

    iterations: Int[Array, "*batch"]
    residual: Float[Array, "*batch"]
    contraction: Float[Array, "*batch"]

    def problems(self, *, residual: float = 1e-6) -> list[str]:
        """What is wrong with the solve, one sentence each; an empty list when nothing is.

        Example:
            >>> from diffsim.solvers import Picard
            >>> u, receipt = Picard(iterations=6).solve(lambda u: 0.5 * u - 1.0, jnp.array(0.0))
            >>> receipt.problems()  # doctest: +NORMALIZE_WHITESPACE
            ['the residual is still 1.6e-02 after 6 iterations, above 1.0e-06; at a contraction of 0.50 per
             iteration it takes about 14 more']
        """
        broken = ~jnp.isfinite(self.residual)
        short = ~broken & (self.residual > residual)
        growing = short & (self.contraction >= 1)
        slow = short & ~growing
        most, worst = jnp.max(self.iterations), jnp.max(jnp.where(short, self.residual, 0.0))
        rate = jnp.max(jnp.where(short & jnp.isfinite(self.contraction), self.contraction, 0.0))
        more = (
            f"at a contraction of {rate:.2f} per iteration it takes about "
            f"{jnp.ceil(jnp.log(residual / worst) / jnp.log(rate)):.0f} more"
            if 0 < rate < 1
            else "give it more iterations"
        )
        facts = [
            (
                broken,
                f"the solve is not finite after {most} iterations: it diverged or met a singular Jacobian; a better "
                "guess, a smaller h or stronger damping is the first thing to try",
            ),
            (
                growing,
                f"the residual is {worst:.1e} after {most} iterations and does not shrink (factor {rate:.2f} per "
                "iteration): the iteration diverges; lower its relaxation or rate, or use Newton",
            ),
            (slow, f"the residual is still {worst:.1e} after {most} iterations, above {residual:.1e}; {more}"),
        ]
        return [sentence for happened, sentence in facts if bool(jnp.any(happened))]

    def raise_if_bad(self, *, residual: float = 1e-6) -> None:
        """FloatingPointError with the first of `problems`, if there is any.

        Example:
            >>> from diffsim.solvers import Newton
            >>> Newton(iterations=6).solve(lambda u: u * u - 2.0, jnp.array(1.0))[1].raise_if_bad()
        """
        found = self.problems(residual=residual)
        if found:
            raise FloatingPointError(found[0] + ".")
