"""Student notebooks: the chapters without their solutions, derived and never kept by hand."""

import copy
import json
from pathlib import Path

__all__ = ["student_version", "write_student_notebooks"]

STUB = "exercise"
SOLUTION = "solution"
OPEN, CLOSE = "{solution-start}", "{solution-end}"


def student_version(notebook: dict) -> dict:
    """The notebook without solutions.

    Cells tagged `solution` go, and so does every cell between a `{solution-start}` and a `{solution-end}`. Cells
    tagged `exercise`, the stubs, stay and become nbgrader's "manually written, autograded by the next cell"
    answers; cells tagged `self-check` become its locked tests.

    Example:
        >>> cell = {"cell_type": "code", "metadata": {"tags": ["solution"]}, "source": ["x = 1"]}
        >>> student_version({"cells": [cell]})["cells"]
        []
    """
    kept: list[dict] = []
    inside = False
    for cell in copy.deepcopy(notebook["cells"]):
        text, tags = "".join(cell["source"]), cell["metadata"].get("tags", [])
        if cell["cell_type"] == "markdown" and OPEN in text:
            inside = True
        if not inside and SOLUTION not in tags:
            if STUB in tags or "self-check" in tags:
                cell["metadata"]["nbgrader"] = _grading(cell.get("id", f"cell-{len(kept)}"), STUB in tags)
            kept.append(cell)
        if cell["cell_type"] == "markdown" and CLOSE in text:
            inside = False
    return {**notebook, "cells": kept}


def _grading(identity, answer):
    return {
        "grade": not answer,
        "grade_id": identity,
        "locked": not answer,
        "schema_version": 3,
        "solution": answer,
        "task": False,
        **({} if answer else {"points": 1}),
    }


def write_student_notebooks(chapters: Path, out: Path) -> list[Path]:
    """Write the student version of every notebook in `chapters` to `out`; return the paths written.

    Example:
        >>> import tempfile
        >>> write_student_notebooks(Path(tempfile.mkdtemp()), Path(tempfile.mkdtemp()))
        []
    """
    out.mkdir(parents=True, exist_ok=True)
    written = []
    for source in sorted(chapters.glob("*.ipynb")):
        notebook = json.loads(source.read_text(encoding="utf-8"))
        target = out / source.name
        target.write_text(json.dumps(student_version(notebook), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        written.append(target)
    return written
