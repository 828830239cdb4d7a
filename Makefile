# Every target sets up what it needs in .venv; nothing else on the machine is touched.
PYTHON ?= python3
BIN := .venv/$(if $(filter Windows_NT,$(OS)),Scripts,bin)
# Python compiles what it imports when it is first imported: a third of the time of setting up is saved.
PIP = $(BIN)/python -m pip install --quiet --no-compile --disable-pip-version-check -c constraints.txt
# Two sets of packages: what the tool and its demonstration need, and what the checks need.
TOOL := .venv/.tool
READY := .venv/.ready

.PHONY: demo paper test beside test-plain golden lint docs wheels whitening sanitize cross clean

demo: $(TOOL)
	$(BIN)/caloric demo demo
	@echo "Open demo/index.html in a browser; the paper's figures: make paper."

paper: $(READY)
	$(BIN)/caloric paper demo/paper

whitening: $(READY)
	$(BIN)/python -m tools.learn_whitening

# Most tests use one core: those of the theory, the documentation and the part without the compiled
# core run beside the others.
BESIDE := tests/paper tests/theory tests/kernels tests/descriptor

test: lint
	@rm -f .venv/beside.*; \
	( $(MAKE) --no-print-directory beside > .venv/beside.log 2>&1; echo $$? > .venv/beside.status ) & \
	$(BIN)/python -m pytest $(BESIDE:%=--ignore=%); status=$$?; wait; cat .venv/beside.log; \
	test $$status -eq 0 && test "$$(cat .venv/beside.status)" -eq 0

beside: docs
	$(BIN)/python -m pytest $(BESIDE)
	CALORIC_NATIVE=0 $(BIN)/python -m pytest tests/detector tests/test_pipeline.py tests/image/test_tiles.py

# The golden vectors of one descriptor: make golden KERNEL=heat. A file that exists is replaced only
# with OVERWRITE=1.
golden: $(READY)
	$(BIN)/python tests/golden/make.py $(if $(OVERWRITE),--overwrite) $(KERNEL)

# Everything once more without the compiled core.
test-plain: $(READY)
	CALORIC_NATIVE=0 $(BIN)/python -m pytest

# The compiled core in a build that checks itself: addresses and undefined behaviour.
sanitize: $(READY)
	CALORIC_SANITIZE=address,undefined $(PIP) --no-deps --upgrade --target .venv/sanitized ./native
	PYTHONPATH=.venv/sanitized ASAN_OPTIONS=detect_leaks=0 \
	  LD_PRELOAD="$$($(CXX) -print-file-name=libasan.so) $$($(CXX) -print-file-name=libubsan.so)" \
	  $(BIN)/python -m pytest tests/runtime/test_native.py tests/image/test_tiles.py tests/detector tests/test_pipeline.py

# The other platform, aarch64 or x86-64: the core by a cross compiler, its tests under emulation.
cross: $(TOOL)
	$(PIP) nanobind cmake
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python -m tools.cross $(CROSS)

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

# The wheels as people get them: built, installed into an environment of their own, tested there.
wheels: $(READY)
	rm -rf dist .venv/installed
	$(BIN)/python -m build --outdir dist .
	$(BIN)/python -m build --outdir dist native
	$(PYTHON) -m venv .venv/installed
	.venv/installed/$(notdir $(BIN))/python -m pip install --quiet --disable-pip-version-check -c constraints.txt \
	  dist/caloric_native-*.whl "$$(ls dist/caloric-*.whl)[dev]"
	.venv/installed/$(notdir $(BIN))/python -m pytest

docs: $(READY)
	$(BIN)/sphinx-build -q -W --keep-going -b html docs docs/_build/html
	@echo "The documentation: docs/_build/html/index.html"

$(TOOL): pyproject.toml constraints.txt native/pyproject.toml native/CMakeLists.txt $(wildcard native/src/*)
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed: make PYTHON=python3.11 ...")'
	$(PYTHON) -m venv .venv
	$(PIP) ./native -e '.[demo]'
	touch $(TOOL)

$(READY): $(TOOL)
	$(PIP) -e '.[dev]'
	touch $(READY)

clean:
	rm -rf .venv .cross demo docs/_build docs/_figures docs/gallery dist native/build
