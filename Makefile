# Everything a contributor or a curious visitor runs. Needs python3 (3.11 or later, with venv) and make; nothing else.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
TWO := -n 2 --dist worksteal  # a plain `pytest` runs in one process
SEEDS ?= 1 2
PIN := --upgrade --universal --python-version 3.11 --generate-hashes --no-header --no-annotate --no-emit-index-url
N ?= 200  # faults of `make mutants`
unexport PYTHONDONTWRITEBYTECODE  # tests start many programs, which would each compile the whole package

.PHONY: demo test check suite near quick times coverage slow without-paper gpu mutants floors dist pins bench figures docs manual pictures browser reproduction clean

demo: $(VENV)/.installed           ## install and run the demonstration
	$(BIN)/lmab demo

test: $(VENV)/.installed-dev       ## everything the continuous integration runs: checks, then tests
	$(MAKE) --no-print-directory check
	$(MAKE) --no-print-directory suite

check: $(VENV)/.installed-dev      ## linters, types, layers
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

suite: $(VENV)/.installed-dev      ## the tests
	$(BIN)/python -m pytest -m "not slow" $(TWO)

near: $(VENV)/.installed-dev       ## the quick tests of one module, FILE=src/lmab/planning/search.py: seconds
	$(BIN)/python -m pytest -q -m "not slow" --quick $$($(BIN)/python tests/near.py $(FILE))

quick: $(VENV)/.installed-dev      ## all tests that take less than 0.6 s
	$(BIN)/python -m pytest -q -m "not slow" --quick $(TWO)

times: $(VENV)/.installed-dev      ## tests/times.tsv: how long tests take, for `make quick` and the order of the files
	$(BIN)/python -m pytest -q -m "not slow" $(TWO) --junitxml=build/times.xml
	$(BIN)/python tests/times.py build/times.xml

coverage: $(VENV)/.installed-dev   ## the tests again, and which branches they reach: a floor is in pyproject.toml
	$(BIN)/python -m pytest -m "not slow" $(TWO) --cov --cov-report=term:skip-covered

slow: $(VENV)/.installed-dev       ## statistical studies, and all other tests with other seeds: an hour or two
	$(BIN)/python -m pytest -m slow
	for seed in $(SEEDS); do LMAB_SEED=$$seed $(BIN)/python -m pytest -m "not slow" $(TWO) || exit 1; done

without-paper: $(VENV)/.installed-dev  ## the users' tests in a copy without src/lmab/paper, on which nothing may depend
	rm -rf build/without-paper
	mkdir -p build/without-paper
	git ls-files -z | grep -zv '^src/lmab/paper/' | tar --create --null --files-from - | tar --extract --directory build/without-paper
	cd build/without-paper && PYTHONPATH=src:tests $(CURDIR)/$(BIN)/python -m pytest -p without_paper -m "not slow" $(TWO)

gpu: $(VENV)/.installed-dev $(VENV)/.installed-gpu  ## the kernels on an NVIDIA GPU, which the other tests only simulate
	$(BIN)/python -m pytest -m gpu tests/test_kernel_cuda.py

mutants: $(VENV)/.installed-dev    ## 200 faults drawn at random (N=, SEED=), each against the tests that run its line: an hour
	test -e build/contexts/times.xml || $(BIN)/python -m mutants record
	$(BIN)/python -m mutants drawn --number $(N) $(if $(SEED),--seed $(SEED))

floors:                            ## the tests with the lowest versions that pyproject.toml admits
	rm -rf $(VENV)-floors
	$(PYTHON) -m venv $(VENV)-uv
	$(VENV)-uv/bin/python -m pip install --quiet uv
	$(VENV)-uv/bin/uv venv --quiet --python $(PYTHON) $(VENV)-floors
	VIRTUAL_ENV=$(VENV)-floors $(VENV)-uv/bin/uv pip install --resolution lowest-direct --editable '.[dev]'
	$(VENV)-floors/bin/python -m pytest -m "not slow" $(TWO)

dist:                              ## wheel and sdist: built, installed in empty environments, tried and tested there
	rm -rf dist build/dist
	$(PYTHON) -m venv build/dist/build
	build/dist/build/bin/python -m pip install --quiet build
	build/dist/build/bin/python -m build --outdir dist
	$(PYTHON) -m venv build/dist/wheel
	build/dist/wheel/bin/python -m pip install --quiet dist/*.whl
	cd build/dist && wheel/bin/lmab demo --seed 0 && wheel/bin/lmab budget --types 3 --arms 10 --horizon 5
	mkdir build/dist/unpacked
	tar --extract --gzip --strip-components 1 --file dist/*.tar.gz --directory build/dist/unpacked
	$(PYTHON) -m venv build/dist/sdist
	build/dist/sdist/bin/python -m pip install --quiet 'build/dist/unpacked[dev]'
	build/dist/sdist/bin/python deploy/sbom.py deploy/refit.txt dist/sbom.json
	cd build/dist/unpacked && ../sdist/bin/python -m pytest -m "not slow" $(TWO)

pins:                              ## deploy/serve.txt and deploy/refit.txt: what the images install, with hashes
	$(PYTHON) -m venv $(VENV)-uv
	$(VENV)-uv/bin/python -m pip install --quiet uv
	$(VENV)-uv/bin/uv pip compile --quiet $(PIN) deploy/serve.in -o deploy/serve.txt
	$(VENV)-uv/bin/uv pip compile --quiet $(PIN) pyproject.toml --extra postgres -o deploy/refit.txt

bench: $(VENV)/.installed-bench    ## speed beside the peers: rows stored, figures of README and pages brought up to date
	$(BIN)/python -m benchmarks --store
	$(BIN)/python -m benchmarks.figures

figures: $(VENV)/.installed        ## figures of README and pages, from the stored rows
	$(BIN)/python -m benchmarks.figures

docs: $(VENV)/.installed-docs      ## the documentation site, in site/
	$(BIN)/python tests/house.py
	$(BIN)/zensical build --strict --clean

manual: $(VENV)/.installed-dev     ## docs/cli.md, from the commands themselves
	$(BIN)/python tests/manual.py > docs/cli.md

pictures: $(VENV)/.installed       ## the pictures of README and of the home page; needs Chromium (Debian: chromium)
	$(BIN)/python docs/pictures/make.py

browser: $(VENV)/.installed-dev $(VENV)/.installed-browser  ## report and page of the service in headless Chromium, with screenshots
	mkdir -p build/screenshots
	LMAB_SCREENSHOTS=build/screenshots $(BIN)/python -m pytest tests/test_browser.py tests/test_serve_page.py

reproduction: $(VENV)/.installed   ## docs/reproduction.md and docs/rates.md from the rows of a full run in results/
	$(BIN)/lmab reproduce all --full --plot-only --out results
	mkdir -p docs/figures docs/reproduction
	cp results/reproduction.md results/rates.md docs/
	cp results/figures/*.svg docs/figures/
	cp results/rows.csv.gz docs/reproduction/rows.csv.gz

clean:
	rm -rf $(VENV) $(VENV)-uv $(VENV)-floors build dist site

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip

$(VENV)/.installed: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable '.[plot]'
	touch $@

$(VENV)/.installed-%: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable '.[$*]'
	touch $@
