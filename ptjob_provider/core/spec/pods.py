"""Parse the fields about pods: resources, environment, placement and volumes."""

from __future__ import annotations

import posixpath
import re
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Self

from ptjob_provider.core.errors import InvalidSpec
from ptjob_provider.core.identity import SUBDOMAIN, is_object_name
from ptjob_provider.core.spec import parsers
from ptjob_provider.core.spec.parsers import check_known, parse_into, setting

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

DEFAULT_GPU = "nvidia.com/gpu"
DEFAULT_SHARED_MEMORY = "2Gi"
NO_SHARED_MEMORY = "0"

_QUANTITY = re.compile(r"(?P<number>\d+(?:\.\d*)?|\.\d+)(?P<suffix>[numkMGTPE]|[KMGTPE]i|[eE][+-]?\d{1,2})?", re.ASCII)
_OTHER_UNIT = re.compile(r"(?P<number>\d+(?:\.\d+)?)\s*(?P<unit>[KMGTP])(?:i?b|i)?", re.ASCII | re.IGNORECASE)
_EXTENDED = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?/[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")
_DECIMAL = {"n": -9, "u": -6, "m": -3, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_MEBIBYTE = 2**20
_MAX_QUANTITY = 40
_NATIVE = ("cpu", "memory", "ephemeral-storage")
_ANY = "a Kubernetes quantity such as 4, 0.5, 500m or 4Gi"
_CORES = "cores such as 4, 0.5 or 500m, at least 1m"
_BYTES = "bytes with a unit such as 4Gi or 512Mi, at least 1Mi"
_DEVICES = "a number of devices such as 1"


@dataclass(frozen=True, kw_only=True)
class Resources:
    """Separate requests and limits, by resource name."""

    requests: Mapping[str, str]
    limits: Mapping[str, str]

    @classmethod
    def parse(cls, field: str, value: Any) -> Self:
        """Parse `{"requests": {...}, "limits": {...}}`.

        Raises:
            InvalidSpec: a part or resource is unknown, a quantity invalid, or a request above its limit.
        """
        given = parsers.mapping(field, value)
        for part in given:
            check_known(f"{field}.{part}", part, ("requests", "limits"))
        resources = cls(
            requests=_amounts(f"{field}.requests", given.get("requests") or {}),
            limits=_amounts(f"{field}.limits", given.get("limits") or {}),
        )
        check_within(field, resources.requests, resources.limits)
        return resources

    def __contains__(self, name: object) -> bool:
        return name in self.requests or name in self.limits


def quantity(field: str, value: Any, allowed: str = _ANY) -> str:
    """Parse a Kubernetes quantity; a number becomes its text."""
    return _matched(field, value, allowed)[0]


def cpu_quantity(field: str, value: Any) -> str:
    """Parse cores: `4`, `0.5` or `500m`; with a larger unit (`4Gi`, `1k`), memory was meant."""
    cores = _cores(field, value)
    if cores[-1] in "kMGTPEi":
        raise InvalidSpec.of(field, value, f"allowed: {_CORES}")
    return cores


def memory_quantity(field: str, value: Any) -> str:
    """Parse bytes: `4Gi`, `512Mi`; below 1Mi, the unit was forgotten (`4`) or is wrong (`512m`)."""
    size = quantity(field, value, _BYTES)
    if amount(size) < _MEBIBYTE:
        raise InvalidSpec.of(field, value, f"allowed: {_BYTES}")
    return size


def shared_memory_size(field: str, value: Any) -> str:
    """Parse a size or a boolean: true is the default size, false and 0 are none (`NO_SHARED_MEMORY`)."""
    if str(value).strip().lower() in {"true", "false"}:
        return DEFAULT_SHARED_MEMORY if parsers.boolean(field, value) else NO_SHARED_MEMORY
    return NO_SHARED_MEMORY if str(value).strip() == "0" else memory_quantity(field, value)


def device_name(field: str, value: Any) -> str:
    """Parse the name of a device plugin's resource such as `nvidia.com/gpu`."""
    name = parsers.text(field, value)
    if not _EXTENDED.fullmatch(name):
        raise InvalidSpec.of(field, value, "allowed: a device resource such as nvidia.com/gpu")
    return name


def check_within(field: str, requests: Mapping[str, str], limits: Mapping[str, str]) -> None:
    """Check that no request is above its limit: such a pod cannot be created.

    Raises:
        InvalidSpec: a request is above its limit; the path continues with `.requests`.
    """
    for name, request in requests.items():
        if name in limits and amount(request) > amount(limits[name]):
            raise InvalidSpec.of(f"{field}.requests.{name}", request, f"allowed: at most its limit, {limits[name]}")


def amount(quantity_text: str) -> Decimal:
    """Return the numeric value of a quantity."""
    match = _matched("quantity", quantity_text)
    number, suffix = Decimal(match["number"]), match["suffix"] or ""
    if suffix in _BINARY:
        return number * Decimal(2 ** _BINARY[suffix])
    return number.scaleb(_DECIMAL[suffix] if suffix in _DECIMAL else int(suffix[1:] or 0))


def _matched(field: str, value: Any, allowed: str = _ANY) -> re.Match[str]:
    text = (value if isinstance(value, str) else parsers.argument(field, value)).strip()
    match = _QUANTITY.fullmatch(text)
    if match is None or len(match[0]) > _MAX_QUANTITY:
        meant = _meant(text) if "Gi" in allowed else ""
        advice = f"; did you mean {meant}?" if meant else ""
        raise InvalidSpec.of(field, value, f"allowed: {allowed}{advice}")
    return match


def _meant(text: str) -> str:
    """Return the quantity for a size in another notation, such as `16GB`, `16 GiB` or `16gi`; "" if it is none."""
    match = _OTHER_UNIT.fullmatch(text)
    return f"{match['number']}{match['unit'].upper()}i" if match else ""


def _amounts(field: str, value: Any) -> dict[str, str]:
    given = parsers.mapping(field, value)
    return {name: resource_amount(f"{field}.{name}", name, item) for name, item in given.items()}


def resource_amount(path: str, name: str, value: Any) -> str:
    """Parse the amount of a resource: cores, bytes, or a number of devices."""
    if name == "cpu":
        return _cores(path, value)
    if name == "memory":
        return memory_quantity(path, value)
    if name in _NATIVE or name.startswith("hugepages-"):
        return quantity(path, value)
    device_name(path, name)
    return quantity(path, value, _DEVICES)


def _cores(field: str, value: Any) -> str:
    cores = quantity(field, value, _CORES)
    if amount(cores) < Decimal("0.001"):
        raise InvalidSpec.of(field, value, f"allowed: {_CORES}")
    return cores


_NAME = re.compile(r"[-._a-zA-Z][-._a-zA-Z0-9]*")
_REFERENCES = {"secret": "secretKeyRef", "config_map": "configMapKeyRef"}
_ALLOWED = 'allowed: a text, a number, {"secret": NAME, "key": KEY} or {"config_map": NAME, "key": KEY}'


@dataclass(frozen=True, kw_only=True)
class EnvVar:
    """One variable: a value, or the source of its value (`value_from`, in the wire format)."""

    name: str
    value: str | None = None
    value_from: Mapping[str, Any] | None = None

    def to_wire(self) -> dict[str, Any]:
        """Return the variable as core/v1 EnvVar."""
        if self.value_from is not None:
            return {"name": self.name, "valueFrom": dict(self.value_from)}
        return {"name": self.name, "value": self.value}


def environment(field: str, value: Any) -> tuple[EnvVar, ...]:
    """Parse a map of variables, or a list of core/v1 EnvVar objects.

    Raises:
        InvalidSpec: a name or a value is invalid; the text never contains values.
    """
    if isinstance(value, list | tuple):
        return tuple(_from_wire(f"{field}[{index}]", item) for index, item in enumerate(value))
    return tuple(_variable(f"{field}.{name}", name, item) for name, item in parsers.mapping(field, value).items())


def merged(*layers: Iterable[EnvVar] | None) -> tuple[EnvVar, ...]:
    """Return the variables of all layers; a later layer's value replaces an earlier one in place."""
    by_name = {variable.name: variable for layer in layers for variable in layer or ()}
    return tuple(by_name.values())


def _variable(path: str, name: str, value: Any) -> EnvVar:
    _check_name(path, name)
    if isinstance(value, dict):
        return EnvVar(name=name, value_from=_reference(path, value))
    return EnvVar(name=name, value=_plain(path, value))


def _plain(path: str, value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise InvalidSpec.at(path, f"this value is not allowed; {_ALLOWED}; quote true and false")
    return str(value)


def _reference(path: str, value: Mapping[str, Any]) -> dict[str, Any]:
    kinds = [kind for kind in _REFERENCES if kind in value]
    for key in value:
        check_known(f"{path}.{key}", key, (*_REFERENCES, "key", "optional"))
    if len(kinds) != 1 or "key" not in value:
        raise InvalidSpec.of(path, sorted(value), _ALLOWED)
    kind = kinds[0]
    source = {"name": parsers.text(f"{path}.{kind}", value[kind]), "key": parsers.text(f"{path}.key", value["key"])}
    optional = {"optional": parsers.boolean(f"{path}.optional", value["optional"])} if "optional" in value else {}
    return {_REFERENCES[kind]: {**source, **optional}}


def _from_wire(path: str, item: Any) -> EnvVar:
    given = parsers.mapping(path, item)
    for key in given:
        check_known(f"{path}.{key}", key, ("name", "value", "valueFrom"))
    name = parsers.text(f"{path}.name", given.get("name"))
    _check_name(path, name)
    source = given.get("valueFrom")
    if source is not None:
        return EnvVar(name=name, value_from=dict(parsers.mapping(f"{path}.valueFrom", source)))
    return EnvVar(name=name, value=_plain(f"{path}.value", given.get("value", "")))


def _check_name(path: str, name: str) -> None:
    if not _NAME.fullmatch(name):
        raise InvalidSpec.of(
            path, name, "allowed: a name of letters, digits, '_', '-' and '.', not beginning with a digit"
        )


_WORD = r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
_KEY = re.compile(rf"((?=[^/]{{1,253}}/){SUBDOMAIN}/)?{_WORD}")
_VALUE = re.compile(rf"({_WORD})?")
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_TOLERATION: Mapping[str, parsers.Reader[Any]] = {
    "key": parsers.argument,
    "operator": parsers.word("Equal", "Exists", "Lt", "Gt"),
    "value": parsers.argument,
    "effect": parsers.word("NoSchedule", "PreferNoSchedule", "NoExecute"),
    "tolerationSeconds": parsers.integer(0, parsers.MAX_INT64),
}
_AFFINITY = ("nodeAffinity", "podAffinity", "podAntiAffinity")


def _matching(pattern: re.Pattern[str], allowed: str) -> parsers.Reader[str]:
    """Return a parser of texts of this form."""

    def read(field: str, value: Any) -> str:
        if not isinstance(value, str) or not pattern.fullmatch(value):
            raise InvalidSpec.of(field, value, allowed)
        return value

    return read


dns_label = _matching(_LABEL, "allowed: at most 63 lower-case letters, digits and '-', a letter or digit at both ends")
"""Parser of a DNS-1123 label, as a namespace is and the name of a container or a volume."""
label_value = _matching(_VALUE, "allowed: at most 63 letters, digits, '-', '_' and '.', a letter or digit at both ends")
qualified_name = _matching(_KEY, "allowed: a name such as team or example.com/team")
"""Parser of a label's key, or of a name of the same form."""


def _object_name(field: str, value: Any, *, what: str) -> str:
    name = parsers.text(field, value)
    if not is_object_name(name):
        raise InvalidSpec.of(field, value, f"allowed: the name of a {what} (lower-case letters, digits, '-', '.')")
    return name


def annotation_map(field: str, value: Any) -> dict[str, str]:
    """Parse annotations: qualified names, in any case, and any text."""
    annotations = parsers.text_map(field, value)
    check_annotations(field, annotations)
    return annotations


def label_map(field: str, value: Any) -> dict[str, str]:
    """Parse labels, or a selector: qualified names, values of at most 63 letters, digits, '-', '_', '.'."""
    labels = parsers.text_map(field, value)
    check_labels(field, labels)
    return labels


def check_annotations(field: str, annotations: Iterable[str]) -> None:
    """Check the keys of annotations.

    Raises:
        InvalidSpec: the text names the key.
    """
    for key in annotations:
        qualified_name(field, key.lower())


def check_labels(field: str, labels: Mapping[str, str]) -> None:
    """Check the keys and the values of labels.

    Raises:
        InvalidSpec: the text names the key or the value.
    """
    for key, item in labels.items():
        qualified_name(field, key)
        label_value(f"{field}.{key}", item)


def tolerations(field: str, value: Any) -> tuple[Mapping[str, Any], ...]:
    """Parse a list of core/v1 Toleration objects."""
    return tuple(_toleration(f"{field}[{index}]", item) for index, item in enumerate(parsers.sequence(field, value)))


def affinity(field: str, value: Any) -> Mapping[str, Any]:
    """Parse a core/v1 Affinity object; the API server validates its parts."""
    rules = parsers.mapping(field, value)
    for key in rules:
        check_known(f"{field}.{key}", key, _AFFINITY)
    return rules


def secret_names(field: str, value: Any) -> tuple[str, ...]:
    """Parse the names of secrets, each as a text or as `{"name": …}`."""
    items = enumerate(parsers.sequence(field, value))
    return tuple(_object_name(f"{field}[{index}]", _name_of(item), what="Secret") for index, item in items)


def _name_of(item: Any) -> Any:
    return item["name"] if isinstance(item, dict) and set(item) == {"name"} else item


def _toleration(path: str, item: Any) -> Mapping[str, Any]:
    fields = {key: part for key, part in parsers.mapping(path, item).items() if part is not None}
    for key in fields:
        check_known(f"{path}.{key}", key, tuple(_TOLERATION))
    return {key: _TOLERATION[key](f"{path}.{key}", part) for key, part in fields.items()}


_SHORT = re.compile(r"(?P<claim>[^/:]+)(?:/(?P<sub_path>[^:]+))?:(?P<mount_path>/[^:]*)(?::(?P<mode>ro|rw))?")


def claim_name(field: str, value: Any) -> str:
    """Parse the name of a claim.

    Raises:
        InvalidSpec: the name is invalid.
    """
    return _object_name(field, value, what="PersistentVolumeClaim")


def _mount_path(field: str, value: Any) -> str:
    path = absolute_path(field, value)
    if path == "/" or ":" in path:
        raise InvalidSpec.of(field, value, "allowed: an absolute path other than '/', without ':'")
    return path


def _sub_path(field: str, value: Any) -> str:
    path = parsers.text(field, value)
    if path.startswith("/") or ".." in path.split("/"):
        raise InvalidSpec.of(field, value, "allowed: a path inside the claim, without a leading '/' and without '..'")
    return posixpath.normpath(path)


@dataclass(frozen=True, kw_only=True)
class VolumeMount:
    """A claim, or a folder of it (`sub_path`), mounted into the container."""

    claim: str = setting(claim_name)
    mount_path: str = setting(_mount_path)
    sub_path: str | None = setting(_sub_path)
    read_only: bool | None = setting(parsers.boolean)

    @classmethod
    def parse(cls, field: str, value: Any) -> VolumeMount:
        """Parse `claim:/path`, `claim:/path:ro`, `claim/sub/path:/path` or a map with the same parts.

        Raises:
            InvalidSpec: the value has none of these forms, or a part is invalid.
        """
        if isinstance(value, str):
            value = _parts(field, value)
        mount = parse_into(cls, parsers.mapping(field, value), prefix=f"{field}.")
        for required in ("claim", "mount_path"):
            if getattr(mount, required) is None:
                raise InvalidSpec.of(f"{field}.{required}", None, "required")
        return mount


@dataclass(frozen=True, kw_only=True)
class PodVolume:
    """A volume of any kind in the wire format, mounted by `volume_mounts`."""

    name: str
    source: Mapping[str, Any]

    def to_wire(self) -> dict[str, Any]:
        """Return the volume as core/v1 Volume."""
        return {"name": self.name, **self.source}


def volumes(field: str, value: Any) -> tuple[VolumeMount | PodVolume, ...]:
    """Parse a list whose items are claims with their paths or core/v1 Volume objects.

    Raises:
        InvalidSpec: an item is invalid, or two share a path or a name.
    """
    items = parsers.sequence(field, value)
    parsed = tuple(volume(f"{field}[{index}]", item) for index, item in enumerate(items))
    paths = [each.mount_path if isinstance(each, VolumeMount) else None for each in parsed]
    _check_distinct(field, "mount_path", paths, "allowed: one mount per path")
    names = [each.name if isinstance(each, PodVolume) else None for each in parsed]
    _check_distinct(field, "name", names, "allowed: one volume per name")
    return parsed


def volume_mounts(field: str, value: Any) -> tuple[Mapping[str, Any], ...]:
    """Parse a list of core/v1 VolumeMount objects.

    Raises:
        InvalidSpec: an item lacks a name or a path, or two share a path.
    """
    mounts = tuple(volume_mount(f"{field}[{index}]", item) for index, item in enumerate(parsers.sequence(field, value)))
    _check_distinct(field, "mountPath", [each["mountPath"] for each in mounts], "allowed: one mount per path")
    return mounts


def volume(field: str, value: Any) -> VolumeMount | PodVolume:
    """Parse a claim with its path, or a core/v1 Volume object."""
    if isinstance(value, str) or "name" not in parsers.mapping(field, value):
        return VolumeMount.parse(field, value)
    source = {key: item for key, item in value.items() if key != "name"}
    return PodVolume(name=parsers.text(f"{field}.name", value["name"]), source=source)


def volume_mount(field: str, value: Any) -> Mapping[str, Any]:
    """Parse a core/v1 VolumeMount object."""
    mount = parsers.mapping(field, value)
    return {
        **mount,
        "name": parsers.text(f"{field}.name", mount.get("name")),
        "mountPath": _mount_path(f"{field}.mountPath", mount.get("mountPath")),
    }


def absolute_path(field: str, value: Any) -> str:
    """Parse an absolute path of the container, without `..`; a trailing slash is dropped."""
    path = parsers.text(field, value)
    if not path.startswith("/") or ".." in path.split("/"):
        raise InvalidSpec.of(field, value, "allowed: an absolute path without '..'")
    return "/" + posixpath.normpath(path).lstrip("/")


def _check_distinct(field: str, part: str, values: Sequence[str | None], allowed: str) -> None:
    for index, value in enumerate(values):
        if value is not None and value in values[:index]:
            raise InvalidSpec.of(f"{field}[{index}].{part}", value, allowed)


def _parts(field: str, value: str) -> dict[str, Any]:
    match = _SHORT.fullmatch(value.strip())
    if match is None:
        allowed = (
            "allowed: claim:/path, claim:/path:ro, claim/sub/path:/path, or a map of claim, mount_path, sub_path, "
            "read_only"
        )
        raise InvalidSpec.of(field, value, allowed)
    read_only = True if match["mode"] == "ro" else None
    return {name: match[name] for name in ("claim", "sub_path", "mount_path")} | {"read_only": read_only}
