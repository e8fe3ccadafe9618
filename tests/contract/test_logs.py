"""Tests of a replica's log: live, complete, each line once."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections import Counter
from contextlib import aclosing
from typing import TYPE_CHECKING

import pytest

from worlds import ON_CLUSTER, STATE, differences, has_ended, held

if TYPE_CHECKING:
    from ptjob_provider.core.logs import LogLine
    from worlds import World


@pytest.mark.soak
async def test_a_line_can_be_read_while_it_is_written(world: World) -> None:
    """Within a second of being printed; only the first lines may wait for the status that the container runs."""
    program = "import time\nwhile True: print(time.time(), flush=True); time.sleep(0.5)"
    ref = await world.submit(world.job("live", program))

    began, delays = 0.0, []
    async with asyncio.timeout(world.patience), aclosing(world.backend.logs(ref, "live-master-0")) as lines:
        async for line in lines:
            began, printed = began or time.time(), float(line.text)
            delays += [time.time() - printed] if printed > began else []
            if len(delays) == 15:
                break

    assert statistics.median(delays) < 1


async def test_many_lines_come_once_and_in_order(world: World) -> None:
    """50,000 numbered lines, none lost, none twice.

    The program ends once they have been read: two seconds after a process has ended, containerd's shim drops what it
    has not read yet (39,727 of 50,000 lines had reached the node's file, on a busy machine).
    """
    program = f"for number in range(50_000): print('line', number, flush=number == 49_999)\n{held()}"
    ref = await world.submit(world.job("many", program, **STATE))

    lines = await world.lines(ref, "many-master-0", release_at="line 49999")

    expected = [f"line {number}" for number in range(50_000)]
    assert differences([line.text for line in lines], expected) == []


async def test_a_line_of_two_megabytes_arrives_whole(world: World) -> None:
    """It comes in pieces that join to the printed line."""
    program = f"print('x' * 2_000_000 + 'end'); print('after', flush=True)\n{held()}"
    ref = await world.submit(world.job("long", program, **STATE))

    lines = await world.lines(ref, "long-master-0", release_at="after")

    assert max(len(line.text) for line in lines) <= 64 * 1024
    assert "".join(line.text for line in lines[:-1]) == "x" * 2_000_000 + "end"
    assert [line.continues for line in lines[-3:]] == [True, False, False]
    assert lines[-1].text == "after"


async def test_bytes_that_are_no_text_do_no_harm(world: World) -> None:
    """They are replaced, and the following lines are there."""
    program = "import sys; sys.stdout.buffer.write(b'bad \\xff\\xfe bytes\\nr\\xc3\\xa4der\\r\\nlast')"
    ref = await world.submit(world.job("bytes", program))

    assert await world.text(ref, "bytes-master-0") == ["bad \ufffd\ufffd bytes", "räder", "last"]


async def test_both_streams_are_in_the_log_in_their_order(world: World) -> None:
    """Lines of stderr are where they were written, unless both streams are written at the same moment."""
    step = "until [ -e /state/{} ]; do sleep 0.1; done"
    script = f"echo one; {step.format('one')}; echo two >&2; {step.format('two')}; echo three"
    ref = await world.submit(world.job("both", ["sh", "-c", script], **STATE))
    for word in ("one", "two"):
        await world.line(ref, "both-master-0", word)
        world.release(word)

    assert await world.text(ref, "both-master-0") == ["one", "two", "three"]


@ON_CLUSTER
async def test_reading_goes_on_after_any_line_of_any_run(world: World) -> None:
    """Resuming at a cursor yields exactly the rest, across restarts of the container; a notice may say that it has."""
    program = """
        import pathlib, sys, time
        count = pathlib.Path("/state/count")
        runs = int(count.read_text()) if count.exists() else 0
        count.write_text(str(runs + 1))
        for number in range(40): print("run", runs, "line", number)
        while not pathlib.Path(f"/state/{runs}").exists(): time.sleep(0.05)
        sys.exit(1 if runs < 2 else 0)
    """
    ref = await world.submit(world.job("resume", program, policy="OnFailure", **STATE))
    reading = asyncio.create_task(world.lines(ref, "resume-master-0"))
    for run in range(3):  # a node deletes unread logs when it restarts a container several times
        await world.line(ref, "resume-master-0", f"run {run} line 39")
        world.release(str(run))
    whole = _of_program(await reading)

    places = range(40 * world.first_kept_run, len(whole), 7)
    rests = {
        place: _of_program(await world.lines(ref, "resume-master-0", since=whole[place].cursor)) for place in places
    }

    assert [line.text for line in whole] == [f"run {run} line {number}" for run in range(3) for number in range(40)]
    assert all(rest == whole[place + 1 :] for place, rest in rests.items())


@ON_CLUSTER
async def test_following_waits_for_a_replica_that_has_not_begun(world: World) -> None:
    """The log of a suspended job is read once the job runs."""
    ref = await world.submit(world.job("patient", "print('at last')", suspend=True))
    reading = asyncio.create_task(world.text(ref, "patient-master-0"))
    await asyncio.sleep(0.5)
    assert not reading.done()

    await world.backend.patch(ref, {"spec": {"runPolicy": {"suspend": False}}})

    assert await reading == ["at last"]


async def test_without_following_reading_ends_at_once(world: World) -> None:
    """It ends at the last available line, even if there is none."""
    ref = await world.submit(world.job("snap", "import time; print('first', flush=True); time.sleep(600)"))
    await world.line(ref, "snap-master-0", "first")

    async with asyncio.timeout(world.patience):
        now = [line.text async for line in world.backend.logs(ref, "snap-master-0", follow=False)]
        none = [line.text async for line in world.backend.logs(ref, "snap-worker-0", follow=False)]

    assert (now, none) == (["first"], [])


async def test_following_ends_when_the_job_is_deleted(world: World) -> None:
    """After the last line, and without an error."""
    ref = await world.submit(world.job("cut", "import time; print('only', flush=True); time.sleep(600)"))
    reading = asyncio.create_task(world.text(ref, "cut-master-0"))
    await world.line(ref, "cut-master-0", "only")

    await world.backend.delete(ref)

    assert await reading == ["only"]


async def test_an_endless_log_is_read_in_bounded_steps(world: World) -> None:
    """Other tasks run at least once in some thousand lines, although the log is read as fast as possible."""
    program = "import sys\nwhile True: sys.stdout.write('y' * 99 + chr(10))"
    ref = await world.submit(world.job("endless", program))
    turns = 0

    async def other_work() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    other, lines_of_turn = asyncio.create_task(other_work()), Counter[int]()
    async with asyncio.timeout(world.patience), aclosing(world.backend.logs(ref, "endless-master-0")) as log:
        async for _ in log:
            lines_of_turn[turns] += 1
            if lines_of_turn.total() == 30_000:
                break
    other.cancel()

    assert max(lines_of_turn.values()) < 5_000


async def test_the_end_of_the_log_comes_with_the_end_of_the_job(world: World) -> None:
    """Every line is there once the replica's end is reported."""
    ref = await world.submit(world.job("tail", "for number in range(2000): print(number)"))
    await world.observe(ref, has_ended)

    text = [line.text async for line in world.backend.logs(ref, "tail-master-0", follow=False)]

    assert text[-1] == "1999"


def _of_program(lines: list[LogLine]) -> list[LogLine]:
    return [line for line in lines if not line.notice]
