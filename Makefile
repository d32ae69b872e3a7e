# Every target makes .venv by itself when it is missing or older than the list of packages.
#   make run                     everything, on the bundled sample
#   make run DATA=folder         the same on any folder; RUN=folder LIMIT=1 REPLACE=1 are options
#   make report RUN=folder       one HTML page of what the run reached; RECIPE=name
#   make test                    lint, types, import order, tests
PYTHON ?= python3
VENV := .venv
INSTALLED := $(VENV)/.installed
BIN := $(VENV)/bin
OPTIONS = $(if $(DATA),"$(DATA)") $(if $(RUN),--run "$(RUN)") $(if $(LIMIT),--limit) $(if $(REPLACE),--replace)

.PHONY: run report test lint clean

run: $(INSTALLED)
	$(BIN)/fastslow run $(OPTIONS)

report: $(INSTALLED)
	$(BIN)/fastslow report $(if $(RUN),--run "$(RUN)") $(if $(RECIPE),--recipe "$(RECIPE)")

test: lint
	$(BIN)/pytest

lint: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

clean:
	rm -rf $(VENV) runs build *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache

$(INSTALLED): pyproject.toml constraints.txt
	$(PYTHON) -m venv --clear $(VENV)
	$(BIN)/pip install --quiet --constraint constraints.txt --editable ".[dev]"
	touch $@
