"""What the chapters use: checkpoints, explorers, figures, and the versions that a page was made with."""

from diffsim.book.checkpoint import CheckFailed, check, check_claims, checkpoint_table
from diffsim.book.explorer import Animation, Explorer
from diffsim.book.figures import show, use_style
from diffsim.book.sortable import SortableTable

__all__ = [
    "Animation",
    "CheckFailed",
    "Explorer",
    "SortableTable",
    "check",
    "check_claims",
    "checkpoint_table",
    "show",
    "use_style",
    "versions",
]


def versions() -> None:
    """Print what this page was made with.

    Example:
        >>> versions()  # doctest: +ELLIPSIS
        python 3..., jax ...
    """
    from diffsim.experiments.result import versions

    print(", ".join(f"{name} {value}" for name, value in versions().items()))
