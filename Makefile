# make demo   learn digits from 100 labels, print a table, draw the pictures   (< 2 minutes on 2 cores)
# make test   every test                    make lint   ruff, mypy, the documentation
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --disable-pip-version-check --quiet
# torch comes first and pinned: otherwise a dependency may ask for a build with gigabytes of CUDA libraries.
INSTALL = $(PIP) install --constraint constraints.txt

.PHONY: demo test lint docs clean

demo: $(VENV)/.demo
	$(BIN)/iam demo

# Two workers with a thread each: threads that wait for each other would cost more than they give.
test: $(VENV)/.test
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $${WORKERS:-2} --dist loadgroup --durations 10

lint: $(VENV)/.lint docs
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs: $(VENV)/.lint
	$(BIN)/sphinx-build -W --keep-going -q -b html docs docs/_build/html

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

# A stamp per set of packages: a second run installs nothing.
$(VENV)/.torch: constraints.txt | $(VENV)/bin/python
	@echo "installing torch into $(VENV) ..."
	$(INSTALL) torch
	@touch $@

$(VENV)/.demo: pyproject.toml $(VENV)/.torch
	@echo "installing torch-iam and what the demo needs ..."
	$(INSTALL) --editable '.[demo]'
	@touch $@

$(VENV)/.test: pyproject.toml $(VENV)/.torch
	@echo "installing torch-iam and the test tools ..."
	$(INSTALL) --editable '.[test]'
	@touch $@ $(VENV)/.demo

$(VENV)/.lint: pyproject.toml $(VENV)/.test
	@echo "installing ruff, mypy and sphinx ..."
	$(INSTALL) --editable '.[test,docs,lint]'
	@touch $@

clean:
	rm -rf $(VENV) docs/_build .pytest_cache .mypy_cache .ruff_cache .hypothesis
