"""Event files of TensorBoard, encoded by hand."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from ptjob_provider.core.in_pod import probe_outputs

if TYPE_CHECKING:
    from pathlib import Path

FLOAT, DOUBLE, INT32, STRING, INT64 = 1, 2, 3, 7, 9


def varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    parts = []
    while value > 0x7F:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*parts, value])


def number(field: int, value: int) -> bytes:
    return varint(field << 3) + varint(value)


def part(field: int, value: bytes) -> bytes:
    return varint(field << 3 | 2) + varint(len(value)) + value


def real(field: int, value: float) -> bytes:
    return varint(field << 3 | 5) + struct.pack("<f", value)


def scalar(tag: str, value: float) -> bytes:
    return part(1, part(1, tag.encode()) + real(2, value))


def tensor(tag: str, content: bytes, *, plugin: str = "scalars") -> bytes:
    return part(1, part(1, tag.encode()) + part(8, content) + part(9, part(1, part(1, plugin.encode()))))


def event(step: int, *values: bytes, wall_time: float = 1.0) -> bytes:
    when = varint(1 << 3 | 1) + struct.pack("<d", wall_time)
    return when + number(2, step) + part(5, b"".join(values))


def record(data: bytes) -> bytes:
    head = struct.pack("<Q", len(data))
    return head + struct.pack("<I", probe_outputs._masked_crc32c(head)) + data + b"\0\0\0\0"


def events_file(*events: bytes) -> bytes:
    return b"".join(record(data) for data in (part(3, b"brain.Event:2"), *events))


def write(path: Path, *events: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(events_file(*events))
    return path
