"""Figures: alternative text, one style, the same picture on every run."""

import base64
import io

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pytest
from PIL import Image

from diffsim.book import figures as module
from diffsim.book import show, use_style


@pytest.fixture(autouse=True)
def style():
    with mpl.rc_context():
        use_style()
        yield
        plt.close("all")


def line():
    figure, ax = plt.subplots(figsize=(3, 2))
    ax.plot([0, 1], [0, 1])
    return figure


@pytest.mark.parametrize("alt", ["", "  ", "figure", "A line", None])
def test_show_needs_alternative_text(alt):
    with pytest.raises(ValueError, match="say in a sentence what the picture shows"):
        show(line(), alt=alt)
    with pytest.raises(TypeError):
        show(line())


@pytest.mark.parametrize(("raster", "kind"), [(False, "svg+xml"), (True, "png")])
def test_show_makes_page_pdf_and_terminal(raster, kind):
    picture = show(line(), alt='A "rising" line & <more>.', caption="Rising <fast>", raster=raster)
    assert plt.get_fignums() == []
    bundle = picture._repr_mimebundle_()
    assert set(bundle) == {"text/html", "image/png", "text/plain"}
    assert 'alt="A &quot;rising&quot; line &amp; &lt;more&gt;."' in bundle["text/html"]
    assert "<figcaption>Rising &lt;fast&gt;</figcaption>" in bundle["text/html"]
    assert f'src="data:image/{kind};base64,' in bundle["text/html"]
    assert bundle["text/plain"] == repr(picture) == 'A "rising" line & <more>.'
    assert Image.open(io.BytesIO(base64.b64decode(bundle["image/png"]))).format == "PNG"


def test_no_caption_no_element():
    assert "figcaption" not in show(line(), alt="A rising line.")._repr_mimebundle_()["text/html"]


def test_the_same_picture_on_every_run():
    assert module.to_svg(line()) == module.to_svg(line())
    assert module.to_png(line()) == module.to_png(line())


def test_png_follows_the_resolution():
    small, large = (Image.open(io.BytesIO(module.to_png(line(), dpi=dpi))).size for dpi in (50, 100))
    assert large[0] > 1.7 * small[0]


def test_lines_differ_in_style_as_well_as_colour():
    cycle = list(mpl.rcParams["axes.prop_cycle"])
    assert len({step["color"] for step in cycle}) == len(cycle)
    assert all(str(a["linestyle"]) != str(b["linestyle"]) for a, b in zip(cycle, cycle[1:], strict=False))


def test_neighbouring_colours_differ_in_lightness_or_hue_without_red_and_green():
    # Deuteranopia, roughly: red and green are seen as their mean.
    seen = [np.array([(r + g) / 2, (r + g) / 2, b]) for r, g, b in map(mpl.colors.to_rgb, module.COLOURS)]
    assert min(np.linalg.norm(a - b) for a, b in zip(seen, seen[1:], strict=False)) > 0.1
