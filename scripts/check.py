"""Run all checks in tiers: `make check`, `make test`, `make test-all`, `make soak-tests` (CONTRIBUTING.md).

Lanes of steps run in parallel: steps that mostly compute, steps that wait for a whole Airflow, steps that wait for
pods, and the builds that the others need, with the linters after them. Each line of output names its lane. A failed
step does not stop the others. The last line counts the tests of all steps; the exit code is 0 only if every step
succeeded.

Of the tests on a whole Airflow or on the cluster, `make test` runs those that prove a promise (`promises.md`). The
others belong to groups: `make test GROUP=queues` adds one group, and `make test-all` runs all. CI adds one group that
depends on the changed files (`group_of_change`).
"""

from __future__ import annotations

import argparse
import contextlib
import os
import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import held_cluster
from promises import gate, loose_quarantine, malformed, quarantined, unproved
from steps import ROOT, Step, run, run_beside, summary

if TYPE_CHECKING:
    from collections.abc import Sequence

BIN = ROOT / ".venv" / "bin"
SLOWEST = ("--durations=5", "--durations-min=10")
WITHOUT_SOAK = "not soak"
PYTEST = (str(BIN / "python"), "-m", "pytest", "-q", *SLOWEST, "-m", WITHOUT_SOAK)
PYTEST_KFP = (str(ROOT / ".venv-kfp" / "bin" / "python"), *PYTEST[1:])
PYTEST_KFP_OLDEST = (str(ROOT / ".venv-kfp-oldest" / "bin" / "python"), *PYTEST[1:])
COVERAGE = (str(BIN / "python"), "-m", "coverage")
MEASURED = ("--cov", "--cov-report=")

WITHOUT_CLUSTER = ("-m", f"not cluster and {WITHOUT_SOAK}")
ON_CLUSTER = ("-m", f"cluster and {WITHOUT_SOAK}")

ON_WORKERS = ("--dist", "load", "--max-worker-restart=0")
"""A test that hangs ends its worker and is named. No worker is restarted, because it would run that test again."""

CORES = len(os.sched_getaffinity(0))

CORE = ("tests/core", "tests/contract", "tests/cli")
"""Tests that need neither Airflow nor PyTorch; those marked `cluster` run in the group `backend`."""

ADAPTERS = ("tests/airflow_adapter", "tests/guides", "benchmarks")
"""Tests that need Airflow's packages and processes of this machine; those marked `cluster` as above."""

LEDGER = ("tests/ledger",)
"""Tests that need a PostgreSQL server."""

KFP = ("tests/kfp_adapter",)
_PIPELINES = "tests/kfp_adapter/test_pipelines.py"
KFP_TRAINS = (
    "tests/kfp_adapter/test_demo.py",
    f"{_PIPELINES}::test_the_pipeline_trains_evaluates_and_promotes_what_is_better",
    f"{_PIPELINES}::test_the_sweep_keeps_the_best_of_its_trainings",
    f"{_PIPELINES}::test_the_curves_are_a_page_that_loads_nothing",
    f"{_PIPELINES}::test_a_stock_component_reads_a_model_that_was_copied",
)
"""Whole pipelines on this machine that train with PyTorch."""

STACK = "tests/airflow_stack"
BACKEND = "tests/kubernetes_backend"
AIRFLOW_ON_CLUSTER = "tests/airflow_cluster"
KFP_ON_CLUSTER = "tests/kfp_cluster"

AIRFLOW_RUNS = (
    "tests/airflow_adapter/test_dag_runs.py",
    "tests/airflow_adapter/test_lineage_runs.py",
)
"""Tests in which Airflow runs DAGs in its own processes."""

WITH_S3 = (
    "tests/airflow_adapter/test_data_arrival_s3.py",
    "tests/digits/test_arrived.py",
    f"{STACK}/test_data_arrival.py",
)
"""Tests with a real S3 server."""

GROUPS = {
    "airflow": (STACK, *AIRFLOW_RUNS, AIRFLOW_ON_CLUSTER),
    "backend": (BACKEND, *CORE, *ADAPTERS),
    "pipelines": (KFP_ON_CLUSTER, *KFP),
    "specs": (f"{BACKEND}/test_specs.py",),
    "queues": (f"{BACKEND}/test_kueue.py", f"{BACKEND}/test_arena.py", f"{BACKEND}/test_metrics_server.py"),
    "kinds": (
        f"{BACKEND}/test_elastic.py",
        f"{BACKEND}/test_fields.py",
        f"{BACKEND}/test_guides.py",
        f"{BACKEND}/test_old_operator.py",
        f"{BACKEND}/test_pytorchtrainingjob.py",
        f"{BACKEND}/test_survive_preemption.py",
        f"{BACKEND}/test_trainjob_cli.py",
        f"{BACKEND}/test_trainjob_code.py",
        f"{BACKEND}/test_trainjob_outputs.py",
        f"{BACKEND}/test_trainjob_runtimes.py",
    ),
    "second-cluster": (
        "tests/cluster",
        f"{BACKEND}/test_crashes.py",
        f"{BACKEND}/test_hardened.py",
        f"{BACKEND}/test_trainer_status.py",
        "tests/preempted",
    ),
    "demos": (
        "tests/demo",
        "tests/retraining",
        "tests/examples",
        "tests/digits",
        "tests/guides/test_tutorials.py",
        "tests/guides/test_function_tutorials.py",
        "tests/guides/test_from_arena.py",
        "tests/guides/test_from_pytorch_operator.py",
        "tests/guides/test_from_t9k.py",
    ),
    "arrival": WITH_S3,
    "images": ("tests/docker", "tests/wheel", f"{KFP_ON_CLUSTER}/test_image.py"),
    "faults": ("tests/faults", f"{KFP_ON_CLUSTER}/test_strikes.py"),
}
"""Tests of each group; a file named by two groups belongs to the later one."""

CHANGED = {
    "airflow": ("ptjob_provider/airflow", "tests/airflow_"),
    "backend": ("core/kubernetes", "tests/kubernetes_backend", "core/diagnosis", "ptjob_provider/cli", "deploy/"),
    "pipelines": ("ptjob_provider/kfp", "tests/kfp_", "pipelines/", "constraints/kfp"),
    "arrival": ("arrival", "ledger", "ptjob_provider/retraining", "airflow/stores"),
    "specs": ("core/spec", "core/manifest", "core/kinds"),
    "queues": ("kueue", "arena", "usage", "metrics"),
    "kinds": ("core/kinds", "trainjob", "t9k", "runtimes", "from-"),
    "second-cluster": ("tests/cluster", "tests/preempted", "core/run/preemptions", "probe", "pod_start"),
    "demos": ("demo/", "dags/", "retrain", "docker/digits"),
    "images": ("docker/", "pyproject.toml", "constraints/", "scripts/release"),
    "faults": ("kubernetes/informer", "kubernetes/client", "kubernetes/logs", "core/run", "tests/faults"),
}
"""Parts of the paths that each group covers; see `group_of_change`."""

PURE = (
    "core/containment",
    "core/curve",
    "core/diagnosis",
    "core/errors",
    "core/history",
    "core/identity",
    "core/in_pod/claim_files",
    "core/in_pod/find_checkpoint",
    "core/in_pod/probe_outputs",
    "core/inspector",
    "core/installation_id",
    "core/kinds",
    "core/kubernetes/client/api_errors",
    "core/kubernetes/client/paths",
    "core/kubernetes/config",
    "core/kubernetes/informer/scope",
    "core/kubernetes/pods",
    "core/kubernetes/logs/parse",
    "core/kubernetes/logs/runs",
    "core/kubernetes/probe",
    "core/kubernetes/rights",
    "core/kubernetes/tensorboard/objects",
    "core/kubernetes/usage",
    "core/logs",
    "core/manifest",
    "core/outgoing",
    "core/outputs/checkpoints",
    "core/outputs/contract",
    "core/outputs/location",
    "core/outputs/result",
    "core/outputs/resumed",
    "core/training_progress",
    "core/run/attempts",
    "core/run/outcome",
    "core/run/preemptions",
    "core/run/progress",
    "core/run/training_state",
    "core/spec",
    "core/status",
    "core/tensorboard",
    "core/versions",
    "core/wire",
    "retraining/batches",
    "retraining/layouts",
    "retraining/notes",
    "retraining/reservations",
)
"""Pure modules and packages of the core: every branch is tested."""

BACKEND_COVERAGE = 85

ON_BACKEND = ("backend", "kinds", "queues", "second-cluster")
"""Groups that together run the whole back-end of clusters; its coverage is checked if all of them are run."""

_SESSION = 4 * 3600
"""Seconds before the newest commit; younger commits count as not yet tested."""


def main(arguments: list[str]) -> int:
    """Run the steps and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lint", action="store_true", help="only what reads the code")
    parser.add_argument("--check", action="store_true", help="only what needs no root, no Go and no database server")
    parser.add_argument("--soak", action="store_true", help="only tests that measure, or that strike for long")
    parser.add_argument("--only", action="store_true", help="only the groups")
    parser.add_argument("groups", nargs="*", metavar="GROUP", help="what to run besides")
    options = parser.parse_args(arguments)
    groups = _groups(options.groups)
    proved: list[str] = []
    with tempfile.TemporaryDirectory(prefix="ptjob-check-") as folder:
        scratch = Path(folder)
        if options.lint:
            steps = run(lint_steps(), scratch)
        elif options.check:
            core, adapters = check_steps(*ON_WORKERS)
            core.command += ("-n", str(CORES + 2))  # tests of the core wait for half of their time
            adapters.command += ("-n", str(CORES))
            steps = run_beside({"lint": lint_steps(), "core": [core], "adapters": [adapters]}, scratch)
        elif options.soak:
            steps = run([Step("soak", (*PYTEST[:-1], "soak"), is_test=True)], scratch)
        else:
            steps = run_everything(scratch, groups, only=options.only)
            proved = [*groups, *([] if options.only else [""])]
    missing = unproved(steps, proved)
    wrong = [*unclaimed(), *malformed(GROUPS), *loose_quarantine(datetime.now(UTC).date())]
    said = ["left out: PostgreSQL, S3, a whole Airflow, the cluster, kfp (`make test`)"] if options.check else []
    print("\n── summary", *said, *missing, *wrong, *quarantined(steps), summary(steps), sep="\n", flush=True)
    is_complete = not missing or held_cluster.UNMET in {step.code for step in steps}
    return 0 if is_complete and not wrong and all(step.is_good for step in steps) else 1


def unclaimed() -> list[str]:
    """Return a line for each test file that no step runs."""
    claimed = (*CORE, *ADAPTERS, *KFP, *LEDGER, *(path for paths in GROUPS.values() for path in paths))
    files = (str(path.relative_to(ROOT)) for path in sorted(ROOT.glob("tests/*/test_*.py")))
    return [f"UNCLAIMED {file}: no step of scripts/check.py runs it" for file in files if not file.startswith(claimed)]


def _groups(words: list[str]) -> list[str]:
    if "all" in words:
        return [*GROUPS]
    chosen = [group_of_change() if word == "by-change" else word for word in words]
    if unknown := [word for word in chosen if word not in GROUPS]:
        raise SystemExit(f"no such group: {', '.join(unknown)}; allowed: {', '.join(GROUPS)}, all, by-change")
    for group in chosen:
        print(f"── group {group}: {' '.join(GROUPS[group])}", flush=True)
    return chosen


def group_of_change() -> str:
    """Return the group that covers most files of the newest commits; of several, the next one with each commit."""
    newest, number = _git("log", "-1", "--format=%ct"), int(_git("rev-list", "--count", "HEAD"))
    base = _git("rev-list", "-1", f"--before={int(newest) - _SESSION}", "HEAD")
    changed = _git("diff", "--name-only", base, "HEAD").splitlines() if base else []
    files = {group: sum(any(part in path for part in parts) for path in changed) for group, parts in CHANGED.items()}
    candidates = [group for group, count in files.items() if count == max(files.values())]
    return candidates[number % len(candidates)]


def _git(*words: str) -> str:
    command = ("/usr/bin/env", "git", *words)
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()


def run_everything(scratch: Path, groups: Sequence[str], *, only: bool = False) -> list[Step]:
    """Run the gate and these groups, and return the steps; the cluster is started once for all of them."""
    builds = Builds()
    with contextlib.ExitStack() as stack:
        builds.programs.then = lambda: stack.enter_context(held_cluster.held())
        lanes: dict[str, list[Step]] = {"builds": builds.steps(groups), "machine": [], "stack": [], "cluster": []}
        measured: list[Step] = []
        if not only:
            lanes["machine"] += machine_steps()
            lanes["stack"] += stack_steps(builds)
            lanes["cluster"] += cluster_steps(builds)
            lanes["builds"] += lint_steps()  # after the builds: pods wait for them
        for group in groups:
            for lane, step in group_steps(group, builds):
                lanes[lane].append(step)
        if {*ON_BACKEND} <= {*groups} and not only:
            measured = cluster_coverage_steps(scratch, builds)
        done = run([builds.page], scratch)
        done += run_beside(lanes, scratch)
    return [*done, *run(measured, scratch)]


class Builds:
    """Steps that build the prerequisites of others; they take minutes the first time, and then almost nothing."""

    def __init__(self) -> None:
        self.programs = _build("the cluster's programs and boot", "prepare")
        self.images = _build("images", "prepare-images", needs=self.programs)
        self.page = _build("the Training page", "prepare-page")
        self.s3 = _build("the S3 server", "prepare-s3")
        self.queues = _build("Arena, Kueue, metrics server", "prepare-queues", needs=self.programs)

    def steps(self, groups: Sequence[str]) -> list[Step]:
        """Return the required build steps of the lane, in the order of execution; the page comes before all lanes."""
        wanted = [self.s3, self.programs, self.images]
        return [*wanted, self.queues] if "queues" in groups else wanted


def _build(name: str, word: str, *, needs: Step | None = None) -> Step:
    allowed = {0} if held_cluster.is_required() else {0, held_cluster.UNMET}
    return Step(name, held_cluster.command(word), is_build=True, is_good_with=frozenset(allowed), needs=needs)


def lint_steps() -> list[Step]:
    """Return the steps that only read the code."""
    return [
        Step("format", (str(BIN / "ruff"), "format", "--check", "--quiet", ".")),
        Step("lint", (str(BIN / "ruff"), "check", "--quiet", ".")),
        Step("types", (str(BIN / "mypy"),)),
        Step("imports", (str(BIN / "lint-imports"), "--no-logo")),
    ]


def check_steps(*options: str, measured: Sequence[str] = ()) -> list[Step]:
    """Return the steps that run the code on this machine without privileges; `measured` are options of the first."""
    slower = (*AIRFLOW_RUNS, *WITH_S3, *GROUPS["demos"])
    return [
        Step("core", (*PYTEST, *WITHOUT_CLUSTER, *options, *measured), is_test=True, folders=CORE),
        Step("adapters", (*PYTEST, *WITHOUT_CLUSTER, *options, *_without(slower)), is_test=True, folders=ADAPTERS),
    ]


def machine_steps() -> list[Step]:
    """Return the steps that need no build."""
    pure = [f"{name}{end}" for name in PURE for end in (".py", "/*")]
    core, *others = check_steps(measured=MEASURED)
    return [
        core,
        Step("every branch of the pure modules", covered(100, *pure)),
        Step("coverage of local", covered(BACKEND_COVERAGE, "core/local/*")),
        Step("Kubeflow Pipelines", (*PYTEST_KFP, *_deselected(KFP_TRAINS)), is_test=True, folders=KFP),
        *others,
    ]


def stack_steps(builds: Builds) -> list[Step]:
    """Return the gate's steps that start a server: the ledger's, and whole Airflows."""
    arrival = gate(*WITH_S3)
    rest = tuple(test for test in gate(STACK, "tests/guides", "tests/demo") if test not in arrival)
    return [
        Step("ledger", PYTEST, is_test=True, folders=LEDGER),
        Step("promises of a whole Airflow", PYTEST, is_test=True, folders=rest),
        Step("promises of arriving data", PYTEST, is_test=True, folders=arrival, needs=builds.s3),
    ]


def cluster_steps(builds: Builds) -> list[Step]:
    """Return the gate's steps that run on the cluster; they mostly wait for pods."""
    folders = {"Airflow on the cluster": (AIRFLOW_ON_CLUSTER,), "the back-end": (BACKEND, "tests/faults")}
    airflow, backend = (
        Step(f"promises of {name}", PYTEST, is_test=True, folders=gate(*paths), needs=builds.images)
        for name, paths in folders.items()
    )
    backend.command, backend.measures = (*PYTEST, *MEASURED), "promises"
    pipelines = gate(KFP_ON_CLUSTER)
    return [
        backend,
        airflow,
        Step("promises of pipelines", PYTEST_KFP, is_test=True, folders=pipelines, needs=builds.images),
    ]


def group_steps(group: str, builds: Builds) -> list[tuple[str, Step]]:
    """Return the steps of a group, each with the lane in which it runs."""
    paths, images = GROUPS[group], builds.images
    lanes = {"arrival": ("machine", builds.s3), "specs": ("machine", images), "demos": ("stack", None)}
    if group == "airflow":
        on_cluster = _group(group, AIRFLOW_ON_CLUSTER, needs=images)
        return [("stack", _group(group, STACK, *AIRFLOW_RUNS, needs=images)), ("cluster", on_cluster)]
    if group == "backend":
        marked = (*ON_CLUSTER, *MEASURED)
        contract = _group(group, *CORE, *ADAPTERS, options=marked, measures="contract", needs=images)
        on_cluster = _group(group, BACKEND, options=MEASURED, measures="backend", needs=images)
        return [("machine", contract), ("cluster", on_cluster)]
    if group == "pipelines":
        on_cluster = _group(group, KFP_ON_CLUSTER, command=PYTEST_KFP, needs=images)
        trains = _group(group, *KFP_TRAINS, command=PYTEST_KFP)
        oldest = _group(group, *KFP, command=PYTEST_KFP_OLDEST)
        return [("machine", trains), ("machine", oldest), ("cluster", on_cluster)]
    if group in {"images", "faults"}:  # the tests of the last path also need kfp
        on_cluster = _group(group, paths[-1], command=PYTEST_KFP, needs=images)
        return [("stack", _group(group, *paths[:-1], needs=images)), ("cluster", on_cluster)]
    lane, needs = lanes.get(group, ("cluster", builds.queues if group == "queues" else images))
    options, measures = (MEASURED, group) if group in ON_BACKEND else ((), "coverage")
    return [(lane, _group(group, *paths, options=options, measures=measures, needs=needs))]


def _group(
    group: str,
    *paths: str,
    command: Sequence[str] = PYTEST,
    options: Sequence[str] = (),
    measures: str = "coverage",
    needs: Step | None = None,
) -> Step:
    """Return the step for these paths, without tests that belong to the gate or to a later group."""
    later = [*GROUPS][[*GROUPS].index(group) + 1 :]
    elsewhere = tuple(path for other in later for path in GROUPS[other] if path.startswith(paths) and path not in paths)
    whole = (*command, *options, *_without(elsewhere), *_deselected(gate(*paths)))
    return Step(f"group {group}: {paths[0]} …", whole, is_test=True, folders=paths, measures=measures, needs=needs)


def _without(paths: Sequence[str]) -> tuple[str, ...]:
    return tuple(f"--ignore={path}" for path in paths)


def _deselected(tests: Sequence[str]) -> tuple[str, ...]:
    return tuple(f"--deselect={test}" for test in tests)


def cluster_coverage_steps(scratch: Path, builds: Builds) -> list[Step]:
    """Return the steps that combine the coverage measured on the cluster."""
    files = tuple(str(scratch / name) for name in ("promises", "contract", *ON_BACKEND))
    combine = (*COVERAGE, "combine", "--quiet", *files)
    covers = covered(BACKEND_COVERAGE, "core/kubernetes/*")
    return [
        Step("what was measured on the cluster", combine, measures="cluster", needs=builds.images),
        Step("coverage of kubernetes", covers, measures="cluster", needs=builds.images),
    ]


def covered(percent: int, *modules: str) -> tuple[str, ...]:
    """Return the command that fails if the coverage of these modules is less than this percentage."""
    included = ",".join(f"ptjob_provider/{module}" for module in modules)
    return (*COVERAGE, "report", "--skip-covered", "--show-missing", f"--fail-under={percent}", f"--include={included}")


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
