"""Student notebooks, and every chapter's exercises: the stub fails its self-check, the solution passes it."""

import copy
import json
from pathlib import Path

import jax
import matplotlib as mpl
import matplotlib.pyplot as plt
import pytest
from jax.experimental.compilation_cache import compilation_cache

from diffsim.book import checkpoint
from diffsim.book.__main__ import main
from diffsim.book.student import student_version, write_student_notebooks

CHAPTERS = sorted((Path(__file__).parents[2] / "chapters").glob("*.ipynb"))


@pytest.fixture
def compiled_once(tmp_path):
    """Every self-check runs twice, for the stub and for the solution; most of its time is compilation."""
    options = {
        "jax_compilation_cache_dir": str(tmp_path),
        "jax_persistent_cache_min_compile_time_secs": 0,
        "jax_persistent_cache_min_entry_size_bytes": -1,
    }
    before = {name: getattr(jax.config, name) for name in options}
    for name, value in options.items():
        jax.config.update(name, value)
    compilation_cache.reset_cache()
    yield
    for name, value in before.items():
        jax.config.update(name, value)
    compilation_cache.reset_cache()


def cell(source, *tags, kind="code", identity="a1"):
    made = {"cell_type": kind, "id": identity, "metadata": {"tags": list(tags)} if tags else {}, "source": [source]}
    return made | {"outputs": [], "execution_count": None} if kind == "code" else made


NOTEBOOK = {
    "cells": [
        cell("import math"),
        cell("```{exercise} One\n```", kind="markdown"),
        cell("x = ...", "exercise", identity="stub"),
        cell("```{solution-start} one\n```", kind="markdown"),
        cell("Because.", kind="markdown"),
        cell("x = 1", "solution"),
        cell("print(x)"),
        cell("```{solution-end}\n```", kind="markdown"),
        cell("check('x', x, 1, why='one')", "self-check", identity="test"),
        cell("y = 2", "solution"),
        cell("After.", kind="markdown"),
    ],
    "metadata": {"kernelspec": {"name": "python3"}},
    "nbformat": 4,
    "nbformat_minor": 5,
}


def tags(cell):
    return cell["metadata"].get("tags", [])


def text(cell):
    return "".join(cell["source"])


def test_solutions_are_cut_and_the_rest_is_kept():
    before = copy.deepcopy(NOTEBOOK)
    student = student_version(NOTEBOOK)
    assert [text(c) for c in student["cells"]] == [
        "import math", "```{exercise} One\n```", "x = ...", "check('x', x, 1, why='one')", "After.",
    ]  # fmt: skip
    assert NOTEBOOK == before
    assert {k: v for k, v in student.items() if k != "cells"} == {k: v for k, v in before.items() if k != "cells"}


def test_nbgrader_metadata():
    stub, test = (c["metadata"]["nbgrader"] for c in student_version(NOTEBOOK)["cells"] if "nbgrader" in c["metadata"])
    assert stub == {
        "grade": False, "grade_id": "stub", "locked": False, "schema_version": 3, "solution": True, "task": False,
    }  # fmt: skip
    assert test == {
        "grade": True, "grade_id": "test", "locked": True, "schema_version": 3, "solution": False, "task": False, "points": 1,
    }  # fmt: skip


def test_a_start_and_end_in_one_cell_cuts_that_cell_only():
    both = cell("```{solution-start} a\n```\nx\n```{solution-end}\n```", kind="markdown")
    assert [text(c) for c in student_version({"cells": [both, cell("after")]})["cells"]] == ["after"]


def test_files_are_written(tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "b.ipynb").write_text(json.dumps(NOTEBOOK), encoding="utf-8")
    (tmp_path / "in" / "a.ipynb").write_text(json.dumps({**NOTEBOOK, "cells": []}), encoding="utf-8")
    written = write_student_notebooks(tmp_path / "in", tmp_path / "deep" / "out")
    assert [path.name for path in written] == ["a.ipynb", "b.ipynb"]
    assert json.loads(written[1].read_text(encoding="utf-8")) == student_version(NOTEBOOK)


def test_the_command(tmp_path, capsys):
    assert main(["student", "--chapters", str(CHAPTERS[0].parent), "--out", str(tmp_path)]) == 0
    assert capsys.readouterr().out.splitlines() == [str(tmp_path / path.name) for path in CHAPTERS]


def exercises(path):
    """Each exercise's cells, from its stub up to the next stub."""
    found = []
    for made in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        if "exercise" in tags(made):
            found.append([])
        if found:
            found[-1].append(made)
    return [
        {tag: [c for c in cells if tag in tags(c)] for tag in ("exercise", "solution", "self-check")} for cells in found
    ]


@pytest.mark.parametrize("path", CHAPTERS, ids=lambda path: path.stem)
def test_every_exercise_has_a_stub_a_solution_and_a_self_check(path):
    assert exercises(path)
    for parts in exercises(path):
        assert {tag: len(cells) for tag, cells in parts.items()} == {"exercise": 1, "solution": 1, "self-check": 1}
    order = [t for c in json.loads(path.read_text(encoding="utf-8"))["cells"] for t in tags(c) if t in parts]
    assert order == ["exercise", "solution", "self-check"] * len(exercises(path))
    assert all("check(" in text(c) for parts in exercises(path) for c in parts["self-check"])


@pytest.mark.parametrize("path", CHAPTERS, ids=lambda path: path.stem)
def test_the_student_version_holds_no_solution(path):
    notebook = json.loads(path.read_text(encoding="utf-8"))
    kept = student_version(notebook)["cells"]
    ids = [c["metadata"]["nbgrader"]["grade_id"] for c in kept if "nbgrader" in c["metadata"]]
    assert len(ids) == len(set(ids)) == 2 * len(exercises(path))
    everything = "\n".join(text(c) for c in kept)
    for parts in exercises(path):
        assert all(text(c) not in everything for c in parts["solution"])
    assert "solution-start" not in everything and "solution-end" not in everything


@pytest.mark.parametrize("path", CHAPTERS, ids=lambda path: path.stem)
def test_the_stub_fails_its_self_check_and_the_solution_passes(path, monkeypatch, compiled_once):
    """Runs the chapter's imports and its exercises; an exercise must not need more, so that a reader can begin there."""
    monkeypatch.setattr(checkpoint, "_rows", [])
    imports = next(c for c in json.loads(path.read_text(encoding="utf-8"))["cells"] if c["cell_type"] == "code")
    names = {"__name__": "__main__"}

    def execute(made):
        exec(compile(text(made), f"{path.name}, cell {made['id']}", "exec"), names)

    with mpl.rc_context():
        execute(imports)
        for parts in exercises(path):
            stub, solution, self_check = (parts[tag][0] for tag in ("exercise", "solution", "self-check"))
            execute(stub)
            with pytest.raises(Exception) as failure:
                execute(self_check)
            # A name that is missing would be the harness's fault, or the chapter's, not the stub's.
            assert not isinstance(failure.value, NameError | SyntaxError | ImportError), failure.value
            execute(solution)
            execute(self_check)
    plt.close("all")
