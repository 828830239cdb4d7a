# Every target sets up what it needs in .venv; nothing else on the machine is touched.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready

.PHONY: demo paper test lint docs whitening clean

demo: $(READY)
	$(BIN)/caloric demo demo
	@echo "Look at demo/demo.png; the paper's figures: make paper."

paper: $(READY)
	$(BIN)/caloric paper demo/paper

whitening: $(READY)
	$(BIN)/python tools/learn_whitening.py

test: lint docs
	$(BIN)/python -m pytest

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

docs: $(READY)
	$(BIN)/sphinx-build -q -W --keep-going -b html docs docs/_build/html
	@echo "The documentation: docs/_build/html/index.html"

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed: make PYTHON=python3.11 ...")'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $(READY)

clean:
	rm -rf .venv demo docs/_build dist
