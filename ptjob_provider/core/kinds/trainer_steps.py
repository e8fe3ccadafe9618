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
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from ptjob_provider.core.code.program import runs_function
from ptjob_provider.core.errors import InvalidSpec
from ptjob_provider.core.identity import CODE_ANNOTATION, STEPS_ANNOTATION, annotation_of
from ptjob_provider.core.in_pod.sync_code import CONTAINER as SYNC_CONTAINER
from ptjob_provider.core.kinds.pod_template import with_metadata
from ptjob_provider.core.versions import read_object

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ptjob_provider.core.identity import Manifest

STEP = "node"
"""Name of the runtime's replicated job that trains, unless there is a launcher, and of its container."""

INDEX = "batch.kubernetes.io/job-completion-index"
PATCHES = "runtimePatches"

_LAUNCHER = "launcher"
_INITIALIZERS = ("dataset-initializer", "model-initializer")
_ANCESTOR = "trainer.kubeflow.org/trainjob-ancestor-step"

_MASTER_PORT = 29500
_LONGEST_POD = 63
_RANDOM = "-xxxxx"


@dataclass(frozen=True)
class Steps:
    """Replicated jobs that a JobSet has for a TrainJob.

    Attributes:
        training: those whose pods have ranks: name → number of pods; rank 0 is the first pod of the first one.
        others: names of those without ranks, such as `dataset-initializer`.
    """

    training: Mapping[str, int]
    others: Sequence[str] = ()

    @property
    def trainer(self) -> str:
        """Return the name of the one that runs the job's program."""
        return next(iter(self.training))

    @property
    def longest_name(self) -> int:
        """Return the maximum length of the job's name: JobSet refuses names that make any pod's name too long."""
        pods = {**dict.fromkeys(self.others, 1), **self.training}
        return _LONGEST_POD - max(len(f"-{step}-0-{number - 1}{_RANDOM}") for step, number in pods.items())


def steps_of(job: Mapping[str, Any]) -> Steps:
    """Return the steps of a job: as its runtime has them, if it was read, else by the job's patches and its status.

    The status has the names of the JobSet's steps, but not whether a launcher counts as a node. It does in Trainer's
    own runtimes, and Trainer makes at least one pod of `node`.
    """
    noted = read_object(annotation_of(job, STEPS_ANNOTATION))
    training, others = noted.get("training"), noted.get("others")
    if isinstance(training, dict) and training and all(isinstance(each, int) for each in training.values()):
        return Steps(training, tuple(map(str, others if isinstance(others, list) else ())))
    spec, status = job["spec"], job.get("status") or {}
    nodes = int((spec.get("trainer") or {}).get("numNodes") or 1)
    names = {each.get("name") for each in status.get("jobsStatus") or ()} | {
        each.get("name") for each in _patched(spec)
    }
    training = {_LAUNCHER: 1, STEP: max(nodes - 1, 1)} if _LAUNCHER in names else {STEP: nodes}
    asked = {f"{part}-initializer" for part in spec.get("initializer") or ()}
    return Steps(training, tuple(name for name in _INITIALIZERS if name in names | asked))


def steps_in(runtime: Mapping[str, Any], nodes: int | None) -> Steps:
    """Return the steps of a runtime's object, with as many pods as Trainer makes for this number of nodes.

    Raises:
        InvalidSpec: no step has the label of the trainer: Trainer would not run the job's program anywhere.
    """
    policy, found = _policy_of(runtime), _steps_by_name(runtime)
    trainer = next((name for name, step in found.items() if _label_of(step) == "trainer"), None)
    if trainer is None:
        allowed = f"allowed: one with a replicated job that has the label {_ANCESTOR}: trainer"
        raise InvalidSpec.of("runtime", runtime["metadata"]["name"], allowed)
    sizes = {name: int(step["template"]["spec"].get("parallelism") or 1) for name, step in found.items()}
    sizes[trainer] = policy.get("numNodes") or 1
    is_mpi, as_node = "mpi" in policy, bool(policy.get("mpi", {}).get("runLauncherAsNode"))
    if nodes is not None and not is_mpi:
        sizes[trainer] = nodes
    elif nodes is not None and STEP in sizes:
        sizes[STEP] = max(nodes - as_node, 1)
    training = dict.fromkeys([trainer, *([STEP] if is_mpi and STEP in sizes else [])])
    return Steps({name: sizes[name] for name in training}, tuple(name for name in sizes if name not in training))


def fitted(job: Manifest, runtime: Mapping[str, Any]) -> Manifest:
    """Return the job as its runtime's object needs it: what it says of its pods, it says of each step that trains.

    With a launcher, mpirun starts the program on the nodes, too, and gives its processes their ranks. A manifest that
    has a patch of the launcher says by itself what each step needs.

    Raises:
        InvalidSpec: the runtime cannot run the job; the text names the field.
    """
    spec, written = job["spec"], steps_of(job).trainer
    trainer = spec.get("trainer") or {}
    steps = steps_in(runtime, trainer.get("numNodes"))
    _check(job, runtime, steps)
    if written == STEP and [*steps.training] != [STEP]:
        old, new = rank_variables(job, STEP), rank_variables(job, steps.trainer)
        given = [each for each in trainer.get("env") or () if each not in old or not _is_mpi(runtime)]
        env = [new[old.index(each)] if each in old else each for each in given]
        patches = [with_replicated_jobs(each, _repeated(each, [*steps.training])) for each in spec.get(PATCHES) or ()]
        job = {**job, "spec": {**spec, PATCHES: patches, "trainer": {**trainer, "env": env}}}
    _check_init_containers(job, runtime)
    if steps == Steps({STEP: trainer.get("numNodes") or 1}):
        return job
    return with_metadata(job, labels={}, annotations={STEPS_ANNOTATION: json.dumps(asdict(steps))})


def _repeated(patch: Mapping[str, Any], steps: Sequence[str]) -> list[Manifest]:
    """Return a patch's changes of replicated jobs, those of `node` once for each of these steps."""
    entries = replicated_jobs(patch)
    own = [{**entry, "name": step} for entry in entries if entry.get("name") == STEP for step in steps]
    return [*own, *(entry for entry in entries if entry.get("name") != STEP)]


def _check(job: Manifest, runtime: Mapping[str, Any], steps: Steps) -> None:
    named, name, policy = job["metadata"]["name"], runtime["metadata"]["name"], _policy_of(runtime)
    trainer = job["spec"].get("trainer") or {}
    if len(named) > steps.longest_name:
        pods = ", ".join([*steps.training, *steps.others])
        raise InvalidSpec.of("name", named, f"allowed: at most {steps.longest_name} characters, for pods of {pods}")
    if trainer.get("numProcPerNode") is not None and not policy.keys() & {"torch", "mpi"}:
        raise InvalidSpec.at("nproc_per_node", f"the runtime {name} starts one process on each node")
    command, nodes = trainer.get("command") or (), trainer.get("numNodes") or 1
    if nodes > 1 and "torch" not in policy and runs_function(command) and "torchrun" in command:
        why = "allowed for a function on several nodes: one with mlPolicy.torch, whose variables torchrun needs"
        raise InvalidSpec.of("runtime", name, why)
    if _is_mpi(runtime) and annotation_of(job, CODE_ANNOTATION):
        why = f"the runtime {name} would have a folder on its launcher alone; have the code in the image or on a claim"
        raise InvalidSpec.at("code", why)


def _check_init_containers(job: Manifest, runtime: Mapping[str, Any]) -> None:
    found = _steps_by_name(runtime)
    for entry in _patched(job["spec"]):
        step = str(entry.get("name"))
        for missing in sorted(_inits(entry) - _inits(found.get(step, entry))):
            field = "code" if missing == SYNC_CONTAINER else "init_containers"
            where = f"the runtime {runtime['metadata']['name']} has no init container {missing} in {step}"
            raise InvalidSpec.at(field, f"{where}, and a job can add none")


def given_to_launcher(job: Mapping[str, Any], runtime: Mapping[str, Any]) -> list[str]:
    """Return the fields of the trainer that Trainer gives to the launcher, but not to its nodes, where ranks run."""
    steps, trainer = _steps_by_name(runtime), job["spec"].get("trainer") or {}
    if not _is_mpi(runtime) or STEP not in steps or _label_of(steps[STEP]) == "trainer":
        return []
    images = {each.get("image") for each in pod_template_of(steps[STEP])["spec"]["containers"]}
    is_other = trainer.get("image") is not None and trainer["image"] not in images
    as_node = _policy_of(runtime)["mpi"].get("runLauncherAsNode")
    has_resources = trainer.get("resourcesPerNode") is not None and not as_node
    return [*(["image"] if is_other else []), *(["resourcesPerNode"] if has_resources else [])]


def rank_variables(job: Mapping[str, Any], step: str) -> list[Manifest]:
    """Return PyTorch's `env://` variables for the pods of a step; Trainer sets variables for torchrun only."""
    name, trainer = job["metadata"]["name"], job["spec"].get("trainer") or {}
    world = int(trainer.get("numNodes") or 1) * int(trainer.get("numProcPerNode") or 1)
    return [
        {"name": "MASTER_ADDR", "value": f"{name}-{step}-0-0.{name}"},
        {"name": "MASTER_PORT", "value": str(_MASTER_PORT)},
        {"name": "WORLD_SIZE", "value": str(world)},
        {"name": "RANK", "valueFrom": {"fieldRef": {"fieldPath": f"metadata.annotations['{INDEX}']"}}},
    ]


# --- parts of runtimes and patches


def _policy_of(runtime: Mapping[str, Any]) -> Mapping[str, Any]:
    return {name: part for name, part in (runtime["spec"].get("mlPolicy") or {}).items() if part is not None}


def _is_mpi(runtime: Mapping[str, Any]) -> bool:
    return "mpi" in _policy_of(runtime)


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
