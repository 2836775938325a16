# Everything a contributor or a curious visitor runs. Needs python3 (3.11 or later, with venv) and make; nothing else.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo test check slow docs bench manual browser reproduction clean

demo: $(VENV)/.installed           ## install and run the demonstration
	$(BIN)/lmab demo

test: check                        ## everything the continuous integration runs
	$(BIN)/python -m pytest -m "not slow"

check: $(VENV)/.installed-dev      ## linters, types, floors of the house
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

slow: $(VENV)/.installed-dev       ## statistical studies: minutes to an hour
	$(BIN)/python -m pytest -m slow -n 0

bench: $(VENV)/.installed-bench    ## speed beside the peers, printed
	$(BIN)/python -m benchmarks

docs: $(VENV)/.installed-docs      ## the documentation site, in site/
	$(BIN)/zensical build --strict --clean

manual: $(VENV)/.installed-dev     ## docs/cli.md, from the commands themselves
	$(BIN)/python -m lmab.cli.manual > docs/cli.md

browser: $(VENV)/.installed-dev $(VENV)/.installed-browser  ## the report in headless Chromium, with screenshots
	mkdir -p build/screenshots
	LMAB_SCREENSHOTS=build/screenshots $(BIN)/python -m pytest -n 0 tests/test_browser.py

reproduction: $(VENV)/.installed   ## docs/reproduction.md from the rows of a full run in results/
	$(BIN)/lmab reproduce all --full --plot-only --out results
	mkdir -p docs/figures docs/reproduction
	cp results/reproduction.md docs/reproduction.md
	cp results/figures/*.svg docs/figures/
	cp results/rows.csv.gz docs/reproduction/rows.csv.gz

clean:
	rm -rf $(VENV) site

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip

$(VENV)/.installed: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable '.[plot]'
	touch $@

$(VENV)/.installed-%: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable '.[$*]'
	touch $@
