# What people do here, by short names: `make` lists it. Each target calls a script of scripts/, which has --help.
.DEFAULT_GOAL := help
.PHONY: help run shell status audit doctor lint unit browser spark stack e2e test nightly chaos bench lock

help: ## list what there is
	@sed -n 's/^\([a-z0-9]*\):.*## \(.*\)/\1|\2/p' $(MAKEFILE_LIST) | awk -F'|' '{ printf "make %-8s %s\n", $$1, $$2 }'

run: ## the whole stack on this machine, without Docker; Ctrl-C stops it
	./scripts/run

shell: ## PySpark with every table of the lake at hand
	./scripts/shell

status: ## what the app says of itself and of its tables
	./scripts/status

audit: ## compare the lake with Kafka, record by record
	./scripts/audit

doctor: ## examine the lake
	./scripts/doctor

lint: ## style, format, types, shell scripts, Dockerfiles
	./scripts/test --lint

unit: ## tests without JVM and network, 6 minutes
	./scripts/test --unit

browser: ## the views of the page in Chromium, 2 minutes
	./scripts/test --browser

spark: ## tests on a local Spark session, 5 minutes
	./scripts/test --spark

stack: ## tests on a real broker and registry, 4 minutes
	./scripts/test --stack

nightly: ## the other tests, 2 hours; goes on where it was stopped
	./scripts/test --nightly

e2e: ## the compose file for real; needs Docker
	./scripts/test --e2e

test: ## lint, unit, browser, spark and stack, 20 minutes
	./scripts/test

chaos: ## break the app on purpose and look for lost records, 5 minutes
	./scripts/chaos kills

bench: ## the measurements and their targets
	./scripts/bench --list

lock: ## resolve pyproject.toml into the lock files; needs uv and mvn
	./scripts/lock
