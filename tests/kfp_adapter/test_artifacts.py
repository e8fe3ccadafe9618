"""Tests of the artifacts and the report that a step writes from a job's result."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from kfp import dsl

from ptjob_provider.core.curve import Curve
from ptjob_provider.core.errors import InvalidSpec, OutputsNotVerified
from ptjob_provider.core.local.config import LocalConfig
from ptjob_provider.core.training_progress import Progress
from ptjob_provider.kfp.artifacts import ModelArtifact, StepOutputs, report
from ptjob_provider.kfp.artifacts import write as write_artifacts
from ptjob_provider.kfp.claim_paths import find_output
from rows import each_row

if TYPE_CHECKING:
    from collections.abc import Mapping

MODEL = {
    "uri": "pvc://models/run|1/m",
    "claim": "models",
    "path": "run|1/m",
    "container_path": "/data/m",
    "bytes": 12345,
    "sha256": "ab12",
}
TFEVENTS = {
    "uri": "pvc://logs/run-1",
    "claim": "logs",
    "path": "run-1",
    "container_path": "/logs",
    "last_step": 7,
    "scalars": {"accuracy": 0.9861111, "loss": "NaN"},
    "curves": {"accuracy": [[1, 0.5], [7, 0.9861111]]},
}


def result(**changes: Any) -> dict[str, Any]:
    """Return the result of a job that has succeeded."""
    job = {"kind": "PyTorchJob", "namespace": "default", "name": "digits-1", "uid": "u"}
    used = {"queue_seconds": 1.5, "run_seconds": 61.25, "restarts": 1, "gpu_seconds": 122.5, "gpu_seconds_lost": 9.0}
    found = {"job": job, "attempt": 2, "phase": "Succeeded", "start": None, "end": None, **used}
    return {**found, "rank0": "digits-1-master-0", "model": MODEL, "tfevents": TFEVENTS, "diagnosis": None, **changes}


def artifacts(folder: Path) -> dict[str, Any]:
    """Return artifacts as kfp creates them for a step."""
    kinds = {"trained_model": dsl.Model, "metrics": dsl.Metrics, "curves": dsl.HTML, "report": dsl.Markdown}
    return {name: kind(name=name, uri=str(folder / "artifacts" / name)) for name, kind in kinds.items()}


def write(
    folder: Path,
    made: dict[str, Any],
    word: str = "reference",
    *,
    logged: Mapping[str, Any] | None = None,
    **changes: Any,
) -> StepOutputs:
    """Write the artifacts of a result; claims are directories of the folder."""
    local = LocalConfig(root=folder)
    how = ModelArtifact.parse(word)
    return write_artifacts(made, result(**changes), model_artifact=how, local=local, logged=logged)


def test_a_result_becomes_artifacts_and_parameters(tmp_path: Path) -> None:
    """Scalars go to the metrics and curves to the HTML page; the result leaves out what JSON cannot carry."""
    made = artifacts(tmp_path)

    outputs = write(tmp_path, made)

    assert made["metrics"].metadata == {"accuracy": 0.9861111, "loss": "NaN"}
    assert "<h2>accuracy</h2>" in Path(made["curves"].path).read_text()
    assert "0.986111" in Path(made["report"].path).read_text()
    assert (outputs.tfevents_uri, outputs.scalars["loss"]) == ("pvc://logs/run-1", "NaN")
    assert "null" not in json.dumps(outputs.result)
    assert "curves" not in outputs.result["tfevents"]


@each_row(
    ("changes", "shown", "caption"),
    [
        ({"tfevents": None}, "loss", "last 1 at second 10; lowest 1 at 10, highest 2 at 0"),
        ({"tfevents": {**TFEVENTS, "curves": {}}}, "loss", "last 1 at second 10"),
        ({}, "accuracy", "last 0.986111 at step 7"),
    ],
)
def test_the_curves_of_the_log_are_drawn_if_there_are_no_events(
    tmp_path: Path, changes: dict[str, Any], shown: str, caption: str
) -> None:
    """Over seconds where no step is known."""
    made, logged = artifacts(tmp_path), Curve()
    for number in range(2):
        logged.add(Progress(at=f"2026-11-20T10:00:{number * 10:02}Z", metrics={"loss": 2.0 - number}))

    write(tmp_path, made, logged=logged.to_dict(), **changes)

    page = Path(made["curves"].path).read_text()
    assert [each.partition("</h2>")[0] for each in page.split("<h2>")[1:]] == [shown]
    assert caption in page


def test_a_replica_that_failed_in_a_job_that_succeeded_is_handed_on(tmp_path: Path) -> None:
    """The report shows it; unknown values are left out because kfp accepts no null."""
    made = artifacts(tmp_path)
    failed = {"replica": "digits-1-worker-0", "rank": None, "exit_code": 1, "cause": "exit_code", "message": "went"}

    outputs = write(tmp_path, made, failed_replicas=[failed])

    assert outputs.result["failed_replicas"] == [{name: part for name, part in failed.items() if name != "rank"}]
    assert "| failed, though the job succeeded | digits-1-worker-0 went |" in Path(made["report"].path).read_text()


def test_a_model_by_reference_is_its_address_in_the_artifact_store(tmp_path: Path) -> None:
    """The artifact keeps its URI in the artifact store: the launcher starts no step whose input is outside it."""
    made = artifacts(tmp_path)
    given = made["trained_model"].uri

    write(tmp_path, made)

    assert made["trained_model"].uri == given
    found = json.loads(Path(made["trained_model"].path).read_text())
    facts = {key: MODEL[key] for key in ("uri", "claim", "path", "bytes", "sha256")}
    assert "handed on by reference" in found.pop("what")
    assert found == facts
    assert made["trained_model"].metadata == {**facts, "model_artifact": "reference"}


def test_a_consumer_finds_the_model_whichever_way_it_was_handed_on(tmp_path: Path) -> None:
    """The artifact is enough to find the model, in the claim or in the artifact store."""
    source = tmp_path / "jobs" / "claims" / "default" / "models" / MODEL["path"]
    source.parent.mkdir(parents=True)
    source.write_text("weights")
    environ = {"PTJOB_BACKEND": "local", "PTJOB_LOCAL_ROOT": str(tmp_path / "jobs")}
    by_reference, copied = artifacts(tmp_path / "a"), artifacts(tmp_path / "b")

    write(tmp_path / "jobs", by_reference)
    write(tmp_path / "jobs", copied, "copy")

    assert find_output(by_reference["trained_model"], environ=environ) == source
    assert find_output(MODEL["uri"], environ=environ) == source
    assert find_output(copied["trained_model"], environ=environ) == Path(copied["trained_model"].path)


def test_outputs_that_were_not_declared_are_empty(tmp_path: Path) -> None:
    """Pipelines that compare strings get empty strings."""
    made = artifacts(tmp_path)

    outputs = write(tmp_path, made, model=None, tfevents=None)

    assert (outputs.model_uri, outputs.model_claim, outputs.model_path, outputs.tfevents_uri) == ("", "", "", "")
    assert (outputs.scalars, made["trained_model"].metadata) == ({}, {"model_artifact": "none"})
    assert "no scalars" in Path(made["curves"].path).read_text()
    assert "none declared" in Path(made["report"].path).read_text()


def test_a_model_that_was_not_declared_is_a_file_that_says_so(tmp_path: Path) -> None:
    """Kfp registers every output artifact, so the artifact store must have one; a consumer does not take it for one."""
    made = artifacts(tmp_path)

    write(tmp_path, made, model=None)

    assert "no model was declared" in Path(made["trained_model"].path).read_text()
    with pytest.raises(InvalidSpec, match=r"trained_model: .*/trained_model' is not allowed; its training declares no"):
        find_output(made["trained_model"])


def test_a_report_is_a_table_whatever_is_in_its_cells() -> None:
    rows = [line for line in report(result()).splitlines() if line]

    assert {line.replace("\\|", "").count("|") for line in rows} == {3}
    assert "| job | default/digits-1, attempt 2 |" in rows
    assert "| ran | 61.2 s after 1.5 s of waiting |" in rows
    assert "| loss | NaN |" in rows


@each_row(
    ("tag", "cell"),
    [
        ("<img src=//evil onerror=x>", "&lt;img src=//evil onerror=x&gt;"),
        ("![x](//evil) [y](z)", "\\!\\[x\\](//evil) \\[y\\](z)"),
        ("a\\|b|c", "a\\\\\\|b\\|c"),
        ("a`b`*c*_d_~e~&lt;", "a\\`b\\`\\*c\\*\\_d\\_\\~e\\~&amp;lt;"),
        ("# one\r\n| two |\x1b[2J\x85\u2028x", "\\# one  \\| two \\| \\[2J  x"),
    ],
)
def test_a_tag_is_text_in_a_report(tag: str, cell: str) -> None:
    """The training chooses the tag, so HTML, links, images and table syntax in it are escaped."""
    lines = report(result(tfevents={**TFEVENTS, "scalars": {tag: 1.0}})).splitlines()

    assert f"| {cell} | 1 |" in lines


def test_a_copy_leaves_out_links_to_folders_and_links_out_of_the_claim(tmp_path: Path) -> None:
    """As the inspection of the model does; the account's token of the step is beside the claim."""
    (tmp_path / "token").write_text("secret")
    claim = tmp_path / "claims" / "default" / "models"
    source = claim / MODEL["path"]
    source.mkdir(parents=True)
    (claim / "blob").write_text("weights")
    for name, leads_to in {"part": claim / "blob", "config": tmp_path / "token", "again": Path()}.items():
        (source / name).symlink_to(leads_to)
    made = artifacts(tmp_path)

    write(tmp_path, made, "copy")

    assert {each.name: each.read_text() for each in Path(made["trained_model"].path).iterdir()} == {"part": "weights"}


def test_a_model_that_is_a_link_out_of_the_claim_is_not_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ptjob_provider.kfp.claim_paths.OWN_CLAIM", str(tmp_path / "claim"))
    source = tmp_path / "claim" / MODEL["path"]
    source.parent.mkdir(parents=True)
    source.symlink_to(__file__)

    with pytest.raises(InvalidSpec, match="a link leads out of the claim"):
        write_artifacts(artifacts(tmp_path), result(), model_artifact=ModelArtifact.COPY, local=None)


def test_a_model_that_cannot_be_copied_may_be_copied_by_another_try(tmp_path: Path) -> None:
    """The job has succeeded: a retry verifies and copies its outputs, and does not train again."""
    (tmp_path / "claims" / "default" / "models").mkdir(parents=True)

    with pytest.raises(OutputsNotVerified, match="could not be copied") as raised:
        write(tmp_path, artifacts(tmp_path), "copy")

    assert raised.value.retryable
