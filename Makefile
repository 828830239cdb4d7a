# Every target installs what it needs in .venv and changes nothing else on the machine.
PYTHON ?= python3
BIN := .venv/$(if $(filter Windows_NT,$(OS)),Scripts,bin)
# Modules are compiled at their first import, which saves a third of the installation time.
PIP = $(BIN)/python -m pip install --quiet --no-compile --disable-pip-version-check -c constraints.txt
# Three sets of packages: for the command line tool and the demo, for development, for releases.
TOOL := .venv/.tool
READY := .venv/.ready
RELEASE := .venv/.release

.PHONY: demo paper test test-rest test-all test-snippets test-plain test-oldest test-newest golden lint docs dist wheels release-check whitening sanitize cross clean

demo: $(TOOL)
	$(BIN)/caloric demo demo
	@echo "Open demo/index.html in a browser; the paper's figures: make paper."

paper: $(READY)
	$(BIN)/caloric paper demo/paper

whitening: $(READY)
	$(BIN)/python -m tools.learn_whitening

PYTEST := $(BIN)/python -m pytest

# Run two commands in parallel, because most tests use one core. The output of $(1) is shown after
# that of $(2).
define both
	@rm -f .venv/beside.*; \
	( ( $(1) ) > .venv/beside.log 2>&1; echo $$? > .venv/beside.status ) & \
	$(2); status=$$?; wait; cat .venv/beside.log; \
	test $$status -eq 0 && test "$$(cat .venv/beside.status)" -eq 0
endef

# Together with lint, these take about as long as the other fast tests.
BESIDE := $(addprefix tests/,alignment bench cli descriptor detector extraction gpu image interop kernels \
  matching theory)

# Static checks and the tests that are not marked slow; run it for every change.
test: $(READY)
	$(call both,$(MAKE) --no-print-directory lint && $(PYTEST) -m 'not slow' $(BESIDE),\
	  $(PYTEST) -m 'not slow' $(BESIDE:%=--ignore=%))

# Tests of code that uses the compiled core, also run without it and with sanitizers.
CORE := $(addprefix tests/,detector extraction/test_tiled.py image/test_tiles.py image/test_tiff.py \
  image/test_scalespace.py image/test_views.py matching/test_adjustment.py matching/test_agreement.py \
  matching/test_estimation.py matching/test_geometry.py matching/test_neighbors.py \
  matching/test_points.py matching/test_propagation.py matching/test_refinement.py \
  runtime/test_indexing.py test_pipeline.py)

# The rest: slow tests, the documentation, and tests without the compiled core (those of the
# estimation compare both and take minutes without it).
test-rest: $(READY)
	$(call both,$(MAKE) --no-print-directory docs && \
	  CALORIC_NATIVE=0 $(PYTEST) -m 'not slow' $(filter-out %/test_estimation.py,$(CORE)),\
	  $(PYTEST) -m 'slow and not environments')

test-all: test test-rest

# The code of README and docs, each page in an environment made by its install line.
test-snippets: $(READY)
	$(PYTEST) -m environments

# Write the golden vectors of one descriptor: make golden KERNEL=heat. An existing file is
# overwritten only with OVERWRITE=1.
golden: $(READY)
	$(BIN)/python tests/golden/make.py $(if $(OVERWRITE),--overwrite) $(KERNEL)

# All tests without the compiled core.
test-plain: $(READY)
	CALORIC_NATIVE=0 $(PYTEST)

# Tests of the compiled core with the address and undefined-behavior sanitizers.
sanitize: $(READY)
	CALORIC_NATIVE=1 CALORIC_SANITIZE=address,undefined $(PIP) --no-deps --upgrade --target .venv/sanitized .
	PYTHONPATH=.venv/sanitized ASAN_OPTIONS=detect_leaks=0 \
	  LD_PRELOAD="$$($(CXX) -print-file-name=libasan.so) $$($(CXX) -print-file-name=libubsan.so)" \
	  $(PYTEST) tests/runtime/test_native.py $(CORE)

# Cross-compile a wheel for the other architecture, aarch64 or x86-64, and test it in an emulator.
cross: $(TOOL)
	$(BIN)/python -m tools.cross $(CROSS)

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache
	$(BIN)/codespell
	$(BIN)/python -m tools.language

# Build the source distribution, a wheel from it, and a wheel without the core.
dist: $(RELEASE)
	rm -rf dist
	CALORIC_NATIVE=1 $(BIN)/python -m build --outdir dist .
	CALORIC_NATIVE=0 $(BIN)/python -m build --wheel --outdir dist/pure .

# Install with pip in the empty environment .venv/$(1), and run the fast tests of directory $(3) there.
define test_in
	$(PYTHON) -m venv --clear .venv/$(1)
	.venv/$(1)/$(notdir $(BIN))/python -m pip install --quiet --disable-pip-version-check $(2)
	cd $(3) && $(CURDIR)/.venv/$(1)/$(notdir $(BIN))/python -c \
	  'import caloric, sys; sys.exit(not caloric.__file__.startswith(sys.prefix) and f"not the installed package: {caloric.__file__}")'
	cd $(3) && $(CURDIR)/.venv/$(1)/$(notdir $(BIN))/python -m pytest -m 'not slow' $(4)
endef

# Test the wheel, which is built from the source distribution, with the tests of the source distribution.
wheels: dist
	rm -rf .venv/source
	mkdir .venv/source
	tar -xzf dist/*.tar.gz -C .venv/source --strip-components=1
	$(call test_in,installed,-c constraints.txt "$$(ls dist/*.whl)[dev]",.venv/source)

# Test with the oldest supported version of each dependency, and with the newest. Old packages cause
# warnings, and NumPy 1 has another representation of scalars.
USED := [view,collection,viz,tiff,heic,demo,test]
# Without PyTorch and browsers, and without the tests that import them.
WITHOUT := $(addprefix --ignore=tests/,gpu view alignment/test_scenes_on_device.py alignment/test_search.py image/test_loading.py \
  interop/test_hdf5.py interop/test_lightglue.py interop/test_torch.py extraction/test_dispatch.py) \
  -k 'not torch and not modules_exist and not options_are_checked_before_the_work'
test-oldest: $(READY)
	$(BIN)/python -m tools.floors > .venv/oldest.txt
	$(call test_in,oldest,-c .venv/oldest.txt '.$(USED)',.,$(WITHOUT) -o filterwarnings=default --deselect tests/cli/test_cli.py::test_examples_in_docstrings)

test-newest: $(READY)
	$(call test_in,newest,'.$(USED)',.,$(WITHOUT))

# All checks before a release: build, audit, metadata, links, citation; the README's code in an empty environment.
release-check: dist
	$(BIN)/python -m tools.release dist
	$(PYTEST) tests/test_snippets.py tests/test_installation.py tests/tools/test_release.py

docs: $(READY)
	$(BIN)/sphinx-build -q -W --keep-going -b html docs docs/_build/html
	@echo "Documentation: docs/_build/html/index.html"

$(TOOL): pyproject.toml constraints.txt native/CMakeLists.txt $(wildcard native/src/*)
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is required: make PYTHON=python3.11 ...")'
	$(PYTHON) -m venv .venv
	$(PIP) -e '.[demo]'
	touch $(TOOL)

$(READY): $(TOOL)
	@$(BIN)/python -c 'import caloric_native' || { echo "The tests need the compiled core: install a C++ compiler, then make clean"; exit 1; }
	$(PIP) 'caloric[dev]'
	touch $(READY)

$(RELEASE): $(READY)
	$(PIP) 'caloric[release]'
	touch $(RELEASE)

clean:
	rm -rf .venv .cross demo docs/_build docs/_figures docs/gallery dist native/build
