# The one way in: `make help` lists what there is. CMakePresets.json holds the kinds of build, and
# the scripts in tools/ the steps of more than a line.

JOBS ?= $(shell nproc)
FUZZ_SECONDS ?= 600
PREFIX ?= /usr/local
CAP ?= 27.94GiB
TRACE := tests/data/traces/gpt-oom.pickle.gz

.DEFAULT_GOAL := all
.NOTPARALLEL:
.PHONY: all release debug asan tsan portable demo test bench test-gpu lint format fuzz dist install clean help

all: release ## build libcenote and cenote into build/ (the default)

release debug asan tsan portable: ## build that kind: release into build/, NAME into build-NAME/
	@tools/deps.sh build
	@tools/build.sh $@ $(JOBS)

demo: release ## build, explain and replay a recorded failure, join two devices, share an array
	build/cenote explain $(TRACE) --cap $(CAP)
	@echo
	build/cenote replay $(TRACE) --cap $(CAP)
	@echo
	build/examples/global
	@echo
	examples/share.sh

test: ## install what is missing, build, and run every suite that needs no GPU
	@tools/deps.sh test
	@tools/test.sh $(JOBS)

bench: release ## measure, beside peers; results into bench/results/
	@tools/bench.py

test-gpu: portable ## the suites that need a GPU, on this machine; without one they fail
	CENOTE_REQUIRE_GPU=1 ctest --preset portable -L conformance

lint: ## clang-format, clang-tidy, shellcheck, layers, sizes; installs what is missing
	@tools/deps.sh lint
	@tools/build.sh debug $(JOBS)
	@tools/lint.sh $(JOBS)

format: ## rewrite the sources as .clang-format says
	@tools/style.sh --fix

fuzz: ## fuzz each tests/fuzz/fuzz_*.c for FUZZ_SECONDS (600)
	@tools/deps.sh test
	@tools/fuzz.sh $(FUZZ_SECONDS) $(JOBS)

dist: ## a static cenote for the commands that need no GPU, in dist/
	@tools/deps.sh build
	@tools/dist.sh $(JOBS)

install: release ## install into PREFIX (/usr/local), below DESTDIR if set
	cmake --install build --prefix $(PREFIX)

clean: ## remove all that was built
	rm -rf build build-* dist

help: ## this list
	@sed -n 's/^\([a-z -]*\):[^#]*## \(.*\)/\1\t\2/p' Makefile | \
	    while IFS="$$(printf '\t')" read -r name text; do printf '  make %-34s %s\n' "$$name" "$$text"; done
