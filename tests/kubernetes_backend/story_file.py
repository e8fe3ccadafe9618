"""A story as a file of `tests/data`: plain YAML in which repeated parts are written once."""

from __future__ import annotations

import json
import textwrap
from typing import TYPE_CHECKING, Any

import yaml

from recorded import DATA

if TYPE_CHECKING:
    from collections.abc import Mapping


_LINE = 300
_WORTH_SHARING = 120
"""In characters; a shorter part is repeated instead of referenced."""


class _Dumper(yaml.SafeDumper):
    """Writes multi-line texts as blocks, and short values on one line. The signatures are PyYAML's."""

    def represent_mapping(
        self,
        tag: str,
        mapping: Any,
        flow_style: bool | None = None,  # noqa: FBT001
    ) -> yaml.MappingNode:
        """Choose the style by the content."""
        node = super().represent_mapping(tag, mapping, flow_style)
        node.flow_style = _fits_on_a_line([part for pair in node.value for part in pair])
        return node

    def represent_sequence(
        self,
        tag: str,
        sequence: Any,
        flow_style: bool | None = None,  # noqa: FBT001
    ) -> yaml.SequenceNode:
        """Choose the style by the content; a list of references fits on one line, too."""
        is_said = bool(sequence) and all(id(one) in self.represented_objects for one in sequence)
        node = super().represent_sequence(tag, sequence, flow_style)
        node.flow_style = is_said or _fits_on_a_line(node.value)
        return node


def _fits_on_a_line(nodes: list[yaml.Node]) -> bool:
    lengths = [_length(node) for node in nodes]
    return all(lengths) and sum(lengths) < _LINE


def _length(node: yaml.Node) -> int:
    """Return how much of a line a node takes; 0 if it needs lines of its own."""
    if isinstance(node, yaml.ScalarNode):
        return 0 if node.style == "|" else len(node.value) + 2
    if not node.flow_style:
        return 0
    parts = [part for item in node.value for part in (item if isinstance(item, tuple) else (item,))]
    return sum(_length(part) for part in parts) + 2


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.Node:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _text)


def _shared(found: Any, known: dict[str, Any]) -> Any:
    """Return the value with one object for all long parts that are equal, so that YAML writes them once."""
    if isinstance(found, list):
        return [_shared(one, known) for one in found]
    if not isinstance(found, dict):
        return found
    parts = {key: _shared(value, known) for key, value in found.items()}
    text = json.dumps(parts)
    return known.setdefault(text, parts) if len(text) > _WORTH_SHARING else parts


_STATE = {"running", "terminated", "waiting"}
_CONTAINER = {"name": None, "restartCount": None, "state": _STATE, "lastState": _STATE}
_POD: Any = {
    "metadata": {
        "name",
        "uid",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "labels",
    },
    "spec": {
        "containers": {"name"},
        "initContainers": {"name", "restartPolicy"},
        "nodeName": None,
        "restartPolicy": None,
    },
    "status": {
        "phase": None,
        "reason": None,
        "message": None,
        "conditions": {"type", "status", "reason", "message"},
        "containerStatuses": _CONTAINER,
        "initContainerStatuses": _CONTAINER,
    },
}
_EVENT: Any = {
    "metadata": {"name"},
    "involvedObject": {"kind", "name", "uid"},
    "reason": None,
    "message": None,
    "lastTimestamp": None,
    "eventTime": None,
    "series": None,
}
"""The fields of pods and events that the package reads; a set or None keeps everything below a name."""

_CONDITIONS = {"PodScheduled", "DisruptionTarget"}
_UNREAD = {
    *("SuccessfulCreateService", "SuccessfulDeleteService", "ExitedWithCode", "Scheduled", "Killing"),
    *("PyTorchJobFailed", "PyTorchJobSucceeded", "PyTorchJobRestarting", "PyTorchJobSuspended"),
}
"""The pods' conditions that the package reads, and the event reasons that it does not."""


def reduced(story: Mapping[str, Any]) -> dict[str, Any]:
    """Return the story with only those parts of status, pods and events that are read, and the controllers' labels."""
    job, looks = dict(story["job"]), [dict(look) for look in story["seen"]]
    for part in (job, *looks):
        if "status" in part:
            part["status"] = _without(part["status"], {"replicaStatuses", "lastUpdateTime"})
    for look in looks:
        if "pods" in look:
            look["pods"] = [_pod(each) for each in look["pods"]]
        if part := [each for each in _kept(look.pop("events", []), _EVENT) if each["reason"] not in _UNREAD]:
            look["events"] = part
    return {**story, "job": job, "seen": looks}


def _pod(found: Any) -> Any:
    pod = _kept(found, _POD)
    labels, conditions = pod["metadata"].get("labels", {}), pod["status"].pop("conditions", [])
    pod["metadata"]["labels"] = {name: labels[name] for name in labels if _is_a_controllers(name)}
    if read := [each for each in conditions if each["type"] in _CONDITIONS]:
        pod["status"]["conditions"] = read
    return pod


def _kept(found: Any, fields: Any) -> Any:
    if fields is None:
        return found
    if isinstance(found, list):
        return [_kept(each, fields) for each in found]
    below = fields if isinstance(fields, dict) else dict.fromkeys(fields)
    return {name: _kept(value, below[name]) for name, value in found.items() if name in below}


def _without(found: Any, names: set[str]) -> Any:
    if isinstance(found, list):
        return [_without(each, names) for each in found]
    if not isinstance(found, dict):
        return found
    return {name: _without(value, names) for name, value in found.items() if name not in names}


def _is_a_controllers(label: str) -> bool:
    return "/" in label and not label.startswith("ptjob-provider/")


def write(name: str, about: str, story: Mapping[str, Any]) -> None:
    """Write a story; the first line says what it is about."""
    comment = textwrap.fill(about, 118, initial_indent="# ", subsequent_indent="# ")
    body = yaml.dump(_shared(reduced(story), {}), Dumper=_Dumper, sort_keys=False, width=10_000, allow_unicode=True)
    (DATA / f"{name}.yaml").write_text(f"{comment}\n{body}")
