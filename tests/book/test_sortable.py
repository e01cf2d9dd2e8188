"""SortableTable: what the element holds; tests/browser tries what a reader does with it."""

import re

import pytest

from diffsim.book import SortableTable

ROWS = [
    {"scene": "wall", "steps": 10, "error": 2e-10},
    {"scene": "ball", "steps": 9, "error": None},
    {"scene": "pusher", "steps": 200, "error": 0.5},
    {"scene": "wall", "steps": 9.5},
]


def table(**options):
    return SortableTable(ROWS, caption="Scenes & <errors>", **options)


def test_bundle_is_html_and_text():
    bundle = table()._repr_mimebundle_()
    assert set(bundle) == {"text/html", "text/plain"}
    assert bundle["text/plain"].splitlines()[:3] == [
        "Scenes & <errors>",
        "scene   steps  error",
        "wall    10     2e-10",
    ]


def test_every_text_is_escaped():
    text = SortableTable([{"<b>\"'": "</script><i>&\"'"}], caption="<u>\"'", filters=("<b>\"'",)).html()
    assert not re.search(r"<[biu]>", text) and text.count("</script>") == 1
    assert "&lt;/script&gt;&lt;i&gt;&amp;&quot;&#x27;" in text


def test_table_reads_without_scripts():
    text = table(filters=("scene",)).html()
    markup = text.partition("<script>")[0]
    assert "<button" not in markup and "data-filters hidden>" in markup
    assert "<caption>Scenes &amp; &lt;errors&gt;</caption>" in markup and markup.count('<th scope="col">') == 3


def test_element_is_self_contained_and_has_no_id():
    text = table(filters=("scene", "steps")).html()
    assert not re.search(r"https?:|//cdn|<link|<script src|\b(id|for)=", text)
    assert text == table(filters=("scene", "steps")).html()


def test_options_stand_once_and_in_order():
    options = re.findall(r'<option value="(.*?)">(.*?)</option>', table(filters=("steps", "error")).html())
    assert [text for _, text in options] == ["all", "9", "9.5", "10", "200", "all", "2e-10", "0.5", "(empty)"]
    assert options[-1][0] == ""


def test_numbers_sort_by_value_and_not_by_their_rounded_text():
    text = SortableTable([{"x": 1.00001}, {"x": float("-inf")}, {"x": float("nan")}, {"x": True}], caption="x").html()
    assert '<td data-number="1.00001">1</td><' in text and '<td data-number="-Infinity">-inf</td>' in text
    assert "<td>nan</td>" in text and "<td>True</td>" in text


@pytest.mark.parametrize(
    ("rows", "options", "message"),
    [
        ([], {"caption": "x"}, "needs at least one row"),
        ([{}], {"caption": "x"}, "needs at least one row"),
        (ROWS, {"caption": " "}, "needs a caption"),
        (ROWS, {"caption": "x", "filters": ("size",)}, "can't filter by size; its columns are scene, steps, error"),
    ],
)
def test_what_cannot_be_shown_is_refused(rows, options, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        SortableTable(rows, **options)
