# Every target installs what it needs and this machine lacks (scripts/setup); nothing has to be prepared by hand.

SHELL := /bin/bash
# What cargo installs is found even in a shell that was opened before.
export PATH := $(PATH):$(HOME)/.cargo/bin

# For `make run`: your own capture and expression. Without them: a capture made here, whose answers are known.
export SOURCE EXPR PACKETS
# For `make check-deep`: time for each fuzz target.
MINUTES ?= 10
export FUZZ_SECONDS ?= $(shell echo $$(( $(MINUTES) * 60 )))
# For `make bench`: which comparisons.
NAME = filter sketch measure pages

# For `make install`: PREFIX/bin/weir, below DESTDIR for packages. Default: where cargo puts binaries.
PREFIX ?=
export DESTDIR

.DEFAULT_GOAL := help
.PHONY: help run test bench check-deep install

help: ## Show this list
	@echo 'make TARGET:'
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  \1\t\2/p' $(MAKEFILE_LIST) | expand -t 16
	@echo
	@echo "  make run SOURCE=my.pcap EXPR='tcp port 443'    look at your own capture"
	@echo '  make run PACKETS=1000000                       a larger demonstration'
	@echo '  make install PREFIX=/usr/local                 into /usr/local/bin'
	@echo '  make bench NAME=sketch                         one comparison; target/release/weir-bench lists them'
	@echo '  make check-deep MINUTES=1                      fuzz each target for a minute'

run: ## Build weir and see it work: on a capture with known answers, or on SOURCE with EXPR
	@scripts/setup run
	@cargo build --release --locked -p weir
	@scripts/demo

test: ## All that CI runs: format, tidy, clippy, tests, documentation
	@scripts/setup test
	@scripts/test

bench: ## Compare weir with its peers here, or NAME=sketch alone; needs 9 GB in data/, writes results/
	@scripts/setup bench
	@cargo build --release --locked -p weir -p weir-python
	@target="$${CARGO_TARGET_DIR:-target}"; \
	cargo build --release --locked --manifest-path bench/Cargo.toml --target-dir "$$target" && \
	for name in $(NAME); do "$$target/release/weir-bench" $$name || exit; done

check-deep: ## Beyond CI: miri, loom, comparisons, and MINUTES of fuzzing for each target
	@scripts/check-deep

install: ## Install the weir command, manual pages, completions (PREFIX, or cargo's own place)
	@scripts/setup run
	@scripts/install $(if $(PREFIX),"$(PREFIX)")
