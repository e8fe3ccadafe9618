"""Compare the operator's other arguments with the component's: each is supported, or the page explains why not."""

from __future__ import annotations

import ast
import inspect
import re
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from installed import ROOT
from kfp_adapter.compiled import arrived, compile_pipeline
from kfp_adapter.driver_stand_in import Driven
from ptjob_provider.core.diagnosis import Limits
from ptjob_provider.core.spec import JOB_FIELDS
from ptjob_provider.core.spec.on_finish import OnFinishAction
from ptjob_provider.kfp.component import pytorchjob_op
from ptjob_provider.kfp.request import Request
from rows import each_row

if TYPE_CHECKING:
    from pathlib import Path

OTHERS = {
    "exact_name": (True, lambda asked: asked.exact_name),
    "on_finish_action": ("delete_job", lambda asked: asked.on_finish_action),
    "keep_running_pods": (True, lambda asked: asked.keep_running_pods),
    "start_timeout": (90, lambda asked: asked.limits.start_timeout),
    "queue_timeout": (1.5, lambda asked: asked.limits.queue_timeout),
    "crash_loop_limit": (3, lambda asked: asked.limits.crash_loop_limit),
    "progress": (r"at (?P<step>\d+)", lambda asked: asked.progress and asked.progress.text),
    "max_preemptions": (2, lambda asked: asked.limits.max_preemptions),
    "no_progress_limit": (0, lambda asked: asked.limits.no_progress_limit),
}
"""A non-default value of each argument, and its location in the step's request."""

STANDS_FOR = {"delete_job": OnFinishAction.DELETE_JOB}
DEFAULTS = {"exact_name": False, "on_finish_action": OnFinishAction.KEEP_JOB, "keep_running_pods": False}


def of_the_operator() -> set[str]:
    """Return the arguments of the operator and its base from their source, because Airflow is not installed here."""
    found = set()
    for module in ("operators", "pod_operator"):
        tree = ast.parse((ROOT / "ptjob_provider" / "airflow" / f"{module}.py").read_text())
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef) and node.name == "__init__":
                found |= {argument.arg for argument in node.args.kwonlyargs}
    return found


def test_every_argument_of_the_operator_is_the_components_or_explained() -> None:
    page = (ROOT / "docs" / "how-to" / "kubeflow-pipelines.md").read_text()
    _, _, explained = page.partition("A step does not have these arguments of the operator")
    named = set(re.findall(r"`(\w+)`", explained.partition("\n## ")[0]))
    parameters = set(inspect.signature(pytorchjob_op).parameters)

    missing = of_the_operator() - parameters

    assert {"kubernetes_conn_id", "secrets", "cmds"} <= missing
    assert missing - named == set()
    assert of_the_operator() - set(JOB_FIELDS) - missing == set(OTHERS)


@each_row("name", OTHERS)
def test_every_other_argument_arrives_in_the_step(name: str, tmp_path: Path) -> None:
    """It has the operator's meaning and default."""
    value, of = OTHERS[name]

    def asked(folder: Path, **given: Any) -> Request:
        def pipeline():  # noqa: ANN202 - kfp reads annotations, which are texts here
            pytorchjob_op(image="digits", **given)

        return Request.parse(arrived(Driven(pipeline=compile_pipeline(pipeline, folder))))

    default = DEFAULTS.get(name, getattr(Limits(), name, None))

    assert of(asked(tmp_path, **{name: value})) == STANDS_FOR.get(str(value), value)
    assert of(asked(tmp_path)) == default
    assert asked(tmp_path, timeout=timedelta(hours=2)).timeout == timedelta(hours=2)
