"""Writes a finished job's result to the step's artifacts and output parameters."""

from __future__ import annotations

import html
import json
import re
import shutil
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from ptjob_provider.core.curve import drawable
from ptjob_provider.core.diagnosis import failed_replicas_text
from ptjob_provider.core.errors import OutputsNotVerified
from ptjob_provider.core.spec.parsers import word
from ptjob_provider.kfp.claim_paths import NO_MODEL, find_own
from ptjob_provider.kfp.curves import page

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ptjob_provider.core.local.config import LocalConfig


class ModelArtifact(StrEnum):
    """The form in which the model is passed on."""

    REFERENCE = "reference"
    """No copy: the artifact store has a small file with the address, and a consumer mounts the claim."""
    COPY = "copy"
    """A copy in the run's artifact store, which any component reads as a file."""

    @classmethod
    def parse(cls, given: str) -> Self:
        """Read the argument.

        Raises:
            InvalidSpec: the value is unknown.
        """
        return cls(word(*cls)("model_artifact", given))


class StepOutputs(NamedTuple):
    """The output parameters; an address, claim or path of an undeclared output is ""."""

    job_name: str
    model_uri: str
    model_claim: str
    model_path: str
    tfevents_uri: str
    scalars: dict[str, float | str]
    result: dict[str, Any]


def write(
    given: Mapping[str, Any],
    result: Mapping[str, Any],
    *,
    model_artifact: ModelArtifact,
    local: LocalConfig | None,
    logged: Mapping[str, Any] | None = None,
) -> StepOutputs:
    """Write the step's output artifacts and return the output parameters.

    Args:
        given: the component's arguments; each output artifact has a uri, a path and metadata.
        result: the result (`core.outputs.result`) of a job that has succeeded.
        model_artifact: how to pass on the model.
        local: how jobs run on this machine; None on a cluster.
        logged: value of `Curve.to_dict` from rank 0's log, drawn if the training has written no curves.

    Raises:
        InvalidSpec: the model is a link that leaves its claim.
        OutputsNotVerified: the model could not be copied.
    """
    job, model, tfevents = result["job"], result["model"], result["tfevents"]
    scalars = dict(tfevents["scalars"]) if tfevents else {}
    _write_model(given["trained_model"], result, model_artifact, local)
    for tag, value in scalars.items():
        given["metrics"].log_metric(tag, value)
    title = f"{job['namespace']}/{job['name']}"
    written = (tfevents or {}).get("curves")
    unit, curves = ("step", written) if written or not logged else drawable(logged)
    _write(given["curves"].path, page(title, curves or {}, unit=unit))
    _write(given["report"].path, report(result))
    return StepOutputs(
        job_name=job["name"],
        model_uri=model["uri"] if model else "",
        model_claim=model["claim"] if model else "",
        model_path=model["path"] if model else "",
        tfevents_uri=tfevents["uri"] if tfevents else "",
        scalars=scalars,
        result=_passed_on(result),
    )


def _write_model(
    artifact: Any, result: Mapping[str, Any], model_artifact: ModelArtifact, local: LocalConfig | None
) -> None:
    model = result["model"]
    if model is None:  # kfp registers the artifact nevertheless
        artifact.metadata["model_artifact"] = NO_MODEL
        _write(artifact.path, "no model was declared: pytorchjob_op(model='pvc://claim/path')\n")
        return
    facts = {key: model[key] for key in ("uri", "claim", "path", "bytes", "sha256")}
    artifact.metadata.update({**facts, "model_artifact": model_artifact.value})
    if model_artifact is ModelArtifact.COPY:
        source, claim = find_own(model["uri"], namespace=result["job"]["namespace"], local=local)
        _copy(source, Path(artifact.path), claim=claim)
    else:
        _write(artifact.path, pointer(facts))


def pointer(facts: Mapping[str, Any]) -> str:
    """Return the content of the artifact store's file for a model that is passed on by reference.

    The artifact keeps its address in the store, because Kubeflow's launcher refuses other addresses as a step's input.
    """
    what = (
        "This is not the model but its address: it was handed on by reference. A step that mounts the claim reads it,"
        " in Python at the path that find_output of ptjob_provider.kfp.claim_paths returns for this artifact."
    )
    return json.dumps({"what": what, **facts}, indent=2) + "\n"


def report(result: Mapping[str, Any]) -> str:
    """Return a report of a finished job as Markdown."""
    job, model, tfevents = result["job"], result["model"], result["tfevents"]
    facts = {
        "job": f"{job['namespace']}/{job['name']}, attempt {result['attempt']}",
        "ran": f"{result['run_seconds']:.1f} s after {result['queue_seconds']:.1f} s of waiting",
        "restarts": str(result["restarts"]),
        **(
            {"failed, though the job succeeded": failed_replicas_text(failed)}
            if (failed := result.get("failed_replicas"))
            else {}
        ),
        "GPU seconds": f"{result['gpu_seconds']:.0f}, {result['gpu_seconds_lost']:.0f} of them lost to restarts",
        "model": f"{model['uri']}, {model['bytes']:,} bytes, sha256 {model['sha256']}" if model else "none declared",
        "tfevents": f"{tfevents['uri']}, last step {tfevents['last_step']}" if tfevents else "none declared",
    }
    scalars = {
        tag: value if isinstance(value, str) else f"{value:.6g}"
        for tag, value in (tfevents["scalars"] if tfevents else {}).items()
    }
    return "\n".join(
        [*_table("training", "", facts), "", *(_table("scalar", "last value", scalars) if scalars else ())]
    )


def _table(name: str, value: str, rows: Mapping[str, str]) -> list[str]:
    return [f"| {name} | {value} |", "|---|---|", *(f"| {_cell(key)} | {_cell(text)} |" for key, text in rows.items())]


def _cell(text: str) -> str:
    """Return the text escaped for Markdown, because the training program chooses the names of scalars and outputs."""
    line = "".join(character if character.isprintable() else " " for character in text)
    return re.sub(r"([\\`*_\[\]!~#|])", r"\\\1", html.escape(line, quote=False))


def _passed_on(part: Any) -> Any:
    """Return a part of the result without curves, and without nulls, which kfp cannot pass on (2.17.0)."""
    if isinstance(part, dict):
        return {key: _passed_on(each) for key, each in part.items() if each is not None and key != "curves"}
    return [_passed_on(each) for each in part] if isinstance(part, list) else part


def _copy(source: Path, target: Path, *, claim: Path) -> None:
    """Copy a model without links to directories and links out of the claim, as `probe_outputs` reads it."""

    def left_out(folder: str, names: list[str]) -> list[str]:
        links = [path for path in (Path(folder, name) for name in names) if path.is_symlink() and path.exists()]
        return [path.name for path in links if path.is_dir() or not path.resolve().is_relative_to(claim.resolve())]

    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        if source.is_dir():
            shutil.copytree(source, target, ignore=left_out, dirs_exist_ok=True)
        else:
            shutil.copyfile(source, target)
    except OSError as error:
        raise OutputsNotVerified(f"the model {source} could not be copied to {target}: {error}") from error


def _write(path: str, text: str) -> None:
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_text(text, encoding="utf-8")
