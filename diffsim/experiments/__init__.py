"""The experiments: one module each, settings in, a table and claims out. Chapters call and plot them.

A new experiment is a module with a `run` of the form of `Experiment`, and one line in `EXPERIMENTS`.
"""

import difflib
import importlib
from collections.abc import Callable
from typing import Protocol, cast, runtime_checkable

from diffsim.experiments.result import Claim, Result, versions

__all__ = ["EXPERIMENTS", "Claim", "Experiment", "Result", "load", "versions"]

EXPERIMENTS: dict[str, str] = {
    "exactness-memory": "diffsim.experiments.exactness_memory",
    "referents": "diffsim.experiments.referents",
}
"""Name → module, imported only when asked for."""


@runtime_checkable
class Experiment(Protocol):
    """What a module in `EXPERIMENTS` offers.

    Example:
        >>> callable(load("exactness-memory").run)
        True
    """

    def run(self, *, full: bool, seed: int, progress: Callable[[str], None]) -> Result:
        """Measure, and check what the experiment is claimed to show.

        Args:
            full: the large setting instead of the one that fits a chapter.
            seed: of everything random in it.
            progress: called with one line of text whenever there is something to say.
        """
        ...


def load(name: str) -> Experiment:
    """The experiment of that name.

    Raises:
        ValueError: no experiment has that name; the message names the nearest one.

    Example:
        >>> load("exactness")
        Traceback (most recent call last):
        ValueError: there is no experiment 'exactness', did you mean 'exactness-memory'?
    """
    if name not in EXPERIMENTS:
        nearest = difflib.get_close_matches(name, EXPERIMENTS, n=1)
        hint = f"did you mean {nearest[0]!r}?" if nearest else f"choose from: {', '.join(EXPERIMENTS)}"
        raise ValueError(f"there is no experiment {name!r}, {hint}")
    return cast(Experiment, importlib.import_module(EXPERIMENTS[name]))
