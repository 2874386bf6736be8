# `make help` lists the targets. PYTHON selects the interpreter that .venv is made with.
PYTHON ?= python3.11
DATASET ?= digits
RUN ?= runs/$(DATASET)
WORKERS ?= 3  # of make test: more than cores, as some tests wait for servers and browsers
BIN := .venv/bin
STAMP := .venv/.stamp

export TF_CPP_MIN_LOG_LEVEL ?= 2

.DEFAULT_GOAL := help
.PHONY: help setup demo train evaluate export serve up browser test test-slow test-torch lint format bench bench-serving compare clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

setup: $(STAMP) ## make .venv; the other targets do this by themselves

$(STAMP): requirements.txt pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check -e '.[dev]'
	@touch $@

demo: $(STAMP) ## train on digits beside a plain classifier, measure both, write samples
	$(BIN)/jem-tf demo

train: $(STAMP) ## train on DATASET into RUN
	$(BIN)/jem-tf train $(DATASET) --out $(RUN) $(ARGS)

evaluate: $(STAMP) ## measure RUN: accuracy, calibration, OOD detection
	$(BIN)/jem-tf evaluate $(RUN) $(ARGS)

export: $(STAMP) ## RUN as the next version of a SavedModel below saved_models/
	$(BIN)/jem-tf export $(RUN) $(ARGS)

serve: $(STAMP) ## serve saved_models/DATASET here: gRPC 8500, REST and a page to try it 8501
	$(BIN)/jem-tf serve saved_models/$(DATASET) --enable-batching $(ARGS)

up: ## serve saved_models/ with TF Serving itself (needs Docker)
	docker compose -f serving/compose.yaml up --build $(ARGS)

browser: ## Chromium for the tests of pages, where this can be installed; they are skipped without
	@command -v chromedriver >/dev/null || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null \
	  && echo "Installing Chromium for the browser tests" && apt-get update -qq \
	  && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
	     chromium chromium-driver >/dev/null; } || true

test: $(STAMP) browser ## the test suite
	$(BIN)/pytest -n $(WORKERS) --dist loadfile

test-slow: $(STAMP) ## the tests that train for minutes
	$(BIN)/pytest -m slow -v

.venv/.torch: $(STAMP)
	$(BIN)/pip install --quiet --disable-pip-version-check -e '.[torch]'
	@touch $@

test-torch: .venv/.torch ## numbers beside PyTorch's, WideResNet-28-10 too; installs PyTorch
	$(BIN)/pytest -v -m '' tests/pytorch

lint: $(STAMP) ## ruff and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(STAMP) ## let ruff lay the code out
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: .venv/.torch ## training step beside PyTorch and cross-entropy, memory, scoring; installs PyTorch
	$(BIN)/python benchmarks/training_step.py
	$(BIN)/python benchmarks/scoring.py

bench-serving: $(STAMP) ## requests a second of the embedded server, beside a plain endpoint
	$(BIN)/python benchmarks/serving.py

compare: $(STAMP) ## all objectives side by side on digits and Fashion-MNIST (from DATA_DIR); 45 minutes
	$(BIN)/python benchmarks/compare.py digits --seconds 45
	$(BIN)/python benchmarks/compare.py fashion_mnist --seconds 180 \
	  --ood mnist noise constant interpolations $(if $(DATA_DIR),--data-dir $(DATA_DIR))

clean: ## remove .venv and caches; runs/ and saved_models/ stay
	rm -rf .venv .pytest_cache .mypy_cache .ruff_cache build *.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
