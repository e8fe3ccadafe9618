"""Render the pod that inspects a finished job's outputs: `probe.py` with the volumes of rank 0.

Pure. The pod inherits from rank 0 what decides whether it can start and what it may read: image, user, pull secrets,
service account, node selection, tolerations, and the mounts that hold the outputs, read-only here. It inherits no
variables, devices, init containers or labels, so that it never counts, appears or is billed as a replica of the job.
"""

from __future__ import annotations

import inspect
import json
import math
import posixpath
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ptjob_provider.core import kinds, probe
from ptjob_provider.core.errors import InvalidSpec, OutputsNotVerified
from ptjob_provider.core.identity import PREFIX, JobRef, label_value
from ptjob_provider.core.kinds import podtemplate
from ptjob_provider.core.kubernetes.borrowed import NO_ISTIO, picked, placement, security

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from ptjob_provider.core.identity import Manifest
    from ptjob_provider.core.outputs import Mount, ResolvedOutput, ResolvedOutputs

CONTAINER = "probe"
PROBE_LABEL = f"{PREFIX}/probe-of"
"""Label on the pod: the job whose outputs it inspects."""

MARKER = "ptjob-outputs "
"""Prefix of the log line with the report; an image's Python may print lines of its own."""

RESOURCES = {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"cpu": "1", "memory": "256Mi"}}
"""One core digests about 500 MB in a second; files are read in pieces."""

_MAX_NAME = 63
_SHORT_LIFE = {
    "automountServiceAccountToken": False,
    "enableServiceLinks": False,
    "restartPolicy": "Never",
    "terminationGracePeriodSeconds": 1,
}
_SHARED = {"ReadWriteMany", "ReadOnlyMany"}
_PYTHON = re.compile(r"(/.*/)?python[0-9.]*")
_START = f"""
import io, os, sys
sys.stdin = io.StringIO(os.environ["PTJOB_REQUEST"])
sys.stdout.write("\\n{MARKER}")
exec(compile(os.environ["PTJOB_PROBE"], "probe.py", "exec"))
"""


@dataclass(frozen=True, kw_only=True)
class ProbeOptions:
    """Settings of the output probe inside the cluster.

    Attributes:
        image: has Python 3.6 or newer as `python3`. "": the job's own image, which its node has already.
        image_prefix: prepended to `image`, such as a mirror's address; the job's own image stays unchanged.
        timeout: seconds for scheduling, starting and reading every byte of the model.
    """

    image: str = ""
    image_prefix: str = ""
    timeout: float = 300.0

    def __post_init__(self) -> None:
        if not 0 < self.timeout < math.inf:
            raise InvalidSpec.of("probe_timeout", self.timeout, "a positive number of seconds")


def rank0_of(job: Manifest, pod: Manifest | None) -> Mapping[str, Any]:
    """Return rank 0's pod, or its template if the pod is gone or another job's.

    The pod has more than its template: its node, and what admission added (user, tolerations, secrets).
    """
    is_ours = pod is not None and kinds.is_pod_of(pod, JobRef.of(job))
    return pod if pod and is_ours else kinds.kind_of(job).rank0_template(job)


def is_held_by_one_node(claim: Mapping[str, Any]) -> bool:
    """Return whether only one node at a time can mount the claim: ReadWriteOnce and nothing wider."""
    return not _SHARED & set((claim.get("spec") or {}).get("accessModes") or ())


def pod_name(job_name: str, token: str) -> str:
    """Return the pod's name, at most 63 characters; the token distinguishes two pods for one job."""
    ending = f"-outputs-{token}"
    return job_name[: _MAX_NAME - len(ending)].rstrip("-.") + ending


def probe_pod(
    job: Manifest,
    rank0: Mapping[str, Any],
    outputs: ResolvedOutputs,
    *,
    name: str,
    since: datetime,
    curves: bool = False,
    on_its_node: bool,
    options: ProbeOptions,
) -> Manifest:
    """Return the pod.

    Args:
        job: the finished job's object, which owns the pod.
        rank0: the value of `rank0_of`.
        outputs: the outputs to inspect.
        name: of the pod.
        since: scalars are read from event files modified then or later.
        curves: include their points.
        on_its_node: a claim can only be mounted on rank 0's node, if that is known.
        options: image and time limit.

    Raises:
        OutputsNotVerified: an output is in no claim that rank 0 mounts.
    """
    container = kinds.kind_of(job).CONTAINER
    trainer, places = podtemplate.find_container(rank0, container), _places(rank0, container, outputs)
    request = {**_places_asked(outputs, places), "since": since.timestamp(), "curves": curves}
    spec, program = rank0["spec"], _program(trainer, options)
    for_pod, for_container = security(spec.get("securityContext") or {}, trainer.get("securityContext") or {})
    found = {
        **_SHORT_LIFE,
        **picked(spec, ("imagePullSecrets", "serviceAccountName")),
        **placement(rank0, trainer, on_its_node=on_its_node),
        **_mounted({**program, "securityContext": for_container, "env": _environment(request)}, places),
        "activeDeadlineSeconds": math.ceil(options.timeout),
        "securityContext": for_pod,
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": _metadata(job, name), "spec": found}


def _metadata(job: Manifest, name: str) -> Manifest:
    ref = JobRef.of(job)
    owner = {"apiVersion": job["apiVersion"], "kind": ref.kind, "name": ref.name, "uid": ref.uid}
    return {
        "name": name,
        "namespace": ref.namespace,
        "labels": {PROBE_LABEL: label_value(ref.name), **NO_ISTIO},
        "annotations": NO_ISTIO,
        "ownerReferences": [{**owner, "blockOwnerDeletion": False}],
    }


# --- program


def _program(trainer: Mapping[str, Any], options: ProbeOptions) -> Manifest:
    """Return its command and resources; only the image's interpreter is used, not its entrypoint."""
    image, python = trainer["image"], "python3"
    if options.image:
        image = f"{options.image_prefix.rstrip('/')}/{options.image}" if options.image_prefix else options.image
    else:
        python = next((word for word in (trainer.get("command") or [])[:1] if _PYTHON.fullmatch(word)), python)
    return {
        "name": CONTAINER,
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "command": [python, "-I", "-c", _START],
        "resources": RESOURCES,
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "workingDir": "/",
    }


def _environment(request: Mapping[str, Any]) -> list[Manifest]:
    texts = {"PTJOB_PROBE": inspect.getsource(probe), "PTJOB_REQUEST": json.dumps(request)}
    return [{"name": name, "value": _literal(text)} for name, text in texts.items()]


def _literal(text: str) -> str:
    """Escape the text, so that the kubelet, which replaces `$(NAME)`, passes it unchanged."""
    return text.replace("$", "$$")


def _places_asked(outputs: ResolvedOutputs, places: Mapping[str, Mount]) -> Manifest:
    paths = {name: output.container_path for name, output in _declared(outputs).items()}
    roots = {name: mount.mount_path for name, mount in places.items()}
    return {**paths, "roots": roots}


# --- volumes


def _declared(outputs: ResolvedOutputs) -> dict[str, ResolvedOutput]:
    """Return the outputs to inspect; checkpoints are passed to the code, not verified."""
    found = {"model": outputs.model, "tfevents": outputs.tfevents}
    return {name: output for name, output in found.items() if output}


def _places(rank0: Mapping[str, Any], container: str, outputs: ResolvedOutputs) -> dict[str, Mount]:
    """Return the mount of each output: rank 0's own, so that links resolve as for the training code."""
    mounts = podtemplate.claim_mounts(rank0, container=container)
    return {name: _mount_of(output, mounts) for name, output in _declared(outputs).items()}


def _mount_of(output: ResolvedOutput, mounts: Sequence[Mount]) -> Mount:
    holding = [mount for mount in mounts if mount.claim == output.claim and _holds(mount, output.container_path)]
    if not holding:
        seen = ", ".join(map(str, mounts)) or "(none)"
        raise OutputsNotVerified(f"{output.uri}: rank 0 mounts it nowhere above {output.container_path}; it has {seen}")
    return max(holding, key=lambda mount: len(mount.mount_path))


def _holds(mount: Mount, path: str) -> bool:
    root = posixpath.normpath(mount.mount_path)
    return posixpath.commonpath([root, path]) == root


def _mounted(container: Manifest, places: Mapping[str, Mount]) -> Manifest:
    """Return the pod's container with the mounts, each once, and the volumes that they need."""
    mounts = list(dict.fromkeys(places.values()))
    names = {claim: f"claim-{number}" for number, claim in enumerate(dict.fromkeys(mount.claim for mount in mounts))}
    volumes = [{"name": name, "persistentVolumeClaim": {"claimName": claim}} for claim, name in names.items()]
    wired = [_wire_mount(mount, names[mount.claim]) for mount in mounts]
    return {"containers": [{**container, "volumeMounts": wired}], "volumes": volumes}


def _wire_mount(mount: Mount, volume: str) -> Manifest:
    found = {"name": volume, "mountPath": mount.mount_path, "readOnly": True}
    return found | ({"subPath": mount.sub_path} if mount.sub_path else {})
