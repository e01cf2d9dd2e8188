"""The command line, with a small experiment of its own in the table: exit codes, one sentence for bad input."""

import json
import os
import subprocess
import sys
import types

import numpy as np
import pytest

from diffsim import cli, experiments
from diffsim.experiments import Claim, Result, versions


def run(*, full, seed, progress):
    progress("half way [1/2]")
    if seed == 13:
        raise KeyboardInterrupt
    draw = np.random.default_rng(seed).random()
    claims = [Claim.at_least("draw", "the draw", draw, 0.0), Claim.equal("seed", "seed is small", seed < 100, True)]
    return Result("coin-toss", {"full": full, "seed": seed}, versions(), [{"draw": draw}], claims)


@pytest.fixture(autouse=True)
def coin_toss(monkeypatch):
    module = types.ModuleType("coin_toss")
    module.run = run
    monkeypatch.setitem(sys.modules, "coin_toss", module)
    monkeypatch.setitem(experiments.EXPERIMENTS, "coin-toss", "coin_toss")


def refused(capsys, *words):
    """The one sentence on stderr that goes with exit code 2."""
    with pytest.raises(SystemExit) as stop:
        cli.main(words)
    out, err = capsys.readouterr()
    assert stop.value.code == 2
    assert out == ""
    assert err.count("\n") == 1
    return err


def test_reproduce(capsys):
    assert cli.main(["reproduce", "coin-toss"]) == 0
    out, err = capsys.readouterr()
    assert out.startswith("coin-toss\nsettings: full=False, seed=0\n")
    assert out.endswith("2 of 2 claims hold\n")
    assert "half way [1/2]\n" in err


def test_a_claim_that_does_not_hold(capsys):
    assert cli.main(["reproduce", "coin-toss", "--seed", "100"]) == 1
    assert "1 of 2 claims hold" in capsys.readouterr().out


def test_json(capsys, tmp_path):
    path = tmp_path / "out.json"
    assert cli.main(["reproduce", "coin-toss", "--full", "--seed", "7", "--json", str(path)]) == 0
    read = json.loads(path.read_text())
    assert read["settings"] == {"full": True, "seed": 7}
    assert [claim["holds"] for claim in read["claims"]] == [True, True]
    assert [file.name for file in tmp_path.iterdir()] == ["out.json"]


def test_same_seed_same_numbers(capsys):
    cli.main(["reproduce", "coin-toss", "--seed", "3"])
    first = capsys.readouterr().out
    cli.main(["reproduce", "coin-toss", "--seed", "3"])
    assert capsys.readouterr().out == first


def test_interrupt(capsys, tmp_path):
    assert cli.main(["reproduce", "coin-toss", "--seed", "13", "--json", str(tmp_path / "out.json")]) == 130
    assert "interrupted" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_unknown_experiment_suggests_the_nearest(capsys):
    assert "did you mean 'coin-toss'?" in refused(capsys, "reproduce", "cointoss")
    assert "did you mean 'exactness-memory'?" in refused(capsys, "reproduce", "exactness")
    assert "choose from: exactness-memory, " in refused(capsys, "reproduce", "zzz")


@pytest.mark.parametrize("seed", ["-1", "1.5", "one", "", "4294967296", "²"])
def test_bad_seed(capsys, seed):
    assert "is no seed" in refused(capsys, "reproduce", "coin-toss", f"--seed={seed}")


def test_json_that_cannot_be_written(capsys, tmp_path):
    (tmp_path / "file").touch()
    for path in (tmp_path / "missing" / "out.json", tmp_path, tmp_path / "file" / "out.json", os.devnull, ""):
        assert "--json" in refused(capsys, "reproduce", "coin-toss", "--json", str(path))
    assert [file.name for file in tmp_path.iterdir()] == ["file"]


def test_json_that_fails_at_the_end(capsys, tmp_path, monkeypatch):
    def full_disk(self, path):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Result, "write", full_disk)
    assert cli.main(["reproduce", "coin-toss", "--json", str(tmp_path / "out.json")]) == 2
    assert "No space left on device" in capsys.readouterr().err


@pytest.mark.parametrize("words", [[], ["dance"], ["reproduce"], ["reproduce", "coin-toss", "--fast"]])
def test_words_that_make_no_command(capsys, words):
    assert refused(capsys, *words).startswith("python -m diffsim")


def test_help_lists_every_command_and_experiment(capsys):
    for words, names in ((["--help"], cli.COMMANDS), (["reproduce", "--help"], experiments.EXPERIMENTS)):
        with pytest.raises(SystemExit) as stop:
            cli.main(words)
        assert stop.value.code == 0
        out = capsys.readouterr().out
        assert all(name in out for name in names)


def test_a_command_is_one_line_in_the_table(capsys, monkeypatch):
    module = types.ModuleType("greet")

    def configure(parser):
        """Say hello."""
        parser.set_defaults(run=lambda args: print("hello") or 0)

    module.configure = configure
    monkeypatch.setitem(sys.modules, "greet", module)
    monkeypatch.setitem(cli.COMMANDS, "greet", "greet:configure")
    assert cli.main(["greet"]) == 0
    assert capsys.readouterr().out == "hello\n"


def test_bad_input_found_late(capsys, monkeypatch):
    def late(**settings):
        raise cli.BadInput("the cloth has no nodes")

    monkeypatch.setattr(sys.modules["coin_toss"], "run", late)
    assert cli.main(["reproduce", "coin-toss"]) == 2
    assert capsys.readouterr().err.endswith("python -m diffsim: the cloth has no nodes\n")


def test_as_a_module():
    done = subprocess.run(
        [sys.executable, "-m", "diffsim", "reproduce", "nothing"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert done.stderr.startswith("python -m diffsim reproduce: argument NAME: there is no experiment 'nothing'")
