# setup: everything the project needs, into .venv and .cache.  run: a local cluster.  test: all gates and tests.
.PHONY: setup run test
.DEFAULT_GOAL := setup

setup:
	@scripts/setup all

run:
	@scripts/setup run
	@exec .venv/bin/quorate up

test:
	@scripts/setup all
	@exec scripts/test
