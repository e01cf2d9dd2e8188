"""The built pages as a reader meets them: opened from disk in Chromium, and used by mouse and keyboard."""

import re
from pathlib import Path

import matplotlib.pyplot as plt
import pytest
import yaml
from axe_playwright_python.sync_playwright import Axe

from diffsim.book import Animation, Explorer, check, checkpoint_table
from diffsim.book import checkpoint as checkpoints

ROOT = Path(__file__).parents[2]
MOST_BYTES = 1_500_000
PHONE = {"width": 390, "height": 844}
DESK = {"width": 1280, "height": 900}
AXE = {
    "resultTypes": ["violations"],
    "rules": {"label-content-name-mismatch": {"enabled": True}},  # off by default
    "preload": False,  # would fetch style sheets, which a page opened from disk may not
}


def documents(toc):
    """Every document that the table of contents names, in order."""
    if isinstance(toc, list):
        return [name for entry in toc for name in documents(entry)]
    if not isinstance(toc, dict):
        return []
    own = [toc[key] for key in ("root", "file") if key in toc]
    return own + [name for value in toc.values() if isinstance(value, list) for name in documents(value)]


PAGES = [
    name.removesuffix(".md").removesuffix(".ipynb")
    for name in documents(yaml.safe_load((ROOT / "_toc.yml").read_text()))
]
NOTEBOOKS = [name for name in PAGES if (ROOT / f"{name}.ipynb").is_file()]

every_page = pytest.mark.parametrize("name", PAGES)
every_notebook = pytest.mark.parametrize("name", NOTEBOOKS)


# What is checked. Each function returns its findings in words; an empty list is a pass.


def visit(page, path, size=DESK):
    """Open a file, let it settle, and return what went wrong on the way and what it asked of other sites."""
    wrong, outside = [], []
    page.on("pageerror", lambda error: wrong.append(f"script error: {error}"))
    page.on("console", lambda said: wrong.append(f"console: {said.text}") if said.type == "error" else None)
    page.on("request", lambda asked: None if re.match("file:|data:|blob:", asked.url) else outside.append(asked.url))
    page.set_viewport_size(size)
    page.goto(Path(path).as_uri(), wait_until="load")
    page.evaluate("() => window.MathJax && MathJax.startup ? MathJax.startup.promise.then(() => true) : true")
    page.wait_for_timeout(100)
    return wrong, outside


def unfold(page):
    """Open all that is closed, so that it is checked as well."""
    page.evaluate("""() => {
        document.querySelectorAll("main details").forEach(d => { d.open = true; });
        document.querySelectorAll(".toggle-hidden .toggle-button, button.toggle-button-hidden").forEach(b => b.click());
    }""")


def barriers(page, theme):
    """What axe-core finds in one theme."""
    page.emulate_media(color_scheme=theme)
    page.evaluate("theme => { Object.assign(document.documentElement.dataset, {theme, mode: theme}); }", theme)
    page.add_style_tag(content="*, *::before, *::after { transition: none !important; animation: none !important; }")
    unfold(page)
    page.wait_for_timeout(100)
    return [
        f"{found['id']} at {' '.join(map(str, node['target']))}: {node['failureSummary']}"
        for found in Axe().run(page, options=AXE).response["violations"]
        for node in found["nodes"]
    ]


def overflow(page):
    """Elements that make the page scroll sideways."""
    unfold(page)
    return page.evaluate("""() => {
        const root = document.documentElement, width = root.clientWidth;
        if (root.scrollWidth <= width && document.body.scrollWidth <= Math.max(width, document.body.clientWidth)) return [];
        const wide = [...document.body.querySelectorAll("*")].filter(
            e => e.getBoundingClientRect().right > width + 0.5 || e.scrollWidth > width && getComputedStyle(e).overflowX === "visible");
        return [`the page is ${root.scrollWidth} px wide`, ...wide.slice(0, 5).map(e => e.outerHTML.slice(0, 120))];
    }""")


def dead_sliders(page):
    """Sliders whose picture or spoken value stays as it was, by keyboard or by mouse."""
    found = []
    unfold(page)
    sliders = page.locator(".diffsim-explorer input[type=range]")
    for number in range(sliders.count()):
        slider = sliders.nth(number)
        shown = slider.locator("xpath=ancestor::*[contains(@class, 'diffsim-explorer')]").locator("[data-frame] img")
        if slider.get_attribute("max") == "0":
            continue

        def state(slider=slider, shown=shown):
            return {"picture": shown.get_attribute("src"), "spoken value": slider.get_attribute("aria-valuetext")}

        def click_at_the_end(slider=slider):
            slider.scroll_into_view_if_needed()
            box = slider.bounding_box()
            page.mouse.click(box["x"] + box["width"] - 3, box["y"] + box["height"] / 2)

        for way, move in {
            "ArrowRight": lambda slider=slider: slider.press("ArrowRight"),
            "a click": click_at_the_end,
        }.items():
            slider.press("Home")
            before = state()
            move()
            found += [
                f"slider {number}: {way} leaves the {part} as it was"
                for part, was in before.items()
                if state()[part] == was
            ]
    return found


def stuck_players(page):
    """Play buttons that don't start, that start by themselves, or that don't pause."""
    found = []
    players = page.locator(".diffsim-explorer:has([data-play])")
    for number in range(players.count()):
        player = players.nth(number)
        button, slider = player.locator("[data-play]"), player.locator("input[type=range]")
        beat = 1000 * float(button.get_attribute("data-seconds")) / (int(slider.get_attribute("max")) + 1)
        picture = lambda player=player: player.locator("[data-frame] img").get_attribute("src")
        first = picture()
        page.wait_for_timeout(1.5 * beat)
        if picture() != first:
            found.append(f"player {number} starts by itself")
        button.click()
        page.wait_for_timeout(1.7 * beat)
        if picture() == first or button.inner_text() != "Pause":
            found.append(f"player {number} doesn't start")
        button.click()
        paused = picture()
        page.wait_for_timeout(1.5 * beat)
        if picture() != paused or button.inner_text() != "Play":
            found.append(f"player {number} doesn't pause")
    return found


def checkpoints_shown(page):
    return page.locator("table.diffsim-checkpoints tbody tr").count()


def too_large(path):
    size = Path(path).stat().st_size
    return [f"{size / 1e6:.2f} MB"] if size > MOST_BYTES else []


# The book.


@every_page
def test_nothing_fails_and_nothing_is_asked_of_another_site(page, book, name):
    wrong, outside = visit(page, book / f"{name}.html")
    assert (wrong, outside) == ([], [])


def test_the_front_door_leads_to_the_first_page(page, book):
    page.goto((book / "index.html").as_uri())
    page.wait_for_url(f"**/{PAGES[0]}.html")


@pytest.mark.parametrize("theme", ["light", "dark"])
@every_page
def test_axe_finds_nothing(page, book, name, theme):
    visit(page, book / f"{name}.html")
    assert barriers(page, theme) == []


@every_page
def test_axe_finds_nothing_on_a_phone(page, book, name):
    visit(page, book / f"{name}.html", PHONE)
    assert barriers(page, "light") == []


@every_page
def test_a_phone_needs_no_scrolling_sideways(page, book, name):
    visit(page, book / f"{name}.html", PHONE)
    assert overflow(page) == []


@every_page
def test_the_page_is_small_enough(book, name):
    assert too_large(book / f"{name}.html") == []


@every_notebook
def test_explorers_answer_to_keyboard_and_mouse(page, book, name):
    visit(page, book / f"{name}.html")
    assert page.locator(".diffsim-explorer:not(:has([data-play]))").count() >= 1
    assert dead_sliders(page) == []


@every_notebook
def test_animations_play_and_pause(page, book, name):
    visit(page, book / f"{name}.html")
    assert stuck_players(page) == []


@every_notebook
def test_the_checkpoints_are_shown_and_hold(page, book, name):
    visit(page, book / f"{name}.html")
    assert checkpoints_shown(page) >= 5
    verdicts = page.locator("table.diffsim-checkpoints tbody td:last-child").all_inner_texts()
    assert set(verdicts) == {"yes"}


@every_page
def test_every_picture_says_what_it_shows(page, book, name):
    visit(page, book / f"{name}.html")
    alts = page.locator("article img").evaluate_all("images => images.map(image => image.alt)")
    assert [alt for alt in alts if len(alt.split()) < 3] == []


def test_the_status_page_has_the_run_times(page, book):
    visit(page, book / "chapters/status.html")
    table = page.locator("table", has=page.get_by_text(re.compile("run time", re.I)))
    assert table.count() == 1
    text = table.inner_text()
    for name in NOTEBOOKS:
        assert name in text, f"{name} has no run time"
    assert len(re.findall(r"\b\d+\.\d+\b", text)) >= len(NOTEBOOKS)


# Planted faults: each must be found, and the page without it must pass.

PLAIN = """<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><title>A page</title>
<meta name="viewport" content="width=device-width, initial-scale=1"></head>
<body><main><h1>A page</h1>{}</main></body></html>"""


def bar(height):
    figure, ax = plt.subplots(figsize=(2, 2))
    ax.bar([0], [height])
    ax.set_ylim(0, 3)
    return figure


@pytest.fixture
def planted(tmp_path):
    def write(body):
        path = tmp_path / "planted.html"
        path.write_text(PLAIN.format(body), encoding="utf-8")
        return path

    return write


@pytest.fixture
def explorer():
    controls = {"height": [1, 2], "wide": [0.5, 1.0]}
    return Explorer(lambda height, wide: bar(height * wide), controls, alt="A bar of some height.")


@pytest.fixture
def animation():
    return Animation([bar(height) for height in (0.5, 1, 1.5, 2, 2.5, 3)], alt="A bar that grows.", seconds=1.8)


def without_program(text):
    return re.sub(r"<script>.*?</script>", "", text, flags=re.S)


def test_a_faultless_page_passes(page, planted, explorer, animation):
    path = planted(explorer.html() + animation._repr_mimebundle_()["text/html"])
    assert visit(page, path) == ([], [])
    assert dead_sliders(page) == []
    assert stuck_players(page) == []
    assert too_large(path) == []
    for theme in ("light", "dark"):
        assert barriers(page, theme) == []
    page.set_viewport_size(PHONE)
    assert overflow(page) == []


@pytest.mark.parametrize(
    "body",
    [
        '<img alt="A picture from elsewhere." src="https://example.invalid/a.png">',
        '<script src="http://example.invalid/a.js"></script>',
        "<script>fetch('https://example.invalid/a.json').catch(() => 0)</script>",
        "<style>@import url(https://example.invalid/a.css);</style>",
    ],
)
def test_a_request_to_another_site_is_found(page, planted, body):
    _, outside = visit(page, planted(body))
    assert len(outside) == 1 and "example.invalid" in outside[0]


@pytest.mark.parametrize(
    "body", ["console.error('planted')", "throw new Error('planted')", "setTimeout(() => planted(), 10)"]
)
def test_a_script_error_is_found(page, planted, body):
    wrong, _ = visit(page, planted(f"<script>{body}</script>"))
    assert len(wrong) == 1 and "planted" in wrong[0]


def test_a_missing_file_is_found(page, planted):
    wrong, _ = visit(page, planted('<img alt="A picture that is missing." src="missing.png">'))
    assert wrong


@pytest.mark.parametrize(
    ("body", "rule"),
    [
        ('<img src="data:image/gif;base64,R0lGODlhAQABAAAAACwAAAAAAQABAAA=">', "image-alt"),
        ('<p style="background: #fff; color: #bbb">Pale text.</p>', "color-contrast"),
        ('<input type="range" min="0" max="2">', "label"),
        ("<details><summary>More</summary><button></button></details>", "button-name"),
        ('<button aria-label="Search">Search Ctrl+K</button>', "label-content-name-mismatch"),
    ],
)
def test_a_barrier_is_found(page, planted, body, rule):
    visit(page, planted(body))
    assert any(found.startswith(f"{rule} ") for found in barriers(page, "light"))


def test_a_barrier_in_the_dark_theme_is_found(page, planted):
    visit(page, planted("<style>[data-theme=dark] p { background: #000; color: #222 }</style><p>Dark on dark.</p>"))
    assert barriers(page, "light") == []
    assert [found for found in barriers(page, "dark") if found.startswith("color-contrast ")]


def test_a_dead_explorer_is_found(page, planted, explorer):
    visit(page, planted(without_program(explorer.html())))
    assert len(dead_sliders(page)) == 8  # two sliders, two ways, picture and spoken value


def test_an_explorer_with_the_same_picture_throughout_is_found(page, planted):
    visit(page, planted(Explorer(lambda n: bar(1), {"n": [1, 2]}, alt="A bar that never changes.", raster=True).html()))
    assert dead_sliders(page) == [f"slider 0: {way} leaves the picture as it was" for way in ("ArrowRight", "a click")]


def test_a_stuck_player_is_found(page, planted, animation):
    text = animation._repr_mimebundle_()["text/html"]
    visit(page, planted(without_program(text)))
    assert stuck_players(page) == ["player 0 doesn't start"]
    visit(page, planted(text + "<script>document.querySelector('[data-play]').click()</script>"))
    assert "player 0 starts by itself" in stuck_players(page)
    visit(page, planted(text + "<script>window.clearInterval = () => {}</script>"))
    assert stuck_players(page) == ["player 0 doesn't pause"]


@pytest.mark.parametrize("body", ['<div style="width: 800px">Wide.</div>', "<pre>" + "wide " * 100 + "</pre>"])
def test_an_element_wider_than_the_phone_is_found(page, planted, body):
    visit(page, planted(body), PHONE)
    assert len(overflow(page)) >= 2


def test_a_table_with_too_few_checkpoints_is_found(page, planted, monkeypatch):
    monkeypatch.setattr(checkpoints, "_rows", [])
    check("sum", 2, 2, why="counted")
    visit(page, planted(checkpoint_table()._repr_html_()))
    assert checkpoints_shown(page) == 1


def test_a_page_that_is_too_large_is_found(planted):
    assert too_large(planted("x" * MOST_BYTES)) == ["1.50 MB"]
