"""The form of an experiment's outcome: claims compare as they say, JSON is strict, files are whole."""

import json
import math
import stat

import jax.numpy as jnp
import numpy as np
import pytest

from diffsim.experiments.result import Claim, Result, versions

NAN, INF = math.nan, math.inf

COMPARISONS = [
    # method, got, want, tolerances, holds
    ("close", 1.05, 1.0, {"atol": 0.1}, True),
    ("close", 1.05, 1.0, {"rtol": 0.1}, True),
    ("close", 95.0, 100.0, {"rtol": 0.1}, True),
    ("close", 95.0, 100.0, {"atol": 0.1}, False),
    ("close", 0.0, 1e-12, {"rtol": 1e-6}, False),
    ("close", NAN, 1.0, {"rtol": 0.1}, False),
    ("close", 1.0, NAN, {"atol": 0.1}, False),
    ("close", NAN, NAN, {"atol": 0.1}, False),
    ("close", 5.0, INF, {"rtol": 0.1}, False),
    ("close", INF, INF, {"rtol": 0.1}, False),
    ("close", -INF, 1.0, {"atol": 0.1}, False),
    ("at_most", 1.0, 1.0, {}, True),
    ("at_most", 1.1, 1.0, {}, False),
    ("at_most", NAN, 1.0, {}, False),
    ("at_most", 1.0, NAN, {}, False),
    ("at_least", 1.0, 1.0, {}, True),
    ("at_least", 0.9, 1.0, {}, False),
    ("at_least", NAN, 1.0, {}, False),
    ("at_least", INF, 1.0, {}, True),
    ("equal", 3, 3.0, {}, True),
    ("equal", 0.1 + 0.2, 0.3, {}, False),
    ("equal", "executed", "executed", {}, True),
    ("equal", "executed", "converged", {}, False),
    ("equal", "1", 1, {}, False),
    ("equal", NAN, NAN, {}, False),
]


@pytest.mark.parametrize(("method", "got", "want", "tolerances", "holds"), COMPARISONS)
def test_comparison(method, got, want, tolerances, holds):
    claim = getattr(Claim, method)("id", "statement", got, want, **tolerances)
    assert claim.holds is holds


@pytest.mark.parametrize("one", [np.float32(1), np.int64(1), np.ones(()), jnp.ones(()), jnp.ones(1), True, 1])
@pytest.mark.parametrize("method", ["close", "at_most", "at_least", "equal"])
def test_any_scalar_is_a_number(method, one):
    claim = getattr(Claim, method)("id", "statement", one, one, **({"atol": 0.1} if method == "close" else {}))
    assert claim.holds is True
    assert type(claim.got) in (float, int, bool)


def test_two_numbers_are_not_one():
    with pytest.raises(ValueError, match="size 1"):
        Claim.at_most("id", "statement", np.ones(2), 1.0)


@pytest.mark.parametrize("tolerances", [{}, {"rtol": -1.0}, {"rtol": 0.1, "atol": -1.0}, {"atol": NAN}, {"rtol": INF}])
def test_no_tolerance(tolerances):
    with pytest.raises(ValueError, match="exact is Claim.equal"):
        Claim.close("id", "statement", 1.0, 1.0, **tolerances)


def test_tolerance_in_words():
    words = [
        Claim.close("id", "s", 1, 1, rtol=1e-6),
        Claim.close("id", "s", 1, 1, rtol=1e-6, atol=0.5),
        Claim.at_most("id", "s", 1, 1),
        Claim.at_least("id", "s", 1, 1),
        Claim.equal("id", "s", 1, 1),
    ]
    assert [claim.tolerance for claim in words] == ["rtol=1e-06", "rtol=1e-06, atol=0.5", "<=", ">=", "=="]


def result(claims=(), rows=({"method": "tape", "T": 16, "error": 0.0}, {"method": "reverse", "error": NAN})):
    settings = {"horizons": (16, np.int32(64)), "grid": None, "scale": jnp.array([1.0, INF])}
    return Result("demo", settings, versions(), list(rows), list(claims))


def test_json_has_the_documented_form():
    claims = [Claim.close("a", "is one", 1.0, 1.0, rtol=0.1), Claim.at_most("b", "small", NAN, 1.0)]
    read = json.loads(result(claims).to_json(), parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    assert list(read) == ["experiment", "settings", "versions", "rows", "claims"]
    assert read["experiment"] == "demo"
    assert read["settings"] == {"horizons": [16, 64], "grid": None, "scale": [1.0, "inf"]}
    assert read["rows"] == [{"method": "tape", "T": 16, "error": 0.0}, {"method": "reverse", "error": "nan"}]
    fields = {"id": "a", "statement": "is one", "got": 1.0, "want": 1.0, "tolerance": "rtol=0.1", "holds": True}
    assert read["claims"][0] == fields
    assert (read["claims"][1]["got"], read["claims"][1]["holds"]) == ("nan", False)


def test_json_says_where_a_value_has_no_form():
    with pytest.raises(TypeError, match=r"result\.rows\[0\]\.T is a complex"):
        result(rows=[{"T": 1j}]).to_json()


@pytest.mark.parametrize(
    ("outcomes", "holds"), [([], False), ([True], True), ([True, False], False), ([True, True], True)]
)
def test_holds(outcomes, holds):
    claims = [Claim("id", "s", 1, 1, "==", outcome) for outcome in outcomes]
    assert result(claims).holds is holds


def test_text_is_aligned():
    text = result([Claim.at_least("ratio", "saved", 120.0, 100)]).to_text()
    table = text.split("\n\n")[1].splitlines()
    assert table == ["method    T  error", "tape     16      0", "reverse   -    nan"]
    assert text.endswith("1 of 1 claims hold")


def test_file_is_whole_or_as_it_was(tmp_path):
    path = tmp_path / "out.json"
    path.write_text("before")
    with pytest.raises(TypeError):
        result(rows=[{"T": 1j}]).write(path)
    assert path.read_text() == "before"
    result().write(path)
    assert json.loads(path.read_text())["experiment"] == "demo"
    assert [file.name for file in tmp_path.iterdir()] == ["out.json"]


def test_file_is_as_readable_as_any_other(tmp_path):
    (tmp_path / "plain").touch()
    result().write(tmp_path / "out.json")
    modes = {stat.S_IMODE(file.stat().st_mode) for file in tmp_path.iterdir()}
    assert len(modes) == 1


def test_file_through_a_link(tmp_path):
    (tmp_path / "link.json").symlink_to(tmp_path / "target.json")
    result().write(tmp_path / "link.json")
    assert (tmp_path / "link.json").is_symlink()
    assert json.loads((tmp_path / "target.json").read_text())["experiment"] == "demo"
