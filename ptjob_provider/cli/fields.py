"""Derives a flag from each field of a training job, and converts flags to fields and errors about fields. Pure.

`--working-dir` is `working_dir`, `--worker-image` is `image` of `worker`, `--elastic-min-replicas` is `min_replicas` of
`elastic_policy`. Every field of the operator is therefore also a flag. The form of a flag depends on the field's type:

    a switch                   --gang, --no-gang
    a map of texts             --label team=vision, repeatable
    a list                     --data claim:/path, repeatable
    anything else              one text; one that begins with { or [ is YAML: --container-resources '{limits: {cpu: 2}}'

An error that names a field is rewritten for the command line: it names the flag as it was typed, and shows no Python
values.
"""

from __future__ import annotations

import re
from dataclasses import Field, dataclass, fields
from functools import cache
from typing import TYPE_CHECKING, Any

from ptjob_provider.cli.arena import ALIASES, toleration
from ptjob_provider.cli.parameters import SPAN_RULE, check_not_empty, pair, read_span
from ptjob_provider.core.errors import InvalidSpec
from ptjob_provider.core.kinds.pod_template import laid_over
from ptjob_provider.core.manifest import KINDS, load_yaml
from ptjob_provider.core.spec import ElasticPolicy, RoleFields, TensorBoard, TrainingJob
from ptjob_provider.core.spec.code import SOURCES, CodeSource
from ptjob_provider.core.spec.parsers import is_unset, pod_template, words_of
from ptjob_provider.core.spec.pods import PodVolume, environment, merged, volume_mounts, volumes

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

ELSEWHERE = {"namespace": "-n", "manifest": "-f"}
"""Fields whose flag is declared elsewhere instead of derived."""

_NESTED: Mapping[str, tuple[type[Any], str]] = {
    "code": (CodeSource, "Code that is brought into the pods"),
    "tensorboard": (TensorBoard, "The job's TensorBoard"),
    "master": (RoleFields, "Rank 0 alone, over what holds for all"),
    "worker": (RoleFields, "All other pods"),
    "elastic_policy": (ElasticPolicy, "An elastic job"),
}
"""Fields whose parts have flags → the class with the parts, and the heading of their flags in the help."""

_DOCUMENT = ("{", "[")


@dataclass(frozen=True, kw_only=True)
class Flag:
    """The flag of one field.

    Attributes:
        path: the field, or the part of a field: `("cpu",)`, `("master", "cpu")`.
        names: the flag's names, short ones first.
        shape: `switch`, `pairs`, `list` or `text`.
        section: its heading in the help; "" for flags of the whole job.
        owner: the class that has the field.
        words: the allowed values; empty if the values are not limited to words.
    """

    path: tuple[str, ...]
    names: tuple[str, ...]
    shape: str
    section: str
    owner: type
    words: tuple[str, ...] = ()

    @property
    def parameter(self) -> str:
        """Name of the flag's value among click's parameters."""
        return "__".join(self.path)


@cache
def flags() -> tuple[Flag, ...]:
    """Return the derived flags: those of the whole job in the order of its fields, then those of parts."""
    whole = [_flag((each.name,), each, TrainingJob, "") for each in fields(TrainingJob) if each.name not in ELSEWHERE]
    parts = [
        _flag((name, each.name), each, owner, section)
        for name, (owner, section) in _NESTED.items()
        for each in fields(owner)
    ]
    return (*whole, *parts)


def _flag(path: tuple[str, ...], declared: Field[Any], owner: type, section: str) -> Flag:
    derived = "--" + "-".join(path).replace("elastic_policy-", "elastic-").replace("_", "-")
    return Flag(
        path=path,
        names=(*ALIASES.get(".".join(path), ()), derived),
        shape=_shape(declared),
        section=section,
        owner=owner,
        words=tuple(KINDS) if path == ("kind",) else words_of(declared),
    )


def job_fields(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of `TrainingJob.parse` for the flags' values; flags that were not given are left out.

    Raises:
        InvalidSpec: a text is not a pair, or not YAML; the message names the flag.
    """
    result: dict[str, Any] = {}
    for flag in flags():
        value = given.get(flag.parameter)
        if value is None or value == ():
            continue
        read = _read(flag, value)
        if flag.path == ("code",):
            result["code"] = CodeSource.as_map(read)  # a map, to which flags such as `--code-image` add
        elif flag.path == ("tensorboard",):
            result["tensorboard"] = {} if read else False  # also a map, for `--logdir`
        elif len(flag.path) == 1:
            result[flag.path[0]] = read
        else:
            whole = result.setdefault(flag.path[0], {})
            if isinstance(whole, dict):
                whole[flag.path[1]] = read
    return result


def document(name: str, text: str) -> Any:
    """Return the YAML value of a text that begins with `{` or `[`; return any other text unchanged.

    Raises:
        InvalidSpec: the text begins like that, but is not sound YAML.
    """
    return load_yaml(text, field=name) if text.lstrip().startswith(_DOCUMENT) else text


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
        return _pairs(flag, value)
    if flag.shape == "list":
        return [item for text in value for item in _items(flag, document(name, text))]
    if value not in flag.words:
        check_not_empty(name, value)
    read = document(name, value)
    # Fields in seconds also accept a duration, because users of Arena write `--running-timeout 2h`.
    span = read_span(read) if isinstance(read, str) and "seconds" in flag.path[-1] else None
    return read if span is None else span


def _pairs(flag: Flag, texts: Sequence[str]) -> Any:
    name = flag.names[-1]
    values = [document(name, text) for text in texts]
    given = [dict([pair(name, value)]) if isinstance(value, str) else value for value in values]
    if flag.path[-1] == "env":
        return _variables(".".join(flag.path), given)
    lists = [value for value in given if isinstance(value, list)]
    return lists[0] if lists else {key: item for value in given for key, item in value.items()}


def _variables(field: str, given: Sequence[Any]) -> Any:
    """Return the variables of all maps and lists, the later one of the same name; a list if there is one."""
    if all(isinstance(value, dict) for value in given):
        return {name: item for value in given for name, item in value.items()}
    return [variable.to_wire() for variable in merged(*(environment(field, value) for value in given))]


def _items(flag: Flag, value: Any) -> list[Any]:
    if isinstance(value, str) and flag.path[-1] == "tolerations":
        value = toleration(flag.names[-1], value)
    return value if isinstance(value, list) else [value]


_REPLACED = ("command", "args", "affinity")
_ROLES = ("master", "worker")
_MOUNTED = ("volumes", "volume_mounts")


def joined(lower: Mapping[str, Any], upper: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of both, where the upper ones override the lower ones.

    Maps are merged by key, and lists are joined; an upper volume or mount replaces those of its name or at its path.
    `command`, `args`, `affinity` and all single values are replaced.

    Raises:
        InvalidSpec: a value that has to be parsed for this is invalid.
    """
    taken = {place for name in _MOUNTED if name in upper for place in _places(name, upper[name])}
    kept = {name: _untaken(name, value, taken) if name in _MOUNTED else value for name, value in lower.items()}
    return {**kept, **{name: _joined(name, kept.get(name), value) for name, value in upper.items()}}


def over_file(fields: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return a file's fields joined with those of the flags, where another source of code replaces the file's `code`.

    Raises:
        InvalidSpec: as `joined`.
    """
    code, sources = CodeSource.as_map(fields.get("code")), set(SOURCES).intersection(given.get("code") or ())
    is_other = isinstance(code, dict) and sources and sources.isdisjoint(code)
    return joined({name: value for name, value in fields.items() if name != "code" or not is_other}, given)


def _joined(name: str, lower: Any, upper: Any) -> Any:
    if is_unset(lower) or name in _REPLACED:
        return upper
    if name == "env":
        return _variables(name, (lower, upper))
    if name == "pod_template":
        return laid_over(pod_template(name, lower), pod_template(name, upper))
    if name in _ROLES and isinstance(lower, dict) and isinstance(upper, dict):
        return joined(lower, upper)
    return _merged(CodeSource.as_map(lower) if name == "code" else lower, upper)


def _merged(lower: Any, upper: Any) -> Any:
    if isinstance(lower, dict) and isinstance(upper, dict):
        return {**lower, **{name: _merged(lower.get(name), item) for name, item in upper.items()}}
    if isinstance(lower, list) and isinstance(upper, list):
        return [*lower, *(item for item in upper if item not in lower)]
    return upper


def _untaken(name: str, items: Any, taken: set[str]) -> Any:
    return items and [item for item, place in zip(items, _places(name, items), strict=True) if place not in taken]


def _places(name: str, items: Any) -> list[str]:
    """Return the path at which each volume or mount is mounted; the name of a volume that others mount."""
    if name == "volume_mounts":
        return [mount["mountPath"] for mount in volume_mounts(name, items)]
    return [each.name if isinstance(each, PodVolume) else each.mount_path for each in volumes(name, items)]


def in_flags(error: InvalidSpec, given: Mapping[str, Any], words: Sequence[str]) -> str:
    """Return the error's text with the flag in place of the field; unchanged if no flag set the field.

    Args:
        error: the core's error.
        given: each flag's value by its parameter; None or () if not given.
        words: the command line, for the name under which the flag was typed.
    """
    if error.field.startswith("--"):
        named = next((each for each in flags() if error.field in each.names), None)
        return str(error.renamed(_typed(named, words)) if named else error)
    name, *steps = re.split(r"(?=[.\[])", error.field)
    flag = _flag_of(name, steps[0].removeprefix(".") if steps else None, given)
    if flag is None:
        return str(error)
    typed, is_missing = _typed(flag, words), error.shows_value and error.value is None
    if given.get(flag.parameter) in (None, ()):
        return f"{typed} is missing: {error.allowed}" if is_missing else str(error)
    inside = "".join(steps[len(flag.path) - 1 :])
    within = f" ({inside.removeprefix('.')})" if "." in inside else ""
    return _worded(error, f"{typed}{within}", flag, is_missing=is_missing)


def _worded(error: InvalidSpec, typed: str, flag: Flag, *, is_missing: bool) -> str:
    """Return the error's text for a flag: a switch shows no value, and seconds may also be a span."""
    takes_span = "seconds" in flag.path[-1] and "a whole number" in error.allowed
    allowed = f"{error.allowed}, or {SPAN_RULE}" if takes_span else error.allowed
    if is_missing:
        return f"{typed}: is missing; {allowed}"
    if flag.shape == "switch" or not error.shows_value:
        return str(InvalidSpec.at(typed, allowed))
    return str(InvalidSpec.of(typed, error.value, allowed))


def _flag_of(field: str, part: str | None, given: Mapping[str, Any]) -> Flag | None:
    """Return the flag of a field or of its part: among those that can set it, the one that was given."""
    known = {flag.path: flag for flag in flags()}
    own, whole = known.get((field, part or "")), known.get((field,))
    parts = [] if part else [flag for flag in flags() if flag.path[0] == field]
    candidates = [each for each in (own, whole, *parts) if each]
    return next((each for each in candidates if given.get(each.parameter) not in (None, ())), own or whole)


def _typed(flag: Flag, words: Sequence[str]) -> str:
    """Return the flag's name as it was typed; if it was not typed, the name derived from the field."""
    typed = {word.partition("=")[0] for word in words}
    return next((name for name in flag.names if name in typed), flag.names[-1])
