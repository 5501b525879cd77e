# make run    create .venv, install, translate with the embedded demo model
# make test   the same, plus the development tools, then every test
# make lint   format, lint, types, layers
# make wheel-test   build the wheel and try it in an environment of its own
# make constraints  resolve the pinned versions again

PYTHON ?= python3
BIN := .venv/bin
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: run test lint wheel-test constraints clean

run: .venv/installed
	@if [ -t 0 ] && [ -t 1 ]; then exec $(BIN)/hymt; else exec $(BIN)/hymt demo; fi

test: .venv/installed-dev
	@$(BIN)/pytest -m "$$(sh .ci/missing-tools)"

lint: .venv/installed-dev
	@mkdir -p build/typing && ln -sfn ../../convert build/typing/hymt_convert
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy -p hymt_local -p hymt_convert -p tests
	$(BIN)/lint-imports

wheel-test: .venv/installed-dev
	@sh .ci/wheel-test $(BIN)

.venv/installed: pyproject.toml setup.py constraints.txt .ci/install
	@sh .ci/install $(PYTHON)
	@touch $@

.venv/installed-dev: .venv/installed constraints-dev.txt .ci/install
	@sh .ci/install $(PYTHON) dev
	@touch $@

# llama-cpp-python is built here and torch differs by machine, so neither can have a fixed hash.
constraints:
	uv pip compile --quiet --universal --generate-hashes --python-version 3.11 --no-header --no-annotate \
	  --no-emit-package llama-cpp-python pyproject.toml -o constraints.txt
	uv pip compile --quiet --universal --generate-hashes --python-version 3.11 --no-header --no-annotate \
	  --no-emit-package llama-cpp-python --no-emit-package torch --no-emit-package hymt-local \
	  --constraint constraints.txt --group dev pyproject.toml -o constraints-dev.txt

clean:
	rm -rf .venv build dist *.egg-info
