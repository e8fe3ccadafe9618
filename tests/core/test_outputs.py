from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from ptjob_provider.core.errors import InvalidSpec
from ptjob_provider.core.outputs.contract import (
    Mount,
    OutputFacts,
    OutputProblem,
    OutputReport,
    PvcAddress,
    ResolvedOutput,
    ResolvedOutputs,
    check_places,
    mount_for,
    notes,
    problems,
    read_report,
    report_text,
    resolve,
)
from rows import each_row

BEGAN_AT = datetime(2026, 11, 20, 10, 0, tzinfo=UTC)
DATA = Mount(claim="digits", mount_path="/data")
MODEL = ResolvedOutput(
    uri="pvc://digits/out/model.pt", claim="digits", path="out/model.pt", container_path="/data/out/model.pt"
)
EVENTS = ResolvedOutput(uri="pvc://digits/tb", claim="digits", path="tb", container_path="/data/tb")
FRESH = BEGAN_AT.timestamp() + 60


def model_facts(**changes: Any) -> OutputFacts:
    return OutputFacts(**{"exists": True, "files": 1, "bytes": 10, "sha256": "ab", "modified_at": FRESH, **changes})


def events_facts(**changes: Any) -> OutputFacts:
    found = {"exists": True, "is_dir": True, "files": 1, "bytes": 10, "modified_at": FRESH, "scalars": {"loss": 0.1}}
    return OutputFacts(**{**found, **changes})


def model_problems(facts: OutputFacts) -> tuple[OutputProblem, ...]:
    return problems(OutputReport(model=facts), ResolvedOutputs(model=MODEL))


def events_problems(facts: OutputFacts) -> tuple[OutputProblem, ...]:
    return problems(OutputReport(tfevents=facts), ResolvedOutputs(tfevents=EVENTS))


@pytest.mark.parametrize(
    ("text", "claim", "path"),
    [
        ("pvc://digits/out/run 1/model.pt", "digits", "out/run 1/model.pt"),
        ("pvc://digits//out/./tb/", "digits", "out/tb"),
        (f"pvc://{'a' * 253}/x", "a" * 253, "x"),
    ],
)
def test_an_address_is_read_into_claim_and_path(text: str, claim: str, path: str) -> None:
    """Empty and `.` parts of the path are dropped; the address as text parses back to itself."""
    address = PvcAddress.parse(text)

    assert address == PvcAddress(claim=claim, path=path)
    assert PvcAddress.parse(address.uri) == address


@each_row(
    "text",
    [
        "s3://digits/model.pt",
        "pvc://digits",
        "pvc://digits/../other/model.pt",
        "pvc://../etc/passwd",
        f"pvc://{'a' * 254}/model.pt",
        "pvc://digits/model\x00.pt",
    ],
)
def test_an_address_that_names_no_place_in_a_claim_is_refused(text: str) -> None:
    with pytest.raises(InvalidSpec) as caught:
        PvcAddress.parse(text, field="model")

    assert str(caught.value).startswith("model: ")
    assert "allowed: pvc://claim/path" in str(caught.value)


IN_TEAM = Mount(claim="models", mount_path="/data/out/", sub_path="/team/a/")
ROOT = Mount(claim="digits", mount_path="/")
PART = Mount(claim="digits", mount_path="/part", sub_path="out")
READ_ONLY_PART = Mount(claim="digits", mount_path="/in", sub_path="out", read_only=True)
LOGS = Mount(claim="digits", mount_path="/logs", sub_path="runs/tb")


@each_row(
    ("text", "working_dir", "mounts", "uri", "container_path"),
    [
        *((text, None, [DATA], MODEL.uri, MODEL.container_path) for text in (MODEL.uri, MODEL.container_path)),
        *(
            (text, "/data", [DATA], MODEL.uri, MODEL.container_path)
            for text in ("out/model.pt", "../data/out/model.pt")
        ),
        # a mount inside another one hides that part of the outer claim
        ("/data/out/model.pt", None, [DATA, IN_TEAM], "pvc://models/team/a/model.pt", "/data/out/model.pt"),
        ("/out/model.pt", None, [ROOT], MODEL.uri, "/out/model.pt"),
        # of two writable mounts the one with the deeper sub-path is used
        (MODEL.uri, None, [READ_ONLY_PART, DATA, PART], MODEL.uri, "/part/model.pt"),
        # the root of a sub-path is a directory of the claim that was mounted for it
        ("/logs", None, [LOGS], "pvc://digits/runs/tb", "/logs"),
    ],
)
def test_an_output_is_found_through_its_mount(
    text: str, working_dir: str | None, mounts: list[Mount], uri: str, container_path: str
) -> None:
    """By its address, or as the code sees it: from the root, or from the working directory."""
    found = resolve(text, field="model", mounts=mounts, working_dir=working_dir)

    assert (found.uri, found.container_path) == (uri, container_path)
    assert found.path == PvcAddress.parse(uri).path
    assert resolve(found.uri, field="model", mounts=mounts, working_dir=None) == found


A_PLACE = "allowed: pvc://claim/path, or a path as the training code sees it"
RELATIVE = r"model: 'out/model.pt' is not allowed; a relative path .*, or write pvc://claim/path"
READ_ONLY = Mount(claim="digits", mount_path="/in", read_only=True)
SCRATCH = Mount(claim="", mount_path="/data/out")
CLIMBING = Mount(claim="digits", mount_path="/data", sub_path="../other")


@each_row(
    ("text", "mounts", "working_dir", "message"),
    [
        # only the image knows where such a program runs
        *(("out/model.pt", [DATA], folder, RELATIVE) for folder in (None, "", "data")),
        # a mistyped scheme is not taken for a relative path
        *((text, [DATA], "/data", A_PLACE) for text in ("", "/data/a\nb", "s3://bucket/model.pt", "file:/data/x")),
        ("pvc:/digits/model.pt", [DATA], "/data", A_PLACE),
        # a model written to an emptyDir would be lost
        ("/data/out/model.pt", [DATA, SCRATCH], None, r"on none of the claims.*allowed: below /data \(pvc://digits\)$"),
        (
            "/database/model.pt",
            [DATA, READ_ONLY],
            None,
            r"below /data \(pvc://digits\), /in \(pvc://digits, read-only\)$",
        ),
        ("pvc://digits/model.pt", [], None, r"allowed: below \(it mounts none\)"),
        *((text, [READ_ONLY], None, "it is mounted read-only") for text in ("/in/model.pt", "pvc://digits/model.pt")),
        # the rest of the claim does not belong to the job
        *(
            (text, [DATA], None, "names something below the claim's root")
            for text in ("/data", "/data/", "/data/out/..")
        ),
        ("/data/model.pt", [CLIMBING], None, r"no '\.\.'"),
    ],
)
def test_an_output_that_the_job_cannot_keep_is_refused(
    text: str, mounts: list[Mount], working_dir: str | None, message: str
) -> None:
    with pytest.raises(InvalidSpec, match=message):
        resolve(text, field="model", mounts=mounts, working_dir=working_dir)


def test_an_address_behind_another_mount_is_not_visible() -> None:
    inner = Mount(claim="models", mount_path="/data/out")

    assert mount_for(PvcAddress(claim="digits", path="out/model.pt"), [DATA, inner]) is None
    assert mount_for(PvcAddress(claim="digits", path="other/model.pt"), [DATA, inner]) == DATA


def test_a_directory_whose_name_begins_like_a_mount_is_not_in_it() -> None:
    assert mount_for(PvcAddress(claim="digits", path="out2/model.pt"), [PART]) is None


def test_resolved_outputs_survive_json() -> None:
    """They are stored in an annotation of the job."""
    outputs = ResolvedOutputs(model=MODEL)

    assert ResolvedOutputs.from_dict(json.loads(json.dumps(outputs.to_dict()))) == outputs
    assert ResolvedOutputs.from_dict({}) == ResolvedOutputs()


def test_a_report_survives_json() -> None:
    """It is sent from a pod, and in a trigger's event."""
    report = OutputReport(model=model_facts(), tfevents=events_facts(last_step=3, scalars={"loss": "NaN"}))

    assert OutputReport.from_dict(json.loads(json.dumps(report.to_dict()))) == report
    assert OutputReport.from_dict({"model": None, "tfevents": None}) == OutputReport()


def test_outputs_that_are_there_and_fresh_are_no_problem() -> None:
    """Neither is an undeclared output, whatever the report has of it."""
    report = OutputReport(model=model_facts(), tfevents=events_facts(exists=False))

    assert problems(report, ResolvedOutputs(model=MODEL)) == ()
    assert events_problems(events_facts()) == ()


YESTERDAY = BEGAN_AT.timestamp() - 86400
PLACE = "pvc://digits/out/model.pt (/data/out/model.pt in the container)"
SAVE = "save the model to $PTJOB_MODEL_PATH"
OLDER = f"before the job's first attempt; {SAVE}: the files there are older than the job"


@each_row(
    ("facts", "found"),
    [
        (OutputFacts(exists=False), f"model {PLACE} is missing: nothing is there; {SAVE}, or correct model= (--model)"),
        (
            OutputFacts(exists=False, problem="a link that leaves the claim"),
            "is missing: a link that leaves the claim; ",
        ),
        (model_facts(bytes=0), "is empty: 0 bytes;"),
        (model_facts(bytes=0, files=2, is_dir=True), "is empty: 0 bytes in 2 files;"),
        (model_facts(bytes=0, problem="x was not read"), "is empty: 0 bytes (x was not read);"),
        (model_facts(modified_at=YESTERDAY, is_stale=True), f"is stale: last modified 2026-11-19T10:00:00Z, {OLDER}"),
        # programs set a file's time, and Python has no such year
        *(
            (model_facts(modified_at=seconds, is_stale=True), f"last modified {seconds:.0f} s after 1970, {OLDER}")
            for seconds in (-1e12, 1e15)
        ),
    ],
)
def test_a_missing_empty_or_older_model_is_a_problem_that_says_where_and_what_to_do(
    facts: OutputFacts, found: str
) -> None:
    (problem,) = model_problems(facts)

    assert found in f"{problem.summary}; {problem.resolution}"


@pytest.mark.parametrize(
    ("facts", "cause"),
    [
        (OutputFacts(exists=False), "missing"),
        (events_facts(files=0, bytes=0), "missing"),
        (events_facts(bytes=0), "empty"),
        (events_facts(is_stale=True), "stale"),
    ],
)
def test_tfevents_that_are_not_there_empty_or_old_are_a_problem(facts: OutputFacts, cause: str) -> None:
    """A directory without an event file is missing, not empty."""
    (problem,) = events_problems(facts)

    assert problem.summary.startswith("tfevents ")
    assert f" is {cause}: " in problem.summary
    assert "write events to $PTJOB_TFEVENTS_DIR" in problem.resolution


def test_every_declared_output_is_judged() -> None:
    absent = OutputFacts(exists=False)
    outputs = ResolvedOutputs(model=MODEL, tfevents=EVENTS)

    found = problems(OutputReport(model=absent, tfevents=absent), outputs)

    assert [problem.summary.partition(" ")[0] for problem in found] == ["model", "tfevents"]


def test_a_noted_report_that_says_nothing_of_a_declared_output_is_none() -> None:
    """Somebody has edited it, or the declaration; the outputs are inspected again."""
    noted = report_text(OutputReport(model=model_facts()))

    assert read_report(noted, ResolvedOutputs(model=MODEL)) is not None
    assert read_report(noted, ResolvedOutputs(model=MODEL, tfevents=EVENTS)) is None


def test_tfevents_without_scalars_are_said_and_no_problem() -> None:
    """A job may log only images."""
    report = OutputReport(tfevents=events_facts(scalars={}))
    outputs = ResolvedOutputs(tfevents=EVENTS)

    assert problems(report, outputs) == ()
    (note,) = notes(report, outputs)
    assert note.startswith("tfevents pvc://digits/tb has no scalars")


def test_parts_that_could_not_be_read_are_said() -> None:
    """So is what people should know of a valid output."""
    facts = model_facts(problem="a link was not followed", remarks=["x: older than the job"])

    found = notes(OutputReport(model=facts, tfevents=events_facts()), ResolvedOutputs(model=MODEL, tfevents=EVENTS))

    place = "model pvc://digits/out/model.pt"
    assert found == (f"{place}: a link was not followed", f"{place}: x: older than the job")


def test_curves_are_no_part_of_what_is_noted_on_the_job() -> None:
    """They may be many; later readers get the last values."""
    tfevents = OutputFacts(exists=True, scalars={"loss": 0.5}, curves={"loss": [[1, 2.0], [2, 0.5]]})

    noted = read_report(report_text(OutputReport(tfevents=tfevents)), ResolvedOutputs(tfevents=EVENTS))

    assert noted == OutputReport(tfevents=OutputFacts(exists=True, scalars={"loss": 0.5}))


def test_a_report_of_very_many_scalars_is_noted_without_them() -> None:
    """An annotation holds little; size and digest matter."""
    scalars = {f"layer/{number}/gradient": 0.123456789 for number in range(3000)}
    report = OutputReport(tfevents=OutputFacts(exists=True, files=1, bytes=9, last_step=7, scalars=scalars))

    noted = read_report(report_text(report), ResolvedOutputs(tfevents=EVENTS))

    assert noted is not None
    assert noted.tfevents is not None
    assert (noted.tfevents.last_step, noted.tfevents.scalars) == (7, {})
    assert len(report_text(report)) < 1000


@each_row("wrong", ["s3://bucket/model.pt", "pvc://"])
def test_a_declared_output_is_checked_before_the_mounts_are_known(wrong: str) -> None:
    """An address of a claim or a path; the claim of a path is resolved later."""
    check_places({"model": "pvc://digits/model.pt", "tfevents": " out/logs ", "checkpoints": None})

    with pytest.raises(InvalidSpec, match="model"):
        check_places({"model": wrong})
