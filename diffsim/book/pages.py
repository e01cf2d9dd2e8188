"""A Sphinx extension that takes out of the built pages what they cannot use.

The theme preloads its fonts across origins, which a browser refuses on `file://`, and jupyter-book prepares every page,
twice, for a kernel service on another site, which these pages don't have.
"""

import re
from pathlib import Path

__all__ = ["setup", "tidied"]

UNUSED = re.compile(
    r'<link rel="preload" as="font"[^>]*>'
    r"|<link [^>]*sphinx-thebe\.css[^>]*>"
    r"|<script[^>]*sphinx-thebe\.js[^>]*></script>"
    r'|<script[^>]*type="text/x-thebe-config"[^>]*>.*?</script>'
    r"|<script>(?:(?!</script>).)*?(?:THEBE_JS_URL|thebe_selector)(?:(?!</script>).)*?</script>",
    re.DOTALL,
)


def tidied(page: str) -> str:
    """The page's HTML without font preloads and without the kernel service's parts.

    Example:
        >>> tidied('<p>a</p><script>const THEBE_JS_URL = "x";</script><script>let b = 1;</script>')
        '<p>a</p><script>let b = 1;</script>'
    """
    return UNUSED.sub("", page)


def _tidy_all(app, exception):
    if exception is None and app.builder.format == "html":
        for path in Path(app.outdir).rglob("*.html"):
            path.write_text(tidied(path.read_text(encoding="utf-8")), encoding="utf-8")


def setup(app):
    """Register with Sphinx.

    Example:
        >>> class App:
        ...     connect = lambda self, event, handler: print(event)
        >>> setup(App())["parallel_read_safe"]
        build-finished
        True
    """
    app.connect("build-finished", _tidy_all)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
