"""Everything that must hold; what `make test` runs.

A failed step does not keep the others from running. What mostly computes, what mostly waits for a whole Airflow and
what mostly waits for pods run beside each other, with each line marked. The last line counts the tests of all steps;
the exit code is 0 only if every step was good.
"""

from __future__ import annotations

import contextlib
import sys
import tempfile
from pathlib import Path

import held_cluster
from steps import ROOT, Step, run, run_beside, summary

BIN = ROOT / ".venv" / "bin"
PYTEST = (str(BIN / "python"), "-m", "pytest", "-q")
PYTEST_KFP = (str(ROOT / ".venv-kfp" / "bin" / "python"), "-m", "pytest", "-q")
PYTEST_KFP_OLDEST = (str(ROOT / ".venv-kfp-oldest" / "bin" / "python"), "-m", "pytest", "-q")
COVERAGE = (str(BIN / "python"), "-m", "coverage")
MEASURED = ("--cov", "--cov-report=")

WITHOUT_CLUSTER = ("-m", "not cluster")
ON_CLUSTER = ("-m", "cluster")

EITHER_ENVIRONMENT = ("tests/core", "tests/contract", "tests/cli")
"""Need neither Airflow nor PyTorch, so they run in both environments, in one of them with coverage."""

ONLY_KFP = ("tests/kfp_adapter",)
"""What needs Kubeflow Pipelines, and is tried with the oldest and the newest that is supported."""

ONLY_CLUSTER = (
    "tests/cluster",
    "tests/kubernetes_backend",
    "tests/airflow_cluster",
    "tests/kfp_cluster",
    "tests/faults",
)
"""What is only about the Kubernetes that `tests/cluster` builds and boots; other folders use it too."""

WITH_STACK = ("tests/airflow_stack", "tests/demo", "tests/retraining")
"""What starts a whole Airflow, and waits for it most of the time."""

SPECS = "tests/kubernetes_backend/test_specs.py"
"""Asks the cluster's server ten thousand times and computes meanwhile; the other tests there mostly wait for pods."""

PURE = (
    "arrival",
    "attempts",
    "claim_files",
    "conclusion",
    "diagnosis",
    "errors",
    "handover",
    "identity",
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
    "wire",
)
"""Modules and packages of the core that decide and do nothing else: every branch is tested."""

BACKEND_COVERAGE = 85


def main(arguments: list[str]) -> int:
    """Run the steps and return the exit code."""
    with tempfile.TemporaryDirectory(prefix="ptjob-check-") as folder:
        scratch = Path(folder)
        steps = run(lint_steps(), scratch) if arguments == ["--lint"] else run_everything(scratch)
    print(f"\n── summary\n{summary(steps)}", flush=True)
    return 0 if all(step.is_good for step in steps) else 1


def run_everything(scratch: Path) -> list[Step]:
    """Run all steps, with the cluster up, once, for those that use it; return them."""
    preparing = preparing_step()
    done = run([*lint_steps(), preparing], scratch)
    with_cluster = preparing.code == 0
    lanes = {"machine": machine_steps(), "stack": stack_steps()}
    if with_cluster:
        lanes["machine"].append(Step("specs on the cluster", PYTEST, is_test=True, folders=(SPECS,)))
        lanes["stack"] += undemanding_steps()
        lanes["cluster"] = cluster_steps()
    with held_cluster.held() if with_cluster else contextlib.nullcontext():
        done += run_beside(lanes, scratch)
    return [*done, *run(cluster_coverage_steps(scratch) if with_cluster else [], scratch)]


def lint_steps() -> list[Step]:
    """Return the steps that read the code."""
    return [
        Step("format", (str(BIN / "ruff"), "format", "--check", "--quiet", ".")),
        Step("lint", (str(BIN / "ruff"), "check", "--quiet", ".")),
        Step("types", (str(BIN / "mypy"),)),
        Step("imports", (str(BIN / "lint-imports"), "--no-logo")),
    ]


def preparing_step() -> Step:
    """Return the step that builds what the test cluster runs: minutes the first time, then nothing."""
    allowed = {0} if held_cluster.is_required() else {0, held_cluster.UNMET}
    return Step("what the test cluster runs", held_cluster.command("prepare"), is_good_with=frozenset(allowed))


def machine_steps() -> list[Step]:
    """Return the steps that run the code here; tests that ask for the cluster are skipped where there is none."""
    elsewhere = (*EITHER_ENVIRONMENT, *ONLY_KFP, *ONLY_CLUSTER, *WITH_STACK)
    rest = tuple(f"--ignore={folder}" for folder in elsewhere)
    pure = [f"{name}{end}" for name in PURE for end in (".py", "/*")]
    return [
        Step("core beside kfp", (*PYTEST_KFP, *WITHOUT_CLUSTER), is_test=True, folders=EITHER_ENVIRONMENT),
        Step("core beside Airflow", (*PYTEST, *WITHOUT_CLUSTER, *MEASURED), is_test=True, folders=EITHER_ENVIRONMENT),
        Step("every branch of the pure modules", covered(100, *pure)),
        Step("coverage of local", covered(BACKEND_COVERAGE, "local/*")),
        Step("Kubeflow Pipelines", PYTEST_KFP, is_test=True, folders=ONLY_KFP),
        Step("the oldest Kubeflow Pipelines", PYTEST_KFP_OLDEST, is_test=True, folders=ONLY_KFP),
        Step("adapters, examples, images", (*PYTEST, *rest), is_test=True),
    ]


def stack_steps() -> list[Step]:
    """Return the steps that start a whole Airflow; tests that ask for the cluster are skipped where there is none."""
    return [Step("a whole Airflow", PYTEST, is_test=True, folders=WITH_STACK)]


def undemanding_steps() -> list[Step]:
    """Return the steps on the cluster whose pods ask for no cores: others need all of the node's."""
    command = (*PYTEST, *ON_CLUSTER, *MEASURED)
    return [
        Step("the contract on the cluster", command, is_test=True, folders=EITHER_ENVIRONMENT, measures="contract"),
        Step("faults on the way to the cluster", PYTEST, is_test=True, folders=("tests/faults",)),
    ]


def cluster_steps() -> list[Step]:
    """Return the steps that run code on the cluster: most of their time they wait for pods."""
    cluster = Step("the cluster itself", PYTEST, is_test=True, folders=("tests/cluster",))
    airflow = Step("Airflow on the cluster", PYTEST, is_test=True, folders=("tests/airflow_cluster",))
    pipelines = Step("Kubeflow Pipelines on the cluster", PYTEST_KFP, is_test=True, folders=("tests/kfp_cluster",))
    backend = Step(
        "the back-end on the cluster",
        (*PYTEST, *MEASURED, f"--ignore={SPECS}"),
        is_test=True,
        folders=("tests/kubernetes_backend",),
        measures="backend",
    )
    return [backend, cluster, airflow, pipelines]


def cluster_coverage_steps(scratch: Path) -> list[Step]:
    """Return the steps that put together what was measured on the cluster."""
    files = tuple(str(scratch / name) for name in ("contract", "backend"))
    return [
        Step("what was measured on the cluster", (*COVERAGE, "combine", "--quiet", *files), measures="cluster"),
        Step("coverage of kubernetes", covered(BACKEND_COVERAGE, "kubernetes/*"), measures="cluster"),
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
