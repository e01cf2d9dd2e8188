"""Figures of the book: one style, and a picture never without words for those who don't see it."""

import base64
import html
import io

import matplotlib as mpl
import matplotlib.pyplot as plt
from cycler import cycler
from matplotlib.figure import Figure
from PIL import Image

__all__ = ["Picture", "show", "to_png", "to_svg", "use_style"]

# Okabe and Ito's palette; each colour comes with a line style of its own.
COLOURS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000"]
STYLES = ["-", "--", "-.", ":", (0, (5, 1)), (0, (3, 1, 1, 1)), "-"]


def use_style() -> None:
    """Set the book's figure style for the session.

    Example:
        >>> use_style()
        >>> mpl.rcParams["svg.hashsalt"]
        'diffsim'
    """
    mpl.rcParams.update(
        {
            "axes.prop_cycle": cycler(color=COLOURS, linestyle=STYLES),
            "axes.grid": True,
            "axes.spines.right": False,
            "axes.spines.top": False,
            "figure.facecolor": "white",
            "font.size": 11,
            "grid.alpha": 0.3,
            "legend.frameon": False,
            "lines.linewidth": 1.8,
            "svg.fonttype": "path",
            "svg.hashsalt": "diffsim",
        }
    )
    mpl.use("agg")


def to_svg(figure: Figure) -> str:
    """The figure as an SVG document, the same text on every run.

    Example:
        >>> to_svg(Figure()).startswith("<?xml")
        True
    """
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", bbox_inches="tight", metadata={"Date": None})
    return buffer.getvalue()


def to_png(figure: Figure, dpi: int = 110) -> bytes:
    """The figure as a PNG file.

    Example:
        >>> to_png(Figure())[1:4]
        b'PNG'
    """
    full, small = io.BytesIO(), io.BytesIO()
    figure.savefig(full, format="png", dpi=dpi, bbox_inches="tight")
    # Line art needs few colours; a palette makes the page a third of the size.
    Image.open(full).convert("RGB").quantize(64).save(small, format="png", optimize=True)
    return small.getvalue()


class Picture:
    """A figure with alternative text and an optional caption, for the page, for PDF and for a terminal.

    Example:
        >>> Picture(b"...", "svg+xml", b"...", "A falling line.")
        A falling line.
    """

    def __init__(self, image: bytes, kind: str, png: bytes, alt: str, caption: str | None = None):
        self._image, self._kind, self._png, self._alt, self._caption = image, kind, png, alt, caption

    def __repr__(self):
        return self._alt

    def _repr_mimebundle_(self, include=None, exclude=None):
        caption = f"<figcaption>{html.escape(self._caption)}</figcaption>" if self._caption else ""
        return {
            "text/html": f'<figure class="diffsim-figure">{image_tag(self._image, self._kind, self._alt)}{caption}</figure>',
            "image/png": base64.b64encode(self._png).decode(),
            "text/plain": self._alt,
        }


def image_tag(image: bytes, kind: str, alt: str) -> str:
    """An `<img>` that carries its own data."""
    data = base64.b64encode(image).decode()
    # The theme dims pictures in the dark, except those of this class.
    return f'<img class="dark-light" alt="{html.escape(alt, quote=True)}" src="data:image/{kind};base64,{data}">'


def show(figure: Figure, *, alt: str | None, caption: str | None = None, raster: bool = False) -> Picture:
    """Show a Matplotlib figure on the page, and close it.

    Args:
        alt: what the figure shows, in words; required.
        raster: PNG instead of SVG, for figures with many marks.

    Raises:
        ValueError: no alternative text.

    Example:
        >>> show(plt.figure(), alt="An empty page.")
        An empty page.
    """
    words = require_alt(alt, "show")
    png = to_png(figure)
    image, kind = (png, "png") if raster else (to_svg(figure).encode(), "svg+xml")
    plt.close(figure)
    return Picture(image, kind, png, words, caption)


def require_alt(alt: str | None, what: str) -> str:
    """The words that come with a picture; ValueError when there are none."""
    if not isinstance(alt, str) or len(alt.split()) < 3:
        raise ValueError(
            f"{what} got alt={alt!r}; say in a sentence what the picture shows, for those who can't see it."
        )
    return alt
