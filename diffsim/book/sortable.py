"""SortableTable: a table that a reader can sort and filter on the page, and that reads as well without scripts."""

import html
import math
from collections.abc import Mapping, Sequence
from importlib import resources
from numbers import Real
from typing import Any

from diffsim.book.explorer import _text

__all__ = ["SortableTable"]


class SortableTable:
    """Rows as a table; on the page, a heading sorts its column by click, Enter or Space, and a list filters one.

    The element is self-contained HTML with its own script and asks for nothing from elsewhere. Without scripts, in a
    PDF and in a terminal it is a plain table.

    Args:
        rows: one mapping a row, from heading to value; a value that is missing leaves its cell empty.
        caption: what the table shows.
        filters: headings of the columns to filter by.

    Raises:
        ValueError: no rows, no caption, or a filter for a column that isn't there.

    Example:
        >>> SortableTable([{"scene": "ball", "steps": 8}, {"scene": "wall", "steps": 16}], caption="Two scenes")
        Two scenes
        scene  steps
        ball   8
        wall   16
    """

    def __init__(self, rows: Sequence[Mapping[str, Any]], *, caption: str, filters: tuple[str, ...] = ()):
        self._columns = list(dict.fromkeys(name for row in rows for name in row))
        self._rows = [[row.get(name) for name in self._columns] for row in rows]
        self._caption, self._filters = caption, filters
        if not self._columns:
            raise ValueError("SortableTable needs at least one row with a column, such as [{'scene': 'ball'}].")
        if not caption.strip():
            raise ValueError("SortableTable needs a caption: say what the table shows.")
        if unknown := [name for name in filters if name not in self._columns]:
            raise ValueError(
                f"SortableTable can't filter by {', '.join(unknown)}; its columns are {', '.join(self._columns)}."
            )

    def __repr__(self):
        table = [self._columns, *([_cell(value) for value in row] for row in self._rows)]
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        lines = ["  ".join(map(str.ljust, line, widths)).rstrip() for line in table]
        return "\n".join([self._caption, *lines])

    def html(self) -> str:
        """The element for the page.

        Example:
            >>> "<caption>One scene</caption>" in SortableTable([{"scene": "ball"}], caption="One scene").html()
            True
        """
        script = resources.files("diffsim.book").joinpath("sortable.js").read_text(encoding="utf-8")
        heads = "".join(f'<th scope="col">{html.escape(name)}</th>' for name in self._columns)
        body = "".join(f"<tr>{''.join(map(_td, row))}</tr>" for row in self._rows)
        lists = "".join(map(self._filter, self._filters))
        caption = html.escape(self._caption)
        # The label holds its list, and nothing has an id: two copies of the element on a page don't meet.
        return (
            '<div class="diffsim-sortable">'
            + (f'<div class="diffsim-controls" data-filters hidden>{lists}</div>' if lists else "")
            + f'<p data-say aria-live="polite">{len(self._rows)} rows.</p>'
            f'<div class="diffsim-table" tabindex="0" role="group" aria-label="{caption}"><table>'
            f"<caption>{caption}</caption><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table></div>"
            f"<script>{script}</script></div>"
        )

    def _filter(self, name):
        column = self._columns.index(name)
        values = sorted((row[column] for row in self._rows), key=_order)
        texts = list(dict.fromkeys(map(_cell, values)))
        options = "".join(
            f'<option value="{html.escape(text)}">{html.escape(text) or "(empty)"}</option>' for text in texts
        )
        return (
            f"<label><span>{html.escape(name)}</span> "
            f'<select data-column="{column}"><option value="">all</option>{options}</select></label>'
        )

    def _repr_mimebundle_(self, include=None, exclude=None):
        return {"text/html": self.html(), "text/plain": repr(self)}


def _cell(value) -> str:
    return "" if value is None else _text(value)


def _is_number(value) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool) and not math.isnan(value)


def _order(value):
    return (0, float(value), "") if _is_number(value) else (1, 0.0, _cell(value))


def _td(value) -> str:
    # The text of a number is rounded; it sorts by its value, spelled as JavaScript reads it.
    number = f' data-number="{repr(float(value)).replace("inf", "Infinity")}"' if _is_number(value) else ""
    return f"<td{number}>{html.escape(_cell(value))}</td>"
