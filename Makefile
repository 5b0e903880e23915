# setup: everything the project needs, into .venv and .cache.  run: a local cluster.  test: all gates and tests.
# check: the gates and the quick tests.  check-all: the quick tests with every Python that is found, against the wheel.
# test-lake: the tests of Delta tables that take minutes.
# campaign: simulations, faults on processes and mixed clusters for MINUTES from one SEED; one report.
.PHONY: setup run check check-all test test-lake campaign
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

test-lake:
	@scripts/setup all
	@exec .venv/bin/python -m pytest -q -m lake -n 2 --dist loadfile tests/pipeline

MINUTES ?= 30
SEED ?= 1
campaign:
	@scripts/setup all
	@exec .venv/bin/python -m tests.campaign --minutes $(MINUTES) --seed $(SEED)
