# `make help` lists all targets. Each target that needs the environment runs `make setup` first.

VENV ?= .venv
PYTHON ?=
ARGS ?=

BIN := $(VENV)/bin
# Most tests import TensorFlow in one thread, or wait for a process, so one more worker than cores is
# fastest. Tests of one file share fixtures; tests/conftest.py sets the order of the files.
PARALLEL := --numprocesses $(shell expr $$(nproc) + 1) --maxprocesses 4 \
	--dist loadfile --no-loadscope-reorder
# Processes whose processor counts as six devices: other tests have one.
DEVICES := STAGECRAFT_LOGICAL_CPUS=1 $(BIN)/pytest $(PARALLEL) tests/trainer_module/engines/logical_cpus
export VENV PYTHON

.DEFAULT_GOAL := help
.PHONY: help setup run image flink parity drill soak benchmarks golden layers docs test test-slow test-devices test-all lint types format lock clean

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-13s %s\n", $$1, $$2}' Makefile
	@echo
	@echo '  VENV=DIR     the virtual environment (default .venv)'
	@echo '  PYTHON=3.12  the Python of the environment (default: the newest that this machine can run)'
	@echo '  PYTHON_INSTALL=1   let uv download a Python if none fits'
	@echo '  ARGS="..."   additional arguments for run, image, flink, parity, drill, soak, benchmarks, docs, test and lock'

setup:  ## create the environment; instant if nothing changed
	@tools/setup

run: setup  ## run the quickstart pipeline, about two minutes
	$(BIN)/stagecraft run --config quickstart $(ARGS)

image:  ## build the container image stagecraft:VERSION, with docker or podman; about six minutes
	@tools/image $(ARGS)

flink: setup  ## run the quickstart with its data steps on Flink; needs Java
	@tools/flink $(ARGS)

parity: setup  ## compare every topology with one device, for two models and two optimizers; about 45 minutes
	@failed=0; for model in cnn resnet20; do for optimizer in sgd adamw; do \
		echo "$$model, $$optimizer"; \
		$(BIN)/stagecraft parity --set train.model=$$model --set train.optimizer=$$optimizer \
			$(ARGS) || failed=1; \
	done; done; exit $$failed

drill: setup  ## inject faults into small training runs; about 15 minutes
	$(BIN)/python benchmarks/robustness/drill.py $(ARGS)

soak: setup  ## kill fifty training runs in a row and check that nothing is left; about 30 minutes
	$(BIN)/python benchmarks/robustness/soak.py $(ARGS)

benchmarks: setup  ## run all benchmarks on an idle machine and write benchmarks/RESULTS.md; about 90 minutes
	@failed=0; $(BIN)/python benchmarks/run.py $(ARGS) || failed=$$?; \
		$(BIN)/python tools/docs/pictures.py && exit $$failed

golden: setup  ## write what tests compare with: compiled presets, jobs (ARGS: which tests)
	STAGECRAFT_GOLDEN=write $(BIN)/pytest $(PARALLEL) -m 'not slow and not full' $(ARGS)

layers: setup  ## train every Keras layer and write docs/reference/layers.md; about 15 minutes
	cd tests/trainer_module/models/layers && $(abspath $(BIN))/python -m catalogue.page

docs: setup  ## build the docs to build/site (ARGS=serve: serve them on port 8000 and reload edits)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs $(or $(ARGS),build) --strict

test: setup  ## run the fast tests
	$(BIN)/pytest $(PARALLEL) -m 'not slow and not full' $(ARGS)

test-slow: setup  ## run the slow tests: whole pipelines, builds
	$(BIN)/pytest $(PARALLEL) -m 'slow and not full' $(ARGS)

test-devices: setup  ## run the tests that divide models over six logical devices
	$(DEVICES) -m 'not full' $(ARGS)

test-all: setup  ## run all tests, including those that CI skips: more topologies, all faults of the drill
	@failed=0; $(BIN)/pytest $(PARALLEL) $(ARGS) || failed=$$?; $(DEVICES) $(ARGS) && exit $$failed

lint: setup types  ## run ruff, mypy and hadolint, as CI does
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/hadolint Dockerfile

types: setup  ## run mypy
	@rm -rf .mypy_path && mkdir -p .mypy_path/stagecraft
	@ln -s $(abspath library/* common schemas trainer_module components pipeline contrib) .mypy_path/stagecraft
	$(BIN)/mypy

format: setup  ## fix what ruff can fix, and format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

lock: setup  ## update requirements.lock (ARGS=--upgrade: with the newest versions)
	tools/lock $(ARGS)

clean:  ## remove the environment, builds and caches; keep runs
	if [ -e '$(VENV)/pyvenv.cfg' ]; then rm -rf '$(VENV)'; fi
	rm -rf build dist *.egg-info .docs_path .mypy_path .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
