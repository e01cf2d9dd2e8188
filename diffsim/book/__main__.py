"""`python -m diffsim.book build | serve | student | slides`: the book's own commands."""

import argparse
import functools
import os
import subprocess
import sys
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from diffsim.book.build import HTML, build
from diffsim.book.explorer import BUILDING
from diffsim.book.student import write_student_notebooks


def main(arguments: list[str] | None = None) -> int:
    """Run one command; return its exit code.

    Example:
        >>> main(["student", "--chapters", "no-such-folder"])
        There is no folder no-such-folder with chapters; write --chapters FOLDER.
        2
    """
    parser = argparse.ArgumentParser(
        prog="python -m diffsim.book", description="Build the book and what a course needs."
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    commands.add_parser("build", help="execute what changed and write _build/html")
    show = commands.add_parser("serve", help="show the built book in a browser on this machine")
    show.add_argument("--port", type=int, default=8000)
    student = commands.add_parser("student", help="write notebooks without solutions")
    decks = commands.add_parser("slides", help="write a slide deck for each chapter")
    for command, out in ((student, "_build/student"), (decks, "_build/slides")):
        command.add_argument("--chapters", type=Path, default=Path("chapters"), metavar="FOLDER")
        command.add_argument("--out", type=Path, default=Path(out), metavar="FOLDER")
    args = parser.parse_args(arguments)
    if args.command == "build":
        return build(Path.cwd())
    if args.command == "serve":
        return serve(Path.cwd(), args.port)
    if not args.chapters.is_dir():
        print(f"There is no folder {args.chapters} with chapters; write --chapters FOLDER.")
        return 2
    if args.command == "slides":
        return slides(args.chapters, args.out)
    for path in write_student_notebooks(args.chapters, args.out):
        print(path)
    return 0


def serve(root: Path, port: int) -> int:
    """Show the book that is built in `root`, to this machine only, until interrupted.

    Example:
        >>> serve(Path("/nonexistent"), 8000)
        There is no built book yet; write python -m diffsim.book build.
        2
    """
    if not (root / HTML / "index.html").is_file():
        print("There is no built book yet; write python -m diffsim.book build.")
        return 2
    handler = functools.partial(SimpleHTTPRequestHandler, directory=str(root / HTML))
    try:
        server = ThreadingHTTPServer(("127.0.0.1", port), handler)
    except (OSError, OverflowError) as error:
        print(f"Port {port} can't be used ({error}); write --port with another number.")
        return 2
    with server:
        print(f"The book is at http://127.0.0.1:{server.server_port}/ until you press Ctrl+C.", flush=True)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            print()
    return 0


def slides(chapters: Path, out: Path) -> int:
    """Execute every notebook in `chapters` into a slide deck in `out`; return the exit code.

    Example:
        >>> import tempfile
        >>> slides(Path(tempfile.mkdtemp()), Path("unused"))  # doctest: +ELLIPSIS
        There are no notebooks in ...; write --chapters FOLDER.
        2
    """
    notebooks = [str(path) for path in sorted(chapters.glob("*.ipynb"))]
    if not notebooks:
        print(f"There are no notebooks in {chapters}; write --chapters FOLDER.")
        return 2
    command = [sys.executable, "-m", "nbconvert", "--to", "slides", "--execute"]
    command += ["--output-dir", str(out.resolve()), *notebooks]
    # As on the built page, an explorer shows its own HTML: a deck has no kernel for live widgets.
    if subprocess.run(command, env={**os.environ, BUILDING: "1"}, check=False).returncode:
        print("The decks were not all written: the messages above say which chapter, and why.")
        return 1
    print(f"The decks are in {out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
