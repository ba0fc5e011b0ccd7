# The front door. `make demo` and `make test` do everything on a fresh machine: packages, build, run.
PREFIX ?= /usr/local
JOBS ?= $(shell nproc)
# How long each fuzz target searches, and from which seed; 0: another one each time.
FUZZ_SECONDS ?= 60
FUZZ_SEED ?= 0
SOURCES = git ls-files '*.hpp' '*.cpp' '*.cu' '*.cuh'

# A clone in another folder finds in ccache what this one compiled.
export CCACHE_BASEDIR ?= $(CURDIR)
export CCACHE_NOHASHDIR ?= true

.PHONY: build demo framework packages wheel test python-test asan tsan fuzz dev install format tidy performance-tables setup clean
.DEFAULT_GOAL := build
.NOTPARALLEL:  # JOBS is what runs at once

build: build/release/build.ninja
	cmake --build --preset release -j $(JOBS)

demo: setup
	scripts/demo $(JOBS)

# libattune_framework and the program, without attune's ops.
framework: build/framework/build.ninja
	cmake --build --preset framework -j $(JOBS)

# Debian packages in build/package: see packaging/README.md.
packages: setup
	packaging/build $(JOBS)

# The Python wheel in build/dist, installed into a fresh environment and tested there.
wheel: setup
	packaging/wheel $(JOBS)

# The Python package with PyTorch and JAX, which are installed into build/python-venv.
python-test: setup
	scripts/test_python $(JOBS)

# The fuzz targets search from one seed, so that a change is judged by itself; `make fuzz` looks
# further. The whole suite last, so that its summary is what remains on the screen.
test: asan build/ci/build.ninja
	@if command -v clang++ >/dev/null; then $(MAKE) fuzz FUZZ_SECONDS=15 FUZZ_SEED=1; \
	 else echo "make test: no clang++ here: the fuzz targets run their corpus and search no further"; fi
	cmake --build --preset ci -j $(JOBS)
	ctest --preset ci -j $(JOBS)

asan tsan: %: build/%/build.ninja
	cmake --build --preset $@ -j $(JOBS)
	ctest --preset $@ -j $(JOBS)

fuzz: build/fuzz/build.ninja
	cmake --preset fuzz -DATTUNE_FUZZ_SECONDS=$(FUZZ_SECONDS) -DATTUNE_FUZZ_SEED=$(FUZZ_SEED) >/dev/null
	cmake --build --preset fuzz -j $(JOBS)
	ctest --preset fuzz -j $(JOBS)

dev: build/dev/build.ninja
	cmake --build --preset dev -j $(JOBS)

install: build/release/build.ninja
	cmake --build --preset release -j $(JOBS) --target attune_shared attune_static attune_cli attune_databases
	cmake --install build/release --prefix $(PREFIX)

format:
	$(SOURCES) | xargs clang-format -i

tidy: build/dev/build.ninja
	run-clang-tidy -quiet -p build/dev -j $(JOBS) '^$(CURDIR)/(core|cache|io|ops|tuner|backends|library|cli)/'

# The tables of docs/performance.md and bench/results/tables.md and their plots, from bench/results/.
performance-tables:
	scripts/performance_tables

setup:
	scripts/setup

clean:
	rm -rf build

# Ninja configures again when a CMakeLists.txt changes, but knows nothing of the presets.
build/%/build.ninja: CMakePresets.json | setup
	cmake --preset $*
	touch $@
