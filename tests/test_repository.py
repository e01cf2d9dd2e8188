"""What holds for the repository as a whole: what is stored, what is documented, and that versions agree."""

import importlib
import json
import os
import re
import tomllib
from pathlib import Path

import pytest
import yaml

from diffsim.version import __version__

ROOT = Path(__file__).parents[1]
# Walking, not asking git, so that it is the same where there is no .git.
MADE = {
    ".git",
    ".mypy_cache",
    ".pytest_cache",
    ".ruff_cache",
    ".venv",
    "__pycache__",
    "_build",
    "build",
    "diffsim.egg-info",
}


def stored_files():
    for folder, folders, names in os.walk(ROOT):
        folders[:] = sorted(set(folders) - MADE)
        yield from (Path(folder, name) for name in sorted(names))


def ids(path):
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("path", [path for path in stored_files() if path.suffix == ".ipynb"], ids=ids)
def test_notebook_is_stored_without_outputs(path):
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    run = [number for number, cell in enumerate(cells) if cell.get("outputs") or cell.get("execution_count")]
    assert not run, f"cells {run} have outputs; strip them: python -m nbstripout --keep-id {ids(path)}"


def test_no_path_of_a_machine_and_no_registry_host():
    private = re.compile(r"(?<![\w.])/(?:work|root|home)/|files\.pythonhosted|pypi\.org/simple|registry\.npmjs")
    found = []
    for path in stored_files():
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        lines = enumerate(text.splitlines(), 1)
        found += [f"{ids(path)}:{number}: {line.strip()[:80]}" for number, line in lines if private.search(line)]
    assert not found, "\n".join(found)


def module_name(path):
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = [module_name(p) for p in stored_files() if p.suffix == ".py" and p.is_relative_to(ROOT / "diffsim")]


@pytest.mark.parametrize("name", MODULES)
def test_public_names_resolve_and_are_documented(name):
    module = importlib.import_module(name)
    public = {each: getattr(module, each) for each in getattr(module, "__all__", [])}
    # A table or a type alias has no docstring of its own.
    ours = {each: thing for each, thing in public.items() if getattr(thing, "__module__", "").startswith("diffsim")}
    bare = [each for each, thing in ours.items() if callable(thing) and ">>>" not in (thing.__doc__ or "")]
    assert not bare, f"no docstring with a doctest: {bare}"


def pins(name):
    lines = (line.partition("#")[0].strip() for line in (ROOT / name).read_text(encoding="utf-8").splitlines())
    return [line for line in lines if line and not line.startswith("--constraint")]


@pytest.mark.parametrize("name", ["requirements.txt", "constraints.txt"])
def test_every_requirement_is_pinned(name):
    loose = [line for line in pins(name) if not re.fullmatch(r"[\w.-]+==[\w.]+( *;.*)?", line)]
    assert not loose


def test_requirements_cover_what_pyproject_asks_for():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    asked = {*project["dependencies"]}.union(*project["optional-dependencies"].values())
    bare = {re.match(r"[\w.-]+", each).group().lower() for each in asked}
    assert {line.partition("==")[0].lower() for line in pins("requirements.txt")} == bare


def test_versions_agree():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["version"] == __version__
    assert citation["references"][0]["identifiers"][0]["value"] == "arXiv:2611.12162"
    assert f"## [{__version__}]" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
