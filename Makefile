# Every target makes the environment it needs: a fresh clone with Python >= 3.11 and pip is enough.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
SHELL := /bin/bash

.PHONY: demo test test-long test-oldest coverage lint types audit planted mutation fuzz bench leaderboard docs lock pip-audit sbom reproducible wheel-check image-check clean

# One stamp per extra, so that each command installs only what it needs, once.
$(VENV)/.installed-%: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "dpcvx needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) --version). Try: make PYTHON=python3.12 ..."; exit 1; }
	@test -x $(BIN)/python || { echo "creating $(VENV)"; $(PYTHON) -m venv $(VENV); }
	@echo "installing dpcvx[$*] into $(VENV) (once)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable ".[$*]"
	@touch $@

demo: $(VENV)/.installed-demo  ## fit private models on census incomes; writes demo_output/report.html
	$(BIN)/dpcvx demo --out demo_output

test: $(VENV)/.installed-test  ## the whole quick suite
	$(BIN)/python -m pytest -q -n 2 --dist loadfile -m "not slow and not long" tests

test-long: $(VENV)/.installed-test  ## the tests that take longer, which a change must pass too
	$(BIN)/python -m pytest -q -n 2 -m "long and not slow" tests

# The estimator contract again, on the oldest scikit-learn that is supported, in an environment of its own.
test-oldest: .venv-oldest/.installed
	.venv-oldest/bin/python -m pytest -q -n 2 -m "not slow" tests/interface/test_sklearn.py tests/interface/test_estimators.py

.venv-oldest/.installed: pyproject.toml
	@test -x .venv-oldest/bin/python || $(PYTHON) -m venv .venv-oldest
	@.venv-oldest/bin/python -m pip install --quiet --disable-pip-version-check --editable ".[test]" "scikit-learn==1.7.*"
	@touch $@

coverage: $(VENV)/.installed-test  ## line coverage of src by both suites
	$(BIN)/python -m pytest -q -n 2 -m "not slow" --cov=dpcvx --cov-report=term tests

lint: $(VENV)/.installed-lint
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.installed-lint
	$(BIN)/mypy

audit: $(VENV)/.installed-test  ## slow privacy audits and long statistical checks
	$(BIN)/python -m pytest -q -m slow tests

planted: $(VENV)/.installed-test  ## plant one-line faults in a copy: the quick tests must catch each
	$(BIN)/python tests/planted/run.py --write

mutation: $(VENV)/.installed-test  ## change the source at many places, one at a time: the quick tests must notice
	$(BIN)/python tests/mutation/record.py build/mutation/map.json
	$(BIN)/python tests/mutation/run.py build/mutation
	$(BIN)/python tests/mutation/report.py

fuzz: $(VENV)/.installed-test  ## changed files, declarations, statements, queries and requests, two minutes for each kind
	$(BIN)/python tests/fuzz/run.py

bench: $(VENV)/.installed-test  ## every benchmark that needs no data outside the repository, then those whose data are found
	for script in benchmarks/*.py; do echo "== $$script"; $(BIN)/python $$script || exit 1; done

leaderboard: $(VENV)/.installed-bench  ## measure what is missing in benchmarks/leaderboard/results.jsonl, write docs/leaderboard.md
	$(BIN)/python -m benchmarks.leaderboard

docs: $(VENV)/.installed-docs
	$(BIN)/python docs/algorithms_table.py
	$(BIN)/python docs/defaults_table.py
	$(BIN)/python docs/layout_table.py
	$(BIN)/python docs/epsilon_figures.py
	$(BIN)/python -m sphinx -W --keep-going -b html docs docs/_build/html

# Parts and builds. Their tools live in an environment of their own, so that they are no part of what they list.
.venv-supply/.installed:
	@test -x .venv-supply/bin/python || $(PYTHON) -m venv .venv-supply
	@.venv-supply/bin/python -m pip install --quiet --disable-pip-version-check uv pip-audit cyclonedx-bom build
	@touch $@

lock: .venv-supply/.installed  ## write ci/requirements.txt, the versions and hashes that .ci/run installs, anew
	.venv-supply/bin/uv pip compile --quiet --upgrade --universal --python-version 3.11 --generate-hashes \
	  --no-emit-index-url --no-annotate --no-header --extra demo --extra lint --extra test \
	  --output-file ci/requirements.txt pyproject.toml > /dev/null

pip-audit: .venv-supply/.installed  ## known vulnerabilities of the packages in ci/requirements.txt; fails if one cannot be looked up
	.venv-supply/bin/pip-audit --strict --requirement ci/requirements.txt --require-hashes --disable-pip

sbom: .venv-supply/.installed  ## list of parts in CycloneDX
	@mkdir -p dist
	.venv-supply/bin/cyclonedx-py requirements --pyproject pyproject.toml --output-reproducible \
	  --output-file dist/sbom.json ci/requirements.txt

reproducible: .venv-supply/.installed  ## build wheel and sdist twice and compare their bytes
	rm -rf dist/first dist/second
	SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct) .venv-supply/bin/python -m build --outdir dist/first . > /dev/null
	SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct) .venv-supply/bin/python -m build --outdir dist/second . > /dev/null
	cd dist/first && for file in *; do cmp $$file ../second/$$file || exit 1; done && sha256sum *

# The wheel in an empty environment, from files alone: its packages are fetched first, then nothing is.
wheel-check: .venv-supply/.installed  ## install the built wheel offline with $(PYTHON) and fit a model with it
	rm -rf dist/wheel .venv-wheel
	.venv-supply/bin/python -m build --wheel --outdir dist/wheel . > /dev/null
	$(PYTHON) -m venv .venv-wheel
	.venv-wheel/bin/python -m pip download --quiet --disable-pip-version-check --dest dist/wheel dist/wheel/dpcvx-*.whl
	.venv-wheel/bin/python -m pip install --quiet --disable-pip-version-check --no-index --find-links dist/wheel dpcvx
	cd dist && ../.venv-wheel/bin/python -W error ../ci/wheel_check.py

image-check:  ## build the image of deploy/ with buildah, start the service in it, ask a query
	$(PYTHON) ci/image_check.py $(IMAGE_OPTIONS)

clean:
	rm -rf $(VENV) .venv-oldest .venv-supply .venv-wheel build dist docs/_build demo_output
