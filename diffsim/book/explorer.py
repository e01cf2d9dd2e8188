"""Explorer: a figure with sliders that lives in a notebook, on a static page, in a PDF and in a terminal."""

import base64
import html
import itertools
import json
import os
from collections.abc import Callable, Mapping, Sequence
from importlib import resources
from typing import Any

import matplotlib.pyplot as plt
from matplotlib.figure import Figure

from diffsim.book.figures import image_tag, require_alt, to_png, to_svg

__all__ = ["Animation", "Explorer"]

MOST_FRAMES = 400
MOST_BYTES = 1_300_000
# Set by the book's build: a page that carries no widget state asks no other site for scripts.
BUILDING = "DIFFSIM_BOOK_BUILD"


class _Frames:
    """Precomputed pictures, one per combination of control values, and the page element that shows one of them."""

    def __init__(self, controls, pictures, start, *, units, caption, seconds=None):
        self.controls, self.pictures, self.start = controls, pictures, start
        self.units, self.caption, self.seconds = units, caption, seconds

    def html(self) -> str:
        """A self-contained element: native range inputs, a live region, the numbers as a table, its own script."""
        frames = [{"src": image_tag(p["image"], p["kind"], p["alt"]), "say": p["say"]} for p in self.pictures]
        script = resources.files("diffsim.book").joinpath("explorer.js").read_text(encoding="utf-8")
        shown = self.pictures[self._index()]
        data = json.dumps(frames).replace("<", "\\u003c")
        play = f'<button type="button" data-play data-seconds="{self.seconds}">Play</button>' if self.seconds else ""
        return (
            '<div class="diffsim-explorer" role="group" aria-label="' + html.escape(self.caption, quote=True) + '">'
            f"<div data-frame>{image_tag(shown['image'], shown['kind'], shown['alt'])}</div>"
            f'<div class="diffsim-controls">{play}{"".join(map(self._control, self.controls))}</div>'
            f'<p data-say aria-live="polite">{html.escape(shown["say"])}</p>'
            f"{self._table()}"
            f'<script type="application/json" data-frames>{data}</script>'
            f"<script>{script}</script></div>"
        )

    def _index(self):
        index = 0
        for name, values in self.controls.items():
            index = index * len(values) + values.index(self.start[name])
        return index

    def _control(self, name):
        values = self.controls[name]
        unit = self.units.get(name, "")
        texts = [f"{_text(v)} {unit}".strip() for v in values]
        at = values.index(self.start[name])
        # The label holds its slider, and nothing has an id: two copies of the element on a page don't meet.
        return (
            f"<label><span>{html.escape(name)}</span>"
            f'<input type="range" min="0" max="{len(values) - 1}" step="1" value="{at}" '
            f"data-texts='{html.escape(json.dumps(texts), quote=True)}' "
            f'aria-valuetext="{html.escape(f"{name} {texts[at]}", quote=True)}">'
            f'<span aria-hidden="true">{html.escape(texts[at])}</span></label>'
        )

    def _table(self):
        names = list(dict.fromkeys(key for picture in self.pictures for key in picture["numbers"]))
        if not names:
            return ""
        settings = [f"{name} [{self.units[name]}]" if self.units.get(name) else name for name in self.controls]
        heads = "".join(f'<th scope="col">{html.escape(name)}</th>' for name in (*settings, *names))
        rows = "".join(
            "<tr>"
            + "".join(f"<td>{html.escape(_text(v))}</td>" for v in combination)
            + "".join(f"<td>{html.escape(_text(picture['numbers'].get(n, '')))}</td>" for n in names)
            + "</tr>"
            for combination, picture in zip(itertools.product(*self.controls.values()), self.pictures, strict=True)
        )
        return (
            f'<details><summary>All numbers as a table</summary><div class="diffsim-table" tabindex="0" role="group" '
            f'aria-label="All numbers"><table><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table></div></details>'
        )


class Explorer:
    """A function of a few settings, shown as a figure with one slider per setting.

    One display object returns one MIME bundle. On the built page: self-contained HTML over precomputed frames,
    without kernel or library, by mouse and keyboard. In JupyterLab: ipywidgets that call `fn`. In a PDF: the start
    frame. In a terminal: its text.

    Args:
        fn: `fn(**values)` returns a Matplotlib figure, or `(figure, numbers)` with a dict of numbers or texts.
        controls: name → values, in the order of the slider.
        alt: what a frame shows, a sentence or a function of the values that returns one.
        start: the values to begin with; the first of each when left out.
        units: name → unit.
        raster: PNG frames, for figures with many marks.

    Raises:
        ValueError: no values, an unknown start, too many frames, no alt text, a page element that is too large.
        TypeError: `fn` returns something else.

    Example:
        >>> Explorer(lambda n: plt.figure(), {"n": [1, 2]}, alt="An empty page, twice.")
        Explorer over n: 1, 2. An empty page, twice.
    """

    def __init__(
        self,
        fn: Callable[..., Any],
        controls: Mapping[str, Sequence],
        *,
        alt: str | Callable[..., str],
        start: Mapping[str, Any] | None = None,
        units: Mapping[str, str] | None = None,
        raster: bool = False,
    ):
        self._fn, self._alt, self._raster, self._units = fn, alt, raster, dict(units or {})
        self._controls = {name: list(values) for name, values in controls.items()}
        if not self._controls or not all(self._controls.values()):
            raise ValueError("Explorer needs at least one control with at least one value, such as {'steps': [8, 16]}.")
        frames = 1
        for values in self._controls.values():
            frames *= len(values)
        if frames > MOST_FRAMES:
            raise ValueError(
                f"Explorer would hold {frames} frames, more than {MOST_FRAMES}; give its controls fewer values."
            )
        self._start = {name: (start or {}).get(name, values[0]) for name, values in self._controls.items()}
        for name, value in {**self._start, **(start or {})}.items():
            if value not in self._controls.get(name, []):
                raise ValueError(
                    f"Explorer can't start at {name}={value!r}; write one of {self._controls.get(name, self._controls)}."
                )

    def __repr__(self):
        listed = "; ".join(f"{name}: {', '.join(map(_text, values))}" for name, values in self._controls.items())
        return f"Explorer over {listed}. {self._words(self._start)}"

    def _words(self, values):
        alt = self._alt(**values) if callable(self._alt) else self._alt
        require_alt(alt, "Explorer")
        return alt

    def _call(self, values):
        made = self._fn(**values)
        figure, numbers = made if isinstance(made, tuple) and len(made) == 2 else (made, {})
        if not isinstance(figure, Figure) or not isinstance(numbers, Mapping):
            raise TypeError(
                f"Explorer's function returned {type(made).__name__} at {values}; return a Matplotlib figure, or a pair of "
                "a figure and a dict of numbers."
            )
        return figure, numbers

    def _picture(self, values):
        figure, numbers = self._call(values)
        image, kind = (to_png(figure), "png") if self._raster else (to_svg(figure).encode(), "svg+xml")
        plt.close(figure)
        settings = ", ".join(f"{n} {_text(v)} {self._units.get(n, '')}".strip() for n, v in values.items())
        listed = "; ".join(f"{name}: {_text(number)}" for name, number in numbers.items())
        say = f"{settings}. {listed}".strip() if listed else f"{settings}."
        return {"image": image, "kind": kind, "alt": self._words(values), "numbers": numbers, "say": say}

    def html(self) -> str:
        """The element for the built page.

        Example:
            >>> "<input" in Explorer(lambda n: plt.figure(), {"n": [1, 2]}, alt="An empty page.").html()
            True
        """
        names = list(self._controls)
        pictures = [
            self._picture(dict(zip(names, combination, strict=True)))
            for combination in itertools.product(*self._controls.values())
        ]
        text = _Frames(
            self._controls, pictures, self._start, units=self._units, caption=f"Explorer over {', '.join(names)}"
        ).html()
        return _within_size(text, "Explorer")

    def _repr_mimebundle_(self, include=None, exclude=None):
        figure, _ = self._call(self._start)
        bundle = {
            "text/html": self.html(),
            "image/png": base64.b64encode(to_png(figure)).decode(),
            "text/plain": repr(self),
        }
        plt.close(figure)
        if not os.environ.get(BUILDING):
            bundle |= self.live()._repr_mimebundle_()
        return bundle

    def live(self):
        """The ipywidgets for a running kernel: one slider per control, which calls the function.

        Example:
            >>> len(Explorer(lambda n: plt.figure(), {"n": [1, 2]}, alt="An empty page.").live().children)
            3
        """
        import ipywidgets  # type: ignore[import-untyped]

        sliders = {
            name: ipywidgets.SelectionSlider(
                options=[(f"{_text(v)} {self._units.get(name, '')}".strip(), v) for v in values],
                value=self._start[name],
                description=name,
                continuous_update=False,
                style={"description_width": "initial"},
            )
            for name, values in self._controls.items()
        }
        image, say = ipywidgets.HTML(), ipywidgets.HTML()

        def redraw(_=None):
            picture = self._picture({name: slider.value for name, slider in sliders.items()})
            image.value = image_tag(picture["image"], picture["kind"], picture["alt"])
            say.value = html.escape(picture["say"])

        for slider in sliders.values():
            slider.observe(redraw, "value")
        redraw()
        return ipywidgets.VBox([*sliders.values(), image, say])


class Animation:
    """A sequence of figures with a play button and a slider; it never starts by itself.

    Args:
        figures: Matplotlib figures of one size, in order.
        alt: what happens, in a sentence.
        seconds: how long the whole takes.

    Raises:
        ValueError: no figures, no alt text, a page element that is too large.

    Example:
        >>> Animation([plt.figure(), plt.figure()], alt="An empty page stays empty.", seconds=1)
        An empty page stays empty.
    """

    def __init__(self, figures: Sequence[Figure], *, alt: str, seconds: float | int):
        require_alt(alt, "Animation")
        if not figures:
            raise ValueError("Animation needs at least one figure.")
        self._alt, self._seconds = alt, seconds
        self._images = [to_png(figure, dpi=80) for figure in figures]
        for figure in figures:
            plt.close(figure)

    def __repr__(self):
        return self._alt

    def _repr_mimebundle_(self, include=None, exclude=None):
        numbers = list(range(1, len(self._images) + 1))
        pictures = [
            {
                "image": image,
                "kind": "png",
                "alt": f"{self._alt} Frame {n} of {len(numbers)}.",
                "numbers": {},
                "say": f"frame {n}",
            }
            for n, image in zip(numbers, self._images, strict=True)
        ]
        frames = _Frames({"frame": numbers}, pictures, {"frame": 1}, units={}, caption=self._alt, seconds=self._seconds)
        return {
            "text/html": _within_size(frames.html(), "Animation"),
            "image/png": base64.b64encode(self._images[0]).decode(),
            "text/plain": self._alt,
        }


def _within_size(text, what):
    size = len(text.encode())
    if size > MOST_BYTES:
        raise ValueError(
            f"{what} needs {size / 1e6:.1f} MB of HTML, more than {MOST_BYTES / 1e6:.1f}; use fewer values, smaller "
            "figures, or raster=True where a figure has many marks."
        )
    return text


def _text(value) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
