"""Tests of the switch that replaces NCCL by another backend where there are no GPUs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from ends import VALUE_ERROR, end, judged
from fakes import MemoryStore, ScriptedBackend
from ptjob_provider.core import kinds
from ptjob_provider.core.diagnosis import Cause
from ptjob_provider.core.identity import Owner
from ptjob_provider.core.run.submit import ensure_submitted
from ptjob_provider.core.spec import Installation, TrainingJob, job_template
from recorded import DATA
from rows import each_row

if TYPE_CHECKING:
    from ptjob_provider.core.kinds import Kind, Rendered

OWNER = Owner(instance="test", ids={"task": "same"}, labels={})
SWITCH = {"backend_without_gpu": "gloo"}
REASON = "backend_without_gpu=gloo is set"


def render(**values: Any) -> Rendered:
    installation = values.pop("installation", None)
    given = values if "manifest" in values else {"name": "digits", "image": "i", **values}
    job = TrainingJob.parse(**given)
    return kinds.requested_kind(job).render(job, owner=OWNER, attempt=1, installation=installation)


def containers(rendered: Rendered) -> list[Any]:
    return [each["spec"]["containers"][0] for each in kinds.kind_of(rendered.manifest).templates(rendered.manifest)]


@each_row(
    ("given", "expected"),
    [
        (["--backend", "nccl"], ["--backend", "gloo"]),
        (["--backend=nccl", "--epochs", "3"], ["--backend=gloo", "--epochs", "3"]),
        (["--dist-backend", "NCCL"], ["--dist-backend", "gloo"]),
        (["--dist_backend='nccl'"], ["--dist_backend='gloo'"]),
        (["-backend", "nccl"], ["-backend", "gloo"]),
        (["sh", "-c", "python train.py --backend nccl && ls"], ["sh", "-c", "python train.py --backend gloo && ls"]),
        (["nccl", "--tests", "nccl"], ["nccl", "--tests", "nccl"]),
        (["--backend", "cpu:gloo,cuda:nccl"], ["--backend", "cpu:gloo,cuda:nccl"]),
        (["--backend=nccl-tests", "--backend=nccl:1"], ["--backend=nccl-tests", "--backend=nccl:1"]),
        (["--my.backend", "nccl"], ["--my.backend", "nccl"]),
        (["--backend", "gloo"], ["--backend", "gloo"]),
    ],
)
def test_only_an_option_for_the_backend_is_changed(given: list[str], expected: list[str]) -> None:
    """In every notation; a word that only looks like it stays. Without the switch nothing changes."""
    switched, untouched = render(args=given, **SWITCH), render(args=given)

    assert [each["args"] for each in containers(switched)] == [expected]
    assert [each["args"] for each in containers(untouched)] == [given]
    assert bool(switched.changes) == (given != expected)
    assert untouched.changes == ()


def test_what_was_changed_is_told_with_role_container_and_reason() -> None:
    """With the manifest of the vendor's guide: both roles; the rest of it stays."""
    manifest = DATA / "manifest-args-only.yaml"
    switched, untouched = render(manifest=manifest, **SWITCH), render(manifest=manifest)

    said = "container pytorch is started with the backend gloo instead of nccl"
    assert switched.changes == (f"Master: {said}: {REASON}", f"Worker: {said}: {REASON}")
    for before, after in zip(containers(untouched), containers(switched), strict=True):
        assert before.pop("args") == ["--backend", "nccl"]
        assert after.pop("args") == ["--backend", "gloo"]
        assert before == after
    assert switched.spec_hash != untouched.spec_hash


@pytest.mark.parametrize("kind", kinds.KINDS.values(), ids=kinds.KINDS)
def test_every_kind_of_job_knows_it(kind: Kind) -> None:
    """In command and arguments of the training container."""
    command = ["torchrun", "train.py", "--backend=nccl"]

    rendered = render(kind=kind.KIND, command=command, nproc_per_node=2, workers=2, **SWITCH)

    assert "nccl" not in str(rendered.manifest["spec"])
    assert "--backend=gloo" in str(rendered.manifest["spec"])
    assert {text.partition(": ")[2] for text in rendered.changes} == {
        f"container {kind.CONTAINER} is started with the backend gloo instead of nccl: {REASON}"
    }


def test_an_installation_without_gpus_says_it_once_for_all_jobs() -> None:
    """A job's own setting comes first."""
    installation = Installation(template=job_template(SWITCH, field="job_template"))

    theirs = render(args=["--backend", "nccl"], installation=installation)
    own = render(args=["--backend", "nccl"], backend_without_gpu="mpi", installation=installation)

    assert [containers(each)[0]["args"][1] for each in (theirs, own)] == ["gloo", "mpi"]


async def test_the_log_says_it_for_whoever_submits_or_adopts_the_job(caplog: pytest.LogCaptureFixture) -> None:
    """An existing job with a different specification gets no message: the change may be another task's, or none."""
    given: dict[str, Any] = {"name": "digits", "image": "i", "args": ["--backend", "nccl"]}
    backend, store = ScriptedBackend(), MemoryStore()
    switched, plain = TrainingJob.parse(**given, **SWITCH), TrainingJob.parse(**given)

    await ensure_submitted(backend, switched, owner=OWNER, store=store)
    await ensure_submitted(backend, switched, owner=OWNER, store=store)
    said = [record.getMessage() for record in caplog.records if "backend" in record.getMessage()]
    caplog.clear()
    await ensure_submitted(backend, plain, owner=OWNER, store=store)
    other = MemoryStore()
    await ensure_submitted(ScriptedBackend(), plain, owner=OWNER, store=other)

    assert len(said) == 2
    assert all(text.startswith("default/digits-") and text.endswith(REASON) for text in said)
    assert "instead of nccl" not in caplog.text


@pytest.mark.parametrize(
    "error",
    [
        "RuntimeError: nccl2 requires at least one CUDA device",
        "ValueError: ProcessGroupNCCL is only supported with GPUs, no GPUs found!",
        "RuntimeError: Distributed package doesn't have NCCL built in",
        "torch.distributed.DistBackendError: NCCL error: unhandled cuda error, no CUDA-capable device is detected",
    ],
)
def test_a_program_that_finds_no_gpu_for_nccl_is_told_of_the_switch(error: str) -> None:
    """PyTorch's messages, of several versions; a retry would not help, and it is not a lost connection."""
    found = judged(end(message=VALUE_ERROR.replace("ValueError: bad batch", error)))

    assert (found.cause, found.retryable) == (Cause.PYTHON_EXCEPTION, False)
    assert "backend_without_gpu='gloo' (--backend-without-gpu gloo)" in found.resolution


def test_a_program_that_refuses_nccl_itself_is_told_of_it_too() -> None:
    """It ends with argparse's line and no traceback; other wrong arguments are unrelated."""
    text = "train.py: error: --backend nccl needs a GPU and this process has none"

    refused = judged(end(code=2, message=text))
    other = judged(end(code=2, message="train.py: error: unrecognized arguments: --backend-nccl"))

    assert (refused.cause, refused.retryable) == (Cause.EXIT_CODE, False)
    assert "backend_without_gpu=" in refused.resolution
    assert "backend_without_gpu=" not in other.resolution
