.DEFAULT_GOAL := help
.PHONY: help setup run test test-fast upgrade-test faults chaos fuzz campaign up down status bench figures site lint lock reference

INSTALLED := .venv/.installed
JARS := .deepclean/jars/.complete
TEST_JARS := .deepclean/jars/.tests
CLASSES := .deepclean/jars/.classes
COMPILED := .venv/.compiled
FUZZER := .venv/.fuzzer
TESTS := .venv/bin/pytest --numprocesses=auto --maxprocesses=4
DRAWS := $(if $(SEED),--seed=$(SEED) --hypothesis-seed=$(SEED)) $(if $(ALL),,--drawn)
PIP := .venv/bin/python -m pip --disable-pip-version-check install --quiet
LOCK := .venv/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header \
	--no-annotate --no-emit-index-url --no-emit-find-links

help: ## List the targets
	@awk '/^[a-z-]+:.* ## / {name = $$0; sub(/:.*/, "", name); sub(/.* ## /, ""); printf "%-10s %s\n", name, $$0}' $(MAKEFILE_LIST)

setup: $(INSTALLED) $(COMPILED) $(JARS) $(CLASSES) ## Install everything into .venv and .deepclean (quick when nothing changed)

run: setup ## Replay this repository's history (or REPO=…) on a real broker and Spark, and compare with git
	.venv/bin/deepclean git "$(or $(REPO),.)"

test: setup $(TEST_JARS) ## All tests; of the long ones a random one in 24 (ALL=1: all; SEED=… repeats a run)
	$(TESTS) $(DRAWS)

test-fast: setup ## The quick unit, contract and property tests, without broker, Spark and planes: about a minute
	$(TESTS) -m "not broker and not spark and not long" tests/unit tests/contract tests/property

upgrade-test: setup ## Open the homes of earlier releases, upgrade their planes part by part, read topics as others do (also within make test)
	$(TESTS) tests/upgrade tests/integration/test_foreign_consumers.py

faults: setup ## Insert a random one in 24 of the known defects (ALL=1: all; SEED=… repeats a run), and check that their tests fail
	$(TESTS) --faults $(DRAWS)

chaos: setup ## Crash a real plane for SECONDS=… (60) and check the result; SEED=… replays one schedule
	.venv/bin/python -m tests.chaos $(if $(SECONDS),--seconds $(SECONDS)) $(if $(SEED),--seed $(SEED)) \
	  $(if $(HOSTS),--hosts) $(if $(BESIDE),--beside $(BESIDE))

fuzz: setup $(FUZZER) ## Fuzz decoders, rows, HTTP and the command line for SECONDS=… (60), guided by coverage
	.venv/bin/python -m tests.fuzz $(if $(SECONDS),--seconds $(SECONDS))

campaign: setup ## Look for faults for HOURS=… (1, or 0.1): simulator, chaos, recordings, fuzzer; resumes after an interruption
	-@$(MAKE) --no-print-directory $(FUZZER)
	.venv/bin/python -m tests.campaign $(if $(HOURS),--hours $(HOURS))

up: setup ## Start a plane in the background
	.venv/bin/deepclean up

down: setup ## Stop that plane
	.venv/bin/deepclean down

status: setup ## Show the plane's state: processes, throughput, backlog, lag, disk
	.venv/bin/deepclean status

bench: setup ## Measure this machine, beside the limits of Kafka and RocksDB (most of an hour)
	.venv/bin/python -m bench

figures: setup ## Check that a random one in 24 of the rows of the bench run (ALL=1: all); then measure a small load and compare with the last release
	.venv/bin/pytest bench $(DRAWS)
	@mkdir -p .deepclean
	.venv/bin/python -m bench --small --json .deepclean/figures.json
	.venv/bin/python -m bench compare docs/figures/release.json .deepclean/figures.json

site: setup ## Make the documents a site in .deepclean/site, to be read without a network
	.venv/bin/zensical build --strict --clean

lint: setup ## Check style and types
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/mypy

reference: setup ## Regenerate parts of the documents, the dashboards, and the asynchronous objects of the library
	.venv/bin/python -m deepclean.generate
	.venv/bin/python -m deploy.grafana.generate
	.venv/bin/python -m docs.generate

lock: setup ## Pin the newest versions that fit, and their digests, for Python and Java
	$(LOCK) --upgrade --extra plane --extra dev --output-file requirements.lock pyproject.toml
	$(LOCK) --upgrade --extra plane --extra fuzz --constraint requirements.lock --output-file requirements-fuzz.lock pyproject.toml
	$(LOCK) --upgrade --group pyproject.toml:build --constraint requirements.lock --output-file requirements-build.lock
	.venv/bin/python -m services.plane.machine.jars --lock services/plane/machine/jars.lock

$(INSTALLED): requirements-build.lock requirements.lock pyproject.toml
	@test -x .venv/bin/python || { \
	  for python in $(or $(PYTHON),python3 python3.14 python3.13 python3.12 python3.11); do \
	    if $$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
	      echo "Making .venv with $$($$python --version)"; \
	      $$python -m venv .venv && exit 0; \
	      rm -rf .venv; \
	      echo "$$python cannot make a virtual environment: install its venv module (Debian: apt-get install python3-venv), then run make setup again." >&2; \
	      exit 1; \
	    fi; \
	  done; \
	  echo "No Python 3.11 or newer was found: install one, or name it with make setup PYTHON=/path/to/python3." >&2; \
	  exit 1; }
	@echo "Installing Python packages (the first time some minutes: PySpark alone is 430 MB)"
	@$(PIP) --require-hashes -r requirements-build.lock
	@$(PIP) --require-hashes --no-build-isolation -r requirements.lock
	@$(PIP) --no-index --no-deps --no-build-isolation --editable .
	@touch $@

$(FUZZER): requirements-fuzz.lock $(INSTALLED)
	@echo "Installing the fuzzer (without it a campaign leaves the fuzzer out)"
	@$(PIP) --require-hashes --only-binary :all: -r requirements-fuzz.lock
	@touch $@

$(COMPILED): schemas/avro_binary.py schemas/compiled.py hatch_build.py $(INSTALLED)
	@.venv/bin/python hatch_build.py
	@touch $@

$(JARS): services/plane/machine/jars.lock $(INSTALLED)
	@echo "Fetching what is missing of the jars of Kafka and Spark"
	@.venv/bin/python -m services.plane.machine.jars $(@D)
	@touch $@

$(TEST_JARS): services/plane/machine/jars.lock $(INSTALLED)
	@echo "Fetching what is missing of the jars that tests use beside these"
	@.venv/bin/python -m services.plane.machine.jars --of iceberg --of tests $(@D)
	@touch $@

$(CLASSES): services/plane/broker/class_archives.py streaming/spark/class_archive.py $(JARS) $(COMPILED)
	@echo "Keeping the classes of Kafka and Spark, so that both start in half the time"
	@.venv/bin/python -m services.plane.broker.class_archives $(@D)
	@touch $@
