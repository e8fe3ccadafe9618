"""Converts between the fields of a training job and flags: every field has one, derived from the field.

`--working-dir` is `working_dir`, `--worker-image` is `image` of `worker`, `--elastic-min-replicas` is `min_replicas` of
`elastic_policy`. So every field of the operator is also a flag. The form of a flag follows from the field's type:

    a switch                   --gang, --no-gang
    a map of texts             --label team=vision, repeatable
    a list                     --data claim:/path, repeatable
    anything else              one text; one that begins with { or [ is YAML: --container-resources '{limits: {cpu: 2}}'

Pure: it prints nothing and does not depend on click.
"""

from __future__ import annotations

from dataclasses import Field, dataclass, fields
from typing import TYPE_CHECKING, Any

import yaml

from ptjob_provider.cli.parameters import read_span
from ptjob_provider.core.errors import InvalidSpec
from ptjob_provider.core.manifest import KINDS, yaml_problem
from ptjob_provider.core.spec import ElasticPolicy, RoleFields, TensorBoard, TrainingJob
from ptjob_provider.core.spec.code import CodeSource
from ptjob_provider.core.spec.parsers import words_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

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

ELSEWHERE = {"namespace": "-n", "manifest": "-f"}
"""Fields whose flag is not derived."""

_NESTED = {
    "code": CodeSource,
    "tensorboard": TensorBoard,
    "master": RoleFields,
    "worker": RoleFields,
    "elastic_policy": ElasticPolicy,
}
_PREFIX = {name: name for name in _NESTED} | {"elastic_policy": "elastic"}
_SECTIONS = {
    "code": "Code that is brought into the pods",
    "tensorboard": "The job's TensorBoard",
    "master": "Rank 0 alone, over what holds for all",
    "worker": "All other pods",
    "elastic_policy": "An elastic job",
}
_DOCUMENT = ("{", "[")


@dataclass(frozen=True, kw_only=True)
class Flag:
    """One field's flag.

    Attributes:
        path: the field, or the part of a field: `("cpu",)`, `("master", "cpu")`.
        names: the flag's names, short ones first.
        shape: `switch`, `pairs`, `list` or `text`.
        section: its heading in the help; "" for flags of the whole job.
        owner: the class that has the field.
        words: the allowed values, if they are limited.
    """

    path: tuple[str, ...]
    names: tuple[str, ...]
    shape: str
    section: str
    owner: type
    words: tuple[str, ...] = ()

    @property
    def parameter(self) -> str:
        """The name of its value in click's parameters."""
        return "__".join(self.path)


def flags() -> tuple[Flag, ...]:
    """Return a flag for every field that has one, in the order of the fields' documentation."""
    return (*_whole(), *_parts())


def job_fields(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of `TrainingJob.parse` for the flags' values; flags that were not given are left out.

    Raises:
        InvalidSpec: a text is not a pair, or not YAML; the message names the flag.
    """
    found: dict[str, Any] = {}
    for flag in flags():
        value = given.get(flag.parameter)
        if value is None or value == ():
            continue
        read = _read(flag, value)
        if flag.path == ("code",):
            found["code"] = CodeSource.as_map(read)  # an address alone is part of a map
        elif flag.path == ("tensorboard",):
            found["tensorboard"] = {} if read else False  # likewise
        elif len(flag.path) == 1:
            found[flag.path[0]] = read
        else:
            whole = found.setdefault(flag.path[0], {})
            if isinstance(whole, dict):
                whole[flag.path[1]] = read
    return found


def document(name: str, text: str) -> Any:
    """Read a text as YAML if it begins as a map or a list; return any other unchanged.

    Raises:
        InvalidSpec: it begins so and is not YAML.
    """
    if not text.lstrip().startswith(_DOCUMENT):
        return text
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise InvalidSpec(f"{name}: not YAML ({yaml_problem(error)}); it begins as a map or a list") from None


def pair(name: str, text: str) -> tuple[str, str]:
    """Read `KEY=VALUE`; the value may contain further `=`, and may be empty.

    Raises:
        InvalidSpec: it is no pair. The message does not repeat the text, because a variable's value may be secret.
    """
    key, equals, value = text.partition("=")
    if not key or not equals:
        rule = "KEY=VALUE, or a map in YAML such as '{KEY: value}'"
        if name.endswith("-env"):
            raise InvalidSpec(f"{name}: not a pair; allowed: {rule}")
        raise InvalidSpec.of(name, text, rule)
    return key, value


def toleration(name: str, text: str) -> dict[str, str]:
    """Read Arena's short form: `all`, `KEY`, `KEY=VALUE:EFFECT` or `KEY=VALUE:EFFECT,OPERATOR`.

    Raises:
        InvalidSpec: the key is missing.
    """
    if text == "all":
        return {"operator": "Exists"}
    rest, _, operator = text.partition(",")
    rest, _, effect = rest.partition(":")
    key, equals, value = rest.partition("=")
    if not key:
        raise InvalidSpec.of(name, text, "all, KEY, KEY=VALUE:EFFECT, KEY=VALUE:EFFECT,OPERATOR, or a map in YAML")
    said = {"key": key, "operator": operator or ("Equal" if equals else "Exists")}
    return {**said, **({"value": value} if equals else {}), **({"effect": effect} if effect else {})}


def _whole() -> Iterator[Flag]:
    for each in fields(TrainingJob):
        if each.name not in ELSEWHERE:
            names = (*ALIASES.get(each.name, ()), _dashed(each.name))
            yield Flag(
                path=(each.name,), names=names, shape=_shape(each), section="", owner=TrainingJob, words=_words(each)
            )


def _parts() -> Iterator[Flag]:
    for whole, owner in _NESTED.items():
        for each in fields(owner):
            names = (*ALIASES.get(f"{whole}.{each.name}", ()), _dashed(f"{_PREFIX[whole]}_{each.name}"))
            yield Flag(
                path=(whole, each.name),
                names=names,
                shape=_shape(each),
                section=_SECTIONS[whole],
                owner=owner,
                words=words_of(each),
            )


def _words(declared: Field[Any]) -> tuple[str, ...]:
    return tuple(KINDS) if declared.name == "kind" else words_of(declared)


def _dashed(name: str) -> str:
    return "--" + name.replace("_", "-")


def _shape(declared: Field[Any]) -> str:
    kind = str(declared.type)
    if kind.startswith(("bool", "TensorBoard")):
        return "switch"
    if kind.startswith(("Mapping[str, str]", "tuple[EnvVar")):
        return "pairs"
    if kind.startswith("tuple[") and declared.name not in {"command", "args"}:
        return "list"
    return "text"


def _read(flag: Flag, value: Any) -> Any:
    name = flag.names[-1]
    if flag.shape == "switch":
        return value
    if flag.shape == "pairs":
        return _pairs(name, value)
    if flag.shape == "list":
        return _listed(flag, name, value)
    return _seconds(flag, document(name, value))


def _pairs(name: str, texts: Sequence[str]) -> Any:
    found: dict[str, Any] = {}
    listed: list[Any] = []
    for text in texts:
        told = document(name, text)
        if isinstance(told, list):
            listed += told
        else:
            found.update(told if isinstance(told, dict) else [pair(name, text)])
    return [*listed, *({"name": key, "value": item} for key, item in found.items())] if listed else found


def _listed(flag: Flag, name: str, texts: Sequence[str]) -> list[Any]:
    found: list[Any] = []
    for text in texts:
        told = document(name, text)
        if isinstance(told, str) and flag.path[-1] == "tolerations":
            told = toleration(name, told)
        found += told if isinstance(told, list) else [told]
    return found


def _seconds(flag: Flag, value: Any) -> Any:
    """Read a duration for a field in seconds: Arena's users write `--running-timeout 2h`."""
    if isinstance(value, str) and "seconds" in flag.path[-1] and (span := read_span(value)) is not None:
        return span
    return value
