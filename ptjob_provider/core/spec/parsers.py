"""Parse the values of fields: texts, numbers, lists and maps, named settings, and parts of a pod.

A parser takes the field's path and a value, and returns the canonical value or raises InvalidSpec. A rendered template
is a text, so that "2" is parsed as 2 and "true" as True; a text is never parsed as a list or a map.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import Field, field, fields
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar

from ptjob_provider.core.errors import InvalidSpec, nearest, one_of
from ptjob_provider.core.manifest import load_object
from ptjob_provider.core.outgoing import check_texts
from ptjob_provider.core.spec.places import PLACES, declared

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ptjob_provider.core.identity import Manifest
    from ptjob_provider.core.spec.places import Place, Refused

T = TypeVar("T")
Reader = Callable[[str, Any], T]

MAX_INT32 = 2**31 - 1
"""Maximum of counts and seconds, int32 in the CRDs."""

MAX_INT64 = 2**63 - 1
"""Maximum of a pod's counts and seconds, int64."""

MAX_PODS = 10_000
"""Maximum pods of one job: a larger number is a mistake, which would only be noticed once many pods exist."""


def is_unset(value: object) -> bool:
    """Return whether a value is unset: None, or a template's rendering of it (`""`, `"None"`)."""
    return value is None or (isinstance(value, str) and value.strip() in {"", "None"})


def text(field: str, value: Any) -> str:
    """Parse a non-empty text."""
    if not isinstance(value, str) or not value.strip():
        raise InvalidSpec.of(field, value, "allowed: a text that is not empty")
    return value.strip()


class Word:
    """Parser that accepts one of these words, case-sensitive."""

    def __init__(self, *allowed: str) -> None:
        self.allowed = allowed

    def __call__(self, field: str, value: Any) -> str:
        """Return the word."""
        if not isinstance(value, str) or value not in self.allowed:
            raise InvalidSpec.of(field, value, one_of(self.allowed, value))
        return str(value)


def word(*allowed: str) -> Word:
    """Return a parser that accepts one of these words."""
    return Word(*allowed)


def integer(minimum: int, maximum: int = MAX_INT32) -> Reader[int]:
    """Return a parser of whole numbers within both limits, including their text."""

    def read(field: str, value: Any) -> int:
        number = _whole(value)
        if number is None or not minimum <= number <= maximum:
            raise InvalidSpec.of(field, value, f"allowed: a whole number, at least {minimum}, at most {maximum}")
        return number

    return read


def seconds(field: str, value: Any) -> float:
    """Parse a number of seconds above 0, its text, or a timedelta."""
    given = value.total_seconds() if isinstance(value, timedelta) else value
    try:
        number = 0.0 if isinstance(given, bool) else float(given)
    except (TypeError, ValueError, OverflowError):
        number = 0.0
    if not 0 < number <= MAX_INT32:
        raise InvalidSpec.of(field, value, "allowed: a number of seconds above 0, or a timedelta")
    return number


def boolean(field: str, value: Any) -> bool:
    """Parse True, False or their text in any case."""
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.strip().lower() in {"true", "false"}:
        return value.strip().lower() == "true"
    raise InvalidSpec.of(field, value, "allowed: true or false")


def sequence(field: str, value: Any) -> Sequence[Any]:
    """Parse a list or tuple; a text is refused, because it could mean one item or several."""
    if not isinstance(value, list | tuple):
        raise InvalidSpec.of(field, value, "allowed: a list")
    return value


def mapping(field: str, value: Any) -> Mapping[str, Any]:
    """Parse a map with text keys."""
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise InvalidSpec.of(field, value, "allowed: a map with texts as keys")
    return value


def argument(field: str, value: Any) -> str:
    """Parse one program argument or map value: a text unchanged (even an empty one), a number as its text."""
    if isinstance(value, str):
        return value
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    raise InvalidSpec.of(field, value, "allowed: a text or a number")


def arguments(field: str, value: Any) -> tuple[str, ...]:
    """Parse a program's arguments."""
    if isinstance(value, str):
        raise InvalidSpec.of(
            field, value, 'allowed: a list such as ["python", "train.py"]; a shell line is written ["sh", "-c", "…"]'
        )
    return tuple(argument(f"{field}[{index}]", item) for index, item in enumerate(sequence(field, value)))


def text_map(field: str, value: Any) -> dict[str, str]:
    """Parse a map of texts; numbers become their text."""
    return {key: argument(f"{field}.{key}", item) for key, item in mapping(field, value).items()}


def _whole(value: Any) -> int | None:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if not isinstance(value, str):
        return None
    digits = value.strip()
    return int(digits) if digits.removeprefix("-").isdecimal() and len(digits) <= len(str(MAX_INT64)) else None


_READER = "reader"
_KEEPS_NONE = "keeps_none"


def setting(reader: Reader[Any], *, keeps_none: bool = False, **places: str | Place | Refused) -> Any:
    """Declare a field that is unset by default and otherwise parsed by this reader.

    Args:
        reader: parser of a given value.
        keeps_none: the text "None" is a valid value, not a template's rendering of None.
        places: places of the value in a job's object, and refusals, by owner; see `places`.
    """
    return field(default=None, metadata={_READER: reader, _KEEPS_NONE: keeps_none, PLACES: declared(places)})


def words_of(setting: Field[Any]) -> tuple[str, ...]:
    """Return a field's allowed words; () if it is not limited to words."""
    reader = setting.metadata.get(_READER)
    return reader.allowed if isinstance(reader, Word) else ()


def names(cls: type) -> tuple[str, ...]:
    """Return the names of the settings that a dataclass declares, in order."""
    return tuple(each.name for each in fields(cls))


def parse_into(cls: type[T], values: Mapping[str, Any], *, prefix: str = "") -> T:
    """Build the dataclass from named values; unset ones stay None.

    Raises:
        InvalidSpec: a name is unknown, or a value invalid; the path begins with the prefix.
    """
    for name in values:
        check_known(f"{prefix}{name}", name, names(cls))
    return cls(**parse_each(cls, values, prefix=prefix))


def parse_each(cls: type, values: Mapping[str, Any], *, prefix: str = "") -> dict[str, Any]:
    """Parse the given settings of a dataclass independently of each other; return those that are set.

    Raises:
        InvalidSpec: a value is invalid.
    """
    parsed = {each.name: _read(each, values.get(each.name), prefix) for each in fields(cls)}
    return {name: value for name, value in parsed.items() if value is not None}


def check_known(path: str, name: str, known: Sequence[str]) -> None:
    """Check that the name is known.

    Raises:
        InvalidSpec: the name is unknown; the text has the closest known name, else all of them.
    """
    if name not in known:
        raise unknown_field(path, name, known)


def unknown_field(path: str, name: str, known: Sequence[str]) -> InvalidSpec:
    """Return the error about a name that is not known."""
    close = nearest(name, known)
    meant = f"did you mean {close}?" if close else "known: " + ", ".join(known)
    return InvalidSpec.at(path, f"there is no such field; {meant}")


def _read(setting: Any, value: Any, prefix: str) -> Any:
    if value is None or (is_unset(value) and not (setting.metadata[_KEEPS_NONE] and value == "None")):
        return None
    check_texts(f"{prefix}{setting.name}", value)
    return setting.metadata[_READER](f"{prefix}{setting.name}", value)


_SOURCES = ("configMapRef", "secretRef")
_OF_ONE_POD = ("name", "generateName", "namespace", "uid", "resourceVersion", "creationTimestamp", "managedFields")


def env_sources(field: str, value: Any) -> tuple[Mapping[str, Any], ...]:
    """Parse a list of core/v1 EnvFromSource objects, or of `{"secret": NAME}` and `{"config_map": NAME}`."""
    items = enumerate(sequence(field, value))
    return tuple(env_source(f"{field}[{index}]", item) for index, item in items)


def env_source(path: str, value: Any) -> Mapping[str, Any]:
    """Parse one core/v1 EnvFromSource object, or its short form."""
    given = mapping(path, value)
    short = {"secret": "secretRef", "config_map": "configMapRef"}
    for key in given:
        check_known(f"{path}.{key}", key, (*_SOURCES, *short, "prefix"))
    source = {short.get(key, key): _reference(f"{path}.{key}", key, item) for key, item in given.items()}
    if sum(name in source for name in _SOURCES) != 1:
        raise InvalidSpec.of(path, sorted(given), 'allowed: {"secret": NAME}, {"config_map": NAME} or an EnvFromSource')
    return source


def containers(field: str, value: Any) -> tuple[Mapping[str, Any], ...]:
    """Parse a list of core/v1 Container objects with names."""
    items = tuple(mapping(f"{field}[{index}]", item) for index, item in enumerate(sequence(field, value)))
    for index, item in enumerate(items):
        text(f"{field}[{index}].name", item.get("name"))
    return items


def pod_template(field: str, value: Any) -> Manifest:
    """Parse a pod template, a pod or a PodTemplate (a map, a YAML text or a file's path) as a pod template.

    Metadata that belongs to one pod is dropped: name, namespace and the API server's fields.
    """
    given = load_object(value, field=field)
    kind = given.get("kind", "Pod")
    if kind not in {"Pod", "PodTemplate"}:
        raise InvalidSpec.of(f"{field}.kind", kind, one_of(("Pod", "PodTemplate")))
    template = mapping(f"{field}.template", given.get("template")) if kind == "PodTemplate" else given
    for name in template:
        check_known(f"{field}.{name}", name, ("apiVersion", "kind", "metadata", "spec", "status"))
    meta = mapping(f"{field}.metadata", template.get("metadata") or {})
    spec = dict(mapping(f"{field}.spec", template.get("spec") or {}))
    for name in ("containers", "initContainers", "volumes"):
        for index, item in enumerate(sequence(f"{field}.spec.{name}", spec.get(name) or [])):
            mapping(f"{field}.spec.{name}[{index}]", item)
    return {"metadata": {name: part for name, part in meta.items() if name not in _OF_ONE_POD}, "spec": spec}


def _reference(path: str, key: str, value: Any) -> Any:
    return {"name": text(path, value)} if key in {"secret", "config_map"} else value
