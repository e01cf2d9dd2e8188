"""One real browser for the session, and the built book for it to open."""

import fcntl
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from playwright.sync_api import sync_playwright

ROOT = Path(__file__).parents[2]
HTML = ROOT / "_build/html"


@pytest.fixture(scope="session")
def browser():
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.fail(
            "There is no chromium on PATH: install it (Debian and Ubuntu: sudo apt-get install chromium).",
            pytrace=False,
        )
    with sync_playwright() as playwright:
        arguments = ["--headless", "--no-sandbox", "--disable-background-networking"]
        browser = playwright.chromium.launch(executable_path=chromium, args=arguments)
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def book(tmp_path_factory):
    """The folder of built pages; they are built when there are none."""
    # Several workers may get here at once, and one of them builds.
    with open(tmp_path_factory.getbasetemp().parent / "book.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (HTML / "index.html").is_file():
            made = subprocess.run(
                [sys.executable, "-m", "diffsim.book", "build"], cwd=ROOT, capture_output=True, text=True
            )
            if made.returncode:
                pytest.fail(f"The book was not built:\n{made.stdout[-3000:]}{made.stderr[-3000:]}", pytrace=False)
    return HTML


@pytest.fixture
def page(browser):
    """A tab of its own; what it asks of another site is refused, so that no test depends on the network."""
    context = browser.new_context(reduced_motion="reduce")
    context.route("http*://**", lambda route: route.abort())
    page = context.new_page()
    yield page
    context.close()
