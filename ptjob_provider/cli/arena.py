"""Arena's names of flags; converts its flags, and a program given as one shell line, to fields of a job. Pure.

For Arena's flags and commands that `ptjob` does not have, it names the replacement.
"""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING, Any

from ptjob_provider.cli.parameters import check_not_empty, pair
from ptjob_provider.core.errors import InvalidSpec
from ptjob_provider.core.spec.pods import resource_amount

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_REGISTERED = "registering a model is the next task's work: the result has its address and digest"
_NOTHING_INSTALLED = "nothing is installed in the cluster for `ptjob`, and no helm is run"
_AGAIN = "again and again: `watch ptjob top node`; shared cards count as their plug-in's resource"

FLAGS: Mapping[str, str] = {
    "--config-file": (
        "a ConfigMap that you make: `--volumes '{name: conf, configMap: {name: NAME}}' "
        "--volume-mounts '{name: conf, mountPath: /etc/conf}'`"
    ),
    **dict.fromkeys(("--model-name", "--model-source"), _REGISTERED),
    **dict.fromkeys(("--arena-namespace", "--helm-binary", "--pprof", "--trace"), _NOTHING_INSTALLED),
    "--gpus": "`ptjob top job NAME` tells CPU and memory of each replica",
    **dict.fromkeys(("--details", "--refresh", "--gpu-mode", "--metric"), _AGAIN),
}

COMMANDS: Mapping[str, str] = {"attach": "`kubectl exec -it NAME-master-0 -- sh` is the same"}

ALIASES: Mapping[str, tuple[str, ...]] = {
    "volumes": ("-d", "--data", "--volume"),
    "volume_mounts": ("--volume-mount",),
    "env": ("-e",),
    "env_from": (),
    "working_dir": ("--workingDir",),
    "shared_memory": ("--share-memory",),
    "priority_class_name": ("-p", "--priority"),
    "queue_name": ("--queue",),
    "tolerations": ("--toleration",),
    "node_selector": ("--selector",),
    "labels": ("-l", "--label"),
    "annotations": ("-a", "--annotation"),
    "image_pull_secrets": ("--image-pull-secret",),
    "init_containers": ("--init-container",),
    "scheduler_name": ("--scheduler",),
    "host_network": ("--hostNetwork",),
    "clean_pod_policy": ("--clean-task-policy",),
    "active_deadline_seconds": ("--running-timeout",),
    "ttl_seconds_after_finished": ("--ttl-after-finished",),
    "backoff_limit": ("--retry",),
    "tensorboard.logdir": ("--logdir",),
}
"""Further names of a field's flag: Arena's, and the singular of repeatable flags."""

TYPES = ("pytorch", "pytorchjob")
"""Arena's words after `submit` for the type of training that `ptjob` submits."""

_DEVICE = "NAME=N such as nvidia.com/gpu=1"

OTHER_TYPES = frozenset(
    (
        *("tf", "tfjob", "mpi", "mpijob", "horovod", "horovodjob", "et", "etjob", "ray", "rayjob"),
        *("volcano", "volcanojob", "spark", "sparkjob", "deepspeed", "deepspeedjob", "cron"),
    )
)

_SHELL_LINE = re.compile(r"[\s;&|<>$`*?(){}'\"\\]")


def without_type(words: Sequence[str]) -> list[str]:
    """Return the words of a command line without Arena's type of training.

    Raises:
        InvalidSpec: the type is not PyTorch's.
    """
    if words and words[0] in OTHER_TYPES:
        raise InvalidSpec.of(
            "submit", words[0], "allowed: pytorch, or nothing; PyTorch trainings are what is submitted here"
        )
    return list(words[1:] if words and words[0] in TYPES else words)


def program(words: Sequence[str], shell: str | None) -> list[str] | None:
    """Return the container's command for the words after the flags; None if there are no words.

    A single word that a shell would split or expand is passed to a shell as one line, as in Arena. Several words are
    the program and its arguments, unchanged. With `shell`, the words are always passed to that shell as one line.

    Raises:
        InvalidSpec: a shell line is followed by further words.
    """
    if not words:
        return None
    if shell is not None:
        return [shell, "-c", words[0] if len(words) == 1 else shlex.join(words)]
    if len(words) == 1:
        return ["sh", "-c", words[0]] if _SHELL_LINE.search(words[0]) else [words[0]]
    if re.search(r"\s", words[0]):
        raise InvalidSpec.of(
            "command",
            words[0],
            "allowed: one line for a shell and no words after it; flags stand before the training's command",
        )
    return list(words)


def toleration(name: str, text: str) -> dict[str, str]:
    """Return the toleration for Arena's short form: `all`, `KEY`, `KEY=VALUE:EFFECT`, `KEY=VALUE:EFFECT,OPERATOR`.

    Raises:
        InvalidSpec: the key is missing.
    """
    if text == "all":
        return {"operator": "Exists"}
    rest, _, operator = text.partition(",")
    rest, _, effect = rest.partition(":")
    key, equals, value = rest.partition("=")
    if not key:
        raise InvalidSpec.of(
            name, text, "allowed: all, KEY, KEY=VALUE:EFFECT, KEY=VALUE:EFFECT,OPERATOR, or a map in YAML"
        )
    short = {"key": key, "operator": operator or ("Equal" if equals else "Exists")}
    return {**short, **({"value": value} if equals else {}), **({"effect": effect} if effect else {})}


def with_image(given: dict[str, Any]) -> dict[str, Any]:
    """Return the fields with the workers' image for all pods, as Arena's guide uses it.

    They stay unchanged if the workers have no image, or if `image`, a manifest, a pod template or the master may set
    another one. `TrainingJob.parse` refuses a job without any image.
    """
    worker, master = given.get("worker"), given.get("master")
    if given.keys() & {"image", "manifest", "pod_template"} or not isinstance(worker, dict) or "image" not in worker:
        return given
    if isinstance(master, dict) and "image" in master:
        return given
    rest = {name: value for name, value in worker.items() if name != "image"}
    others = {name: value for name, value in given.items() if name != "worker"}
    return {**others, "image": worker["image"], **({"worker": rest} if rest else {})}


def arena_fields(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields for Arena's flags that do not stand for one field, such as `--device`, `--rdma`, `--sync-mode`.

    Raises:
        InvalidSpec: a flag's value is invalid.
    """
    for name in ("sync_source", "sync_image", "shell"):
        check_not_empty(f"--{name.replace('_', '-')}", given.get(name))
    result = _code(given)
    devices = dict(pair("--device", text, _DEVICE) for text in given.get("devices") or ())
    for name, count in devices.items():
        resource_amount("--device", name, count)
    if given.get("rdma"):
        devices["rdma/hca"] = devices.get("rdma/hca", "1")
        result["container_security_context"] = {"capabilities": {"add": ["IPC_LOCK"]}}
    if devices:
        result["container_resources"] = {"limits": devices}
    for number, text in enumerate(given.get("data_dirs") or ()):
        host, path = _folder(text)
        result.setdefault("volumes", []).append({"name": f"host-{number}", "hostPath": {"path": host}})
        result.setdefault("volume_mounts", []).append({"name": f"host-{number}", "mountPath": path})
    shared = {name: True for flag, name in (("host_ipc", "hostIPC"), ("host_pid", "hostPID")) if given.get(flag)}
    if shared:
        result["pod_template"] = {"spec": shared}
    return result


def _code(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the value of `code` for `--sync-mode`, `--sync-source` and `--sync-image`.

    Raises:
        InvalidSpec: one of the first two is missing.
    """
    mode, source, image = (given.get(f"sync_{name}") for name in ("mode", "source", "image"))
    if mode is None and source is None and image is None:
        return {}
    if mode is None:
        raise InvalidSpec("--sync-mode is missing: git or rsync, with --sync-source")
    if source is None:
        raise InvalidSpec("--sync-source is missing: the address of the code, with --sync-mode")
    return {"code": {mode: source, **({"image": image} if image else {})}}


def _folder(text: str) -> tuple[str, str]:
    host, _, path = text.partition(":")
    if not host.startswith("/"):
        raise InvalidSpec.of(
            "--data-dir", text, "allowed: /path/on/the/node or /path/on/the/node:/path/in/the/container"
        )
    return host, path or host
