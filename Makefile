# The two commands are `make lab` and `make test`. `make help` lists the rest.
# Options are make variables: make lab PORT=9000 BROWSER=no

VENV ?= .venv
PYTHON ?= python3
# Empty (CONSTRAINTS=) takes any version that pyproject.toml allows.
CONSTRAINTS ?= constraints.txt
PORT ?= 8888
IP ?= 127.0.0.1
# auto: open one where there is a display. no: print the address. Anything else: the program to open.
BROWSER ?= auto
# More arguments, for JupyterLab (make lab) or pytest (make pytest).
ARGS ?=

BIN := $(VENV)/bin
INSTALLED := $(VENV)/.subtrace_kit-installed

# Jupyter would take these two words for the name of a browser.
ifneq ($(filter auto no,$(BROWSER)),)
unexport BROWSER
endif

.PHONY: help lab test test-gpu install lint types pytest nbval bench exercises pictures format clean distclean
.NOTPARALLEL:

help:
	@echo "make lab        open the notebooks in JupyterLab (PORT=$(PORT) IP=$(IP) BROWSER=$(BROWSER) ARGS=)"
	@echo "make test       run every check: lint, types, pytest, nbval"
	@echo "make lint       ruff: rules and layout, notebooks too"
	@echo "make types      mypy on subtrace_kit"
	@echo "make pytest     the tests (ARGS='-k name -x')"
	@echo "make nbval      run the notebooks and compare what they print with what is stored"
	@echo "make test-gpu   the same where there is a CUDA device: the notebooks run on it"
	@echo "make bench      how long calls take beside eager and torch.compile (ARGS='--inductor')"
	@echo "make exercises  copies of the notebooks with the exercises to be solved"
	@echo "make pictures   draw the pictures of the README anew"
	@echo "make format     mend layout and imports with ruff"
	@echo "make install    only make $(VENV) and install into it (PYTHON=$(PYTHON) CONSTRAINTS=$(CONSTRAINTS))"
	@echo "make clean      remove caches; make distclean removes $(VENV) too"

lab: $(INSTALLED)
	-@$(BIN)/jupyter trust notebooks/*.ipynb
	@set --; \
	if [ "$(BROWSER)" = no ] || { [ "$$(uname)" = Linux ] && [ -z "$$DISPLAY$$WAYLAND_DISPLAY" ]; }; then \
	  echo "No browser is opened: open the address printed below."; set -- --no-browser; \
	fi; \
	if [ "$$(id -u)" = 0 ]; then set -- "$$@" --allow-root; fi; \
	exec $(BIN)/jupyter lab "$$@" --ip="$(IP)" --port="$(PORT)" $(ARGS) notebooks

test: lint types pytest nbval

# The notebooks take a CUDA device where there is one; what they compare names no device.
test-gpu: $(INSTALLED)
	@$(BIN)/python -c 'import sys, torch; sys.exit(not torch.cuda.is_available())' || { \
	  echo "make: torch $$($(BIN)/python -c "import torch; print(torch.__version__)") sees no CUDA device" >&2; exit 1; }
	$(MAKE) pytest nbval

# Not part of `make test`: there each benchmark of the smallest size runs once and is not timed.
bench: $(INSTALLED)
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.benchmarks --train $(ARGS)

exercises: $(INSTALLED)
	$(BIN)/python -m subtrace_kit.exercises $(filter-out %_exercises.ipynb,$(wildcard notebooks/*.ipynb))

pictures: $(INSTALLED)
	PYTHONPATH=tests $(BIN)/python tests/pictures.py

install: $(INSTALLED)

lint: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(INSTALLED)
	$(BIN)/mypy

pytest: $(INSTALLED)
	$(BIN)/python -m pytest -n 2 $(ARGS)

# One thread a kernel: two notebooks run at a time. loadfile keeps the cells of a notebook in one worker.
nbval: $(INSTALLED)
	@if ls notebooks/*.ipynb >/dev/null 2>&1; then set -x; \
	  OMP_NUM_THREADS=1 TQDM_DISABLE=1 $(BIN)/python -m pytest -p tests.nbval_plugin --nbval-lax --nbval-current-env \
	    --nbval-cell-timeout=120 --nbval-sanitize-with=tests/nbval_sanitize.cfg --dist loadfile -n 2 --ignore-glob='*_exercises.ipynb' notebooks; \
	else echo "nbval: no notebook in notebooks/, nothing to compare"; fi

format: $(INSTALLED)
	$(BIN)/ruff check --fix-only .
	$(BIN)/ruff format .

clean:
	rm -rf build dist *.egg-info .benchmarks .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find subtrace_kit tests notebooks -name __pycache__ -prune -exec rm -rf {} +
	find notebooks -name .ipynb_checkpoints -prune -exec rm -rf {} +

distclean: clean
	rm -rf $(VENV)

# A second call is quick: pip runs again only when the dependencies or the pins have changed.
$(INSTALLED): pyproject.toml $(CONSTRAINTS) | $(BIN)/pip
	$(BIN)/python -m pip install --disable-pip-version-check $(addprefix -c ,$(CONSTRAINTS)) -e '.[dev]' || { \
	  echo "make: the install failed. Usual causes: no network; a Python too new for the pinned torch" >&2; \
	  echo "make: (make distclean, then name another: make install PYTHON=python3.12); too little disk space" >&2; \
	  echo "make: (torch for CUDA takes several GB; README.md says how to take the CPU build)." >&2; exit 1; }
	@touch $@

# A .venv that is already there is kept; one made without pip (by uv, say) is given it.
$(BIN)/pip:
	@[ -x $(BIN)/python ] || $(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || { \
	  echo "make: subtrace_kit needs Python 3.10 or later; '$(PYTHON)' is older or missing." >&2; \
	  echo "make: name another one: make $(firstword $(MAKECMDGOALS)) PYTHON=python3.12" >&2; exit 1; }
	@if [ -x $(BIN)/python ]; then $(BIN)/python -m ensurepip --default-pip; else $(PYTHON) -m venv $(VENV); fi || { \
	  echo "make: $(VENV) could not be made. On Debian and Ubuntu the package python3-venv is needed for that." >&2; \
	  exit 1; }
