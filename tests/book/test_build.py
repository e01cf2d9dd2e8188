"""The book's build, on a tiny book and without Sphinx: what is executed again, and what it tells the reader."""

import socket
import subprocess
import threading
from urllib.request import urlopen

import pytest

import diffsim.book.__main__ as commands
import diffsim.book.build as builder
from diffsim.book.__main__ import main
from diffsim.book.explorer import BUILDING


@pytest.fixture
def book(tmp_path):
    files = {
        "_toc.yml": "format: jb-book\nroot: chapters/intro\n",
        "_config.yml": "title: Tiny\n",
        "_static/book.css": "p {}\n",
        "chapters/intro.md": "# Tiny\n",
        "diffsim/__init__.py": "",
        "diffsim/book/explorer.js": "// none\n",
        "requirements.txt": "numpy\n",
        "constraints.txt": "numpy==2\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


class Jupyter:
    """Stands for jupyter-book: notes how it was called, and writes what a build would."""

    def __init__(self):
        self.calls, self.code, self.writes, self.error = [], 0, True, None

    def __call__(self, command, *, env, cwd=None, **_):
        self.calls.append((command, cwd, env))
        if self.error:
            raise self.error
        if self.writes:
            (cwd / "_build/html").mkdir(parents=True, exist_ok=True)
            (cwd / "_build/html/index.html").write_text("<p>Tiny")
            (cwd / "_build/.jupyter_cache").mkdir(exist_ok=True)
        return subprocess.CompletedProcess(command, self.code)


@pytest.fixture
def jupyter(monkeypatch):
    made = Jupyter()
    monkeypatch.setattr(builder.subprocess, "run", made)
    return made


def prints(root):
    return builder.fingerprint(root, builder.PACKAGE), builder.fingerprint(root, builder.PAGES)


@pytest.mark.parametrize(
    "name", ["diffsim/__init__.py", "diffsim/book/explorer.js", "requirements.txt", "constraints.txt"]
)
def test_the_fingerprint_changes_with_the_package(book, name):
    package, pages = prints(book)
    (book / name).write_text("changed")
    assert prints(book)[0] != package and prints(book)[1] == pages


@pytest.mark.parametrize("name", ["_toc.yml", "_config.yml", "_static/book.css", "chapters/intro.md"])
def test_the_fingerprint_changes_with_the_pages(book, name):
    package, pages = prints(book)
    (book / name).write_text("changed")
    assert prints(book)[0] == package and prints(book)[1] != pages


def test_the_fingerprint_sees_new_gone_and_renamed_files(book):
    seen = {prints(book)[0]}
    (book / "diffsim/new.py").write_text("x = 1\n")
    seen.add(prints(book)[0])
    (book / "diffsim/new.py").rename(book / "diffsim/other.py")
    seen.add(prints(book)[0])
    assert len(seen) == 3
    (book / "diffsim/other.py").unlink()
    assert prints(book)[0] in seen


@pytest.mark.parametrize(
    "name",
    [
        "README.md", "tests/test_a.py", "diffsim/__pycache__/a.cpython-311.py", "diffsim/notes.txt",
        "chapters/.ipynb_checkpoints/intro.md", "_build/html/index.html",
    ],
)  # fmt: skip
def test_the_fingerprint_ignores_the_rest(book, name):
    before = prints(book)
    (book / name).parent.mkdir(parents=True, exist_ok=True)
    (book / name).write_text("changed")
    assert prints(book) == before


def test_the_fingerprint_doesnt_depend_on_the_place(book, tmp_path_factory):
    other = tmp_path_factory.mktemp("elsewhere") / "book"
    book.rename(other)
    assert builder.fingerprint(other, builder.PACKAGE) == builder.fingerprint(other, reversed(builder.PACKAGE))
    before = prints(other)
    other.rename(book)
    assert prints(book) == before


def test_a_first_build_runs_jupyter_book_strictly(book, jupyter, capsys):
    assert builder.build(book) == 0
    ((command, cwd, env),) = jupyter.calls
    assert cwd == book and env[BUILDING] == "1"
    assert {"build", "-W", "-n", "--keep-going"} <= set(command)
    assert "index.html" in capsys.readouterr().out.splitlines()[-1]


def test_nothing_changed_nothing_runs(book, jupyter, capsys):
    builder.build(book)
    assert builder.build(book) == 0
    assert len(jupyter.calls) == 1
    assert capsys.readouterr().out.splitlines()[-1].startswith("Nothing changed.")


def test_a_changed_page_keeps_the_cache(book, jupyter):
    builder.build(book)
    (book / "_build/.jupyter_cache/kept").write_text("")
    (book / "chapters/intro.md").write_text("# Changed\n")
    assert builder.build(book) == 0
    assert len(jupyter.calls) == 2 and (book / "_build/.jupyter_cache/kept").exists()


def test_a_changed_package_throws_the_cache_away(book, jupyter, capsys):
    builder.build(book)
    (book / "_build/.jupyter_cache/stale").write_text("")
    (book / "diffsim/__init__.py").write_text("x = 1\n")
    assert builder.build(book) == 0
    assert len(jupyter.calls) == 2 and not (book / "_build/.jupyter_cache/stale").exists()
    assert "every chapter is executed" in capsys.readouterr().out


def test_pages_that_are_missing_are_built(book, jupyter):
    builder.build(book)
    (book / "_build/html/index.html").unlink()
    assert builder.build(book) == 0
    assert len(jupyter.calls) == 2


@pytest.mark.parametrize(("code", "writes"), [(1, True), (0, False), (2, False)])
def test_a_failed_build_is_told_and_tried_again(book, jupyter, capsys, code, writes):
    jupyter.code, jupyter.writes = code, writes
    assert builder.build(book) == 1
    assert capsys.readouterr().out.splitlines()[-1].startswith("The book was not built")
    jupyter.code, jupyter.writes = 0, True
    assert builder.build(book) == 0
    assert len(jupyter.calls) == 2


def test_an_interrupted_build_keeps_what_is_finished(book, jupyter, capsys):
    builder.build(book)
    (book / "_build/.jupyter_cache/finished").write_text("")
    (book / "chapters/intro.md").write_text("# Changed\n")
    jupyter.error = KeyboardInterrupt()
    assert builder.build(book) == 130
    assert "Interrupted" in capsys.readouterr().out
    jupyter.error = None
    assert builder.build(book) == 0
    assert len(jupyter.calls) == 3 and (book / "_build/.jupyter_cache/finished").exists()


def test_a_folder_without_a_book(tmp_path, jupyter, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["build"]) == 2
    assert "There is no book in" in capsys.readouterr().out
    assert not jupyter.calls and not list(tmp_path.iterdir())


def test_serve_shows_the_built_book_on_this_machine_only(tmp_path, monkeypatch, capsys):
    (tmp_path / "_build/html").mkdir(parents=True)
    (tmp_path / "_build/html/index.html").write_text("<p>Tiny")
    seen = []

    def one_request(server):
        address = server.server_address
        thread = threading.Thread(target=lambda: seen.append(urlopen(f"http://{address[0]}:{address[1]}/").read()))
        thread.start()
        server.handle_request()
        thread.join()
        seen.append(address[0])
        raise KeyboardInterrupt

    monkeypatch.setattr(commands.ThreadingHTTPServer, "serve_forever", one_request)
    monkeypatch.setattr(commands.SimpleHTTPRequestHandler, "log_message", lambda *_: None)
    monkeypatch.chdir(tmp_path)
    assert main(["serve", "--port", "0"]) == 0
    assert seen == [b"<p>Tiny", "127.0.0.1"]
    assert capsys.readouterr().out.startswith("The book is at http://127.0.0.1:")


def test_serve_says_what_is_missing(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["serve"]) == 2
    assert "There is no built book yet" in capsys.readouterr().out


def test_a_port_that_is_taken(tmp_path, monkeypatch, capsys):
    (tmp_path / "_build/html").mkdir(parents=True)
    (tmp_path / "_build/html/index.html").write_text("<p>Tiny")
    monkeypatch.chdir(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        monkeypatch.setattr(commands.ThreadingHTTPServer, "allow_reuse_address", False)
        assert main(["serve", "--port", str(port)]) == 2
    assert f"Port {port} can't be used" in capsys.readouterr().out


@pytest.mark.parametrize(("code", "expected", "says"), [(0, 0, "The decks are in"), (1, 1, "were not all written")])
def test_slides_are_made_without_live_widgets(tmp_path, jupyter, capsys, code, expected, says):
    (tmp_path / "a.ipynb").write_text("{}")
    jupyter.code, jupyter.writes = code, False
    assert main(["slides", "--chapters", str(tmp_path), "--out", str(tmp_path / "decks")]) == expected
    ((command, _, env),) = jupyter.calls
    assert env[BUILDING] == "1" and str(tmp_path / "a.ipynb") in command and {"slides", "--execute"} <= set(command)
    assert says in capsys.readouterr().out.splitlines()[-1]


def test_slides_of_nothing(tmp_path, jupyter, capsys):
    assert main(["slides", "--chapters", str(tmp_path)]) == 2
    assert "There are no notebooks in" in capsys.readouterr().out and not jupyter.calls
