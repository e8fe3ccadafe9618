"""Admit a job on this machine: refuse what it cannot do, announce what does not apply, find replacements of its images.

A field that changes what runs is honoured or refused. Every other field is announced by its name, known here or not, so
that none is silently ignored. A null, an empty list and an empty mapping count as unset.
"""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ptjob_provider.core.errors import UnsupportedByBackend
from ptjob_provider.core.identity import TENSORBOARD_ANNOTATION
from ptjob_provider.core.in_pod import sync_code, unpack_code
from ptjob_provider.core.kinds import PYTORCHJOB
from ptjob_provider.core.kinds.pod_template import is_gpu
from ptjob_provider.core.kinds.pytorchjob import ROLES_PATH
from ptjob_provider.core.local import launch
from ptjob_provider.core.local.config import NO_IMAGE, Setup, gpu_ids
from ptjob_provider.core.local.image import ImageFacts, command_line, read_image
from ptjob_provider.core.local.launch import PodPlan
from ptjob_provider.core.local.status import instant

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ptjob_provider.core.identity import Manifest
    from ptjob_provider.core.local.config import LocalConfig

_SPEC = {"pytorchReplicaSpecs", "nprocPerNode", "runPolicy"}
_RUN_POLICY = {"activeDeadlineSeconds", "ttlSecondsAfterFinished", "backoffLimit", "cleanPodPolicy"}
_POD = {"containers", "initContainers", "volumes", "terminationGracePeriodSeconds", "restartPolicy"}
_CONTAINER = {
    *("name", "image", "command", "args", "workingDir", "env", "envFrom", "volumeMounts", "resources", "ports"),
    "terminationMessagePolicy",  # a failed container without a message has the end of its log, whatever the policy
}
_SOURCES = {"persistentVolumeClaim", "emptyDir", "configMap", "secret"}
_CODE_CONTAINERS = (sync_code.CONTAINER, unpack_code.CONTAINER)
"""Containers that fetch the job's code; their settings for clusters are not announced."""

_SYNC = ("python3", "-I", sync_code.__file__)
"""Entrypoint that replaces that of every code-sync image; all of them take the same configuration."""


def admit(job: Manifest, config: LocalConfig) -> tuple[Setup, list[Manifest]]:
    """Return the supervisor's setup, and Events that announce the fields that do not apply on this machine.

    Raises:
        InvalidSpec: a name, a path or a reference is invalid, or a path leaves its volume.
        UnsupportedByBackend: this machine cannot do what a field asks for, or offers too few devices.
    """
    for path, why in _refused(job):
        raise UnsupportedByBackend.of(path, why)
    notices = [*_announced(job), *_device_notices(job, config)]
    images, image_notices = _images(job, config)
    setup = Setup(
        claims=str(config.claims_of(job["metadata"]["namespace"])),
        devices="" if config.gpus == "ignore" else str(config.root.absolute() / "gpus.lock"),
        environment=config.environment,
        python=config.interpreter,
        images=images,
        stores={"secrets": config.secrets, "config_maps": config.config_maps},
    )
    _check_launches(job, setup, config)
    return setup, [_event(job, number, text) for number, text in enumerate([*notices, *image_notices])]


def _refused(job: Manifest) -> Iterator[tuple[str, str]]:
    """Yield path and reason of each field without which the job would be another one."""
    spec, run_policy = job["spec"], job["spec"].get("runPolicy") or {}
    if run_policy.get("suspend"):
        yield "spec.runPolicy.suspend", NO_SUSPEND
    if spec.get("elasticPolicy") is not None:
        yield "spec.elasticPolicy", "elastic jobs need a cluster; on this machine give a fixed number of workers"
    yield from _refused_of_pods(job)


def _refused_of_pods(job: Manifest) -> Iterator[tuple[str, str]]:
    for path, pod in _pods(job):
        for number, volume in enumerate(pod.get("volumes") or ()):
            for source in sorted(_set(volume) - _SOURCES - {"name"}):
                yield f"{path}.volumes[{number}].{source}", f"allowed on this machine: {', '.join(sorted(_SOURCES))}"
    for where, container in _containers(job):
        if container.get("restartPolicy"):
            yield f"{where}.restartPolicy", "an init container that runs on needs a cluster; list it in containers"
        if any(mount.get("subPathExpr") for mount in container.get("volumeMounts") or ()):
            yield f"{where}.volumeMounts[].subPathExpr", "give a subPath on this machine"


NO_SUSPEND = "jobs cannot be suspended on this machine; delete the job and submit it again: it resumes its checkpoint"


def _announced(job: Manifest) -> Iterator[str]:
    """Yield a sentence about the policies of restarting and cleaning up, and one about all other fields."""
    run_policy, replicas = job["spec"].get("runPolicy") or {}, job["spec"]["pytorchReplicaSpecs"].values()
    policies = {
        "restartPolicy": any(each.get("restartPolicy") != "Never" for each in replicas),
        "backoffLimit": run_policy.get("backoffLimit") is not None,
        "cleanPodPolicy": run_policy.get("cleanPodPolicy") not in (None, "Running"),
    }
    if names := [name for name, is_other in policies.items() if is_other]:
        what = "nothing is restarted, the job ends with its first failure, and then nothing of it runs on"
        yield f"{', '.join(names)}: not applied on this machine: {what}"
    if others := sorted({*_others(job)}):
        yield f"not applied on this machine: {', '.join(others)}"


def _others(job: Manifest) -> Iterator[str]:
    meta = job["metadata"]
    yield from (label for label in meta.get("labels") or () if label.startswith("kueue.x-k8s.io/"))
    if TENSORBOARD_ANNOTATION in (meta.get("annotations") or {}):
        yield "tensorboard (`ptjob tensorboard` says how to show the curves)"
    yield from _set(job["spec"]) - _SPEC
    yield from _set(job["spec"].get("runPolicy") or {}) - _RUN_POLICY
    for path, pod in _pods(job):
        yield from _set(pod) - _POD
        for volume in pod.get("volumes") or ():
            sources = [volume.get(name) or {} for name in _SOURCES]
            names = {name for each in sources for name in _set(each)}
            yield from (f"{name} of a volume" for name in names & {"sizeLimit", "defaultMode", "readOnly"})
        for _, container in _containers_of(path, pod):
            if container["name"] not in _CODE_CONTAINERS:
                yield from _set(container) - _CONTAINER
                limits = (container.get("resources") or {}).get("limits") or {}
                yield from (name for name, amount in limits.items() if not _is_counted(name, amount))
                yield from (name for each in container.get("volumeMounts") or () for name in _set(each) & {"readOnly"})


def _set(fields: Mapping[str, Any]) -> set[str]:
    return {name for name, value in fields.items() if value or (value == 0 and value is not False)}


def _is_counted(resource: str, amount: Any) -> bool:
    """Return whether a limit is a number of GPUs; no other limit applies here."""
    return is_gpu(resource) and str(amount).isdecimal()


def _device_notices(job: Manifest, config: LocalConfig) -> Iterator[str]:
    option, total = config.title("local_gpus"), sum(replica.gpus for replica in PYTORCHJOB.replicas(job))
    if config.gpus == "ignore":
        if total:
            yield f"GPUs ({total} in all): ignored ({option} = ignore), the job runs on the CPU"
    elif total > (offered := len(gpu_ids(config.environment, config.gpus))):
        hint = f"{option} is how many it offers, or ignore: the job runs on the CPU"
        text = f"the job requests {total} devices in all, this machine offers {offered}; {hint}"
        raise UnsupportedByBackend.of(ROLES_PATH, text)


def _images(job: Manifest, config: LocalConfig) -> tuple[dict[str, ImageFacts], list[str]]:
    images: dict[str, ImageFacts] = {}
    notices = []
    sync_images = {each["image"] for _, each in _containers(job) if each["name"] == sync_code.CONTAINER}
    for name in dict.fromkeys(container["image"] for _, container in _containers(job)):
        replacement = config.replacement(name)
        if replacement is not None:
            images[name], unapplied = read_image(replacement, python=config.interpreter, image=name)
            left_out = f"; not applied: {', '.join(unapplied)}" if unapplied else ""
            notices.append(f"image {name}: replaced by {replacement}; python is {config.interpreter}{left_out}")
        elif name in sync_images:
            images[name] = ImageFacts(python=sys.executable, entrypoint=_SYNC)
        elif name != NO_IMAGE:
            text = f"{config.title('local_images')} has no entry for it; its files and working directory are missing"
            notices.append(f"image {name}: {text}, python is {config.interpreter}")
    return images, notices


def _check_launches(job: Manifest, setup: Setup, config: LocalConfig) -> None:
    """Plan all processes as the supervisor will, so that what it could not start is refused before anything starts."""
    for replica in {each.role: each for each in PYTORCHJOB.replicas(job)}.values():
        plan = PodPlan(job=job, replica=replica, port=0, setup=setup, directory=Path("/pod"))
        path = f"{ROLES_PATH}.{replica.role.capitalize()}.template.spec"
        for number, volume in enumerate(replica.template["spec"].get("volumes") or ()):
            if launch.reference(volume)[0]:
                launch.values_of(volume, setup.stores, f"{path}.volumes[{number}]")
        for where, container in _containers_of(path, replica.template["spec"]):
            image = container["image"]
            if not command_line(container, setup.image(image)):
                why = f"{config.title('local_images')} has no entry for {image!r}, so its entrypoint is unknown"
                raise UnsupportedByBackend.of(f"{where}.command", f"{why}; give a command or add the image there")
            launch.launch(plan, container, is_init="initContainers" in where, field=where)


def _pods(job: Manifest) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for role, replica in job["spec"]["pytorchReplicaSpecs"].items():
        yield f"{ROLES_PATH}.{role}.template.spec", replica["template"]["spec"]


def _containers(job: Manifest) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for path, pod in _pods(job):
        yield from _containers_of(path, pod)


def _containers_of(path: str, pod: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the pod's containers with their paths, in starting order."""
    for kind in ("initContainers", "containers"):
        for number, container in enumerate(pod.get(kind) or ()):
            yield f"{path}.{kind}[{number}]", container


def _event(job: Manifest, number: int, text: str) -> Manifest:
    meta = {name: job["metadata"][name] for name in ("namespace", "name", "uid")}
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"namespace": meta["namespace"], "name": f"{meta['name']}.{number}"},
        "involvedObject": {"apiVersion": job["apiVersion"], "kind": job["kind"], **meta},
        "type": "Normal",
        "reason": "NotApplied",
        "message": text,
        "lastTimestamp": instant(datetime.now(UTC)),
    }
