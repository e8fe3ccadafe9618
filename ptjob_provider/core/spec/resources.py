"""Resource requests of a pod as Kubernetes quantities: CPU, memory, devices and shared memory."""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Self

from ptjob_provider.core.errors import InvalidSpec
from ptjob_provider.core.spec import literals
from ptjob_provider.core.spec.settings import check_known

if TYPE_CHECKING:
    from collections.abc import Mapping

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
        given = literals.mapping(field, value)
        for part in given:
            check_known(f"{field}.{part}", part, ("requests", "limits"))
        found = cls(
            requests=_amounts(f"{field}.requests", given.get("requests") or {}),
            limits=_amounts(f"{field}.limits", given.get("limits") or {}),
        )
        check_within(field, found.requests, found.limits)
        return found

    def without(self, *names: str) -> Resources:
        """Return all but these."""
        requests, limits = (
            {name: size for name, size in part.items() if name not in names} for part in (self.requests, self.limits)
        )
        return Resources(requests=requests, limits=limits)

    def __contains__(self, name: object) -> bool:
        return name in self.requests or name in self.limits


def quantity(field: str, value: Any) -> str:
    """Parse a Kubernetes quantity; a number becomes its text."""
    return _matched(field, value)[0]


def cpu_quantity(field: str, value: Any) -> str:
    """Parse cores: `4`, `0.5` or `500m`."""
    cores = quantity(field, value)
    if amount(cores) < Decimal("0.001"):
        raise InvalidSpec.of(field, value, "cores such as 4, 0.5 or 500m, at least 1m")
    return cores


def memory_quantity(field: str, value: Any) -> str:
    """Parse bytes: `4Gi`, `512Mi`; less than 1Mi has a forgotten unit (`4`) or a wrong one (`512m`)."""
    size = quantity(field, value)
    if amount(size) < _MEBIBYTE:
        raise InvalidSpec.of(field, value, "bytes with a unit such as 4Gi or 512Mi, at least 1Mi")
    return size


def shared_memory_size(field: str, value: Any) -> str:
    """Parse a size or a boolean: true is the default size, false and 0 are none (`NO_SHARED_MEMORY`)."""
    if str(value).strip().lower() in {"true", "false"}:
        return DEFAULT_SHARED_MEMORY if literals.boolean(field, value) else NO_SHARED_MEMORY
    return NO_SHARED_MEMORY if str(value).strip() == "0" else memory_quantity(field, value)


def device_name(field: str, value: Any) -> str:
    """Parse the name of a device plugin's resource such as `nvidia.com/gpu`."""
    name = literals.text(field, value)
    if not _EXTENDED.fullmatch(name):
        raise InvalidSpec.of(field, value, "a device resource such as nvidia.com/gpu")
    return name


def check_within(field: str, requests: Mapping[str, str], limits: Mapping[str, str]) -> None:
    """Check that no request is above its limit: such a pod cannot be created.

    Raises:
        InvalidSpec: one is; the path goes on with `.requests`.
    """
    for name, request in requests.items():
        if name in limits and amount(request) > amount(limits[name]):
            raise InvalidSpec.of(f"{field}.requests.{name}", request, f"at most its limit, {limits[name]}")


def amount(quantity_text: str) -> Decimal:
    """Return the numeric value of a quantity."""
    match = _matched("quantity", quantity_text)
    number, suffix = Decimal(match["number"]), match["suffix"] or ""
    if suffix in _BINARY:
        return number * Decimal(2 ** _BINARY[suffix])
    return number.scaleb(_DECIMAL[suffix] if suffix in _DECIMAL else int(suffix[1:] or 0))


def _matched(field: str, value: Any) -> re.Match[str]:
    text = literals.argument(field, value).strip()
    match = _QUANTITY.fullmatch(text)
    if match is None or len(match[0]) > _MAX_QUANTITY:
        meant = _meant(text)
        advice = f"; did you mean {meant}?" if meant else ""
        raise InvalidSpec.of(field, value, f"a Kubernetes quantity such as 4, 0.5, 500m or 4Gi{advice}")
    return match


def _meant(text: str) -> str:
    """Return the quantity meant by a size with another unit, such as `16GB`, `16 GiB` or `16gi`; "" if unknown."""
    match = _OTHER_UNIT.fullmatch(text)
    return f"{match['number']}{match['unit'].upper()}i" if match else ""


def _amounts(field: str, value: Any) -> dict[str, str]:
    return {name: _amount_of(f"{field}.{name}", name, item) for name, item in literals.mapping(field, value).items()}


def _amount_of(path: str, name: str, value: Any) -> str:
    if name == "cpu":
        return cpu_quantity(path, value)
    if name == "memory":
        return memory_quantity(path, value)
    if name not in _NATIVE and not name.startswith("hugepages-"):
        device_name(path, name)
    return quantity(path, value)
