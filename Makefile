# `make help` lists the targets. PYTHON selects the interpreter of .venv; by default the first of
# these that is Python 3.11 to 3.13, which TensorFlow supports, and can create environments.
PYTHON ?= $(shell for python in python3.11 python3.12 python3.13 python3 python; do \
  $$python -c 'import sys, venv, ensurepip; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' \
  2>/dev/null && echo $$python && break; done)
DATASET ?= digits
RUN ?= runs/$(DATASET)
WORKERS ?= 3  # of make test: more than cores, as some tests wait for servers and browsers
PUBLISHED := $(patsubst saved_models/%.tar.xz,%,$(wildcard saved_models/*.tar.xz))
BIN := .venv/bin
STAMP := .venv/.stamp

.DEFAULT_GOAL := help
.PHONY: help setup demo train evaluate export archive serve up image image-models \
  browser test test-slow fuzz test-torch test-v2 lint format docs bench bench-serving compare clean

help: ## list the targets
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

setup: $(STAMP) ## create .venv; the other targets do this by themselves

$(STAMP): requirements.txt pyproject.toml
	@if [ -z "$(PYTHON)" ]; then echo "jem_tf needs Python 3.11, 3.12 or 3.13 with venv, and found none:" \
	  "install one (Debian: apt-get install python3-venv), or set PYTHON=/path/to/python." >&2; exit 1; fi
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check -e '.[dev]'
	@touch $@

demo: $(STAMP) ## train on digits beside a plain classifier, measure both, write samples
	$(BIN)/jem-tf demo

train: $(STAMP) ## train on DATASET into RUN
	$(BIN)/jem-tf train $(DATASET) --out $(RUN) $(ARGS)

evaluate: $(STAMP) ## measure RUN: accuracy, calibration, OOD detection
	$(BIN)/jem-tf evaluate $(RUN) $(ARGS)

export: $(STAMP) ## write RUN as the next version of a SavedModel below saved_models/
	$(BIN)/jem-tf export $(RUN) $(ARGS)

saved_models/%: | saved_models/%.tar.xz  # a published model
	tar -xJf $@.tar.xz -C saved_models

archive: ## pack saved_models/DATASET, exported with --compact, to be published
	tar -cJf saved_models/$(DATASET).tar.xz -C saved_models $(DATASET)

serve: $(STAMP) $(addprefix saved_models/,$(filter $(DATASET),$(PUBLISHED))) ## serve saved_models/DATASET here: gRPC 8500, REST and the inspector page 8501
	$(BIN)/jem-tf serve saved_models/$(DATASET) --enable-batching $(ARGS)

up: ## serve saved_models/ with TF Serving itself (needs Docker)
	docker compose -f serving/compose.yaml up --build $(ARGS)

VERSION = $(shell sed -n 's/^VERSION = "\(.*\)"/\1/p' jem_tf/version.py)

image: ## build the image of the server and the gateway, jem-tf:VERSION (needs Docker)
	docker build -f serving/Dockerfile -t jem-tf:$(VERSION) .

image-models: ## build the image of the exports in saved_models/, jem-tf-models:TAG (default: 1)
	docker build -f serving/Dockerfile --target models -t jem-tf-models:$(or $(TAG),1) .

browser: ## install Chromium for the browser tests if possible; they are skipped without it
	@command -v chromedriver >/dev/null || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null \
	  && echo "Installing Chromium for the browser tests" && apt-get update -qq \
	  && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
	     chromium chromium-driver >/dev/null; } || true

test: $(STAMP) browser ## the test suite
	$(BIN)/pytest -n $(WORKERS) --dist loadfile --durations=10

.venv/.slow: $(STAMP)
	$(BIN)/pip install --quiet --disable-pip-version-check -e '.[ray,text]' 'statsmodels>=0.15,<0.16'
	@touch $@

test-slow: .venv/.slow ## the tests that train for minutes; installs Ray, KerasHub and statsmodels
	$(BIN)/pytest -m slow -v

fuzz: $(STAMP) ## 100 000 random requests over REST, gRPC and V2
	FUZZ_SCALE=32 $(BIN)/pytest -v tests/server/test_fuzz.py tests/server/test_fuzz_v2.py

.venv/.torch: $(STAMP)
	$(BIN)/pip install --quiet --disable-pip-version-check -e '.[torch]'
	@touch $@

test-torch: .venv/.torch ## compare with PyTorch, WideResNet-28-10 included; installs PyTorch
	$(BIN)/pytest -v -m '' tests/pytorch

.venv/tritonclient: $(STAMP)
	$(BIN)/python -m venv $@
	$@/bin/pip install --quiet --disable-pip-version-check 'tritonclient[http,grpc]>=2.73,<3'

test-v2: .venv/tritonclient ## V2 by tritonclient, in an environment of its own: it needs protobuf 6
	TRITONCLIENT_PYTHON=$</bin/python $(BIN)/pytest -v tests/server/test_v2_tritonclient.py

lint: $(STAMP) ## ruff, mypy, and the layers of the package (import-linter)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

.venv/.docs: $(STAMP)
	$(BIN)/pip install --quiet --disable-pip-version-check -e '.[docs]'
	@touch $@

docs: .venv/.docs ## build the documentation into site/; a broken link or a warning is an error
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

format: $(STAMP) ## format the code with ruff
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: .venv/.torch ## training step against PyTorch and cross-entropy, memory, scoring; installs PyTorch
	$(BIN)/python benchmarks/training_step.py
	$(BIN)/python benchmarks/scoring.py

bench-serving: $(STAMP) ## requests per second of the embedded server, against a plain endpoint
	$(BIN)/python benchmarks/serving.py

compare: $(STAMP) ## all objectives side by side on digits and Fashion-MNIST (from DATA_DIR); 45 minutes
	$(BIN)/python benchmarks/compare.py digits --seconds 45
	$(BIN)/python benchmarks/compare.py fashion_mnist --seconds 180 \
	  --ood mnist noise constant interpolations $(if $(DATA_DIR),--data-dir $(DATA_DIR))

clean: ## remove .venv and caches; runs/ and saved_models/ stay
	rm -rf .venv .pytest_cache .mypy_cache .ruff_cache .import_linter_cache build site *.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
