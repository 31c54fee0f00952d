# make demo, make test, make audit: each sets up .venv once, then runs. make test-all adds the long tests.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
PYTEST := env -u PYTHONDONTWRITEBYTECODE $(BIN)/python -m pytest -n auto --dist loadgroup

.PHONY: demo audit test test-all lint types docs bench clean

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "inosgm needs Python 3.11 or newer: make PYTHON=python3.12 ...")'
	@$(BIN)/python -c "" 2>/dev/null || $(PYTHON) -m venv --clear .venv
	$(BIN)/python -m pip install -q -c constraints.txt -e ".[dev]"
	@touch $@

demo: $(READY)
	$(BIN)/python -m inosgm demo

audit: $(READY)
	$(BIN)/python -m examples.audit

test: $(READY)
	$(PYTEST) -m "not long"

test-all: test
	$(PYTEST) -m long

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(READY)
	$(BIN)/mypy

docs: $(READY)
	$(BIN)/python -m pip install -q -c constraints.txt -e ".[docs]"
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

bench: $(READY)
	$(BIN)/python -m benchmarks

clean:
	rm -rf .venv build dist site demo *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
