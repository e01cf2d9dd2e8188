"""`python -m diffsim reproduce`: rerun an experiment outside the book."""

import argparse
import os
import tempfile
from pathlib import Path

import jax
from rich.console import Console

from diffsim.cli import BadInput
from diffsim.experiments import EXPERIMENTS, load

__all__ = ["configure"]


def configure(parser: argparse.ArgumentParser) -> None:
    """Rerun an experiment of the book; exit code 0 when every claim holds, 1 when one doesn't.

    Example:
        >>> parser = argparse.ArgumentParser()
        >>> configure(parser)
        >>> parser.parse_args(["exactness-memory", "--seed", "3"]).seed
        3
    """
    parser.add_argument("name", metavar="NAME", type=_experiment, help=", ".join(EXPERIMENTS))
    parser.add_argument("--full", action="store_true", help="the large setting, not the chapter's small one")
    parser.add_argument("--seed", type=_seed, default=0, help="of everything random in it (default: 0)")
    parser.add_argument("--json", metavar="FILE", type=_writable, help="also write the result there")
    parser.set_defaults(run=_run)


def _run(args: argparse.Namespace) -> int:
    jax.config.update("jax_enable_x64", True)  # as the chapters do in their first cell
    console = Console(stderr=True, highlight=False)
    with console.status(f"{args.name} …"):
        result = load(args.name).run(
            full=args.full,
            seed=args.seed,
            progress=lambda line: console.print(line, markup=False, soft_wrap=True),
        )
    print(result.to_text())
    if args.json:
        try:
            result.write(args.json)
        except OSError as error:
            raise BadInput(f"can't write {args.json}: {error.strerror}") from error
    return 0 if result.holds else 1


# The refusals below come from the parser, so they come before anything runs.


def _experiment(name: str) -> str:
    try:
        load(name)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    return name


def _seed(text: str) -> int:
    # JAX and NumPy both take these; NumPy refuses a negative seed.
    if not (text.isascii() and text.isdecimal() and int(text) < 2**32):
        raise argparse.ArgumentTypeError(f"{text!r} is no seed, give a whole number from 0 to 2**32 - 1")
    return int(text)


def _writable(text: str) -> Path:
    path = Path(text)
    if path.exists() and not path.is_file():
        raise argparse.ArgumentTypeError(f"{text!r} is no file that could be written")
    try:
        if path.exists() and not os.access(path, os.W_OK):
            raise PermissionError(13, "the file is read-only")
        with tempfile.NamedTemporaryFile(dir=path.parent):
            pass
    except OSError as error:
        raise argparse.ArgumentTypeError(f"can't write {text!r}: {error.strerror}") from error
    return path
