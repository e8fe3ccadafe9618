"""Tests of a job's TensorBoard: its folder, image and program, the job's annotations, and requests that show it."""

from __future__ import annotations

import asyncio
import socket
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from api_server_stand_in import SILENT, stand_in_api_server
from ptjob_provider.core import kinds
from ptjob_provider.core.errors import ClusterError, InvalidSpec
from ptjob_provider.core.identity import TENSORBOARD_ANNOTATION, Owner
from ptjob_provider.core.inspector import TensorBoardView, check_located
from ptjob_provider.core.kubernetes.client.http import shared_client
from ptjob_provider.core.kubernetes.client.port_forward import tunnel
from ptjob_provider.core.kubernetes.tensorboard.objects import (
    LIFE,
    VIEW_LABEL,
    deployment,
    service,
    url,
    view_pod,
)
from ptjob_provider.core.kubernetes.tensorboard.view import shown
from ptjob_provider.core.spec import Installation, TensorBoard, TrainingJob
from ptjob_provider.core.tensorboard import TensorBoardPlan, url_of
from rows import each_row

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from ptjob_provider.core.kubernetes.client.http import Client

pytestmark = pytest.mark.skips_waits

OWNER = Owner(instance="test", ids={"dag_id": "d"}, labels={})
BASE: dict[str, Any] = {"name": "digits", "image": "digits:1", "volumes": ["runs/team:/runs"], "tfevents": "/runs/tb"}


def rendered(**fields: Any) -> dict[str, Any]:
    installation = fields.pop("installation", Installation())
    job = TrainingJob.parse(**{**BASE, **fields})
    found = kinds.requested_kind(job).render(job, owner=OWNER, attempt=1, exact_name=True, installation=installation)
    return found.manifest | {"metadata": {**found.manifest["metadata"], "uid": "u-1"}}


def beside(**fields: Any) -> tuple[dict[str, Any], TensorBoardPlan]:
    """Return a job that requests a TensorBoard, and its plan."""
    job = rendered(**{"tensorboard": True, **fields})
    plan = TensorBoardPlan.of(job)
    assert plan is not None
    return job, plan


def pod(*, is_held_by_one_node: bool = False, **fields: Any) -> dict[str, Any]:
    found: dict[str, Any] = deployment(*beside(**fields), is_held_by_one_node=is_held_by_one_node)
    spec: dict[str, Any] = found["spec"]["template"]["spec"]
    return spec


def test_a_tensorboard_shows_the_tfevents_unless_logdir_names_another_folder() -> None:
    """An address, or a path as the program sees it: through sub-paths, from the working directory, a claim's root."""
    _, usual = beside()
    assert (usual.claim, usual.path) == ("runs", "team/tb")
    logdirs = {
        "pvc://logs/a//b/": ("logs", "a/b"),
        "pvc://logs": ("logs", ""),
        "/runs": ("runs", "team"),
        "/runs/../runs/x": ("runs", "team/x"),
        "tb/now": ("runs", "team/tb/now"),
    }
    for logdir, place in logdirs.items():
        _, found = beside(tensorboard={"logdir": logdir}, tfevents=None, working_dir="/runs")
        assert (found.claim, found.path) == place, logdir
    _, whole = beside(tensorboard={"logdir": "/runs"}, tfevents=None, volumes=["runs:/runs:ro"])
    assert (whole.claim, whole.path) == ("runs", "")


@each_row(
    ("fields", "why"),
    [
        ({"tfevents": None, "tensorboard": True}, "set `tfevents` or `logdir`, too"),
        ({"tensorboard": {"logdir": "/training_logs"}}, r"below /runs \(pvc://runs/team\)"),
        ({"tensorboard": {"logdir": "/scratch"}, "volumes": [{"name": "s", "emptyDir": {}}],
          "volume_mounts": [{"name": "s", "mountPath": "/scratch"}], "tfevents": None}, r"\(it mounts none\)"),
        ({"tensorboard": {"logdir": "/runs/scratch/tb"}, "volumes": ["runs/team:/runs", {"name": "s", "emptyDir": {}}],
          "volume_mounts": [{"name": "s", "mountPath": "/runs/scratch"}], "tfevents": None}, "on none of the claims"),
        ({"tensorboard": {"logdir": "logs"}}, "a relative path needs an absolute working_dir"),
        ({"tensorboard": {"logdir": "pvc://logs/../other"}}, "the path has no '..'"),
        ({"tensorboard": "yes"}, "true, false, or a map of logdir, image, service_type"),
        ({"tensorboard": {"service_type": "LoadBalancer"}}, "NodePort"),
    ],
)  # fmt: skip
def test_a_tensorboard_of_a_folder_that_cannot_be_shown_is_refused(fields: dict[str, Any], why: str) -> None:
    """Before anything is created; the message names the field."""
    with pytest.raises(InvalidSpec, match="tensorboard") as raised:
        rendered(**fields)
    assert raised.match(why)


def test_a_job_has_no_tensorboard_by_default_or_by_false() -> None:
    assert TrainingJob.parse(**BASE, tensorboard="false").tensorboard is None
    assert TrainingJob.parse(**BASE, tensorboard="true").tensorboard == TensorBoard()
    assert TENSORBOARD_ANNOTATION not in rendered()["metadata"]["annotations"]
    assert url_of(rendered()) == ""


def test_the_job_says_where_it_is_reached() -> None:
    """Once there is an address; an unreadable annotation counts as none."""
    job, found = beside(tensorboard={"service_type": "ClusterIP"})
    assert (found.service_type, url_of(job)) == ("ClusterIP", "")

    job["metadata"]["annotations"] |= replace(found, url="http://10.0.0.1:30000/").annotation
    assert url_of(job) == "http://10.0.0.1:30000/"
    job["metadata"]["annotations"][TENSORBOARD_ANNOTATION] = '{"other": 1}'
    assert TensorBoardPlan.of(job) is None


def test_a_tensorboard_does_not_change_the_specification_of_the_job() -> None:
    """An adopted job has the same specification."""
    job = TrainingJob.parse(**BASE)
    same = TrainingJob.parse(**BASE, tensorboard=True)
    first, second = (kinds.DEFAULT.render(each, owner=OWNER, attempt=1) for each in (job, same))

    assert first.spec_hash == second.spec_hash
    assert first.manifest["spec"] == second.manifest["spec"]


def test_the_image_is_the_jobs_the_installations_or_its_own() -> None:
    """With the job's own image, by the job's own interpreter."""
    theirs = Installation(tensorboard_image="tb:1")
    conda = ["/opt/conda/bin/python3", "train.py"]

    own, ours, other = (
        pod(command=conda), pod(command=conda, installation=theirs),
        pod(command=conda, installation=theirs, tensorboard={"image": "tb:2"}),
    )  # fmt: skip
    images = [found["containers"][0]["image"] for found in (own, ours, other)]
    programs = [found["containers"][0]["command"][0] for found in (own, ours, other)]

    assert images == ["digits:1", "tb:1", "tb:2"]
    assert programs == ["/opt/conda/bin/python3", "python3", "python3"]
    assert pod(command=["sh", "-c", "x"])["containers"][0]["command"] == [
        *("python3", "-m", "tensorboard.main", "--logdir", "/claim/team/tb", "--bind_all", "--port", "6006")
    ]


def test_a_runtime_that_has_the_image_needs_one_to_be_said() -> None:
    """A TrainJob's manifest may have no image; it is not guessed."""
    manifest = {
        "apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "metadata": {"name": "own"},
        "spec": {"runtimeRef": {"name": "torch-distributed"}},
    }  # fmt: skip
    fields = {"name": None, "image": None, "manifest": manifest, "tfevents": None, "volumes": None}

    with pytest.raises(InvalidSpec, match=r"tensorboard\.image"):
        pod(**fields, tensorboard={"logdir": "pvc://runs/tb"})
    shown = pod(**fields, tensorboard={"logdir": "pvc://runs/tb", "image": "tb:1"})
    assert shown["containers"][0]["image"] == "tb:1"


def test_the_pod_of_a_tensorboard_is_admitted_where_pods_are_restricted() -> None:
    """It runs wherever the training may run: restricted, bounded, without token, device, Istio or write access."""
    found = pod(
        security_context={"runAsUser": 1000, "fsGroup": 1000}, gpus=4, tolerations=[{"key": "a", "operator": "Exists"}],
        service_account_name="trainer", image_pull_secrets=["registry"],
    )  # fmt: skip
    (container,) = found["containers"]

    assert found["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert found["securityContext"]["runAsUser"] == 1000
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    assert set(container["resources"]) == {"requests", "limits"}
    assert "nvidia.com/gpu" not in container["resources"]["limits"]
    assert (found["automountServiceAccountToken"], found["serviceAccountName"]) == (False, "trainer")
    assert found["imagePullSecrets"] == [{"name": "registry"}]
    assert all(mount["readOnly"] for mount in container["volumeMounts"] if mount["name"] == "claim")
    assert "affinity" not in found


def test_a_tensorboard_does_not_occupy_a_node_that_the_training_needs() -> None:
    """A pod without a device stays for days: if each node can mount the claim, any that can run the image will do."""
    wanted = {"zone": "b", "kubernetes.io/arch": "arm64"}
    term = {"matchExpressions": [{"key": "gpu", "operator": "Exists"}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}}
    fields = {"gpus": 4, "node_selector": wanted, "affinity": affinity, "tolerations": [{"key": "a"}]}

    anywhere, there = pod(**fields), pod(**fields, is_held_by_one_node=True)
    template = deployment(*beside(), is_held_by_one_node=False)["spec"]["template"]

    assert anywhere["nodeSelector"] == {"kubernetes.io/arch": "arm64"}
    assert anywhere["tolerations"] == [{"key": "a"}]
    assert "affinity" not in anywhere
    assert there["nodeSelector"] == wanted
    assert {each["key"] for each in there["tolerations"]} == {"a", "nvidia.com/gpu"}
    assert there["affinity"]["nodeAffinity"] == affinity["nodeAffinity"]
    assert template["metadata"]["annotations"]["cluster-autoscaler.kubernetes.io/safe-to-evict"] == "true"
    assert not {"nodeSelector", "tolerations"} & set(pod())


def test_on_a_claim_of_one_node_it_comes_after_the_job() -> None:
    """It waits for a pod of the job, never for its own, and never holds the claim where the job is not."""
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": []}}}
    job, plan = beside(affinity=affinity)

    made = deployment(job, plan, is_held_by_one_node=True)["spec"]["template"]
    (rule,) = made["spec"]["affinity"]["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    trains = job["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["metadata"]["labels"]

    assert rule["labelSelector"]["matchLabels"].items() <= trains.items()
    assert not rule["labelSelector"]["matchLabels"].items() <= made["metadata"]["labels"].items()
    assert rule["topologyKey"] == "kubernetes.io/hostname"
    assert made["spec"]["affinity"]["nodeAffinity"] == affinity["nodeAffinity"]


def test_a_tensorboard_has_arenas_labels_and_is_owned_by_the_job() -> None:
    """The job owns both objects; the Service selects the Deployment's pods and no replica."""
    job, plan = beside()
    made, led = deployment(job, plan, is_held_by_one_node=False), service(job, plan)
    trains = job["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["metadata"]["labels"]

    for each in (made, led):
        assert each["metadata"]["name"] == "digits-tensorboard"
        assert each["metadata"]["labels"] == {"role": "tensorboard", "release": "digits"}
        (owner,) = each["metadata"]["ownerReferences"]
        assert (owner["kind"], owner["uid"], owner["blockOwnerDeletion"]) == ("PyTorchJob", "u-1", False)
    assert led["spec"]["type"] == "NodePort"
    assert led["spec"]["selector"].items() <= made["spec"]["template"]["metadata"]["labels"].items()
    assert not led["spec"]["selector"].items() <= trains.items()


def test_the_address_is_a_nodes_or_the_services() -> None:
    """The Service's own if no node is known, or it has no node port."""
    made = {"metadata": {"name": "d-tensorboard", "namespace": "n"}, "spec": {"ports": [{"port": 6006}]}}
    served = {**made, "spec": {"ports": [{"port": 6006, "nodePort": 30131}]}}

    assert url(served, "10.0.0.7") == "http://10.0.0.7:30131/"
    assert url(served, "fd00::7") == "http://[fd00::7]:30131/"
    assert url(served, "") == "http://d-tensorboard.n.svc:6006/"
    assert url(made, "10.0.0.7") == "http://d-tensorboard.n.svc:6006/"


def test_a_pod_for_somebody_who_looks_ends_by_itself() -> None:
    """Even if the process that started it is gone; as the job's user, or as the given one."""
    job = rendered(security_context={"runAsUser": 7}, image_pull_secrets=["registry"])
    shown = TensorBoardPlan(claim="runs", path="tb", image="tb:1")

    alone, named, after = (
        view_pod("n", "look", shown, job=of, user=user, is_held_by_one_node=False, follows=False)
        for of, user in ((None, None), (None, 1000), (job, None))
    )

    for each in (alone, named, after):
        assert each["spec"]["activeDeadlineSeconds"] == LIFE
        assert each["spec"]["restartPolicy"] == "Never"
        assert each["metadata"]["labels"][VIEW_LABEL] == "runs"
        assert "ownerReferences" not in each["metadata"]
    assert named["spec"]["securityContext"]["runAsUser"] == 1000
    assert named["spec"]["containers"][0]["securityContext"]["runAsNonRoot"] is True
    assert after["spec"]["securityContext"]["runAsUser"] == 7
    assert after["spec"]["imagePullSecrets"] == [{"name": "registry"}]


def test_a_folder_that_nobody_knows_is_not_looked_for() -> None:
    """A job without declared events; the message gives the remedy."""
    check_located(TensorBoardView(namespace="n", plan=TensorBoardPlan(claim="runs", path="")))
    with pytest.raises(InvalidSpec, match=r"ptjob tensorboard pvc://CLAIM/PATH"):
        check_located(TensorBoardView(namespace="n", plan=TensorBoardPlan(claim="", path="")))


def test_t9k_is_asked_for_the_tensorboard_in_its_own_fields() -> None:
    """In its own fields, always with an image; a manifest's own stays if none is requested."""
    given = rendered(kind="PyTorchTrainingJob", tensorboard=True)
    other = rendered(kind="PyTorchTrainingJob", tensorboard={"image": "tb:1", "logdir": "pvc://runs"})

    assert given["spec"]["tensorboardSpec"] == {"image": "digits:1", "trainingLogFilesets": ["t9k://pvc/runs/team/tb"]}
    assert other["spec"]["tensorboardSpec"] == {"image": "tb:1", "trainingLogFilesets": ["t9k://pvc/runs/"]}
    assert "tensorboardSpec" not in rendered(kind="PyTorchTrainingJob")["spec"]


# --- the requests that show a folder of events; a test on the cluster checks that curves arrive


ADDRESS = "http://10.0.0.7:30131/"
GONE = (404, {"kind": "Status", "code": 404, "reason": "NotFound", "details": {"name": "digits"}, "message": "gone"})
READY = {"metadata": {"name": "beside"}, "status": {"conditions": [{"type": "Ready", "status": "True"}]}}
LEAVING = {**READY, "metadata": {"name": "beside", "deletionTimestamp": "2026-11-20T12:00:00Z"}}


def listed(*items: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    return 200, {"kind": "PodList", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": list(items)}


def view_of(*, url: str = ADDRESS, **how: Any) -> TensorBoardView:
    """Return a view of a job whose TensorBoard has this address."""
    job, plan = beside(namespace="team")
    job["metadata"]["annotations"] |= replace(plan, url=url).annotation
    return TensorBoardView(**{"namespace": "team", "plan": replace(plan, image="digits:1"), "job": job, **how})


async def test_a_jobs_tensorboard_is_used() -> None:
    async with stand_in_api_server(listed(READY)) as server, shared_client(server.config()) as client:
        async with shown(client, view_of()) as address:
            assert address.startswith("http://127.0.0.1:")
        verbs = [line.split()[0] for line in server.requests]

    assert verbs == ["GET"]


@pytest.mark.parametrize(
    ("url", "beside"),
    [("", None), (ADDRESS, []), (ADDRESS, [{**READY, "status": {}}]), (ADDRESS, [LEAVING])],
    ids=["it was deleted at its job's end", "no pod", "a pod that is not ready", "a pod that leaves"],
)
async def test_a_tensorboard_of_a_job_that_is_not_ready_is_not_used(url: str, beside: list[Any] | None) -> None:
    """A separate pod may succeed: the TensorBoard of a suspended job waits for a pod of the job."""
    script = (GONE,) if beside is None else (listed(*beside), GONE)
    async with stand_in_api_server(*script) as server, shared_client(server.config()) as client:
        with pytest.raises(InvalidSpec, match="a claim of namespace team"):
            await enter(client, view_of(url=url))

    assert server.requests[-1].split()[1] == "/api/v1/namespaces/team/persistentvolumeclaims/runs"
    assert len(server.requests) == len(script)


def nobodys(**how: Any) -> TensorBoardView:
    """Return a folder whose job is unknown."""
    return TensorBoardView(namespace="team", plan=TensorBoardPlan(claim="runs", path="tb", image="digits:1"), **how)


async def test_a_tensorboard_pod_that_ended_is_reported_with_its_last_lines() -> None:
    """With the remedy that helps here, another image; nothing about the pods that inspect outputs."""
    end = {"exitCode": 1, "reason": "Error", "message": "one\ntwo\nNo module named 'tensorboard'\n"}
    ended = {
        "metadata": {"name": "look", "uid": "p-1"},
        "spec": {"nodeName": "n", "containers": [{"name": "tensorboard"}]},
        "status": {"phase": "Failed", "containerStatuses": [{"name": "tensorboard", "state": {"terminated": end}}]},
    }
    script = ((200, {}), listed(), (200, {}), (200, ended), listed(), (200, {}))
    async with stand_in_api_server(*script) as server, shared_client(server.config()) as client:
        with pytest.raises(ClusterError) as raised:
            await enter(client, nobodys())
        verbs = [line.split()[0] for line in server.requests]

    said = str(raised.value)
    assert "--image, or [ptjob] tensorboard_image" in said
    assert said.splitlines()[1:] == ["one", "two", "No module named 'tensorboard'"]
    assert "probe" not in said
    assert verbs[-1] == "DELETE"


async def test_a_tensorboard_pod_that_was_never_seen_is_reported() -> None:
    """The API server was too slow for the available time."""
    script = ((200, {}), listed(), (200, {}), SILENT)
    async with stand_in_api_server(*script) as server, shared_client(server.config()) as client:
        with pytest.raises(ClusterError, match="does not listen yet"):
            await enter(client, nobodys(timeout=0.1))


async def enter(client: Client, what: TensorBoardView) -> None:
    async with shown(client, what):
        pass


async def test_only_a_port_that_is_taken_is_called_so() -> None:
    """Later errors have nothing to do with the port."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        async with stand_in_api_server(listed(READY)) as server, shared_client(server.config()) as client:
            with pytest.raises(InvalidSpec, match=f"--port: {port} is not allowed; allowed: a port that is free"):
                await enter(client, view_of(port=port))

    async with stand_in_api_server(listed(READY)) as server, shared_client(server.config()) as client:
        with pytest.raises(OSError, match="the caller's own"):
            await fail(client, view_of())


async def fail(client: Client, what: TensorBoardView) -> None:
    async with shown(client, what):
        raise OSError("the caller's own")


class KubeletStandIn:
    """Accepts a connection to a pod's port, and reports that nothing listens there."""

    @asynccontextmanager
    async def socket(self, _path: str, _query: object) -> AsyncIterator[aiohttp.ClientWebSocketResponse]:
        app = web.Application()
        app.router.add_get("/", self._refuse)
        async with (
            TestServer(app) as server,
            aiohttp.ClientSession() as session,
            session.ws_connect(server.make_url("/")) as found,
        ):
            yield found

    async def _refuse(self, request: web.Request) -> web.WebSocketResponse:
        found = web.WebSocketResponse()
        await found.prepare(request)
        await found.send_bytes(b"\x00\x76\x17")
        await found.send_bytes(b"\x01\x76\x17")
        await found.send_bytes(b"\x01connection refused")
        await found.close()
        return found


async def test_a_failed_connection_through_the_tunnel_is_logged_with_its_reason(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A kubelet's message about a pod's port is not lost with the connection; the kubelet is a stand-in."""
    async with tunnel(cast("Client", KubeletStandIn()), "team", "look", port=6006, local_port=0) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        assert await reader.read() == b""
        writer.close()

    assert "team/look: a connection to port 6006 failed: connection refused" in caplog.text


@each_row("rounds", range(4, 9))
async def test_a_connection_that_has_just_come_is_closed_when_the_looking_ends(rounds: int) -> None:
    """Also one that asyncio has only just opened, without any data: its client would wait."""
    async with tunnel(cast("Client", KubeletStandIn()), "team", "look", port=6006, local_port=0) as port:
        browser = socket.create_connection(("127.0.0.1", port), timeout=10)
        for _ in range(rounds):
            await asyncio.sleep(0)

    await asyncio.sleep(0)
    with browser, suppress(ConnectionResetError):
        assert browser.recv(1) == b""
