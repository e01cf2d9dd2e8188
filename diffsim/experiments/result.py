"""What an experiment returns: a table of measurements and the claims that were checked on it."""

import json
import math
import os
import platform
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import jax
import jaxlib
import numpy as np
from jax.typing import ArrayLike

from diffsim.version import __version__

__all__ = ["Claim", "Result", "versions"]


@dataclass(frozen=True)
class Claim:
    """One statement, what was measured, and whether it holds. Make one with the class methods: they compare.

    Attributes:
        id: short and stable, unique within the experiment.
        statement: what is compared, in words, with units where it has any.
        got: the measured value.
        want: the value or bound that it is compared with.
        tolerance: how they were compared: `==`, `<=`, `>=`, `atol=…`, `rtol=…` or `rtol=…, atol=…`.
        holds: the outcome; never true of a NaN.

    Example:
        >>> Claim.close("slope", "memory grows as T^e", 0.51, 0.5, atol=0.05).holds
        True
    """

    id: str
    statement: str
    got: float | int | bool | str
    want: float | int | bool | str
    tolerance: str
    holds: bool

    @classmethod
    def close(
        cls,
        id: str,
        statement: str,
        got: ArrayLike,
        want: ArrayLike,
        *,
        rtol: float | int = 0.0,
        atol: float | int = 0.0,
    ) -> "Claim":
        """|got − want| ≤ atol + rtol·|want|, both finite.

        Raises:
            ValueError: no tolerance, or one that isn't a finite number ≥ 0.

        Example:
            >>> Claim.close("g", "gradient", float("nan"), 1.0, rtol=1e-6).holds
            False
        """
        if not (rtol > 0 or atol > 0) or not (0 <= rtol < math.inf and 0 <= atol < math.inf):
            raise ValueError(f"claim {id!r}: rtol={rtol}, atol={atol} is no tolerance; exact is Claim.equal")
        g, w = _number(got), _number(want)
        finite = math.isfinite(g) and math.isfinite(w)
        tolerance = ", ".join(f"{name}={size:g}" for name, size in (("rtol", rtol), ("atol", atol)) if size)
        return cls(id, statement, g, w, tolerance, finite and abs(g - w) <= atol + rtol * abs(w))

    @classmethod
    def at_most(cls, id: str, statement: str, got: ArrayLike, bound: ArrayLike) -> "Claim":
        """Got ≤ bound.

        Example:
            >>> Claim.at_most("e", "error", 3e-16, 1e-12).holds
            True
        """
        g, b = _number(got), _number(bound)
        return cls(id, statement, g, b, "<=", g <= b)

    @classmethod
    def at_least(cls, id: str, statement: str, got: ArrayLike, bound: ArrayLike) -> "Claim":
        """Got ≥ bound.

        Example:
            >>> Claim.at_least("r", "memory saved, ratio", 90.0, 100).holds
            False
        """
        g, b = _number(got), _number(bound)
        return cls(id, statement, g, b, ">=", g >= b)

    @classmethod
    def equal(cls, id: str, statement: str, got: ArrayLike | str, want: ArrayLike | str) -> "Claim":
        """Got = want, exactly: two numbers or two texts.

        Example:
            >>> Claim.equal("bits", "round trip, distance from the start", 0.0, 0).holds
            True
        """
        g, w = (value if isinstance(value, str) else _number(value) for value in (got, want))
        return cls(id, statement, g, w, "==", g == w)


def _number(value: ArrayLike) -> float | int | bool:
    return np.asarray(value).item()  # refuses all but one number, in words


@dataclass(frozen=True)
class Result:
    """The outcome of an experiment, as printed, stored and plotted.

    Attributes:
        experiment: its name in `EXPERIMENTS`.
        settings: what was run, by name.
        versions: of what it ran on, from `versions()`.
        rows: the table, one mapping from column to value a row; a row may lack columns.
        claims: what was checked.

    Example:
        >>> claim = Claim.at_most("error", "largest error", 2e-16, 1e-12)
        >>> result = Result("demo", {"steps": 8}, {}, [{"T": 8, "error": 2e-16}], [claim])
        >>> print(result.to_text())
        demo
        settings: steps=8
        versions:
        <BLANKLINE>
        T  error
        8  2e-16
        <BLANKLINE>
        holds  claim    got   want  tolerance  statement
        yes    error  2e-16  1e-12  <=         largest error
        <BLANKLINE>
        1 of 1 claims hold
    """

    experiment: str
    settings: Mapping[str, Any]
    versions: Mapping[str, Any]
    rows: Sequence[Mapping[str, Any]]
    claims: Sequence[Claim]

    @property
    def holds(self) -> bool:
        """Whether every claim holds. Without claims nothing was shown, so that is False.

        Example:
            >>> Result("demo", {}, {}, [], []).holds
            False
        """
        return bool(self.claims) and all(claim.holds for claim in self.claims)

    def to_json(self) -> str:
        """Strict JSON: an object of experiment, settings, versions, rows and claims.

        JSON has no NaN and no infinity; they are written as the strings "nan", "inf" and "-inf". Arrays become
        lists, NumPy and JAX scalars numbers, tuples lists.

        Raises:
            TypeError: a value that has no such form, and where it is.

        Example:
            >>> json.loads(Result("demo", {}, {}, [{"error": math.nan}], []).to_json())["rows"]
            [{'error': 'nan'}]
        """
        fields = {
            "experiment": self.experiment,
            "settings": self.settings,
            "versions": self.versions,
            "rows": self.rows,
            "claims": [asdict(claim) for claim in self.claims],
        }
        return json.dumps(_plain(fields, "result"), indent=1, allow_nan=False, ensure_ascii=False) + "\n"

    def write(self, path: Path) -> None:
        """Write the JSON to a file, whole or not at all.

        Raises:
            OSError: the file or its folder can't be written.

        Example:
            >>> import tempfile
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     Result("demo", {}, {}, [], []).write(Path(folder) / "demo.json")
            ...     os.listdir(folder)
            ['demo.json']
        """
        text = self.to_json()
        path = path.resolve()  # a link keeps pointing at what it points at
        scratch = path.with_name(f".{path.name}.{os.getpid()}")
        try:
            scratch.write_text(text, encoding="utf-8", newline="\n")
            scratch.replace(path)
        finally:
            scratch.unlink(missing_ok=True)

    def to_text(self) -> str:
        """The table and the claims, in aligned columns for a terminal.

        Example:
            >>> Result("demo", {}, {}, [], []).to_text().splitlines()[-1]
            '0 of 0 claims hold'
        """
        claims = [
            {
                "holds": "yes" if claim.holds else "NO",
                "claim": claim.id,
                "got": claim.got,
                "want": claim.want,
                "tolerance": claim.tolerance,
                "statement": claim.statement,
            }
            for claim in self.claims
        ]
        blocks = [
            f"{self.experiment}\nsettings: {_listing(self.settings)}\nversions: {_listing(self.versions)}",
            _table(self.rows),
            _table(claims),
            f"{sum(claim.holds for claim in self.claims)} of {len(self.claims)} claims hold",
        ]
        return "\n\n".join(block for block in blocks if block)


def versions() -> dict[str, str | int]:
    """What the numbers were made with: Python, the libraries, the machine and its number of processors.

    Example:
        >>> list(versions())
        ['python', 'jax', 'jaxlib', 'numpy', 'diffsim', 'machine', 'cpus']
    """
    return {
        "python": platform.python_version(),
        "jax": jax.__version__,
        "jaxlib": jaxlib.__version__,
        "numpy": np.__version__,
        "diffsim": __version__,
        "machine": f"{sys.platform} {platform.machine()}",
        "cpus": os.cpu_count() or 1,
    }


def _plain(value: Any, where: str) -> Any:
    match value:
        case np.ndarray() | np.generic() | jax.Array():
            return _plain(np.asarray(value).tolist(), where)
        case float():
            return value if math.isfinite(value) else str(value)
        case None | bool() | int() | str():
            return value
        case Mapping():
            return {str(key): _plain(item, f"{where}.{key}") for key, item in value.items()}
        case list() | tuple():
            return [_plain(item, f"{where}[{index}]") for index, item in enumerate(value)]
    raise TypeError(f"{where} is a {type(value).__name__}, which JSON can't hold: give a number, text, list or mapping")


def _listing(mapping: Mapping[str, Any]) -> str:
    return ", ".join(f"{key}={_cell(value)}" for key, value in mapping.items())


def _cell(value: Any) -> str:
    value = _plain(value, "cell")
    if isinstance(value, float):
        return f"{value:.4g}"
    return "-" if value is None else str(value)


def _table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Columns in the order of their first appearance; numbers to the right, text to the left."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    columns = []
    for name in names:
        values = [_plain(row.get(name), name) for row in rows]
        cells = [name, *map(_cell, values)]
        width = max(map(len, cells))
        text = any(isinstance(value, str) and not _spelt_number(value) for value in values)
        columns.append([cell.ljust(width) if text else cell.rjust(width) for cell in cells])
    return "\n".join("  ".join(line).rstrip() for line in zip(*columns, strict=True))


def _spelt_number(text: str) -> bool:
    return text in ("nan", "inf", "-inf")
