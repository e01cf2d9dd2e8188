"""`python -m diffsim.book build | student`: the book's own commands."""

import argparse
import sys
from pathlib import Path

from diffsim.book.build import build
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
    student = commands.add_parser("student", help="write notebooks without solutions")
    student.add_argument("--chapters", type=Path, default=Path("chapters"), metavar="FOLDER")
    student.add_argument("--out", type=Path, default=Path("_build/student"), metavar="FOLDER")
    args = parser.parse_args(arguments)
    if args.command == "build":
        return build(Path.cwd())
    if not args.chapters.is_dir():
        print(f"There is no folder {args.chapters} with chapters; write --chapters FOLDER.")
        return 2
    for path in write_student_notebooks(args.chapters, args.out):
        print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
