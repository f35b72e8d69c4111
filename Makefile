# `make demo` sets up and does the main job; `make test` sets up and runs every check.
VENV := .venv
BIN := $(VENV)/bin
PYTHON ?= python3
DEMO := demo.gpuprof
INTEGRATIONS := build/integrations

# Bytecode is kept whatever the shell says: without it each of the thousand processes that the tests
# start compiles gpuprof again.
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.PHONY: help setup demo test lint types unit docs integrations format man clean

help: ## list the targets
	@grep -E '^[a-z]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-12s %s\n", $$1, $$2}'

# The marker is written last, so that an interrupted set-up is done again.
$(VENV)/ready: pyproject.toml constraints.txt setup.py $(wildcard collectors/native/*.[ch])
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,ncu]'
	touch $@

setup: $(VENV)/ready ## build .venv with everything in it

demo: setup ## profile a real training step on this machine and render its report
	$(BIN)/gpuprof run --force -o $(DEMO) examples/train_transformer.py
	$(BIN)/gpuprof report --force $(DEMO) -o report.html

test: lint types unit ## every check

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: setup
	$(BIN)/mypy

# What failed beside other tests runs once more, alone: a busy machine starves a process now and then.
# Both runs print what failed, so that a test that needs the second is seen, and mended.
unit: setup
	$(BIN)/python -m pytest -n 2 --dist worksteal || \
		{ test $$? -eq 1 && echo "Once more, alone:" && \
		$(BIN)/python -m pytest --last-failed --last-failed-no-failures none --maxfail 3; }

format: setup ## let ruff rewrite what it can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: setup ## build the documentation as a site, build/site, with warnings as errors
	$(BIN)/sphinx-build --quiet --fail-on-warning --keep-going -b html -c docs/site docs build/site

# An environment of its own, beside .venv: what trainers and trackers install changes nothing there.
$(INTEGRATIONS)/ready: $(VENV)/ready tests/integrations/requirements.txt
	$(BIN)/python scripts/environment_beside.py $(INTEGRATIONS) -c constraints.txt -r tests/integrations/requirements.txt
	touch $@

integrations: $(INTEGRATIONS)/ready ## run trainers and trackers for real, with their own packages
	OMP_NUM_THREADS=1 $(INTEGRATIONS)/bin/python -m pytest -n 2 --dist worksteal tests/integrations

man: setup ## write the man page, build/gpuprof.1
	mkdir -p build
	$(BIN)/python scripts/man_page.py > build/gpuprof.1

clean: ## remove what make built
	rm -rf $(VENV) $(DEMO) report.html build dist
