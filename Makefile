# Everything goes through .venv, made and kept up to date from requirements.txt, constraints.txt and pyproject.toml.
# Without make, see "Without make" in README.md.

PYTHON ?= python3
PORT   ?= 8000

VENV  := .venv
PY    := $(VENV)/bin/python
READY := $(VENV)/.installed
HTML  := _build/html

.DEFAULT_GOAL := help
.PHONY: help book test serve bench slides pdf lint clean browser

help: ## this list
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/make \1\t\2/p' Makefile | expand -t 14

book: $(READY) ## build the book into _build/html
	$(PY) -m diffsim.book build

test: $(READY) browser ## build the book (from clean where CI is set), then run every test on it
	@if [ -n "$$CI" ]; then echo "CI is set: from clean"; rm -rf _build; fi
	$(PY) -m diffsim.book build
	@echo "Unit tests, doctests, every notebook, and the built pages in a browser:"
	$(PY) -m pytest -n 2 --dist loadfile --durations 10 \
		--nbval --nbval-current-env --nbval-cell-timeout 600 tests diffsim chapters

serve: $(READY) ## show the built book on this machine only, at PORT (8000)
	@test -f $(HTML)/index.html || { echo "There is no built book yet: make book"; exit 1; }
	$(PY) -m diffsim.book serve --port $(PORT)

bench: $(READY) ## run the benchmarks
	@test -d benchmarks || { echo "This version has no benchmarks."; exit 1; }
	$(PY) -m benchmarks

slides: $(READY) ## one deck a chapter, executed, into _build/slides (a deck loads reveal.js from the network)
	$(PY) -m diffsim.book slides

pdf: $(READY) browser ## the book as one PDF, _build/pdf/book.pdf
	$(VENV)/bin/jupyter-book build . --builder singlehtml --path-output _build/pdf
	chromium --headless --no-sandbox --disable-gpu --disable-background-networking --virtual-time-budget=60000 \
		--no-pdf-header-footer --print-to-pdf=_build/pdf/book.pdf _build/pdf/_build/singlehtml/index.html
	@test -s _build/pdf/book.pdf

lint: $(READY) ## style and types
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy

clean: ## remove what was built, and keep .venv
	rm -rf _build .pytest_cache .mypy_cache .ruff_cache

browser:
	@command -v chromium >/dev/null || { \
		if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
			echo "Installing Chromium:"; apt-get update && apt-get install -y chromium; \
		else \
			echo "The built pages are tested in Chromium: put a chromium on PATH (Debian, Ubuntu: sudo apt-get install chromium)."; \
			exit 1; \
		fi; }

$(PY):
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "diffsim needs Python 3.11 or newer, and $(PYTHON) is $$($(PYTHON) --version 2>&1): make PYTHON=python3.11 …"; \
		exit 1; }
	$(PYTHON) -m venv --clear $(VENV)

$(READY): requirements.txt constraints.txt pyproject.toml | $(PY)
	$(PY) -m pip install --requirement requirements.txt --editable .
	@touch $@
