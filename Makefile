# Every target brings .venv up to date first, which takes no time when it is.
#   make quickstart PYTHON=/path/to/python3.12      another Python
#   make quickstart TORCH_INDEX=<address>           torch from this index (PyTorch's CPU wheels, for example)

export PYTHON TORCH_INDEX
BIN := .venv/bin
# One process per core, one thread each: models in tests are too small for more. Files go to the processes in the order
# of tests/conftest.py. Bytecode is written even where the environment says not to: tests start hundreds of processes,
# each of which would compile the package anew.
PYTEST := PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --dist loadfile --no-loadscope-reorder
TESTS ?=
PEERS ?=

.PHONY: help quickstart real test test-fast style check format docs site clean core dev bench-peers

help: ## list the targets
	@awk -F':.*## ' '/^[a-z-]+:.*## / { printf "%-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

quickstart: core ## install, and train the bundled model for a minute or two
	@$(BIN)/posttrain run quickstart

real: core ## fetch a real language model (93 MB), and train it on word problems
	@$(BIN)/python -c 'import gguf' 2>/dev/null \
	  || $(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt 'gguf>=0.19'
	@$(BIN)/posttrain fetch smollm2 --yes
	@$(BIN)/posttrain run word_problems

# Of all tests one checks the types, while others run.
test: $(if $(TESTS),check,style) .triton/ready .trackers/ready ## install, check style and types, and run every test
	@$(PYTEST) --durations=50 --durations-min=1 $(TESTS)

test-fast: dev ## run the tests that take no longer than a second or so each
	@$(PYTEST) -m 'not slow' $(TESTS)

style: dev
	@$(BIN)/python -m ruff check
	@$(BIN)/python -m ruff format --check

check: style ## ruff, format and mypy --strict
	@$(BIN)/python -m mypy --strict

format: dev ## put the code in its standard form
	@$(BIN)/python -m ruff check --fix
	@$(BIN)/python -m ruff format

docs: dev ## run the examples of README.md and docs/
	@$(BIN)/python -m pytest tests/structure/test_docs.py -rs

site: dev ## build the static site of the documentation in build/site
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict -q
	@echo "built build/site/index.html"

bench-peers: dev .venv-peers/ready ## measure against other programs, in an environment of their own: PEERS='--sizes 25M'
	@$(BIN)/python -m benchmarks.peers $(PEERS)
	@$(BIN)/python docs/performance.py

.venv-peers/ready: benchmarks/peers/requirements.txt
	@$(BIN)/python -m venv .venv-peers
	@.venv-peers/bin/python -m pip install -q $(if $(TORCH_INDEX),--index-url $(TORCH_INDEX)) $$(grep '^torch==' $<)
	@.venv-peers/bin/python -m pip install -q -r $<
	@touch $@

# Kernels for GPUs are tested in Triton's interpreter where it can be had; without it these tests are left out.
.triton/ready: tests/kernels/triton.txt | dev
	@rm -rf .triton
	@$(BIN)/python -m pip install -q --disable-pip-version-check --retries 1 --no-deps --only-binary :all: \
	  --target .triton -r $< && touch $@ \
	  || echo "leaving out tests of the kernels for GPUs: Triton could not be installed"

# Libraries of trackers, apart from .venv; without them their tests are left out.
.trackers/ready: tests/components/trackers/requirements.txt | dev
	@rm -rf .trackers
	@$(BIN)/python -m pip install -q --disable-pip-version-check --retries 1 --no-deps --no-compile --only-binary :all: \
	  --target .trackers -r $< && touch $@ \
	  || echo "leaving out tests of trackers: their libraries could not be installed"

clean: ## remove caches and build products (not .venv, not runs)
	@rm -rf build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
	@find src tests -name __pycache__ -type d -prune -exec rm -rf {} +

core dev: # set up .venv only
	@sh setup/install $@
