# make run and make test set everything up by themselves; see `make help`.

VENV ?= .venv
PYTHON ?=
ARGS ?=

BIN := $(VENV)/bin
# Most of a test's time is one thread importing TensorFlow, or a process that waits for another one.
# Tests of a file share what they run; tests/conftest.py says which files come first.
PARALLEL := --numprocesses $(shell expr $$(nproc) + 1) --maxprocesses 4 \
	--dist loadfile --no-loadscope-reorder
export VENV PYTHON

.DEFAULT_GOAL := help
.PHONY: help setup run parity drill soak golden layers docs test test-slow test-all lint types format lock clean

help:  ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' Makefile
	@echo
	@echo '  VENV=DIR     the environment (default .venv)'
	@echo '  PYTHON=3.12  the Python to make it with (default: what fits this machine)'
	@echo '  ARGS="..."   more arguments for run, parity, drill, soak, docs, test and lock'

setup:  ## make the environment; done in no time when nothing changed
	@tools/setup

run: setup  ## run the quickstart pipeline, about two minutes
	$(BIN)/stagecraft run --config quickstart $(ARGS)

parity: setup  ## hold every topology against one device, by model and optimizer; about 45 minutes
	@failed=0; for model in cnn resnet20; do for optimizer in sgd adamw; do \
		echo "$$model, $$optimizer"; \
		$(BIN)/stagecraft parity --set train.model=$$model --set train.optimizer=$$optimizer \
			$(ARGS) || failed=1; \
	done; done; exit $$failed

drill: setup  ## kill, freeze and starve small trainings; about a quarter of an hour
	$(BIN)/stagecraft drill $(ARGS)

soak: setup  ## fifty trainings in a row, each of them killed: nothing may be left; about half an hour
	$(BIN)/python benchmarks/soak.py $(ARGS)

golden: setup  ## write what presets compile to, and jobs; the diff shows what has changed
	STAGECRAFT_GOLDEN=write $(BIN)/pytest tests/pipeline/kubeflow/test_golden.py \
		tests/components/kubernetes/jobs/test_golden.py tests/pipeline/vertex/test_worker_pools.py

layers: setup  ## train every layer of Keras, and write docs/reference/layers.md; about 15 minutes
	cd tests/trainer_module/models/layers && $(abspath $(BIN))/python -m catalogue.page

docs: setup  ## build the docs to build/site (ARGS=serve: show them, and what is edited, on port 8000)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs $(or $(ARGS),build) --strict

test: setup  ## the fast tests
	$(BIN)/pytest $(PARALLEL) -m 'not slow and not full' $(ARGS)

test-slow: setup  ## the slow tests: whole pipelines, builds
	$(BIN)/pytest $(PARALLEL) -m 'slow and not full' $(ARGS)

test-all: setup  ## both, and those that CI leaves out: more topologies, all faults of the drill
	$(BIN)/pytest $(PARALLEL) $(ARGS)

lint: setup types  ## what CI checks besides tests: ruff, mypy, hadolint
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/hadolint Dockerfile

types: setup  ## mypy alone
	@mkdir -p .mypy_path && ln -sfn .. .mypy_path/stagecraft
	$(BIN)/mypy

format: setup  ## mend what ruff can, and format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

lock: setup  ## renew requirements.lock (ARGS=--upgrade: with the newest versions)
	tools/lock $(ARGS)

clean:  ## remove the environment, builds and caches; runs stay
	if [ -e '$(VENV)/pyvenv.cfg' ]; then rm -rf '$(VENV)'; fi
	rm -rf build dist *.egg-info .docs_path .mypy_path .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
