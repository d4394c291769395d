# Every word prepares what it needs: .venv (locked dependencies) and, for Spark, a Java.
# ARGS are handed on: make test ARGS="-k window -x"

SHELL := bash
.DEFAULT_GOAL := help
.PHONY: help demo test check bench chaos lock clean

PYTHON ?= python3
BENCH ?= log
# How many processes share the tests; each has a Spark of its own. Files stay whole. 0: no other process.
WORKERS ?= 2
ready := .venv/.ready
bin := .venv/bin
java := JAVA_HOME=$$(scripts/java.sh) && export JAVA_HOME &&
compile := uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
	--custom-compile-command "make lock"

# Spark starts its Python workers with this one.
export PYSPARK_PYTHON := $(CURDIR)/$(bin)/python

help: ## show these words
	@sed -n 's/^\([a-z]*\):.*## /  make \1\t/p' Makefile | expand -t 16

demo: $(ready) ## the trending pipeline with a crash in the middle, and the proof of exactly-once
	@$(java) $(bin)/tidelock demo $(ARGS)

test: $(ready) ## all tests but the chaos runs
	@$(java) $(bin)/pytest -m "not chaos" -n $(WORKERS) --dist loadfile --durations 10 $(ARGS)

chaos: $(ready) ## slow runs: real kills, many times, and long comparisons
	@$(java) $(bin)/pytest -m chaos --durations 10 $(ARGS)

check: $(ready) ## lint, format, types, and imports that go down only
	$(bin)/ruff check .
	$(bin)/ruff format --check .
	$(bin)/mypy
	$(bin)/pytest -q tests/unit/test_layering.py

bench: $(ready) ## the epoch log against Spark's own file stream; BENCH=recovery: segments against one query; BENCH=cache: state in Redis against state in Spark; BENCH=alignment: aligned jobs against unaligned ones
	@$(java) $(bin)/python benchmarks/$(BENCH).py $(ARGS)

lock: ## resolve the dependencies again (needs uv); ARGS=--upgrade takes the newest
	$(compile) $(ARGS) --extra redis --extra zookeeper --extra kafka --extra testing --extra dev --group build \
		pyproject.toml -o requirements.lock
	$(compile) $(ARGS) --group java -o requirements-java.lock
	$(compile) $(ARGS) --group redis-server --no-deps -o requirements-redis.lock

clean: ## remove .venv and everything the tools left behind
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis spark-warehouse metastore_db derby.log
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(ready): requirements.lock pyproject.toml
	@PYTHON=$(PYTHON) scripts/bootstrap.sh
	@touch $@
