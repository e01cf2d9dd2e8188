"""Visible checkpoints: a number, what it should be, within what, and why; the same call serves reader, test and grader."""

import html
from dataclasses import dataclass
from typing import Any

import numpy as np

__all__ = ["CheckFailed", "Checkpoints", "check", "check_claims", "checkpoint_table"]


class CheckFailed(AssertionError):
    """A checkpoint that doesn't hold; the message says what was got and what was expected.

    Example:
        >>> issubclass(CheckFailed, AssertionError)
        True
    """


@dataclass(frozen=True)
class _Row:
    name: str
    got: str
    expected: str
    why: str
    holds: bool

    def __str__(self):
        return f"{'ok' if self.holds else 'FAILED'}: {self.name}: {self.got}, expected {self.expected}. {self.why}"


_rows: list[_Row] = []


def check(
    name: str,
    got: Any,
    want: Any = None,
    *,
    rtol: float | int = 0.0,
    atol: float | int = 0.0,
    at_most: float | int | None = None,
    at_least: float | int | None = None,
    why: str,
) -> None:
    """Print value, expectation and reason; add a row to the page's table; raise when it doesn't hold.

    Give exactly one of `want` (met within atol + rtol·|want|, entry by entry), `at_most` and `at_least`. Text and
    truth values are compared for equality, and whole numbers as such, to the last digit. NaN, a value without numbers,
    and another shape than that of `want` fail. An infinite value is met only by itself.

    Raises:
        CheckFailed: the value is not what was expected.
        ValueError: the check itself can't judge: no expectation, two of them, no reason, or a bound or tolerance that
            is no finite number.

    Example:
        >>> check("sum", 0.1 + 0.2, 0.3, rtol=1e-12, why="rounding only")
        ok: sum: 0.3, expected 0.3 within 1e-12 relative. rounding only
        >>> check("error", 0.5, at_most=0.1, why="converged")
        Traceback (most recent call last):
        diffsim.book.checkpoint.CheckFailed: FAILED: error: 0.5, expected at most 0.1. converged
    """
    bounds = [("at most", at_most, np.less_equal), ("at least", at_least, np.greater_equal)]
    given = [bound for bound in bounds if bound[1] is not None]
    if len(given) + (want is not None) != 1:
        raise ValueError(f"check({name!r}) needs exactly one of want, at_most and at_least to compare with.")
    if not isinstance(why, str) or not why.strip():
        raise ValueError(f"check({name!r}) needs a reason; write why=… in a few words.")
    if not (0 <= rtol < np.inf and 0 <= atol < np.inf):
        raise ValueError(
            f"check({name!r}) can't judge within rtol={rtol}, atol={atol}; write finite numbers from 0 up."
        )
    if given:
        word, bound, compare = given[0]
        if not _is_finite_number(bound):
            raise ValueError(
                f"check({name!r}) can't judge by {word.replace(' ', '_')}={bound!r}; write a finite number."
            )
        expected, holds, remark = f"{word} {_show(bound)}", _all(got, bound, compare), ""
    else:
        expected = _show(want) + _tolerance(rtol, atol)
        holds = _equal(got, want, rtol, atol)
        remark = "" if holds else _remark(got, want)
    row = _Row(name, _show(got) + remark, expected, why, holds)
    _rows.append(row)
    if not holds:
        raise CheckFailed(str(row))
    print(row)


def check_claims(result) -> None:
    """One checkpoint for every claim of an experiment's `Result`.

    Example:
        >>> from diffsim.experiments import Claim, Result
        >>> check_claims(Result("demo", {}, {}, [], [Claim.at_most("e", "error", 1e-16, 1e-12)]))
        ok: e: 1e-16, expected <= 1e-12. error
    """
    for claim in result.claims:
        row = _Row(claim.id, _show(claim.got), f"{_show(claim.want)} ({claim.tolerance})", claim.statement, claim.holds)
        if claim.tolerance in ("<=", ">=", "=="):
            row = _Row(
                claim.id, _show(claim.got), f"{claim.tolerance} {_show(claim.want)}", claim.statement, claim.holds
            )
        _rows.append(row)
        if not row.holds:
            raise CheckFailed(str(row))
        print(row)


def _array(value, kinds):
    try:
        array = np.asarray(value)
    except (TypeError, ValueError):
        return None
    return array if array.dtype.kind in kinds else None


def _numbers(value):
    if type(value) is int:
        return np.array(value, object)  # it may be larger than any of NumPy's
    array = _array(value, "iuf")
    if array is None:
        return None
    # Python's integers for whole numbers: in float64, neighbours beyond 2**53 would be equal.
    return array.astype(float if array.dtype.kind == "f" else object)


def _is_finite_number(value):
    values = _numbers(value)
    return values is not None and values.ndim == 0 and abs(values.item()) < np.inf


def _all(got, bound, compare):
    values = _numbers(got)
    return values is not None and values.size > 0 and bool(np.all(compare(values, _numbers(bound).item())))


def _equal(got, want, rtol, atol):
    if isinstance(want, str):
        return isinstance(got, str) and got == want
    truths, wanted = _array(got, "b"), _array(want, "b")
    if wanted is not None:
        return truths is not None and truths.size > 0 and np.array_equal(truths, wanted)
    values, wanted = _numbers(got), _numbers(want)
    if values is None or wanted is None or values.shape != wanted.shape or not values.size:
        return False
    size = abs(wanted)
    tolerance = atol + rtol * size if rtol else atol  # 0 * inf is no number
    with np.errstate(invalid="ignore"):  # inf - inf
        # Without a tolerance only == counts: a difference of an integer and a float is rounded.
        near = (size < np.inf) & (tolerance > 0) & (abs(values - wanted) <= tolerance)
    return bool(np.all((values == wanted) | near))


def _remark(got, want) -> str:
    """Which entry is off most, or more digits, where what is printed would look as it should."""
    values, wanted = _numbers(got), _numbers(want)
    if values is None or wanted is None:
        return ""
    if values.shape != wanted.shape:
        return f" of shape {values.shape} instead of {wanted.shape}"
    if values.size == 0:
        return ""
    if values.ndim == 0:
        return f" (to all digits {values.item()}, not {wanted.item()})" if _show(got) == _show(want) else ""
    with np.errstate(invalid="ignore"):
        gap = np.asarray(abs(values - wanted), float)
    at = np.unravel_index(np.argmax(np.nan_to_num(gap, nan=np.inf)), gap.shape)
    return f" (worst at {list(map(int, at))}: {values[at]}, not {wanted[at]})"


def _show(value) -> str:
    values = _numbers(value)
    if isinstance(value, str) or values is None:
        return str(value)
    if values.ndim == 0:
        return str(values) if values.dtype == object else f"{float(values):.6g}"
    if values.size <= 6:
        return "[" + ", ".join(f"{v:.4g}" for v in values.ravel()) + "]"
    return f"{values.size} values from {values.min():.4g} to {values.max():.4g}"


def _tolerance(rtol, atol) -> str:
    parts = [f"{size:g} {word}" for size, word in ((atol, "absolute"), (rtol, "relative")) if size]
    return f" within {' and '.join(parts)}" if parts else " exactly"


class Checkpoints:
    """The page's checkpoints so far, as an accessible table.

    Example:
        >>> Checkpoints(()).__repr__()
        '0 checkpoints'
    """

    def __init__(self, rows):
        self._rows = tuple(rows)

    def __repr__(self):
        return "\n".join([f"{len(self._rows)} checkpoints", *map(str, self._rows)])

    def _repr_html_(self):
        head = "".join(f'<th scope="col">{name}</th>' for name in ("checkpoint", "value", "expected", "why", "holds"))
        body = "".join(
            "<tr>"
            + f'<th scope="row">{html.escape(row.name)}</th>'
            + "".join(f"<td>{html.escape(text)}</td>" for text in (row.got, row.expected, row.why))
            + f"<td>{'yes' if row.holds else 'NO'}</td></tr>"
            for row in self._rows
        )
        return (
            '<div class="diffsim-table" tabindex="0" role="region" aria-label="Checkpoints of this page">'
            f'<table class="diffsim-checkpoints"><caption>{len(self._rows)} checkpoints of this page</caption>'
            f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
        )


def checkpoint_table() -> Checkpoints:
    """All checkpoints since the page began.

    Example:
        >>> isinstance(checkpoint_table(), Checkpoints)
        True
    """
    return Checkpoints(_rows)
