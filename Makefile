# setup: everything the project needs, into .venv and .cache.  run: a local cluster.  test: all gates and tests.
# check: the gates and the quick tests.  check-all: the quick tests with every Python that is found, against the wheel.
.PHONY: setup run check check-all test
.DEFAULT_GOAL := setup

setup:
	@scripts/setup all

run:
	@scripts/setup run
	@exec .venv/bin/quorate up

check:
	@scripts/setup check
	@exec scripts/check

check-all:
	@scripts/setup check
	@exec scripts/check-all

test:
	@scripts/setup all
	@exec scripts/test
