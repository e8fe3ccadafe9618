"""Everything that must hold; what `make test` runs.

Lanes of steps run beside each other, with each line marked: what mostly computes, what mostly waits for a whole
Airflow, what mostly waits for pods, and the builds that the others need. A failed step does not keep the others from
running. The last line counts the tests of all steps; the exit code is 0 only if every step was good.

The tests of a group (`GROUPS`) are only run where it is asked for: `make test GROUPS=queues`, `make test-all`. CI runs
one group after `make test`, chosen by what has changed (`group_of_change`).
"""

from __future__ import annotations

import argparse
import contextlib
import subprocess
import sys
import tempfile
from pathlib import Path

import held_cluster
from promises import unproved
from steps import ROOT, Step, run, run_beside, summary

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

EITHER_ENVIRONMENT = ("tests/core", "tests/contract", "tests/cli")
"""Need neither Airflow nor PyTorch."""

ONLY_KFP = ("tests/kfp_adapter",)
"""What needs Kubeflow Pipelines."""

ONLY_CLUSTER = (
    "tests/cluster",
    "tests/kubernetes_backend",
    "tests/airflow_cluster",
    "tests/kfp_cluster",
    "tests/faults",
)
"""What is only about the Kubernetes that `tests/cluster` builds and boots; other folders use it too."""

STACK = "tests/airflow_stack"
"""What starts a whole Airflow, and waits for it most of the time."""

SPECS = "tests/kubernetes_backend/test_specs.py"
"""Asks the cluster's server ten thousand times and computes meanwhile; the other tests there mostly wait for pods."""

NEEDS_S3 = ("tests/airflow_adapter/test_data_arrival_s3.py", "tests/digits/test_arrived.py")
"""Run with a real S3 server; the stack's `test_data_arrival.py` does, too."""

_BACKEND = "tests/kubernetes_backend"

GROUPS = {
    "queues": (f"{_BACKEND}/test_kueue.py", f"{_BACKEND}/test_arena.py", f"{_BACKEND}/test_metrics_server.py"),
    "kinds": (
        f"{_BACKEND}/test_elastic.py",
        f"{_BACKEND}/test_guides.py",
        f"{_BACKEND}/test_old_operator.py",
        f"{_BACKEND}/test_pytorchtrainingjob.py",
        f"{_BACKEND}/test_trainjob_cli.py",
        f"{_BACKEND}/test_trainjob_code.py",
        f"{_BACKEND}/test_trainjob_fields.py",
        f"{_BACKEND}/test_trainjob_outputs.py",
    ),
    "second-cluster": ("tests/cluster", f"{_BACKEND}/test_crashes.py", f"{_BACKEND}/test_hardened.py"),
    "demos": ("tests/demo", "tests/retraining", "tests/examples"),
    "images": ("tests/docker", "tests/wheel", "tests/kfp_cluster/test_image.py"),
    "faults": ("tests/faults", "tests/kfp_cluster/test_strikes.py"),
    "oldest-kfp": ONLY_KFP,
}
"""Tests that are not part of every run: what only some changes can break, and what takes long."""

CHANGED = {
    "queues": ("kueue", "arena", "metering", "usage", "metrics"),
    "kinds": ("core/kinds", "trainjob", "t9k", "runtimes", "from-"),
    "second-cluster": ("tests/cluster", "probe", "pod_start"),
    "demos": ("demo/", "dags/", "arrival", "ledger", "retrain", "docker/digits"),
    "images": ("docker/", "pyproject.toml", "constraints/"),
    "faults": ("kubernetes/board", "kubernetes/client", "podlog", "runner", "submission", "tests/faults"),
    "oldest-kfp": ("ptjob_provider/kfp", "constraints/kfp"),
}
"""Parts of the paths that each group is about; see `group_of_change`."""

PURE = (
    "arrival",
    "attempts",
    "claim_files",
    "conclusion",
    "diagnosis",
    "errors",
    "handover",
    "identity",
    "installation_id",
    "kinds",
    "known",
    "kubernetes/board/owners",
    "kubernetes/board/subjects",
    "kubernetes/borrowed",
    "kubernetes/config",
    "kubernetes/failures",
    "kubernetes/paths",
    "kubernetes/podlog/losses",
    "kubernetes/podlog/pace",
    "kubernetes/podlog/position",
    "kubernetes/podlog/reading",
    "kubernetes/podlog/runs",
    "kubernetes/probe_answer",
    "kubernetes/probe_pod",
    "kubernetes/tensorboard_objects",
    "kubernetes/usage",
    "local/life",
    "logs",
    "ledger/batch",
    "ledger/handover",
    "ledger/standing",
    "manifest",
    "measured",
    "outputs",
    "probe",
    "recorder",
    "resizing",
    "result",
    "site",
    "spec",
    "status",
    "tensorboard",
    "try_note",
    "versions",
    "wire",
)
"""Modules and packages of the core that decide and do nothing else: every branch is tested."""

BACKEND_COVERAGE = 85

_A_SESSION = 4 * 3600
"""Seconds before the newest commit within which a commit counts as not yet tested."""


def main(arguments: list[str]) -> int:
    """Run the steps and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lint", action="store_true", help="only what reads the code")
    parser.add_argument("--soak", action="store_true", help="only tests that measure, or that strike for long")
    parser.add_argument("--only", action="store_true", help="only the groups")
    parser.add_argument("groups", nargs="*", metavar="GROUP", help="what to run besides")
    said = parser.parse_args(arguments)
    groups = _groups(said.groups)
    with tempfile.TemporaryDirectory(prefix="ptjob-check-") as folder:
        scratch = Path(folder)
        if said.lint:
            steps = run(lint_steps(), scratch)
        elif said.soak:
            steps = run([Step("soak", (*PYTEST[:-1], "soak"), is_test=True)], scratch)
        else:
            steps = run_everything(scratch, groups, only=said.only)
    missing = [] if said.lint or said.soak else unproved(steps, [*groups, *([] if said.only else [""])])
    print("\n── summary", *missing, summary(steps), sep="\n", flush=True)
    is_complete = not missing or not held_cluster.is_required()
    return 0 if is_complete and all(step.is_good for step in steps) else 1


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
    """Return the group that most of the newest commits' files are about; one of several, or of all, in turns."""
    newest, number = _git("log", "-1", "--format=%ct"), int(_git("rev-list", "--count", "HEAD"))
    base = _git("rev-list", "-1", f"--before={int(newest) - _A_SESSION}", "HEAD")
    changed = _git("diff", "--name-only", base, "HEAD").splitlines() if base else []
    files = {group: sum(any(part in path for part in parts) for path in changed) for group, parts in CHANGED.items()}
    candidates = [group for group, count in files.items() if count == max(files.values())]
    return candidates[number % len(candidates)]


def _git(*words: str) -> str:
    command = ("/usr/bin/env", "git", *words)
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()


def run_everything(scratch: Path, groups: list[str], *, only: bool = False) -> list[Step]:
    """Run all steps, with the cluster up, once, for those that use it; return them."""
    builds = Builds()
    with contextlib.ExitStack() as stack:
        builds.programs.then = lambda: stack.enter_context(held_cluster.held())
        lanes = {"builds": builds.steps(groups), "machine": [], "stack": [], "cluster": []}
        measured: list[Step] = []
        if not only:
            lanes["machine"] += machine_steps(builds)
            lanes["stack"] += stack_steps(builds)
            lanes["cluster"] += cluster_steps(builds)
            measured = cluster_coverage_steps(scratch, builds)
        for lane, step in group_steps(groups, builds):
            lanes[lane].append(step)
        done = run([] if only else lint_steps(), scratch)
        done += run_beside(lanes, scratch)
    return [*done, *run(measured, scratch)]


class Builds:
    """The steps that build what others need; minutes the first time, then nothing."""

    def __init__(self) -> None:
        self.programs = _build("the cluster's programs", "prepare")
        self.images = _build("images", "prepare-images")
        self.s3 = _build("the S3 server", "prepare-s3")
        self.arena = _build("Arena", "prepare-arena")
        self.queues = _build("Kueue, metrics server", "prepare-queues")

    def steps(self, groups: list[str]) -> list[Step]:
        """Return those that are needed, in the order in which they are run."""
        wanted = [self.programs, self.images, self.arena, self.s3]
        return [*wanted, self.queues] if "queues" in groups else wanted


def _build(name: str, word: str) -> Step:
    allowed = {0} if held_cluster.is_required() else {0, held_cluster.UNMET}
    return Step(name, held_cluster.command(word), is_good_with=frozenset(allowed))


def lint_steps() -> list[Step]:
    """Return the steps that read the code."""
    return [
        Step("format", (str(BIN / "ruff"), "format", "--check", "--quiet", ".")),
        Step("lint", (str(BIN / "ruff"), "check", "--quiet", ".")),
        Step("types", (str(BIN / "mypy"),)),
        Step("imports", (str(BIN / "lint-imports"), "--no-logo")),
    ]


def machine_steps(builds: Builds) -> list[Step]:
    """Return the steps that run the code here; tests that ask for the cluster are skipped where there is none."""
    of_groups = [path for paths in GROUPS.values() for path in paths]
    elsewhere = (*EITHER_ENVIRONMENT, *ONLY_KFP, *ONLY_CLUSTER, STACK, *NEEDS_S3, *of_groups)
    rest = tuple(f"--ignore={folder}" for folder in dict.fromkeys(elsewhere))
    pure = [f"{name}{end}" for name in PURE for end in (".py", "/*")]
    return [
        Step("core", (*PYTEST, *WITHOUT_CLUSTER, *MEASURED), is_test=True, folders=EITHER_ENVIRONMENT),
        Step("every branch of the pure modules", covered(100, *pure)),
        Step("coverage of local", covered(BACKEND_COVERAGE, "local/*")),
        Step("Kubeflow Pipelines", PYTEST_KFP, is_test=True, folders=ONLY_KFP),
        Step("adapters, examples", (*PYTEST, *rest), is_test=True),
        Step("data in a bucket", PYTEST, is_test=True, folders=NEEDS_S3, needs=builds.s3),
        Step("specs on the cluster", PYTEST, is_test=True, folders=(SPECS,), needs=builds.images),
    ]


def stack_steps(builds: Builds) -> list[Step]:
    """Return the steps that start a whole Airflow, and those on the cluster whose pods ask for no cores."""
    arrival = f"{STACK}/test_data_arrival.py"
    contract = (*PYTEST, *ON_CLUSTER, *MEASURED)
    return [
        Step("a whole Airflow", (*PYTEST, f"--ignore={arrival}"), is_test=True, folders=(STACK,)),
        Step("data that arrives at a whole Airflow", PYTEST, is_test=True, folders=(arrival,), needs=builds.s3),
        Step(
            "the contract on the cluster",
            contract,
            is_test=True,
            folders=EITHER_ENVIRONMENT,
            measures="contract",
            needs=builds.images,
        ),
    ]


def cluster_steps(builds: Builds) -> list[Step]:
    """Return the steps that run code on the cluster: most of their time they wait for pods."""
    of_groups = tuple(f"--ignore={path}" for paths in GROUPS.values() for path in paths)
    return [
        Step(
            "the back-end on the cluster",
            (*PYTEST, *MEASURED, *of_groups, f"--ignore={SPECS}"),
            is_test=True,
            folders=(_BACKEND,),
            measures="backend",
            needs=builds.arena,
        ),
        Step("Airflow on the cluster", PYTEST, is_test=True, folders=("tests/airflow_cluster",), needs=builds.images),
        Step(
            "Kubeflow Pipelines on the cluster",
            (*PYTEST_KFP, *of_groups),
            is_test=True,
            folders=("tests/kfp_cluster",),
            needs=builds.images,
        ),
    ]


def group_steps(groups: list[str], builds: Builds) -> list[tuple[str, Step]]:
    """Return the steps of the groups, each with the lane that it belongs to."""
    steps = {
        "queues": [("cluster", _group("queues", needs=builds.queues))],
        "kinds": [("cluster", _group("kinds", needs=builds.images))],
        "second-cluster": [("cluster", _group("second-cluster", needs=builds.images))],
        "demos": [("stack", _group("demos"))],
        "images": [
            ("machine", _group("images", folders=GROUPS["images"][:2])),
            ("cluster", _group("images", PYTEST_KFP, folders=GROUPS["images"][2:], needs=builds.images)),
        ],
        "faults": [
            ("stack", _group("faults", folders=GROUPS["faults"][:1], needs=builds.images)),
            ("cluster", _group("faults", PYTEST_KFP, folders=GROUPS["faults"][1:], needs=builds.images)),
        ],
        "oldest-kfp": [("machine", _group("oldest-kfp", PYTEST_KFP_OLDEST))],
    }
    return [step for group in groups for step in steps[group]]


def _group(
    name: str,
    command: tuple[str, ...] = PYTEST,
    *,
    folders: tuple[str, ...] | None = None,
    needs: Step | None = None,
) -> Step:
    folders = folders or GROUPS[name]
    return Step(f"group {name}: {folders[0]} …", command, is_test=True, folders=folders, needs=needs)


def cluster_coverage_steps(scratch: Path, builds: Builds) -> list[Step]:
    """Return the steps that put together what was measured on the cluster."""
    files = tuple(str(scratch / name) for name in ("contract", "backend"))
    combine = (*COVERAGE, "combine", "--quiet", *files)
    return [
        Step("what was measured on the cluster", combine, measures="cluster", needs=builds.images),
        Step(
            "coverage of kubernetes",
            covered(BACKEND_COVERAGE, "kubernetes/*"),
            measures="cluster",
            needs=builds.images,
        ),
    ]


def covered(percent: int, *modules: str) -> tuple[str, ...]:
    """Return the command that fails if less of these modules of the core was run."""
    included = ",".join(f"ptjob_provider/core/{module}" for module in modules)
    return (*COVERAGE, "report", "--skip-covered", "--show-missing", f"--fail-under={percent}", f"--include={included}")


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
