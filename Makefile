# Everything this repository does is one of these words. PYTHON=python3.12 chooses the interpreter.
SHELL := /bin/bash
.DEFAULT_GOAL := help

# Where a machine sets it, as images of Python do, every process would compile Airflow anew: twice the time to start.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help
help: ## say what can be made
	@sed -nE 's/^([a-z-]+):.*## (.*)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 22

.PHONY: env
env: env-airflow env-kfp env-kfp-oldest ## make .venv, .venv-kfp and .venv-kfp-oldest, or bring them up to date

.PHONY: env-airflow env-kfp env-kfp-oldest env-bench env-release
env-airflow env-kfp env-kfp-oldest env-bench env-release: env-%:
	@scripts/environment.sh $*

.PHONY: page
page: ## build the Training page of Airflow with npm, where it has changed
	@scripts/environment.sh page

.PHONY: demo
demo: env-airflow ## a real Airflow trains a model by schedule, here and now (UI=1 keeps its page open)
	@.venv/bin/python -m demo $(if $(UI),--ui)

.PHONY: demo-retraining
demo-retraining: env-airflow ## batches of digits arrive; a real Airflow retrains, promotes what is better and refuses what is worse
	@.venv/bin/python -m demo.retraining

.PHONY: demo-cluster
demo-cluster: env-airflow ## the same DAG file on a real Kubernetes on this machine (root, Go; the first time takes 15 minutes)
	@PYTHONPATH=tests .venv/bin/python -m cluster run -- .venv/bin/python -m demo --kubeconfig $(if $(UI),--ui)

.PHONY: demo-kfp
demo-kfp: env-kfp ## Kubeflow Pipelines' own runner trains, evaluates and promotes a model on this machine
	@.venv-kfp/bin/python -m demo.kfp

.PHONY: pipelines
pipelines: env-kfp ## compile what a release ships for Kubeflow Pipelines into dist/pipelines: component.yaml and the examples
	@mkdir -p dist/pipelines
	@.venv-kfp/bin/python scripts/compile_pipelines.py dist/pipelines

.PHONY: release
release: env-release env-kfp docs page ## build a release's files from this commit into dist/release, with SBOMs, checksums and provenance
	@rm -rf dist/release && mkdir -p dist/release/pipelines
	@.venv-kfp/bin/python scripts/compile_pipelines.py dist/release/pipelines
	@tar -C dist -czf dist/release/docs.tar.gz docs
	@.venv-release/bin/python scripts/release.py dist/release

.PHONY: check test test-all test-group
check: env-airflow ## formatting, types, import contracts and all tests that need no root, no Go and no server: minutes
	@.venv/bin/python scripts/check.py --check

test: env ## that, and each promise on a real Airflow, Kubernetes and pipeline; GROUP=faults adds a group (CONTRIBUTING.md)
	@.venv/bin/python scripts/check.py $(GROUP)

test-all: env ## `make test` with all groups
	@.venv/bin/python scripts/check.py all

test-group: env ## the tests of a group alone: GROUP=queues
	@.venv/bin/python scripts/check.py --only $(GROUP)

.PHONY: test-versions
test-versions: env-airflow ## the tests for each supported Airflow and Python (ROWS="3.1 3.3@python3.13" PARTS="adapter core stack cluster")
	@.venv/bin/python scripts/versions.py $(ROWS) $(if $(PARTS),--parts $(PARTS))

.PHONY: lint
lint: env-airflow ## the part of `make check` that reads the code
	@.venv/bin/python scripts/check.py --lint

.PHONY: format
format: env-airflow ## let ruff format and repair what it can
	@.venv/bin/ruff format .
	@.venv/bin/ruff check --fix .

.PHONY: docs
docs: env-airflow ## build the documentation as a site into dist/docs: open dist/docs/index.html
	@NO_MKDOCS_2_WARNING=1 .venv/bin/python -m mkdocs build --quiet --clean

.PHONY: bench
bench: env-airflow env-bench ## what waiting and live logs cost, ours beside others', into docs/explanation/benchmarks.md (SIZES=1,100: only prints)
	@PYTHONPATH=tests:. .venv/bin/python -m benchmarks $(if $(SIZES),--quick --sizes $(SIZES),--write)

.PHONY: bench-cli
bench-cli: env-airflow ## how long `ptjob --help` and other answers take, beside kubectl and Arena
	@PYTHONPATH=tests:. .venv/bin/python -m benchmarks.command_line

.PHONY: bench-code
bench-code: env-airflow env-bench ## from a saved edit to the first line of the training, beside Kubeflow's SDK (CLUSTER=1: on that Kubernetes)
	@PYTHONPATH=tests:. .venv/bin/python -m benchmarks.first_line $(if $(CLUSTER),--cluster)

.PHONY: bench-triggerer
bench-triggerer: env-airflow ## 10,000 deferred tasks in one real triggerer for ten minutes (root, Go; PostgreSQL)
	@PYTHONPATH=tests:. .venv/bin/python -m benchmarks.triggerer $(if $(JOBS),--jobs=$(JOBS))

.PHONY: bench-recovery
bench-recovery: env-airflow env-bench ## from an eviction to the next job, ours beside others', into docs/explanation/benchmarks.md (COUNT=3: only prints)
	@PYTHONPATH=tests:. .venv/bin/python -m benchmarks.recovery $(if $(COUNT),--count=$(COUNT),--write)

.PHONY: bench-watcher
bench-watcher: env-airflow ## what watching 10,000 files costs, ours beside others', into docs/how-to/data-arrival.md (FILES=1000: only prints)
	@PYTHONPATH=tests:. .venv/bin/python -m benchmarks.watcher $(if $(FILES),--files=$(FILES),--write)

.PHONY: mutants
mutants: env-airflow env-kfp ## plant the faults of tests/mutants.toml; each must be caught by the test that it names (goes on where it stopped)
	@.venv/bin/python scripts/mutants.py $(FAULTS); ended=$$?; .venv-kfp/bin/python scripts/mutants.py $(FAULTS) && exit $$ended

.PHONY: gpu-check
gpu-check: ## try the package on this machine's NVIDIA GPU, eight minutes at most; what was seen goes into README.md (CASES="memory")
	@$(or $(wildcard .venv/bin/python),$(PYTHON),python3) scripts/gpu_check.py $(if $(DRY_RUN),--dry-run,--write) $(CASES)

.PHONY: soak-tests
soak-tests: env-airflow ## tests that measure (latency, CPU, accuracy), and a whole Airflow whose parts are struck: no gate
	@.venv/bin/python scripts/check.py --soak

.PHONY: soak
soak: env-airflow ## 1,000 random fault schedules between the jobs and that Kubernetes; goes on where it was interrupted
	@PYTHONPATH=tests:. .venv/bin/python -m faults --soak $(if $(COUNT),--count $(COUNT)) $(if $(MINUTES),--minutes $(MINUTES))

.PHONY: soak-kfp
soak-kfp: env-kfp ## a hundred steps of pipelines on that Kubernetes, killed, terminated and deleted at random moments
	@PYTHONPATH=tests:. .venv-kfp/bin/python -m kfp_cluster --soak $(or $(COUNT),100)

.PHONY: soak-preemptions
soak-preemptions: env-airflow ## pods taken away at random moments: COUNT=1000 schedules with stand-ins, JOBS=100 on a cluster (SEED=)
	@PTJOB_COUNT=$(or $(COUNT),1000) PTJOB_SEED=$(or $(SEED),0) .venv/bin/python -m pytest -q -n auto -p no:cacheprovider \
		tests/airflow_adapter/test_preemptions.py -k test_whatever_happens_to_a_task_it_never_has_two_jobs
	@PYTHONPATH=tests:. .venv/bin/python -m preempted --count $(or $(JOBS),100) $(if $(SEED),--seed $(SEED))

.PHONY: soak-checkpoints
soak-checkpoints: env-airflow ## 200 half-written checkpoints of each format; what is found must load in the library that has written it
	@[ -d .venv-checkpoints ] || scripts/environment.sh wheel airflow .venv-checkpoints torch transformers accelerate lightning safetensors
	@PYTHONPATH=tests:. .venv-checkpoints/bin/python -m cut_checkpoints $(if $(COUNT),--count $(COUNT)) $(if $(SEED),--seed $(SEED))

.PHONY: soak-retraining
soak-retraining: env-airflow ## 200 batches of data, dropped while triggerers are killed and trainings fail; about 20 minutes
	@PYTHONPATH=tests:. .venv/bin/python -m retraining $(if $(COUNT),--count $(COUNT)) $(if $(SEED),--seed $(SEED))

.PHONY: cluster cluster-down
cluster: env-airflow ## keep that Kubernetes up and say how kubectl reaches it
	@PYTHONPATH=tests .venv/bin/python -m cluster images

cluster-down: env-airflow ## take it down
	@PYTHONPATH=tests .venv/bin/python -m cluster down

.PHONY: constraints
constraints: ## compile constraints/*.txt anew from pyproject.toml
	@scripts/environment.sh constraints

.PHONY: clean
clean: ## remove what the words above have made in this folder
	rm -rf .venv .venv-kfp .venv-kfp-oldest .venv-bench .venv-release .venv-checkpoints .venv-airflow-* .demo .coverage* .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .test-times.jsonl dist
