"""The command line: `python -m diffsim COMMAND`. A new command is one line in `COMMANDS`."""

import argparse
import importlib
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

from diffsim.version import __version__

__all__ = ["COMMANDS", "BadInput", "main"]

PROGRAM = "python -m diffsim"
COMMANDS: dict[str, str] = {
    "reproduce": "diffsim.experiments.command:configure",
}
"""Name → module:function. The function adds the command's arguments to a parser and sets its default `run`, which
takes the parsed arguments and returns the exit code. Its docstring is the command's help."""


class BadInput(Exception):
    """What a command was given can't be used: one sentence for the person, exit code 2.

    A bad argument is best refused by its `type=` function; this is for what only shows later.

    Example:
        >>> str(BadInput("no such file: a.json"))
        'no such file: a.json'
    """


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message} (see {self.prog} --help)\n")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code.

    0: done, 1: done and the answer is no, 2: bad input, 130: interrupted. Each command says what no means.

    Args:
        argv: the words after `python -m diffsim`; those of this process when left out.

    Raises:
        SystemExit: with code 2 for words that can't be parsed, 0 after `--help` and `--version`.

    Example:
        >>> main(["--version"])
        Traceback (most recent call last):
        SystemExit: 0
    """
    try:
        args = _parser().parse_args(argv)
        code = args.run(args)
        sys.stdout.flush()
        return code
    except BadInput as error:
        print(f"{PROGRAM}: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"{PROGRAM}: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        # The reader of our output has left (`… | head`). Python flushes stdout once more at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog=PROGRAM, description="Whose derivative does a simulator return?")
    parser.add_argument("--version", action="version", version=f"diffsim {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    for name, target in COMMANDS.items():
        module, function = target.split(":")
        configure = getattr(importlib.import_module(module), function)
        summary = configure.__doc__.partition("\n\n")[0]
        command = commands.add_parser(name, help=summary, description=summary)
        configure(command)
    return parser
