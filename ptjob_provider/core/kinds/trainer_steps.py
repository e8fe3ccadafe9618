"""Steps of a TrainJob: the replicated jobs of its runtime, which of them train, and how a job is fitted to them.

    policy of the runtime   steps that train        ranks
    ---------------------   ---------------------   ----------------------------------------------------
    torch, jax, xgboost     the labelled one        of its pods: `node`
    mpi                     the labelled one,       rank 0 is the labelled one's pod, mostly `launcher`;
                            and `node`              sshd runs in the pods of `node`

The label is `trainer.kubeflow.org/trainjob-ancestor-step: trainer`. It is on the runtime's replicated job only: neither
the job nor its pods have it. So a job that was fitted to its runtime has its steps in an annotation.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from ptjob_provider.core.code.program import runs_function
from ptjob_provider.core.errors import InvalidSpec
from ptjob_provider.core.identity import CODE_ANNOTATION, STEPS_ANNOTATION, annotation_of
from ptjob_provider.core.in_pod.sync_code import CONTAINER as SYNC_CONTAINER
from ptjob_provider.core.kinds.pod_template import with_metadata
from ptjob_provider.core.versions import read_object

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ptjob_provider.core.identity import Manifest

STEP = "node"
"""Name of the runtime's replicated job that trains, unless there is a launcher, and of its container."""

INDEX = "batch.kubernetes.io/job-completion-index"
PATCHES = "runtimePatches"

OF_CLUSTER, OF_NAMESPACE = "ClusterTrainingRuntime", "TrainingRuntime"
RUNTIMES = {OF_CLUSTER: "", OF_NAMESPACE: f"{OF_NAMESPACE}/"}
"""Kinds of runtimes, with the prefix of a runtime's name as users write it."""

_GROUP = "trainer.kubeflow.org"
_LAUNCHER = "launcher"
_ANCESTOR = f"{_GROUP}/trainjob-ancestor-step"

_MASTER_PORT = 29500
_LONGEST_POD = 63
_RANDOM = "-xxxxx"


def runtime_of(job: Mapping[str, Any]) -> str:
    """Return the name of a job's runtime as users write it; "" if its group or kind is unknown."""
    ref = job["spec"]["runtimeRef"]
    kind = ref.get("kind") or OF_CLUSTER
    is_known = (ref.get("apiGroup") or _GROUP) == _GROUP and kind in RUNTIMES
    return f"{RUNTIMES[kind]}{ref.get('name')}" if is_known else ""


def steps_of(job: Mapping[str, Any]) -> Mapping[str, int]:
    """Return the steps of a job that train: name → number of pods. Rank 0 is the first pod of the first one.

    They are as in the runtime, if it was read, else by the names of the job's patches and of its JobSet's steps, which
    are in its status. Whether a launcher counts as a node is not there. It does in Trainer's own runtimes.
    """
    noted = read_object(annotation_of(job, STEPS_ANNOTATION))
    if noted and all(isinstance(number, int) for number in noted.values()):
        return noted
    nodes = int((job["spec"].get("trainer") or {}).get("numNodes") or 1)
    named = {entry.get("name") for entry in _patched(job["spec"])} | _in_status(job)
    return {_LAUNCHER: 1, STEP: max(nodes - 1, 1)} if _LAUNCHER in named else {STEP: nodes}


def trainer_step(job: Mapping[str, Any]) -> str:
    """Return the name of the step that runs the job's program."""
    return next(iter(steps_of(job)))


def others_of(job: Mapping[str, Any]) -> list[str]:
    """Return the names of the job's other steps, such as `dataset-initializer`."""
    return sorted(_in_status(job) - {*steps_of(job)})


def longest_name(steps: Mapping[str, int]) -> int:
    """Return the maximum length of a job's name: JobSet refuses names that make any step's pod name too long."""
    return _LONGEST_POD - max(len(f"-{step}-0-{number - 1}{_RANDOM}") for step, number in steps.items())


def steps_in(runtime: Mapping[str, Any], nodes: int | None) -> dict[str, int]:
    """Return the steps of a runtime's object that train, with as many pods as Trainer makes for this number of nodes.

    Raises:
        InvalidSpec: no step has the label of the trainer: Trainer would not run the job's program anywhere.
    """
    policy, found = _policy_of(runtime), _steps_by_name(runtime)
    trainer = next((name for name, step in found.items() if _label_of(step) == "trainer"), None)
    if trainer is None:
        allowed = f"allowed: one with a replicated job that has the label {_ANCESTOR}: trainer"
        raise InvalidSpec.of("runtime", runtime["metadata"]["name"], allowed)
    if "mpi" not in policy:
        return {trainer: nodes or policy.get("numNodes") or 1}
    steps = {trainer: int(policy.get("numNodes") or 1)}
    if STEP in found:
        steps[STEP] = max((nodes or 1) - bool(policy["mpi"].get("runLauncherAsNode")), 1)
    return steps


def fitted(job: Manifest, runtime: Mapping[str, Any]) -> Manifest:
    """Return the job as its runtime's object needs it: what it says of its pods, it says of each step that trains.

    With a launcher, mpirun starts the program on the nodes, too, and gives its processes their ranks. A manifest that
    has a patch of the launcher says by itself what each step needs.

    Raises:
        InvalidSpec: the runtime cannot run the job; the text names the field.
    """
    spec, trainer = job["spec"], job["spec"].get("trainer") or {}
    steps = steps_in(runtime, trainer.get("numNodes"))
    _check(job, runtime, steps)
    if trainer_step(job) == STEP and [*steps] != [STEP]:
        ours = rank_variables(job, STEP)
        env = [each for each in trainer.get("env") or () if each not in ours]
        patches = [with_replicated_jobs(each, _repeated(each, steps)) for each in spec.get(PATCHES) or ()]
        job = {**job, "spec": {**spec, PATCHES: patches, "trainer": {**trainer, "env": env}}}
    _check_init_containers(job, runtime)
    noted = {} if steps == {STEP: trainer.get("numNodes") or 1} else {STEPS_ANNOTATION: json.dumps(steps)}
    return with_metadata(job, labels={}, annotations=noted)


def _repeated(patch: Mapping[str, Any], steps: Iterable[str]) -> list[Manifest]:
    """Return a patch's changes of replicated jobs, those of `node` once for each of these steps."""
    entries = replicated_jobs(patch)
    own = [{**entry, "name": step} for entry in entries if entry.get("name") == STEP for step in steps]
    return [*own, *(entry for entry in entries if entry.get("name") != STEP)]


def _check(job: Manifest, runtime: Mapping[str, Any], steps: Mapping[str, int]) -> None:
    name, policy, trainer = runtime["metadata"]["name"], _policy_of(runtime), job["spec"].get("trainer") or {}
    longest = longest_name({**dict.fromkeys(_steps_by_name(runtime), 1), **steps})
    if len(job["metadata"]["name"]) > longest:
        allowed = f"allowed: at most {longest} characters, for the pods of {', '.join(_steps_by_name(runtime))}"
        raise InvalidSpec.of("name", job["metadata"]["name"], allowed)
    if trainer.get("numProcPerNode") is not None and not policy.keys() & {"torch", "mpi"}:
        raise InvalidSpec.at("nproc_per_node", f"the runtime {name} starts one process on each node")
    command, nodes = trainer.get("command") or (), trainer.get("numNodes") or 1
    if nodes > 1 and "torch" not in policy and runs_function(command) and "torchrun" in command:
        allowed = "allowed for a function on several nodes: one with mlPolicy.torch, whose variables torchrun needs"
        raise InvalidSpec.of("runtime", name, allowed)
    if "mpi" in policy and annotation_of(job, CODE_ANNOTATION):
        why = f"the runtime {name} would have a folder on its launcher alone; have the code in the image or on a claim"
        raise InvalidSpec.at("code", why)


def _check_init_containers(job: Manifest, runtime: Mapping[str, Any]) -> None:
    found = _steps_by_name(runtime)
    for entry in _patched(job["spec"]):
        for missing in sorted(_inits(entry) - _inits(found.get(entry["name"], entry))):
            field = "code" if missing == SYNC_CONTAINER else "init_containers"
            where = f"the runtime {runtime_of(job)} has no init container {missing} in {entry['name']}"
            raise InvalidSpec.at(field, f"{where}, and a job can add none")


def given_to_launcher(job: Mapping[str, Any], runtime: Mapping[str, Any]) -> list[str]:
    """Return the fields of the trainer that Trainer gives to the launcher, but not to its nodes, where ranks run."""
    trainer, mpi = job["spec"].get("trainer") or {}, _policy_of(runtime).get("mpi")
    node = _steps_by_name(runtime).get(STEP)
    if mpi is None or node is None or _label_of(node) == "trainer":
        return []
    images = {each.get("image") for each in pod_template_of(node)["spec"]["containers"]}
    alone = {"image": trainer.get("image") not in images, "resourcesPerNode": not mpi.get("runLauncherAsNode")}
    return [name for name, is_alone in alone.items() if is_alone and trainer.get(name) is not None]


def rank_variables(job: Mapping[str, Any], step: str) -> list[Manifest]:
    """Return PyTorch's `env://` variables for the pods of a step; Trainer sets variables for torchrun only."""
    name, trainer = job["metadata"]["name"], job["spec"].get("trainer") or {}
    processes = trainer.get("numProcPerNode")  # a word in some manifests
    world = int(trainer.get("numNodes") or 1) * (processes if isinstance(processes, int) else 1)
    return [
        {"name": "MASTER_ADDR", "value": f"{name}-{step}-0-0.{name}"},
        {"name": "MASTER_PORT", "value": str(_MASTER_PORT)},
        {"name": "WORLD_SIZE", "value": str(world)},
        {"name": "RANK", "valueFrom": {"fieldRef": {"fieldPath": f"metadata.annotations['{INDEX}']"}}},
    ]


# --- parts of runtimes and patches


def _in_status(job: Mapping[str, Any]) -> set[str]:
    return {str(each.get("name")) for each in (job.get("status") or {}).get("jobsStatus") or ()}


def _policy_of(runtime: Mapping[str, Any]) -> Mapping[str, Any]:
    return runtime["spec"].get("mlPolicy") or {}


def _steps_by_name(runtime: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    return {str(each["name"]): each for each in runtime["spec"]["template"]["spec"].get("replicatedJobs") or ()}


def _label_of(step: Mapping[str, Any]) -> str:
    return str(((step["template"].get("metadata") or {}).get("labels") or {}).get(_ANCESTOR) or "")


def _inits(entry: Mapping[str, Any]) -> set[str]:
    return {str(each.get("name")) for each in (pod_template_of(entry).get("spec") or {}).get("initContainers") or ()}


def _patched(spec: Mapping[str, Any]) -> list[Manifest]:
    return [entry for patch in spec.get(PATCHES) or () for entry in replicated_jobs(patch)]


def replicated_jobs(patch: Mapping[str, Any]) -> list[Manifest]:
    """Return a patch's changes of the runtime's replicated jobs."""
    part: Any = patch
    for name in ("trainingRuntimeSpec", "template", "spec"):
        part = part.get(name) or {}
    return list(part.get("replicatedJobs") or ())


def pod_template_of(entry: Mapping[str, Any]) -> Manifest:
    """Return the pod template in a replicated job's patch."""
    job = (entry.get("template") or {}).get("spec") or {}
    return dict(job.get("template") or {})


def patch_of(template: Mapping[str, Any], *, step: str = STEP) -> Manifest:
    """Return the patch with these changes of a replicated job's pods."""
    return {"name": step, "template": {"spec": {"template": dict(template)}}}


def with_replicated_jobs(patch: Mapping[str, Any], entries: list[Manifest]) -> Manifest:
    """Return the patch with these changes of the runtime's replicated jobs."""
    runtime = patch.get("trainingRuntimeSpec") or {}
    template = runtime.get("template") or {}
    inner = {**(template.get("spec") or {}), "replicatedJobs": entries}
    return {**patch, "trainingRuntimeSpec": {**runtime, "template": {**template, "spec": inner}}}
