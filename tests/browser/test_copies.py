"""An explorer whose HTML stands twice on a page, as when a notebook is exported or an output is repeated."""

import matplotlib.pyplot as plt
import pytest

from diffsim.book import Explorer

PAGE = """<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><title>Copies</title></head>
<body><main><h1>Copies</h1>{}</main></body></html>"""


@pytest.fixture
def copies(page, tmp_path):
    def bar(height, wide):
        figure, ax = plt.subplots(figsize=(2, 2))
        ax.bar([0], [height * wide])
        ax.set_ylim(0, 3)
        return figure

    element = Explorer(bar, {"height": [1, 2], "wide": [0.5, 1.0]}, alt="A bar of some height.").html()
    path = tmp_path / "copies.html"
    path.write_text(PAGE.format(element * 2), encoding="utf-8")
    wrong = []
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.goto(path.as_uri())
    return page.locator(".diffsim-explorer"), wrong


def state(explorer):
    sliders = explorer.locator("input[type=range]").all()
    return [explorer.locator("[data-frame] img").get_attribute("src"), explorer.locator("[data-say]").inner_text()] + [
        slider.get_attribute("aria-valuetext") for slider in sliders
    ]


@pytest.mark.parametrize(("moved", "still"), [(0, 1), (1, 0)])
@pytest.mark.parametrize("slider", [0, 1])
def test_each_copy_answers_for_itself(copies, moved, still, slider):
    explorers, wrong = copies
    before, other = state(explorers.nth(moved)), state(explorers.nth(still))
    explorers.nth(moved).locator("input[type=range]").nth(slider).press("ArrowRight")
    after = state(explorers.nth(moved))
    assert after[0] != before[0] and after[1] != before[1] and after[2 + slider] != before[2 + slider]
    assert state(explorers.nth(still)) == other
    assert wrong == []


def test_sliders_are_named_by_their_labels_and_one_region_speaks(copies):
    explorers, _ = copies
    for number in range(2):
        explorer = explorers.nth(number)
        assert [explorer.get_by_role("slider", name=name, exact=True).count() for name in ("height", "wide")] == [1, 1]
        assert explorer.locator("output, [role=status], [aria-live]").count() == 1
