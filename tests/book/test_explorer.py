"""Explorer and Animation: one bundle for notebook, page, PDF and terminal."""

import base64
import html
import json
import re

import matplotlib as mpl
import matplotlib.pyplot as plt
import pytest

from diffsim.book import Animation, Explorer, use_style
from diffsim.book import explorer as module

WIDGET = "application/vnd.jupyter.widget-view+json"
PNG = base64.b64encode(b"\x89PNG").decode()[:5]


@pytest.fixture(autouse=True)
def style():
    with mpl.rc_context():
        use_style()
        yield
        plt.close("all")


@pytest.fixture
def building(monkeypatch):
    monkeypatch.setenv(module.BUILDING, "1")


def bars(n, unit="m"):
    figure, ax = plt.subplots(figsize=(1, 1))
    ax.bar([0], [n])
    return figure, {"height": 1.0 * n}


def explorer(**options):
    return Explorer(bars, {"n": [1, 2, 3], "unit": ["m", "km"]}, alt=lambda n, unit: f"A bar of {n} {unit}.", **options)


def frames(text):
    return json.loads(re.search(r"data-frames>(.*?)</script>", text, re.S)[1])


def test_building_bundle_has_no_widget(building):
    bundle = explorer()._repr_mimebundle_()
    assert set(bundle) == {"text/html", "image/png", "text/plain"}
    assert bundle["image/png"].startswith(PNG)
    assert bundle["text/plain"] == "Explorer over n: 1, 2, 3; unit: m, km. A bar of 1 m."


def test_notebook_bundle_has_a_live_widget_as_well(monkeypatch):
    monkeypatch.delenv(module.BUILDING, raising=False)
    bundle = explorer()._repr_mimebundle_()
    assert set(bundle) >= {"text/html", "image/png", "text/plain", WIDGET}


def test_the_live_slider_calls_the_function():
    n, unit, image, say = explorer(start={"n": 2}, units={"n": "pieces"}).live().children
    before = image.value
    assert n.value == 2 and "A bar of 2 m." in before and say.value.startswith("n 2 pieces")
    n.value = 3
    assert image.value != before and "A bar of 3 m." in image.value
    unit.value = "km"
    assert "A bar of 3 km." in image.value and "height: 3" in say.value


def test_one_frame_for_each_combination_in_order():
    shown = frames(explorer().html())
    alts = [re.search(r'alt="(.*?)"', frame["src"])[1] for frame in shown]
    assert alts == [f"A bar of {n} {unit}." for n in (1, 2, 3) for unit in ("m", "km")]
    assert len({frame["src"] for frame in shown}) == 6
    assert shown[2]["say"] == "n 2, unit m. height: 2"


def test_the_start_is_what_is_shown():
    text = explorer(start={"n": 3, "unit": "km"}, units={"n": "pieces"}).html()
    shown = text.split("data-frame>")[1].split("</div>")[0]
    assert shown == frames(text)[5]["src"]
    assert re.findall(r'min="0" max="(\d)" step="1" value="(\d)"', text) == [("2", "2"), ("1", "1")]
    assert 'aria-valuetext="n 3 pieces"' in text and '<span aria-hidden="true">3 pieces</span>' in text


def test_every_slider_has_its_label():
    text = explorer().html()
    assert re.findall(r'<label><span>(\w+)</span><input type="range"', text) == ["n", "unit"]
    assert 'role="group"' in text and text.count('aria-live="polite"') == 1


def test_a_copy_on_the_same_page_meets_no_id():
    assert not re.search(r"\b(id|for)=", explorer().html())


def test_the_numbers_are_a_table():
    text = explorer().html()
    assert "<summary>All numbers as a table</summary>" in text
    assert text.count("<tr>") == 7
    assert "<td>3</td><td>km</td><td>3</td>" in text
    assert '<th scope="col">n [pieces]</th>' in explorer(units={"n": "pieces"}).html()
    assert "<details>" not in Explorer(lambda n: bars(n)[0], {"n": [1]}, alt="A bar without numbers.").html()


@pytest.mark.parametrize("raster", [True, False])
def test_the_element_is_self_contained(raster):
    text = explorer(raster=raster).html()
    assert "http:" not in text and "https:" not in text and "//cdn" not in text
    assert "<link" not in text and "<script src" not in text
    kind = "png" if raster else "svg+xml"
    sources = re.findall(r'src=\\?"(.*?)"', text)
    assert len(sources) == 7 and all(source.startswith(f"data:image/{kind};base64,") for source in sources)


@pytest.mark.parametrize("raster", [True, False])
def test_two_builds_are_the_same(raster):
    assert explorer(raster=raster).html() == explorer(raster=raster).html()


def test_texts_are_escaped():
    controls = {"a'\"<b>": ["</script>", "x\"'y"]}
    text = Explorer(lambda **_: (bars(1)[0], {"<i>": "</script>"}), controls, alt='A "quoted" <b>alt</b>.').html()
    assert text.count("</script>") == 2  # the data's and the program's own
    page = text.replace(re.search(r"data-frames>(.*?)</script>", text, re.S)[1], "")
    assert "<b>" not in page and "<i>" not in page
    assert "<b>" not in frames(text)[0]["src"]
    assert [json.loads(html.unescape(t)) for t in re.findall("data-texts='(.*?)'", text)] == [["</script>", "x\"'y"]]


def test_no_figure_stays_open(building):
    explorer()._repr_mimebundle_()
    explorer().live()
    assert plt.get_fignums() == []


@pytest.mark.parametrize(
    ("make", "error", "match"),
    [
        (lambda: Explorer(bars, {}, alt="A bar of some height."), ValueError, "at least one control"),
        (lambda: Explorer(bars, {"n": []}, alt="A bar of some height."), ValueError, "at least one value"),
        (lambda: Explorer(bars, {"n": [1], "unit": []}, alt="A bar of some height."), ValueError, "at least one value"),
        (
            lambda: Explorer(bars, {"n": range(401)}, alt="A bar of some height."),
            ValueError,
            "401 frames, more than 400",
        ),
        (lambda: explorer(start={"n": 7}), ValueError, "can't start at n=7"),
        (lambda: explorer(start={"m": 1}), ValueError, "can't start at m=1"),
        (lambda: Explorer(bars, {"n": [1]}, alt="").html(), ValueError, "say in a sentence"),
        (lambda: Explorer(bars, {"n": [1]}, alt=lambda n: "bar").html(), ValueError, "say in a sentence"),
        (lambda: Explorer(lambda n: "no figure", {"n": [1]}, alt="A bar of height.").html(), TypeError, "returned str"),
        (
            lambda: Explorer(lambda n: (plt.figure(), 3), {"n": [1]}, alt="A bar of height.").html(),
            TypeError,
            "returned tuple",
        ),
        (lambda: Animation([], alt="Nothing at all happens.", seconds=1), ValueError, "at least one figure"),
        (lambda: Animation([plt.figure()], alt="", seconds=1), ValueError, "say in a sentence"),
    ],
)
def test_bad_inputs_say_in_one_sentence_what_to_do(make, error, match):
    with pytest.raises(error, match=match) as failure:
        make()
    message = str(failure.value)
    assert "\n" not in message and message.endswith(".") and ". " not in message


def test_a_page_element_that_is_too_large_is_refused(monkeypatch):
    monkeypatch.setattr(module, "MOST_BYTES", 10_000)
    with pytest.raises(ValueError, match=r"Explorer needs .* MB of HTML, .*raster=True"):
        explorer().html()
    with pytest.raises(ValueError, match="Animation needs"):
        Animation([bars(n)[0] for n in range(1, 20)], alt="A bar that grows.", seconds=1)._repr_mimebundle_()


def test_animation():
    animation = Animation([bars(n)[0] for n in (1, 2, 3)], alt="A bar that grows.", seconds=2)
    assert plt.get_fignums() == []
    bundle = animation._repr_mimebundle_()
    text = bundle["text/html"]
    assert (
        set(bundle) == {"text/html", "image/png", "text/plain"}
        and bundle["text/plain"] == repr(animation) == "A bar that grows."
    )
    assert bundle["image/png"].startswith(PNG)
    assert [frame["say"] for frame in frames(text)] == ["frame 1", "frame 2", "frame 3"]
    assert "A bar that grows. Frame 3 of 3." in frames(text)[2]["src"]
    assert re.search(r'<button type="button" data-play data-seconds="2">Play</button>', text)
    assert "autoplay" not in text and 'max="2"' in text


def test_an_explorer_has_no_play_button():
    assert "<button" not in explorer().html()
