"""Tests of fitting a TrainJob to its runtime: the steps that get the pods' settings, and what is refused by name."""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any

import pytest

from api_server_stand_in import stand_in_api_server
from core.test_trainjob_rendering import patch, step
from pods import NOW
from ptjob_provider.core import kinds
from ptjob_provider.core.code.program import command
from ptjob_provider.core.errors import InvalidSpec, KindNotServed
from ptjob_provider.core.history import PodHistory
from ptjob_provider.core.identity import CODE_ANNOTATION, STEPS_ANNOTATION
from ptjob_provider.core.kinds import TRAINJOB
from ptjob_provider.core.kinds.trainer_steps import (
    fitted,
    given_to_launcher,
    pod_template_of,
    replicated_jobs,
    steps_in,
    steps_of,
)
from ptjob_provider.core.kubernetes import KubernetesBackend
from ptjob_provider.core.kubernetes.client.http import shared_client
from ptjob_provider.core.kubernetes.discovery import fitted_to_runtime
from ptjob_provider.core.spec import TrainingJob
from recorded import OWNER
from rows import each_row
from trainer_runtimes import INITIALIZERS, MPI, SHIPPED, runtime, shipped

if TYPE_CHECKING:
    from ptjob_provider.core.identity import Manifest

LAUNCHER = ("node", "launcher")
TYPED: dict[str, Any] = {"name": "digits", "kind": "TrainJob", "namespace": "team", "image": "i", "workers": 3}


def rendered(**fields: Any) -> Manifest:
    return TRAINJOB.render(TrainingJob.parse(**{**TYPED, **fields}), owner=OWNER, attempt=1).manifest


def pods_of(job: Manifest) -> dict[str, Manifest]:
    """Return the patched pod template of each step; the server takes one in a patch."""
    entries = [entry for patch in job["spec"]["runtimePatches"] for entry in replicated_jobs(patch)]
    pods = {entry["name"]: pod_template_of(entry) for entry in entries}
    assert len(pods) == len(entries)
    return pods


def started(job: Manifest, *steps: str) -> Manifest:
    """Return the job when its JobSet exists, whose steps Trainer copies to the job's status."""
    return {**job, "status": {"jobsStatus": [{"name": name} for name in steps]}}


def names_of(job: Manifest) -> list[str]:
    begin = f"{job['metadata']['name']}-"
    return [each.name.removeprefix(begin) for each in kinds.replicas(job)]


def test_a_job_of_three_nodes_has_these_replicas_with_each_runtime_of_trainer() -> None:
    """All of the table in `docs/reference/kinds.md`."""
    jobs = {name: started(fitted(rendered(runtime=name), shipped(name)), *SHIPPED[name][1]) for name in SHIPPED}

    nodes, launcher = ["node-0-0", "node-0-1", "node-0-2"], ["launcher-0-0", "node-0-0", "node-0-1"]
    assert {name: (names_of(job), tuple(kinds.unranked(job))) for name, job in jobs.items()} == {
        "torch-distributed": (nodes, ()),
        "deepspeed-distributed": (launcher, ()),
        "mlx-distributed": (launcher, ()),
        "jax-distributed": (nodes, ()),
        "xgboost-distributed": (nodes, ()),
        "torchtune-llama3.2-1b": (nodes, INITIALIZERS),
        "torchtune-llama3.2-3b": (nodes, INITIALIZERS),
        "torchtune-qwen2.5-1.5b": (nodes, INITIALIZERS),
        "torch-distributed-with-cache": (nodes, INITIALIZERS[:1]),
    }


@each_row(
    ("found", "nodes", "training"),
    [
        (runtime(*LAUNCHER, **MPI), 3, {"launcher": 1, "node": 2}),
        (runtime(*LAUNCHER, **MPI), 1, {"launcher": 1, "node": 1}),
        (runtime(*LAUNCHER, mpi={"runLauncherAsNode": False}), 3, {"launcher": 1, "node": 3}),
        (runtime(*LAUNCHER, mpi={}), None, {"launcher": 1, "node": 1}),
        (runtime(*LAUNCHER), 3, {"launcher": 3}),
        (runtime(*LAUNCHER, numNodes=4), None, {"launcher": 4}),
        (runtime("trainer", trains="trainer", **MPI), 1, {"trainer": 1}),  # such as mpirun in a single pod
        (runtime("node", **MPI), 3, {"node": 2}),
    ],
)
def test_the_number_of_pods_of_each_step_is_trainers(
    found: Manifest, nodes: int | None, training: dict[str, int]
) -> None:
    """A launcher that counts as a node takes one of them; Trainer makes at least one pod of `node`."""
    assert steps_in(found, nodes) == training


def test_a_job_for_the_default_runtime_is_sent_as_it_was_rendered() -> None:
    job = rendered()

    assert fitted(job, shipped("torch-distributed")) == job


def test_the_nodes_and_the_launcher_get_what_the_job_says_of_its_pods() -> None:
    """Programs of mpirun run on all of them: claims, labels and placement are needed everywhere."""
    job = fitted(
        rendered(model="pvc://out/m.pt", node_selector={"pool": "gpu"}, runtime="deepspeed-distributed"),
        shipped("deepspeed-distributed"),
    )

    pods = pods_of(job)
    assert pods["launcher"] == pods.get("node")
    assert pods["launcher"]["spec"]["nodeSelector"] == {"pool": "gpu"}
    assert pods["launcher"]["spec"]["volumes"][-1]["persistentVolumeClaim"]["claimName"] == "out"
    [container] = kinds.kind_of(job).rank0_template(job)["spec"]["containers"]
    assert container["volumeMounts"][-1]["mountPath"] == "/mnt/ptjob/out"
    assert json.loads(job["metadata"]["annotations"][STEPS_ANNOTATION]) == {"launcher": 1, "node": 2}


def test_mpirun_gives_the_ranks_of_its_processes() -> None:
    """Variables of `env://` on the launcher would make each of its processes rank 0."""
    env = {"SEED": "7"}

    job = fitted(rendered(env=env), shipped("deepspeed-distributed"))

    assert [each["name"] for each in job["spec"]["trainer"]["env"]] == ["PTJOB_ATTEMPT", "SEED"]
    kept = fitted(rendered(env=env), shipped("jax-distributed"))
    assert "RANK" in {each["name"] for each in kept["spec"]["trainer"]["env"]}


def test_mpirun_runs_a_manifest_whose_number_of_processes_is_a_word() -> None:
    """Trainer counts them by itself then."""
    spec = {"runtimeRef": {"name": "deepspeed-distributed"}, "trainer": {"numProcPerNode": "auto"}}
    manifest = {"apiVersion": TRAINJOB.API_VERSION, "kind": "TrainJob", "spec": spec}

    job = fitted(rendered(manifest=manifest), shipped("deepspeed-distributed"))

    assert job["spec"]["trainer"]["numProcPerNode"] == "auto"
    assert steps_of(job) == {"launcher": 1, "node": 2}


def test_a_step_of_another_name_that_trains_is_where_the_job_is() -> None:
    job = fitted(rendered(workers=1), runtime("main", trains="main", torch={}))

    assert (list(pods_of(job)), names_of(job)) == (["main"], ["main-0-0"])


def test_a_manifest_that_patches_the_launcher_is_sent_as_it_was_written() -> None:
    """Then it says of each step what it needs; ours is added to the launcher alone."""
    spec = {
        "runtimeRef": {"name": "deepspeed-distributed"},
        "runtimePatches": [patch("a.b/c", *(step(name, nodeSelector={"pool": name}) for name in LAUNCHER))],
    }
    manifest = {"apiVersion": TRAINJOB.API_VERSION, "kind": "TrainJob", "spec": spec}

    job = fitted(rendered(manifest=manifest, model="pvc://out/m.pt"), shipped("deepspeed-distributed"))

    pods = pods_of(job)
    assert pods["node"] == {"spec": {"nodeSelector": {"pool": "node"}}}
    assert pods["launcher"]["spec"]["nodeSelector"] == {"pool": "launcher"}
    assert pods["launcher"]["spec"]["volumes"]


def test_an_older_trainer_gets_the_overrides_of_both_steps() -> None:
    job = fitted(rendered(node_selector={"pool": "gpu"}), shipped("mlx-distributed"))

    older = TRAINJOB.converted_for(job, frozenset({"podSpecOverrides"}))

    targets = [each["targetJobs"] for each in older["spec"]["podSpecOverrides"]]
    assert targets == [[{"name": "launcher"}], [{"name": "node"}]]


FUNCTION = command("print()", field="f", torchrun=True)
CODE = {"git": "https://host/team/repository.git", "revision": "main"}


@each_row(
    ("fields", "found", "message"),
    [
        ({"name": "d" * 60}, shipped("deepspeed-distributed"), r"name: .* allowed: at most 44 characters"),
        ({"name": "d" * 60}, shipped("torchtune-llama3.2-1b"), r"name: .* allowed: at most 33 characters"),
        ({"nproc_per_node": 2}, shipped("jax-distributed"), "nproc_per_node: the runtime .* starts one process"),
        ({"nproc_per_node": 2}, shipped("xgboost-distributed"), "nproc_per_node: the runtime .* starts one process"),
        ({"command": FUNCTION}, shipped("jax-distributed"), r"runtime: 'jax-distributed'.* function on several nodes"),
        ({"command": FUNCTION}, shipped("deepspeed-distributed"), "runtime: 'deepspeed-.* function on several nodes"),
        ({"annotations": {CODE_ANNOTATION: "{}"}}, shipped("mlx-distributed"), "code: .* folder on its launcher alone"),
        ({"code": CODE}, runtime("node", torch={}), "code: the runtime own has no init container init-code"),
        (
            {},
            runtime("main", trains="nothing", torch={}),
            "runtime: 'own' .* allowed: one with a replicated job that has",
        ),
    ],
)
def test_a_job_that_its_runtime_cannot_run_is_refused_by_its_field(
    fields: dict[str, Any], found: Manifest, message: str
) -> None:
    with pytest.raises(InvalidSpec, match=message):
        fitted(rendered(runtime="own", **fields), found)


@each_row(
    ("fields", "found"),
    [
        ({"command": FUNCTION, "workers": 1}, shipped("jax-distributed")),
        ({"command": FUNCTION[2:]}, shipped("jax-distributed")),
        ({"command": FUNCTION}, shipped("torch-distributed-with-cache")),
        ({"command": ["torchrun", "train.py"]}, shipped("jax-distributed")),
        ({"nproc_per_node": 2}, shipped("deepspeed-distributed")),
        ({"annotations": {CODE_ANNOTATION: "{}"}}, shipped("xgboost-distributed")),
        ({"code": CODE}, runtime("node", inits=("init-code",), torch={})),
    ],
)
def test_a_job_that_its_runtime_can_run_is_not_refused(fields: dict[str, Any], found: Manifest) -> None:
    """A command of the user's own is not judged: torchrun may be told where the nodes are."""
    assert fitted(rendered(runtime="own", **fields), found)


def test_an_init_container_is_needed_on_every_step_that_trains() -> None:
    """The program of mpirun runs on the nodes, too."""
    job = rendered(runtime="own", code=CODE)
    found = runtime(*LAUNCHER, inits=("init-code",), **MPI)
    assert pods_of(fitted(job, found))["node"]["spec"]["initContainers"]

    del found["spec"]["template"]["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]["initContainers"]
    with pytest.raises(InvalidSpec, match="code: the runtime own has no init container init-code in node"):
        fitted(job, found)


@each_row(
    ("policy", "fields", "named"),
    [
        (MPI, {}, []),
        (MPI, {"image": "other"}, ["image"]),
        ({"mpi": {"runLauncherAsNode": False}}, {"cpu": "2"}, ["resourcesPerNode"]),
        ({"mpi": {"runLauncherAsNode": True}}, {"cpu": "2"}, []),
    ],
)
def test_fields_that_trainer_gives_to_the_launcher_alone_are_named(
    policy: dict[str, Any], fields: dict[str, Any], named: list[str]
) -> None:
    assert given_to_launcher(rendered(**fields), runtime(*LAUNCHER, **policy)) == named
    assert given_to_launcher(rendered(**fields), shipped("jax-distributed")) == []


def test_a_launcher_whose_runtime_could_not_be_read_is_said() -> None:
    """Only of a job of ours: nothing was changed in another one."""
    unread, read = rendered(), fitted(rendered(), shipped("mlx-distributed"))
    foreign = {**unread, "metadata": {"name": "digits"}}

    notices = [
        kinds.observe(PodHistory(), started(job, *LAUNCHER), [], [], now=NOW).notices for job in (unread, read, foreign)
    ]

    assert [len(each) for each in notices] == [1, 0, 0]
    assert "the runtime could not be read" in notices[0][0]


@each_row("text", ["", "{}", '{"node": "9"}', "[]", "9"])
def test_steps_that_somebody_has_edited_are_read_from_the_status(text: str) -> None:
    job = rendered()
    job["metadata"]["annotations"][STEPS_ANNOTATION] = text

    assert steps_of(job) == {"node": 3}


# --- the check that the runtime exists; a stand-in sends bad responses


NOT_SERVED = (404, "404 page not found\n")
"""An API server's response for a group that is not installed: no Status."""


def listed(*items: Manifest) -> tuple[int, dict[str, Any]]:
    """Return the API server's response with these runtimes."""
    return (200, {"kind": "L", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": [*items]})


DOCUMENTS: tuple[int, dict[str, Any]] = (200, {"paths": {}})


async def test_a_cluster_without_trainer_says_what_to_install() -> None:
    """The create is refused like one of a kind that is not served, so that the next kind is tried."""
    async with stand_in_api_server(NOT_SERVED, NOT_SERVED, DOCUMENTS) as server:
        with pytest.raises(KindNotServed, match="install Kubeflow Trainer"):
            await KubernetesBackend(server.config()).submit(rendered())

    assert [line.split()[0] for line in server.requests] == ["GET", "POST", "GET"]


@pytest.mark.parametrize("answer", [403, 503, NOT_SERVED])
async def test_a_runtime_that_cannot_be_read_is_left_to_the_create(
    answer: object, caplog: pytest.LogCaptureFixture
) -> None:
    """The job is not refused, and no log begins with a line about a right that is missing as a rule."""
    caplog.set_level(logging.DEBUG, logger="ptjob_provider")

    async with stand_in_api_server(answer) as server, shared_client(server.config(attempts=1)) as client:
        await fitted_to_runtime(client, rendered())

    assert [each.levelno for each in caplog.records if "cannot check for" in each.message] == [logging.DEBUG]


@pytest.mark.parametrize("answer", [403, 503, NOT_SERVED])
async def test_a_runtime_that_is_missing_is_said_although_others_cannot_be_named(answer: object) -> None:
    async with stand_in_api_server(listed(), answer) as server, shared_client(server.config(attempts=1)) as client:
        with pytest.raises(InvalidSpec, match=r"runtime: 'own'.*there is none of that kind; read trainingruntimes"):
            await fitted_to_runtime(client, rendered(runtime="own"))


async def test_a_job_is_fitted_to_its_runtime_before_it_is_created(caplog: pytest.LogCaptureFixture) -> None:
    """At each submission: the runtime may have changed. What reaches the launcher alone is logged."""
    job = rendered(runtime="deepspeed-distributed", image="mine")
    created = (201, {**job, "metadata": {**job["metadata"], "uid": "u"}})

    async with stand_in_api_server(listed(shipped("deepspeed-distributed")), created) as server:
        await KubernetesBackend(server.config()).submit(job)

    sent = next(body for body in server.bodies if body)
    assert json.loads(sent["metadata"]["annotations"][STEPS_ANNOTATION]) == {"launcher": 1, "node": 2}
    assert ": Trainer gives image to the launcher alone" in caplog.text
