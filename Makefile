# Each target works from nothing, on a machine that has Python (3.10 or newer) and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Hundreds of processes start in the tests: where none may leave bytecode for the next, most of the time is compiling.
export PYTHONDONTWRITEBYTECODE :=
# Two processes share the test files out; ARGS="-n 0" runs all in one.
PYTEST := $(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder --durations=20 --durations-min=1
# What links on the site may lead to.
SITE_SOURCE := README.md CHANGELOG.md CONTRIBUTING.md SECURITY.md docker-compose.yml docs deploy examples
# Behind a proxy that has a certificate of its own, uv needs to be told of the system's; pip asks them by itself.
export UV_SYSTEM_CERTS ?= $(if $(wildcard /etc/ssl/certs/ca-certificates.crt /etc/pki/tls/certs/ca-bundle.crt /etc/ssl/cert.pem),true,false)

.PHONY: help demo test test-fast test-slow test-versions soak fuzz coverage check check-web format sizes drift bench bench-file bench-receive bench-view bench-smoke docs site screenshots clean

help:  ## Show this help
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 15

demo: $(VENV)/.demo  ## Trace a small agentic rollout and show where to look at it
	@$(BIN)/otel-rollout demo $(ARGS)

test: $(VENV)/.dev  ## Run the tests; servers are installed and started as needed
	@$(PYTEST) $(ARGS)

test-fast: $(VENV)/.dev  ## Run the tests that need no server
	@$(PYTEST) -m "not integration" $(ARGS)

test-slow: $(VENV)/.dev  ## What `make test` leaves out; ARGS=tests/view for a room
	@SLOW_TESTS=1 $(PYTEST) -m slow $(ARGS)
	@case "$(ARGS)" in ""|*weave*) TEST_WEAVE_CLICKHOUSE=1 $(BIN)/python -m pytest tests/exporters/weave -k clickhouse ;; esac

soak: $(VENV)/.dev  ## Ten minutes of faults at random, and an exact account at the end
	@$(BIN)/python -m tests.faults.soak $(ARGS)

test-versions: $(VENV)/.dev  ## test-fast under every Python, and with the lowest versions
	@$(BIN)/python scripts/test_versions.py $(ARGS)

fuzz: $(VENV)/.dev  ## Damaged trace folders, killed writers
	@$(BIN)/python -m tests.fuzz.folder --mutations 10000 --seed 1
	@$(BIN)/python -m tests.fuzz.kills --kills 200 --seed 1
	@$(BIN)/python -m tests.fuzz.receive_kills --kills 100 --seed 1

coverage: $(VENV)/.dev  ## Lines and branches that test-fast reaches, by file
	@mkdir -p build/coverage && rm -f build/coverage/data*
	@-$(BIN)/coverage run -m pytest -n 2 --dist loadfile -m "not integration" --ignore tests/fuzz $(ARGS)
	@$(BIN)/coverage combine -q && $(BIN)/coverage report --skip-covered

check: $(VENV)/.dev check-web  ## Lint, formatting, types, layers, words, workflows, pages
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/mypy tests/typing/api.py
	@$(BIN)/python scripts/import_contracts.py
	@$(BIN)/python scripts/inner_modules.py
	@$(BIN)/python scripts/words.py
	@$(BIN)/zizmor --offline --quiet --pedantic .github

check-web:  ## The viewer's pages: types, lint, unit tests (needs npm)
	@$(PYTHON) scripts/vendor.py --check
	@if command -v npm >/dev/null; then \
	  cd web && { [ node_modules/.package-lock.json -nt package-lock.json ] || npm ci --silent; } && npm run --silent check; \
	else echo "no npm here: the types, lint and unit tests of the viewer's pages are skipped"; fi

format: $(VENV)/.dev  ## Format the code
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .
	@if [ -d web/node_modules ]; then cd web && npm run --silent format -- --write; fi

sizes:  ## Lines of each room and its aim; slow tests for a diff
	@$(PYTHON) scripts/sizes.py $(ARGS)

drift: $(VENV)/.dev  ## Compare verl's hooked functions with the recorded ones
	@$(BIN)/python scripts/drift.py $(ARGS)

bench: $(VENV)/.dev  ## Measure, against plain OpenTelemetry and other tracers
	@$(BIN)/python -m benchmarks $(ARGS)
	@$(BIN)/python -m benchmarks.snapshot

bench-file: $(VENV)/.dev  ## Measure the trace folder, and other stores
	@$(BIN)/python -m benchmarks.file $(ARGS)

bench-receive: $(VENV)/.dev  ## Measure `receive`, and the Collector's `file` exporter
	@$(BIN)/python -m benchmarks.receive

bench-view: $(VENV)/.dev  ## Measure how long a large run takes to look at; half an hour
	@$(BIN)/python -m benchmarks.view $(ARGS)

bench-smoke: $(VENV)/.dev  ## The same, briefly: does it run at all
	@$(BIN)/python -m benchmarks --smoke
	@$(BIN)/python -m benchmarks.snapshot --smoke
	@$(BIN)/python -m benchmarks.file --smoke
	@$(BIN)/python -m benchmarks.view --smoke
	@$(BIN)/python -m benchmarks.receive --smoke

docs: $(VENV)/.dev  ## Write the generated tables of docs/
	@$(BIN)/python scripts/write_tables.py

site: $(VENV)-site/.complete  ## Build the site in build/site, and check its links
	@rm -rf build/site build/site-source && mkdir -p build/site-source
	@cp -r $(SITE_SOURCE) build/site-source
	@# A search is about the software: what is found in these pages would come before its pages.
	@for page in CHANGELOG CONTRIBUTING; do sed -i '1i ---\nsearch:\n  exclude: true\n---\n' build/site-source/$$page.md; done
	@$(VENV)-site/bin/zensical build --clean --strict
	@! grep -rEo --include='*.html' '<(script|link|img)[^>]+="(https?:)?//[^"]*"' build/site  # it works offline
	@echo "file://$(CURDIR)/build/site/index.html"

screenshots: $(VENV)/.dev  ## Take the pictures of docs/images (needs chromium)
	@$(BIN)/python scripts/view_screenshots.py
	@$(BIN)/python scripts/phoenix_screenshots.py
	@$(BIN)/python scripts/mlflow_screenshots.py
	@$(BIN)/python scripts/trackio_screenshots.py

clean:  ## Remove what the other targets made
	rm -rf $(VENV) $(VENV)-site build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis

$(BIN)/uv:
	@echo "making $(VENV) …"
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check uv

$(VENV)/.demo: pyproject.toml | $(BIN)/uv
	@echo "installing otel-rollout and what the demo needs …"
	@$(BIN)/uv pip install --quiet --compile-bytecode --python $(BIN)/python -e '.[demo,mlflow]'
	@touch $@

$(VENV)/.dev: pyproject.toml | $(BIN)/uv
	@echo "installing otel-rollout and its development tools …"
	@$(BIN)/uv pip install --quiet --compile-bytecode --python $(BIN)/python -e '.[dev]'
	@touch $@ $(VENV)/.demo

$(VENV)-site/.complete: pyproject.toml | $(BIN)/uv
	@echo "installing what builds the site …"
	@$(BIN)/uv venv --quiet --clear --python '>=3.11' $(VENV)-site
	@$(BIN)/uv pip install --quiet --compile-bytecode --python $(VENV)-site/bin/python --group site
	@touch $@
