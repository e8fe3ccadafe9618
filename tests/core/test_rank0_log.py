"""What is read of a replica's log before its job is deleted, where its pod's status does not hold it."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from fakes import ScriptedBackend
from ptjob_provider.core.diagnosis import Cause, Diagnosis
from ptjob_provider.core.identity import JobRef
from ptjob_provider.core.logs import LogCursor, LogLine
from ptjob_provider.core.rank0_log import with_last_lines

REF = JobRef(kind="TrainJob", namespace="team", name="digits", uid="u")
REPLICA = "digits-node-0-1"
PLACE = LogCursor(pod_uid="p", container="node", restart_count=0, timestamp="2026-11-20T10:00:00Z", ordinal=0)
WHY = Diagnosis.of(Cause.CRASH_LOOP, f"{REPLICA} exited with code 3", replica=REPLICA)


async def told(why: Diagnosis | None) -> Diagnosis | None:
    """Return the reason with what a back-end has of the log."""
    backend = ScriptedBackend()
    backend.lines = [LogLine(text=text, timestamp=PLACE.timestamp, cursor=PLACE) for text in ("step 7", "token 1234")]
    async with asyncio.timeout(10):
        return await with_last_lines(backend, REF, why, mask=lambda text: text.replace("1234", "***"))


async def test_a_reason_without_lines_is_given_the_last_ones_of_its_replica() -> None:
    """Masked, and before the job is deleted: afterwards nobody can read them."""
    found = await told(WHY)

    assert found == replace(WHY, log_tail=("step 7", "token ***"))


async def test_a_reason_that_has_lines_or_names_nobody_stays_as_it_is() -> None:
    """What the pod's status held is enough."""
    known, nobodys = replace(WHY, log_tail=("known",)), replace(WHY, replica="")

    assert [await told(known), await told(nobodys), await told(None)] == [known, nobodys, None]
