"""Tests of the checkpoint that an attempt after the first is given before its job is created."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from fakes import MemoryStore, ScriptedBackend
from ptjob_provider.core import kinds
from ptjob_provider.core.errors import ClusterUnavailable, OutputsNotVerified, PTJobError
from ptjob_provider.core.identity import SPEC_HASH_ANNOTATION, Owner
from ptjob_provider.core.outputs.checkpoints import Checkpoint
from ptjob_provider.core.outputs.contract import ResolvedOutput
from ptjob_provider.core.run.submit import Submission, conclude_attempt, ensure_submitted
from ptjob_provider.core.spec import TrainingJob
from rows import each_row

if TYPE_CHECKING:
    from ptjob_provider.core.identity import Manifest

pytestmark = pytest.mark.skips_waits

OWNER = Owner(instance="prod", ids={"dag_id": "d", "task_id": "t", "run_id": "r", "map_index": "-1"}, labels={})
FOLDER = ResolvedOutput(uri="pvc://runs/ckpt", claim="runs", path="ckpt", container_path="/data/ckpt")
FOUND = Checkpoint(path="checkpoint-800", step=800, order="the highest step")
NO_ANSWER = OutputsNotVerified("the probe pod gave no answer")


def described(kind: str | None = "PyTorchJob", **values: Any) -> TrainingJob:
    fields = {"name": "digits", "image": "digits:1", "workers": 2, "kind": kind}
    return TrainingJob.parse(**{**fields, "volumes": ["runs:/data"], "checkpoints": "/data/ckpt", **values})


class Task:
    """A task whose attempts fail one after the other."""

    def __init__(self, job: TrainingJob | None = None) -> None:
        self.backend, self.store, self.job = ScriptedBackend(), MemoryStore(), job or described()
        self.backend.checkpoint = FOUND
        self.told: list[str] = []

    async def attempt(self, **how: Any) -> Submission:
        conclude_attempt(self.store)
        return await ensure_submitted(
            self.backend, self.job, owner=OWNER, store=self.store, tell=self.told.append, **how
        )

    @property
    def newest(self) -> Manifest:
        return list(self.backend.jobs.values())[-1]

    def variables(self) -> list[str | None]:
        """Return the variable of each replica's training container in the newest job."""
        containers = [replica.template["spec"]["containers"][0] for replica in kinds.replicas(self.newest)]
        values = [{each["name"]: each.get("value") for each in container["env"]} for container in containers]
        return [each.get("PTJOB_RESUME_FROM") for each in values]


@pytest.mark.parametrize(("checkpoints", "attempts"), [("/data/ckpt", 1), (None, 2)])
async def test_a_first_attempt_or_one_without_declared_checkpoints_is_not_looked_at(
    checkpoints: str | None, attempts: int
) -> None:
    """A pod would cost seconds, and what is there is another training's."""
    task = Task(described(checkpoints=checkpoints))

    for _ in range(attempts):
        await task.attempt()

    assert (task.variables(), task.backend.looks, task.told) == ([None, None], [], [])


@pytest.mark.parametrize("kind", ["PyTorchJob", "TrainJob", "PyTorchTrainingJob"])
async def test_a_later_attempt_gets_the_newest_complete_checkpoint(kind: str) -> None:
    """In every kind; the job is asked for as it was rendered, and its specification has not changed."""
    task = Task(described(kind))
    first = await task.attempt()
    hashed = task.newest["metadata"]["annotations"][SPEC_HASH_ANNOTATION]

    second = await task.attempt()

    assert (second.attempt, second.spec_changed) == (2, False)
    assert task.variables() == ["/data/ckpt/checkpoint-800"] * 2
    assert task.newest["metadata"]["annotations"][SPEC_HASH_ANNOTATION] == hashed
    [(job, folder, since)] = task.backend.looks
    assert (job["kind"], folder.container_path) == (kind, "/data/ckpt")
    assert f"{since:%FT%TZ}" == first.first_started_at
    [sentence] = task.told
    assert "it gets pvc://runs/ckpt/checkpoint-800 as PTJOB_RESUME_FROM, step 800 (the highest step)" in sentence


async def test_without_a_complete_checkpoint_the_variable_is_absent_and_the_log_says_so() -> None:
    task = Task()
    task.backend.checkpoint = Checkpoint(skipped=[["checkpoint-9", "optimizer.pt is cut"]], older=2)
    await task.attempt()

    await task.attempt()

    assert task.variables() == [None, None]
    [sentence] = task.told
    assert "no complete checkpoint is below pvc://runs/ckpt" in sentence
    assert "skipped checkpoint-9: optimizer.pt is cut" in sentence
    assert "2 of before the task's first attempt" in sentence


async def test_a_cleared_task_trains_anew() -> None:
    """Only the attempts after that one go on from what it has written."""
    task = Task()
    await task.attempt()

    cleared = await task.attempt(clear_number=1)
    assert (cleared.attempt, task.variables(), task.backend.looks) == (2, [None, None], [])

    await task.attempt(clear_number=1)
    [(_, _, since)] = task.backend.looks
    assert f"{since:%FT%TZ}" == cleared.first_started_at


async def test_no_answer_is_a_retryable_failure_and_no_job() -> None:
    """A job that begins at step 0 would overwrite what is there; the next try looks again."""
    task = Task()
    await task.attempt()
    task.backend.refusals["find_checkpoint"] = [NO_ANSWER] * 100

    with pytest.raises(ClusterUnavailable, match="is unknown after 60 s: the probe pod gave no answer") as caught:
        await task.attempt(api_error_timeout=60.0)

    assert caught.value.retryable
    assert len(task.backend.looks) == 6  # every ten seconds
    assert task.backend.created == 1
    assert len(task.told) == 1
    task.backend.refusals.clear()
    assert (await task.attempt()).attempt == 2
    assert task.variables() == ["/data/ckpt/checkpoint-800"] * 2


@pytest.mark.parametrize("error", [NO_ANSWER, ClusterUnavailable("no answer")])
async def test_a_look_without_an_answer_is_repeated(error: PTJobError) -> None:
    task = Task()
    await task.attempt()
    task.backend.refusals["find_checkpoint"] = [error]

    await task.attempt()

    assert task.variables() == ["/data/ckpt/checkpoint-800"] * 2
    assert len(task.told) == 2
    assert "its checkpoints are looked at again" in task.told[0]


async def test_one_look_has_its_time_though_none_is_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    """With `api_error_timeout` 0; the pod that looks takes seconds to start, and has a time limit of its own."""
    task = Task()
    await task.attempt()
    find = task.backend.find_checkpoint

    async def slowly(*args: Any, **how: Any) -> Checkpoint:
        await asyncio.sleep(30)
        return await find(*args, **how)

    monkeypatch.setattr(task.backend, "find_checkpoint", slowly)

    assert (await task.attempt(api_error_timeout=0.0)).attempt == 2
    task.backend.refusals["find_checkpoint"] = [NO_ANSWER]
    with pytest.raises(ClusterUnavailable, match="gave no answer"):
        await task.attempt(api_error_timeout=0.0)


async def test_a_job_that_is_adopted_is_not_looked_at() -> None:
    """It has what it was created with."""
    task = Task()
    await task.attempt()
    await task.attempt()

    adopted = await ensure_submitted(task.backend, task.job, owner=OWNER, store=task.store, tell=task.told.append)

    assert (adopted.attempt, adopted.adopted, len(task.backend.looks), len(task.told)) == (2, True, 1, 1)


async def test_one_look_is_enough_for_all_names_and_kinds_that_are_tried() -> None:
    task = Task(described(None))
    await task.attempt()
    task.backend.served.remove("PyTorchJob")

    await task.attempt()

    assert len(task.backend.looks) == 1
    assert set(task.variables()) == {"/data/ckpt/checkpoint-800"}


async def test_a_path_is_not_expanded_by_the_kubelet() -> None:
    task = Task()
    task.backend.checkpoint = Checkpoint(path="$(HOME)/a.pt")
    await task.attempt()

    await task.attempt()

    assert task.variables() == ["/data/ckpt/$$(HOME)/a.pt"] * 2


def test_the_folder_itself_may_be_the_checkpoint() -> None:
    assert Checkpoint(path="").variables(FOLDER) == {"PTJOB_RESUME_FROM": "/data/ckpt"}


@each_row(
    ("text", "found"),
    [
        ('{"path": "a.pt", "step": 8, "order": "newest"}', Checkpoint(path="a.pt", step=8, order="newest")),
        ('{"path": null, "step": null, "new": 1}', Checkpoint()),
        ('{"path": "a\\ud800.pt"}', Checkpoint(path="a\ufffd.pt")),
        ("", None),
        ("[]", None),
        ("{", None),
    ],
)
def test_an_answer_of_another_program_is_none(text: str, found: Checkpoint | None) -> None:
    assert Checkpoint.read(text) == found
