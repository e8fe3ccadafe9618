"""Render the pod that inspects an ended job's outputs, and parse its report or explain why there is none. Pure.

The pod inherits from rank 0 what decides whether it can start and what it may read: image, user, pull secrets, service
account, node selection, tolerations, and the mounts with the outputs, where it creates and deletes an empty file to
read the clock of the storage. It inherits no variables, devices, init containers or labels, so that nothing counts,
shows or bills it as a replica of the job.
"""

from __future__ import annotations

import inspect
import json
import math
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from ptjob_provider.core import kinds
from ptjob_provider.core.diagnosis import last_lines
from ptjob_provider.core.diagnosis.classify import classify
from ptjob_provider.core.diagnosis.startup_failure import is_image_gone
from ptjob_provider.core.errors import InvalidSpec, OutputsNotVerified, in_ptjob
from ptjob_provider.core.history import PodHistory, WaitKind, observe
from ptjob_provider.core.history.pods import read_pod, wait_of
from ptjob_provider.core.identity import PREFIX, label_value
from ptjob_provider.core.in_pod import find_checkpoint, probe_outputs
from ptjob_provider.core.inspector import FILES_IMAGE
from ptjob_provider.core.kinds import pod_template
from ptjob_provider.core.kinds.pod_template import NO_ISTIO
from ptjob_provider.core.kubernetes.pods import HELPER, inherited, metadata, placement, python_of
from ptjob_provider.core.outputs import contract
from ptjob_provider.core.outputs.checkpoints import Checkpoint
from ptjob_provider.core.wire import literal

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from types import ModuleType

    from ptjob_provider.core.history.pod_history import Wait
    from ptjob_provider.core.identity import Manifest
    from ptjob_provider.core.outputs.contract import Mount, OutputReport, ResolvedOutput, ResolvedOutputs

CONTAINER = "probe"
PROBE_LABEL = f"{PREFIX}/probe-of"
"""Label on the pod; its value is the name of the job whose outputs it inspects."""

MARKER = "ptjob-outputs "
"""Prefix of the log line with the report: the Python of an image may print other lines."""

RESOURCES = {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"cpu": "1", "memory": "256Mi"}}
"""One core hashes about 500 MB per second; files are read in pieces, which needs little memory."""

_MAX_NAME = 63
_SHARED = {"ReadWriteMany", "ReadOnlyMany"}
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
        image: image with Python 3.6 or newer as `python3`. "": the job's own image, which the job's node has already.
        files_image: image of a pod that mounts a claim, if neither this nor the job names one; it must have `python3`.
        timeout: maximum seconds for scheduling and starting the pod, and for reading every byte of the model.
        title: returns an option's name as users write it, for messages.
    """

    image: str = ""
    files_image: str = FILES_IMAGE
    timeout: float = 300.0
    title: Callable[[str], str] = field(default=in_ptjob, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not 0 < self.timeout < math.inf:
            raise InvalidSpec.of(self.title("probe_timeout"), self.timeout, "allowed: a positive number of seconds")


def rank0_of(job: Manifest, pods: Sequence[Manifest]) -> Mapping[str, Any]:
    """Return rank 0's newest pod among the job's pods, or its template if the pod is gone.

    The pod has fields that the template lacks: its node, and what admission plugins added (user, tolerations, secrets).
    """
    kind, replica_of = kinds.kind_of(job), kinds.replica_of(job)
    rank0 = kind.replicas(job)[0].name
    found = [pod for pod in pods if replica_of(pod) == rank0]
    return max(found, key=lambda pod: str(pod["metadata"]["creationTimestamp"]), default=kind.rank0_template(job))


def is_held_by_one_node(claim: Mapping[str, Any]) -> bool:
    """Return whether only one node at a time can mount the claim: not ReadWriteMany, and not ReadOnlyMany."""
    return not _SHARED & set((claim.get("spec") or {}).get("accessModes") or ())


def pod_name(job_name: str, token: str) -> str:
    """Return the pod's name, which has at most 63 characters; the token distinguishes pods of the same job."""
    ending = f"-outputs-{token}"
    return job_name[: _MAX_NAME - len(ending)].rstrip("-.") + ending


def probe_pod(
    job: Manifest,
    outputs: ResolvedOutputs,
    *,
    rank0: Mapping[str, Any],
    name: str,
    since: datetime,
    curves: bool = False,
    doubt: str = "",
    on_its_node: bool,
    options: ProbeOptions,
) -> Manifest:
    """Return the probe pod.

    Args:
        job: the ended job's object, which owns the pod.
        outputs: the outputs to inspect.
        rank0: rank 0's pod or template, from `rank0_of`.
        name: name of the pod.
        since: what was written earlier is an earlier training's; by the clock of the API server.
        curves: include the points of the scalars.
        doubt: why the clocks of storage and cluster cannot be compared, so that two minutes are allowed.
        on_its_node: require rank 0's node, if known, because a claim may only be mounted there.
        options: image and time limit.

    Raises:
        OutputsNotVerified: an output is in no claim that rank 0 mounts.
    """
    mounts = _mounts_of(rank0, kinds.kind_of(job).CONTAINER, outputs)
    started = datetime.fromisoformat(job["metadata"]["creationTimestamp"]).timestamp()
    times = {"since": since.timestamp(), "started": started, "reads_clock": True, "doubt": doubt}
    environment = _environment(probe_outputs, {**_paths(outputs, mounts), **times, "curves": curves})
    return _pod(job, rank0, mounts, environment, name=name, on_its_node=on_its_node, options=options)


def checkpoint_pod(
    job: Manifest, folder: ResolvedOutput, *, name: str, since: datetime, options: ProbeOptions
) -> Manifest:
    """Return the pod that looks for a checkpoint of a job that is not created yet; it has no owner.

    Args:
        job: the rendered job.
        folder: the folder of the checkpoints.
        name: name of the pod.
        since: what was written earlier is an earlier training's; two minutes are allowed for the storage's clock.
        options: image and time limit.

    Raises:
        OutputsNotVerified: the folder is in no claim that rank 0 mounts.
    """
    kind = kinds.kind_of(job)
    rank0 = kind.rank0_template(job)
    mount = _mount_of(folder, pod_template.mounts_of(rank0, container=kind.CONTAINER))
    place = {"path": folder.container_path, "root": mount.mount_path}
    times = {"since": since.timestamp() - find_checkpoint.ALLOWANCE, "seconds": options.timeout}
    mounts, environment = {"checkpoints": replace(mount, read_only=True)}, _environment(find_checkpoint, place | times)
    return _pod(job, rank0, mounts, environment, name=name, on_its_node=False, options=options)


def _pod(
    job: Manifest,
    rank0: Mapping[str, Any],
    mounts: Mapping[str, Mount],
    environment: Sequence[Manifest],
    *,
    name: str,
    on_its_node: bool,
    options: ProbeOptions,
) -> Manifest:
    """Return a pod that runs a program with rank 0's permissions; the job owns it if it exists."""
    trainer = pod_template.find_container(rank0, kinds.kind_of(job).CONTAINER)
    for_pod, for_container = inherited(rank0, trainer)
    pod = {
        **HELPER,
        "restartPolicy": "Never",
        **for_pod,
        **placement(rank0, trainer, on_its_node=on_its_node),
        **_mounted({**_program(trainer, options), **for_container, "env": environment}, mounts),
        "activeDeadlineSeconds": math.ceil(options.timeout),
    }
    labels = {PROBE_LABEL: label_value(job["metadata"]["name"]), **NO_ISTIO}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata(job, name, labels, NO_ISTIO), "spec": pod}


# --- program


def _program(trainer: Mapping[str, Any], options: ProbeOptions) -> Manifest:
    """Return the container without mounts; it runs the image's Python interpreter instead of its entrypoint."""
    own = "" if options.image else trainer.get("image")  # missing in the template of a TrainJob: its runtime has it
    python = python_of(trainer) if own else "python3"
    return {
        "name": CONTAINER,
        "image": own or options.image or options.files_image,
        "imagePullPolicy": "IfNotPresent",
        "command": [python, "-I", "-c", _START],
        "resources": RESOURCES,
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "workingDir": "/",
    }


def _environment(program: ModuleType, request: Mapping[str, Any]) -> list[Manifest]:
    texts = {"PTJOB_PROBE": inspect.getsource(program), "PTJOB_REQUEST": json.dumps(request)}
    return [{"name": name, "value": literal(text)} for name, text in texts.items()]


def _paths(outputs: ResolvedOutputs, mounts: Mapping[str, Mount]) -> Manifest:
    paths = {name: output.container_path for name, output in outputs.verified.items()}
    return {**paths, "roots": {name: mount.mount_path for name, mount in mounts.items()}}


# --- volumes


def _mounts_of(rank0: Mapping[str, Any], container: str, outputs: ResolvedOutputs) -> dict[str, Mount]:
    """Return rank 0's mount of each output; with the same mount, symbolic links resolve as in the training."""
    mounts = pod_template.mounts_of(rank0, container=container)
    return {name: _mount_of(output, mounts) for name, output in outputs.verified.items()}


def _mount_of(output: ResolvedOutput, mounts: Sequence[Mount]) -> Mount:
    mount = contract.mount_at(output.container_path, [each for each in mounts if each.claim == output.claim])
    if mount is None:
        others = ", ".join(str(each) for each in mounts if each.claim) or "(none)"
        nowhere = f"rank 0 mounts it nowhere above {output.container_path}; it has {others}"
        raise OutputsNotVerified(f"{output.uri}: {nowhere}")
    return mount


def _mounted(container: Manifest, mounts: Mapping[str, Mount]) -> Manifest:
    """Return the pod's fields `containers` and `volumes`, with each mount once."""
    template: Manifest = {"spec": {"containers": [container]}}
    for mount in dict.fromkeys(mounts.values()):
        template = pod_template.with_claim(template, mount, container=CONTAINER)
    return dict(template["spec"])


ASKS_FOR = "{cpu} CPU and {memory}".format_map(RESOURCES["requests"])

_NEXT = (
    f"it asks for {ASKS_FOR} on a node that rank 0 may have, with rank 0's user and claims; "
    "`{probe_image}` names an image with Python 3 in place of rank 0's, `{probe_timeout}` gives it longer than "
    "{timeout:g} s"
)


def never_starts(pod: Manifest) -> bool:
    """Return whether a helper pod will never start, because its program or its image is missing."""
    wait = wait_of(read_pod(pod, CONTAINER), ())
    return wait is not None and (wait.kind is WaitKind.BROKEN or is_image_gone(wait.reason, wait.message))


def answer_in(log: str) -> str:
    """Return the program's answer in the pod's log; "" if it is missing."""
    return next((line for line in reversed(log.split("\n")) if line.startswith(MARKER)), "").removeprefix(MARKER)


def read_report(log: str) -> OutputReport | None:
    """Return the report in the pod's log; None if it is missing or incomplete."""
    return contract.read_report(answer_in(log), contract.ResolvedOutputs())


def read_checkpoint(log: str) -> Checkpoint | None:
    """Return the found checkpoint in the pod's log; None if the answer is missing."""
    return Checkpoint.read(answer_in(log))


def clock_difference(report: OutputReport, pod: Manifest, *, seconds: float) -> str:
    """Return how a node's clock differs from the API server's, as a clause; "" if it may be right, or was not used.

    The pod read its node's clock at most `seconds` after the API server created the pod, by a clock of whole seconds.
    """
    if report.clock is None:
        return ""
    after = report.clock - datetime.fromisoformat(pod["metadata"]["creationTimestamp"]).timestamp()
    difference = f"its node's clock is not the API server's: it showed {after:+.0f} s after a pod was created"
    return "" if 0 <= after <= seconds + 1 else difference


def obstacle(pod: Manifest, events: Sequence[Manifest], *, options: ProbeOptions) -> str:
    """Return, as a clause, why the probe pod has written no report, and what it needs."""
    if not pod:
        unknown = "was not created yet"
    else:
        ended = read_pod(pod, CONTAINER).is_over
        unknown = "has ended, but there is no report in its log" if ended else "was still reading"
    titles = {name: options.title(name) for name in ("probe_image", "probe_timeout")}
    return f"{problem(pod, events) or unknown}; {_NEXT.format(**titles, timeout=options.timeout)}"


def problem(pod: Manifest, events: Sequence[Manifest] = ()) -> str:
    """Return, as a clause, the problem of a helper pod; "" for none, or if it was never read."""
    if not pod:
        return ""
    read = read_pod(pod, CONTAINER)
    wait = wait_of(read, events)
    if wait:
        return f"does not run ({_reason(wait)})"
    if not read.is_over or read.phase == "Succeeded":
        return ""
    history = observe(PodHistory(), pods=[pod], now=datetime.now(UTC), container=CONTAINER)
    termination = history.terminations[-1]  # a failed pod has at least one, its own
    end = classify(termination, last_lines.lines_of(termination.message))
    return f"{end.did}: {end.detail}" if end.detail else end.did


def _reason(wait: Wait) -> str:
    message = last_lines.runtime_error(wait.message)
    return f"{wait.reason}: {message}" if message else wait.reason
