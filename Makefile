# make demo   phantom patients through the whole program, ending in a report
# make test   everything a change must pass; sets itself up
# Both need only Python 3.11+ and make. The rest of the targets are for developers.

PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
PIP    := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt

.PHONY: demo test test-all check format docs picture clean

demo: $(READY)
	@$(BIN)/python -m diptych demo --out demo

test: check
	@$(BIN)/python -m pytest

test-all: check
	@$(BIN)/python -m pytest -m ""

check: $(READY)
	@$(BIN)/ruff format --check --quiet .
	@$(BIN)/ruff check --quiet .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-cache > $(VENV)/imports.log || (cat $(VENV)/imports.log; false)

format: $(READY)
	@$(BIN)/ruff format --quiet .
	@$(BIN)/ruff check --quiet --fix .

docs: $(READY)
	@$(BIN)/python docs/reference/generate.py

# torch goes first: any other order may bring a CUDA build that nobody asked for.
$(READY): pyproject.toml constraints.txt
	@echo "Setting up $(VENV) (once; a few minutes on a new machine)"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(PIP) torch
	@$(PIP) --editable '.[dev]'
	@touch $@

clean:
	rm -rf $(VENV) demo build dist
