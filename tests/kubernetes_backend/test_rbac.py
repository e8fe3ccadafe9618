"""Tests of the documented Role: it is enough for everything and has no spare verb, and errors name a missing one."""

from __future__ import annotations

import asyncio
import json
from contextlib import aclosing
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from cluster.shell import until
from cluster.tenants import service_account
from cluster_world import PATIENCE, Tenant, config_of
from fakes import ListSink, MemoryStore
from ptjob_provider.core.diagnosis import Limits
from ptjob_provider.core.errors import OutputsNotVerified, PermissionDenied
from ptjob_provider.core.kubernetes import KubernetesBackend
from ptjob_provider.core.outputs.contract import ResolvedOutputs
from ptjob_provider.core.run.follow import follow
from ptjob_provider.core.run.outcome import Outcome
from ptjob_provider.core.run.recall import recall
from ptjob_provider.core.run.submit import Submission, ensure_submitted
from ptjob_provider.core.spec import TrainingJob
from rbac import rules, rules_without, verbs
from recorded import OWNER

if TYPE_CHECKING:
    from cluster.boot import Cluster
    from ptjob_provider.core.identity import JobRef
    from ptjob_provider.core.run.attempts import AttemptStore

TRAIN = """
import os, pathlib, time
print("training", flush=True)
time.sleep(2)
path = pathlib.Path(os.environ["PTJOB_MODEL_PATH"])
path.parent.mkdir(parents=True, exist_ok=True)
path.write_bytes(b"weights")
"""

WAITS = "echo training; until test -e /tmp/go; do sleep 1; done"


class Account:
    """A service account of one namespace; its Role can be changed."""

    def __init__(self, cluster: Cluster, namespace: str, image: str) -> None:
        self._cluster = cluster
        self.namespace = namespace
        self._image = image
        self.config = config_of(service_account(cluster, namespace, rules()))
        self.backend = KubernetesBackend(self.config)
        Tenant(cluster, namespace).claim("outputs")

    def take_away(self, resource: str, verb: str) -> None:
        """Remove this verb from the account's rights."""
        service_account(self._cluster, self.namespace, rules_without(resource, verb, of=rules()))

    def give_back(self) -> None:
        """Grant the documented Role again."""
        service_account(self._cluster, self.namespace, rules())

    def create_secret(self, name: str) -> None:
        meta = {"name": name, "namespace": self.namespace}
        self._cluster.kubectl.apply(
            {"apiVersion": "v1", "kind": "Secret", "metadata": meta, "stringData": {"key": "1"}}
        )

    def wait_for_training(self, ref: JobRef) -> None:
        words = ("logs", f"{ref.name}-master-0", "--namespace", self.namespace, "--ignore-errors")
        until("its first line", lambda: "training" in self._cluster.kubectl(*words), timeout=PATIENCE)

    def let_go(self, ref: JobRef) -> None:
        """Let a training that waits for a file end."""
        words = ("exec", f"{ref.name}-master-0", "--namespace", self.namespace, "--", "touch", "/tmp/go")  # noqa: S108
        self._cluster.kubectl(*words)

    def annotate(self, ref: JobRef) -> None:
        """Change the job's object, so that its followers look at it."""
        self._cluster.kubectl("annotate", "pytorchjob", ref.name, "--namespace", self.namespace, "seen=now")

    async def submit(self, *, store: AttemptStore | None = None, **fields: Any) -> Submission:
        """Submit a job of one pod that writes a model, as a try with this memory; None: as a first one."""
        what = {"name": "rights", "namespace": self.namespace, "image": self._image, "command": ["python", "-c", TRAIN]}
        where = {"volumes": ["outputs:/out"], "model": "pvc://outputs/model.pt"}
        job = TrainingJob.parse(**{**what, **where, **fields})
        return await ensure_submitted(self.backend, job, owner=OWNER, store=store or MemoryStore())


@pytest.fixture
def account(cluster: Cluster, namespace: str, digits_image: str) -> Account:
    """Return an account that has the documented Role."""
    return Account(cluster, namespace, digits_image)


async def test_the_documented_role_is_enough(account: Account) -> None:
    """Submit, follow, log, record, inspect the outputs and stop, with these verbs alone."""
    sink = ListSink()
    submission = await account.submit()

    async with asyncio.timeout(PATIENCE):
        conclusion = await follow(account.backend, submission, sink=sink)

    assert conclusion.outcome is Outcome.SUCCEEDED, conclusion
    assert conclusion.result is not None
    assert conclusion.result["model"]["bytes"] == len(b"weights")
    assert "training" in sink.lines
    await account.backend.delete(submission.ref)


MISSING = {
    ("pytorchjobs", "create"): "create pytorchjobs",
    ("pytorchjobs", "get"): "read pytorchjobs",
    ("pytorchjobs", "list"): "read pytorchjobs",
    ("pytorchjobs", "watch"): "read pytorchjobs",
    ("pytorchjobs", "patch"): "change pytorchjobs",
    ("pytorchjobs", "delete"): "delete pytorchjobs",
    ("pods", "list"): "read pods",
    ("pods", "watch"): "read pods",
    ("pods/log", "get"): "read pods/log",
}
"""The operation that fails without each verb that following a job needs, in our words; the server's words follow."""

REFUSED = 'cannot list resource "events"'
LOOKING = {("pods", "get"), ("pods", "create"), ("pods", "delete"), ("persistentvolumeclaims", "get")}
"""Needed only for inspecting outputs."""

ARRIVING = [("persistentvolumeclaims", "list"), ("persistentvolumeclaims", "watch")]
"""Needed only for following claims."""


def test_every_verb_of_the_role_has_its_test() -> None:
    """A verb without a test need not be granted."""
    assert set(verbs()) == {*MISSING, *LOOKING, *ARRIVING, ("events", "list")}


@pytest.mark.parametrize(("resource", "verb"), MISSING)
async def test_a_missing_verb_is_named(account: Account, resource: str, verb: str) -> None:
    """The error names the operation, and the server's message names the account, the verb and the resource."""
    submission = await account.submit()
    account.take_away(resource, verb)

    with pytest.raises(PermissionDenied) as raised:
        await _everything(account, submission.ref)

    assert MISSING[resource, verb] in str(raised.value)
    assert f'cannot {verb} resource "{resource}"' in str(raised.value)


async def test_a_training_that_started_while_its_pods_could_not_be_watched_is_not_deleted(
    account: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its pod waits for a Secret, the right to watch pods is taken away, the pod starts, and `start_timeout` passes."""
    monkeypatch.setattr("ptjob_provider.core.kubernetes.informer.reflector._WATCH_SECONDS", (4, 6))
    from_secret = {"name": "LATER", "valueFrom": {"secretKeyRef": {"name": "later", "key": "key"}}}
    submission = await account.submit(env=[from_secret], command=["sh", "-c", WAITS], model=None, volumes=None)
    sink, limits = ListSink(), Limits(start_timeout=3600.0)
    following = asyncio.create_task(follow(account.backend, submission, sink=sink, limits=limits))
    try:
        async with asyncio.timeout(PATIENCE):
            await _noticed("waits", sink, following)
            account.take_away("pods", "watch")
            await _noticed("a request about the job is refused", sink, following)
            account.create_secret("later")
            await asyncio.to_thread(account.wait_for_training, submission.ref)
            object.__setattr__(limits, "start_timeout", 1.0)  # it passes now, however slow this machine is
            account.annotate(submission.ref)
            await _noticed("goes on", sink, following)
            account.give_back()
            account.let_go(submission.ref)
            conclusion = await following
    finally:
        following.cancel()

    assert conclusion.outcome is Outcome.SUCCEEDED, conclusion


async def test_the_base_role_beside_trainer_makes_one_job(trained: Cluster, namespace: str, digits_image: str) -> None:
    """TrainJobs that may not be read do not exist for the account; its own kind's refusal makes no second job."""
    account = Account(trained, namespace, digits_image)
    first = await account.submit()

    second = await account.submit(store=await recall(account.backend, namespace, OWNER, is_repeated=True))
    account.take_away("pytorchjobs", "list")
    with pytest.raises(PermissionDenied, match='cannot list resource "pytorchjobs"'):
        await recall(account.backend, namespace, OWNER, is_repeated=True)

    assert second.ref == first.ref
    found = trained.kubectl("get", "pytorchjobs,trainjobs", "--namespace", namespace, "--output", "json")
    assert [job["metadata"]["uid"] for job in json.loads(found)["items"]] == [first.ref.uid]


@pytest.mark.parametrize(("resource", "verb"), sorted(LOOKING - {("pods", "delete")}))
async def test_outputs_that_nobody_may_look_at_are_not_verified(account: Account, resource: str, verb: str) -> None:
    """A retry adopts the finished job and inspects the outputs again; it never trains again."""
    submission = await account.submit()
    async with asyncio.timeout(PATIENCE):
        await follow(account.backend, submission, sink=ListSink(), hands_off=True)
    account.take_away(resource, verb)

    with pytest.raises(OutputsNotVerified, match=f'cannot {verb} resource "{resource}"') as raised:
        await _inspect(account, submission)

    assert raised.value.retryable


@pytest.mark.parametrize(("resource", "verb"), ARRIVING)
async def test_a_claim_that_nobody_may_follow_is_refused(account: Account, resource: str, verb: str) -> None:
    """The error names the operation, and the verb that is missing on the resource."""
    account.take_away(resource, verb)

    states = account.backend.watch_claim(account.namespace, "outputs")
    async with asyncio.timeout(PATIENCE):
        with pytest.raises(PermissionDenied) as raised:
            async for _ in states:
                pass

    assert f"read {resource} in {account.namespace}" in str(raised.value)
    assert f'cannot {verb} resource "{resource}"' in str(raised.value)


async def test_a_probe_that_cannot_be_deleted_ends_with_the_job(account: Account, cluster: Cluster) -> None:
    """The result counts; the job owns the pod, which is deleted with it."""
    submission = await account.submit()
    async with asyncio.timeout(PATIENCE):
        await follow(account.backend, submission, sink=ListSink(), hands_off=True)
    account.take_away("pods", "delete")

    report = await _inspect(account, submission)

    assert report.model is not None
    assert report.model.bytes == len(b"weights")
    pods = json.loads(cluster.kubectl("get", "pods", "--namespace", account.namespace, "--output", "json"))["items"]
    left = [pod for pod in pods if "training.kubeflow.org/job-name" not in pod["metadata"]["labels"]]
    assert [owner["uid"] for pod in left for owner in pod["metadata"]["ownerReferences"]] == [submission.ref.uid]


async def test_without_events_the_reason_of_a_wait_is_said_to_be_missing(account: Account) -> None:
    """Following continues; the log says once what is unknown, and which verb is missing."""
    account.take_away("events", "list")
    sink = ListSink()
    missing = {"name": "token", "secret": {"secretName": "no-such-secret"}}
    mount = {"name": "token", "mountPath": "/token"}
    submission = await account.submit(volumes=["outputs:/out", missing], volume_mounts=[mount])

    def notices_with(words: str) -> list[str]:
        return [text for text in sink.notices if words in text]

    following = asyncio.create_task(follow(account.backend, submission, sink=sink))
    async with asyncio.timeout(PATIENCE):
        while not ((notices_with(REFUSED) and notices_with("waits:")) or following.done()):  # noqa: ASYNC110 - the sink has no event
            await asyncio.sleep(0.1)
    await asyncio.sleep(8)  # events are requested again meanwhile
    following.cancel()
    await asyncio.wait({following})

    assert len(notices_with(REFUSED)) == 1
    assert following.cancelled()


async def _everything(account: Account, ref: JobRef) -> None:
    """Use every verb of the port that following a job needs."""
    backend = account.backend
    await backend.get(ref.kind, ref.namespace, ref.name)
    await backend.list(ref.kind, ref.namespace, {})
    await backend.patch(ref, {"metadata": {"annotations": {"seen": "yes"}}})
    async with asyncio.timeout(PATIENCE), aclosing(backend.watch(ref)) as watch:
        async for seen in watch:
            if any(pod["status"].get("phase") in {"Running", "Succeeded"} for pod in seen.pods):
                break
    await backend.pods_gone(ref)
    async with asyncio.timeout(PATIENCE):
        async for _ in backend.logs(ref, f"{ref.name}-master-0"):
            break
    await backend.delete(ref)
    await account.submit(labels={"another": "one"})


async def _inspect(account: Account, submission: Submission) -> Any:
    outputs = ResolvedOutputs(model=submission.outputs.model)
    async with asyncio.timeout(PATIENCE):
        return await account.backend.inspect_outputs(submission.ref, outputs, since=datetime.now(UTC))


async def _noticed(text: str, sink: ListSink, following: asyncio.Task[Any]) -> None:
    while text not in " ".join(sink.notices):
        assert not following.done(), following
        await asyncio.sleep(0.2)
