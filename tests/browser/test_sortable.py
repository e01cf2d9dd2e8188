"""SortableTable by mouse and by keyboard; the element stands twice, as when an output is repeated."""

import pytest
from axe_playwright_python.sync_playwright import Axe

from diffsim.book import SortableTable

ROWS = [
    {"scene": "wall", "steps": 10, "error": 2e-10},
    {"scene": "ball", "steps": 9, "error": None},
    {"scene": "Pusher", "steps": 200, "error": 0.5},
    {"scene": "wall", "steps": 9.5},
]
PAGE = """<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><title>Tables</title></head>
<body><main><h1>Tables</h1>{}</main></body></html>"""


@pytest.fixture
def write(tmp_path):
    text = PAGE.format(SortableTable(ROWS, caption="Scenes", filters=("scene", "error")).html() * 2)
    path = tmp_path / "tables.html"
    path.write_text(text, encoding="utf-8")
    return path.as_uri()


@pytest.fixture
def tables(page, write):
    wrong = []
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.goto(write)
    yield page.locator(".diffsim-sortable")
    assert wrong == []


def column(table, number):
    cells = table.locator(f"tbody tr:not([hidden]) td:nth-child({number})")
    return cells.all_inner_texts()


def orders(table):
    return [head.get_attribute("aria-sort") for head in table.locator("th").all()]


def said(table):
    return table.locator("[aria-live]").inner_text()


@pytest.mark.parametrize("press", [lambda b: b.click(), lambda b: b.press("Enter"), lambda b: b.press("Space")])
def test_heading_sorts_and_turns_round(tables, press):
    first, second = tables.nth(0), tables.nth(1)
    steps = first.get_by_role("button", name="steps", exact=True)
    press(steps)
    assert column(first, 2) == ["9", "9.5", "10", "200"]
    assert orders(first) == [None, "ascending", None]
    assert said(first) == "4 of 4 rows, sorted by steps, ascending."
    press(steps)
    assert column(first, 2) == ["200", "10", "9.5", "9"]
    assert orders(first) == [None, "descending", None]
    assert column(second, 2) == ["10", "9", "200", "9.5"] and orders(second) == [None] * 3


def test_texts_sort_as_words_and_empty_cells_stay_last(tables):
    table = tables.nth(0)
    table.get_by_role("button", name="scene", exact=True).click()
    assert column(table, 1) == ["ball", "Pusher", "wall", "wall"]
    error = table.get_by_role("button", name="error", exact=True)
    error.click()
    assert column(table, 3) == ["2e-10", "0.5", "", ""] and orders(table) == [None, None, "ascending"]
    error.click()
    assert column(table, 3) == ["0.5", "2e-10", "", ""]


def test_filters_combine_and_say_how_many_rows_are_left(tables):
    table = tables.nth(1)
    scene, error = (table.get_by_role("combobox", name=name) for name in ("scene", "error"))
    scene.select_option("wall")
    assert column(table, 2) == ["10", "9.5"] and said(table) == "2 of 4 rows."
    error.select_option(label="(empty)")
    assert column(table, 2) == ["9.5"] and said(table) == "1 of 4 rows."
    scene.select_option(label="all")
    assert column(table, 2) == ["9", "9.5"]
    assert len(column(tables.nth(0), 2)) == 4


def test_table_is_accessible(tables):
    found = Axe().run(tables.first.page)
    assert not found.response["violations"], found.generate_report()


def test_without_scripts_it_is_a_plain_table(browser, write):
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(write)
    table = page.locator(".diffsim-sortable").first
    assert column(table, 1) == ["wall", "ball", "Pusher", "wall"]
    assert page.get_by_role("button").count() == page.get_by_role("combobox").count() == 0
    context.close()
