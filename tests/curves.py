"""A program that writes curves for TensorBoard, and a reader of TensorBoard's tags."""

from __future__ import annotations

import json
import urllib.request

from cluster.shell import until

WRITES = """
import os
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.event_file_writer import EventFileWriter
writer = EventFileWriter(os.environ["PTJOB_TFEVENTS_DIR"])
for step in range(3):
    value = Summary.Value(tag="loss", simple_value=1.0 / (step + 1))
    writer.add_event(Event(step=step, summary=Summary(value=[value])))
writer.close()
"""


def tags(address: str, *, timeout: float) -> dict[str, dict[str, object]]:
    """Return TensorBoard's scalar tags when it has read its folder."""
    found: dict[str, dict[str, object]] = {}

    def has_read() -> bool:
        with urllib.request.urlopen(f"{address}data/plugin/scalars/tags", timeout=30) as answer:  # noqa: S310 - loopback
            found.update(json.load(answer))
        return bool(found)

    until("its curves", has_read, timeout=timeout)
    return found
