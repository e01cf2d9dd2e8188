"""Build the book: run every chapter whose inputs changed, and write static pages."""

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from diffsim.book.explorer import BUILDING

__all__ = ["build", "fingerprint"]

HTML = Path("_build/html")
CACHE = Path("_build/.jupyter_cache")
STAMP = Path("_build/fingerprint")
PACKAGE = ("diffsim/**/*.py", "diffsim/**/*.js", "diffsim/**/*.yaml", "requirements.txt", "constraints.txt")
PAGES = ("_config.yml", "_toc.yml", "_static/**/*", "chapters/**/*", "CHANGELOG.md")


def fingerprint(root: Path, patterns: Iterable[str]) -> str:
    """A hash of the files that match, by name and content, and of the interpreter's version.

    Example:
        >>> fingerprint(Path("."), ["no such file"]) == fingerprint(Path("."), ["none such"])
        True
    """
    digest = hashlib.sha256(sys.version.encode())
    files = {path for pattern in patterns for path in root.glob(pattern) if path.is_file()}
    for path in sorted(files):
        if "__pycache__" not in path.parts and ".ipynb_checkpoints" not in path.parts:
            digest.update(str(path.relative_to(root)).encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def build(root: Path) -> int:
    """Build the book that lies in `root` into `_build/html`; return the exit code.

    A chapter is executed again when it changed, or when the package or its requirements did: the cache of
    executed notebooks knows nothing of the package, so it is thrown away then. An interrupted build keeps the chapters
    that were finished.

    Example:
        >>> build(Path("/nonexistent"))  # doctest: +ELLIPSIS
        There is no book in ...
        2
    """
    if not (root / "_toc.yml").is_file():
        print(f"There is no book in {root}: go to the folder that has _toc.yml.")
        return 2
    stamp = root / STAMP
    old_package, _, old_pages = stamp.read_text().partition(" ") if stamp.is_file() else ("", "", "")
    package, pages = fingerprint(root, PACKAGE), fingerprint(root, PAGES)
    if (package, pages) == (old_package, old_pages) and (root / HTML / "index.html").is_file():
        print(f"Nothing changed. The book is in {HTML / 'index.html'}")
        return 0
    if package != old_package:
        print("The package or its requirements changed: every chapter is executed." if old_package else "First build.")
        shutil.rmtree(root / "_build", ignore_errors=True)
    stamp.parent.mkdir(exist_ok=True)
    stamp.write_text(package)
    # jupyter-book 1 has a command but no `python -m`; this finds it on every system.
    command = [
        sys.executable,
        "-c",
        "from jupyter_book.cli.main import main; main()",
        "build",
        ".",
        "-W",
        "-n",
        "--keep-going",
    ]
    try:
        code = subprocess.run(command, cwd=root, env={**os.environ, BUILDING: "1"}, check=False).returncode
    except KeyboardInterrupt:
        print("Interrupted. Finished chapters are kept; the same command goes on from there.")
        return 130
    if code or not (root / HTML / "index.html").is_file():
        print("The book was not built: the messages above say which page, and why.")
        return 1
    stamp.write_text(f"{package} {pages}")
    print(f"The book is in {HTML / 'index.html'}")
    return 0
