"""Help texts of the derived flags: the first sentence of a field's documentation in the source, and the default.

In the short help, the flags of `COMMON` have the texts in this module.
"""

from __future__ import annotations

import ast
import inspect
import re
from functools import cache
from typing import TYPE_CHECKING

from ptjob_provider.cli.parameters import SPAN_RULE
from ptjob_provider.core.spec import RoleFields, TrainingJob

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ptjob_provider.cli.fields import Flag

_MARKS = re.compile(r"(?:`|\*\*)([^`*]*)(?:`|\*\*)")


_HEADINGS: Mapping[str, Mapping[str, str]] = {
    "The program": {
        "name": "Name of the job.",
        "image": "Container image of every pod.",
        "env": "A variable of the program; repeatable.",
        "working_dir": "Directory in which the program starts.",
        "code": "A folder, such as ., or a git or rsync address: the code.",
        **dict.fromkeys(("command", "args", "env_from"), ""),
    },
    "Its size": {
        "workers": "Pods, rank 0 included.  [default: 1]",
        "gpus": "GPUs per pod.  [default: 0]",
        "cpu": "Cores per pod: 4, 500m.",
        "memory": "Memory per pod: 16Gi.",
        "shared_memory": "Size of /dev/shm.  [default: 2Gi]",
        **dict.fromkeys(("nproc_per_node", "container_resources", "gpu_resource"), ""),
    },
    "Data and outputs": {
        "volumes": "A claim to mount: claim:/path, claim/folder:/path:ro.",
        "model": "Where the model has to be in the end: pvc://claim/path.",
        "tfevents": "Where TensorBoard events have to be: pvc://claim/path.",
        "checkpoints": "Where a next attempt finds checkpoints.",
        "tensorboard": "Run a TensorBoard for the job.",
        **dict.fromkeys(("volume_mounts",), ""),
    },
    "Where it runs": {
        "kind": "[default: [ptjob] kind, else the cluster's]",
        "queue_name": "Kueue's LocalQueue, or Volcano's queue.",
        "priority_class_name": "PriorityClass of the pods.",
        "node_selector": "A label that nodes must have; repeatable.",
        "tolerations": "A taint that is accepted: KEY, KEY=VALUE:EFFECT.",
        **dict.fromkeys(("runtime", "affinity"), ""),
    },
    "How it ends": {
        "restart_policy": "Policy for failed replicas.  [default: Never]",
        "backoff_limit": "Restarts after which the job fails.  [default: no limit]",
        "active_deadline_seconds": "Maximum run time: 2h.  [default: none]",
        "ttl_seconds_after_finished": "Time from end to deletion.  [default: 7d]",
    },
}
"""Heading → field → text of its flag in the short help; flags with "", and of all other fields, are not in it."""

COMMON: Mapping[str, str] = {name: text for fields in _HEADINGS.values() for name, text in fields.items() if text}
"""Fields whose flags are in the short help, with their text there."""

_OF_FLAGS: Mapping[tuple[str, ...], str] = {
    ("name",): "Name of the job, used unchanged.  [default: the manifest's]",
    ("tolerations",): "A taint that is accepted: all, KEY, KEY=VALUE:EFFECT, or a core/v1 Toleration; repeatable.",
    ("tensorboard",): (
        "Run a TensorBoard beside the job on a cluster, as long as the job's object exists; --logdir, "
        "--tensorboard-image and --tensorboard-service-type change it."
    ),
}
"""Flags whose text in the long help is not the field's, because they take other values than the field."""

_NO_DEFAULT = ("nothing", "none", "not", "the cluster's default")


def heading_of(flag: Flag) -> str:
    """Return the help's heading for a flag of the whole job."""
    return next((name for name, fields in _HEADINGS.items() if flag.path[0] in fields), "Its pods")


def described(flag: Flag) -> str:
    """Return a flag's text in the long help; a field of a role has the text of the job's field of that name."""
    if flag.path in _OF_FLAGS:
        return _OF_FLAGS[flag.path]
    owner = TrainingJob if flag.owner is RoleFields else flag.owner
    sentence, default = _sentences(owner).get(flag.path[-1], ("", ""))
    is_shown = default and flag.owner is not RoleFields and not default.startswith(_NO_DEFAULT)
    return f"{sentence}  [default: {default}]" if is_shown else sentence


@cache
def _sentences(owner: type) -> dict[str, tuple[str, str]]:
    """Return, for each field of a class, the first sentence below it in the source, and the text after `None:`."""
    (body,) = ast.parse(inspect.getsource(owner)).body
    assert isinstance(body, ast.ClassDef)  # noqa: S101 - it is a class's source
    sentences, field = {}, ""
    for node in body.body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            field = node.target.id
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and field:
            text = str(node.value.value)
            sentences[field] = (_first(text), _first(" ".join(text.split()).partition(" None: ")[2]).rstrip("."))
            field = ""
    return sentences


def _first(text: str) -> str:
    """Return the first sentence on one line, without markup."""
    line = " ".join(text.split())
    end = re.search(r"\.\s(?=[A-Z0-9])|\.$", line)
    sentence = line[: end.start() + 1] if end else line
    return _MARKS.sub(r"\1", sentence).replace("also a timedelta", f"also {SPAN_RULE}")
