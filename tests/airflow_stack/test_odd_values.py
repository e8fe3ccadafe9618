"""Tests of values that programs write and that Airflow or its database cannot store."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import httpx
import pytest

import postgresql
from airflow_stack.conftest import WAITS, lab_in, started
from cluster.fixtures import skip_because
from ptjob_provider.core.in_pod.run_function import KEY, MAX_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from airflow_stack.conftest import Lab
    from task_run import TaskRun

pytestmark = pytest.mark.timeout(1800)

MESSAGE_FILE = "/dev/termination-log"
ODD: dict[str, str] = {
    "uuid": "312345678901234567890123456789012345678",
    "beyond": "18446744073709551616",
    "below": "-9223372036854775809",
    "nan": "NaN",
    "infinite": "-Infinity",
    "half": r'"\ud800 half"',
    "nul": r'"a\u0000b"',
    r"key\u0000": "1",
    r"key\udc00": "[1e999]",
    "deep": "[" * 300 + "]" * 300,
    "control": r'"\u0001\u001b[31m\u007f\u0085"',
    "double": "0.1",
}
"""Values as a program writes them into its message, by their keys; Python's JSON reads all of them."""

ARRIVES = {
    "uuid": "312345678901234567890123456789012345678",
    "nan": "NaN",
    "half": "� half",
    "nul": "a�b",
    "double": 0.1,
}
LOG = b'Traceback (most recent call last):\n  File "train.py", line 1\nValueError: \0 \xff \xed\xa0\x80 NUL\n'


def returned(values: dict[str, str]) -> bytes:
    """Return the message of a program that returns a map of these values, which are JSON texts."""
    fields = ", ".join(f'"{key}": {text}' for key, text in values.items())
    return f'{{"{KEY}": {{{fields}}}}}'.encode()


def let_end(lab: Lab, name: str, content: bytes) -> None:
    """Let the job that waits for this name end with the content."""
    partial = lab.work / f"{name}.partial"
    partial.write_bytes(content)
    partial.rename(lab.work / name)


def test_a_jobs_output_never_stops_another_job(lab: Lab) -> None:
    """The triggerer that follows another job stays the same process, and each task ends as its own job did."""
    other, triggerer = started(lab, "defer_0", "odd-other"), lab.stack["triggerer"].pid
    tasks: dict[str, TaskRun] = {}
    for mode, waits in WAITS.items():
        for how, content, words in (
            ("message", returned(ODD), ["leave", f"odd-{mode}-message", MESSAGE_FILE]),
            ("log", LOG, ["die_with", f"odd-{mode}-log"]),
        ):
            tasks[f"{mode}-{how}"] = lab.start(f"{mode}_0", *words)
            tasks[f"{mode}-{how}"].wait(waits)
            let_end(lab, words[1], content)
    states = {name: task.wait() for name, task in tasks.items()}
    lab.release("odd-other")

    assert states == {name: "success" if name.endswith("message") else "failed" for name in tasks}
    assert other.wait() == "success"
    assert lab.stack["triggerer"].pid == triggerer
    assert "Trigger runner process has died" not in lab.stack["triggerer"].log.read_text(errors="replace")
    for mode in WAITS:
        found = tasks[f"{mode}-message"].xcom()["return_value"]
        assert {name: found[name] for name in ARRIVES} == ARRIVES
        assert "return_value.uuid (an integer beyond 64 bits)" in tasks[f"{mode}-message"].text()
        assert "ValueError: � " in tasks[f"{mode}-log"].xcom("diagnosis")["message"]


THOUSAND = 1000
SEED = 31


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def odd_lab(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, tell: Callable[[str], None]
) -> Iterator[Lab]:
    """Start a stack on each database."""
    root = tmp_path_factory.mktemp(f"odd-{request.param}")
    if request.param == "sqlite":
        with lab_in(root, database_url="") as lab:
            yield lab
        return
    skip_because(postgresql.unmet())
    with postgresql.database(tell) as address, lab_in(root, database_url=address) as lab:
        yield lab


def test_a_thousand_odd_values_pass_through_the_triggerer_and_the_worker(odd_lab: Lab) -> None:
    """They come in few jobs, as many in a message as Kubernetes lets through; one job of each mode fails with its."""
    lab, draw = odd_lab, random.Random(SEED)  # noqa: S311 - a fixed seed
    triggerer = lab.stack["triggerer"].pid
    messages = [message(draw) for _ in range(4)]
    assert sum(count for _, count in messages) >= THOUSAND
    ends = {f"many-{mode}-{number}": content for mode in WAITS for number, (content, _) in enumerate(messages)}
    tasks: dict[str, TaskRun] = {}
    for name in ends:
        mode, fails = name.split("-")[1], name.endswith("3")
        tasks[name] = begun(lab, f"{mode}_0", *(["die_with", name] if fails else ["leave", name, MESSAGE_FILE]))
    for name, content in ends.items():
        if "defer" in name:
            tasks[name].wait("deferred")
        let_end(lab, name, content)

    found = {name: task.wait() for name, task in tasks.items()}
    assert found == {name: "failed" if name.endswith("3") else "success" for name in tasks}
    assert lab.stack["triggerer"].pid == triggerer
    assert "Trigger runner process has died" not in lab.stack["triggerer"].log.read_text(errors="replace")


def begun(lab: Lab, dag_id: str, *words: str) -> TaskRun:
    """Start a run; again if Airflow's API server has blocked itself, see `postgresql.database_if_possible`."""
    for _ in range(3):
        try:
            return lab.start(dag_id, *words)
        except httpx.HTTPStatusError as error:
            if not error.response.is_server_error:
                raise
    return lab.start(dag_id, *words)


def message(draw: random.Random) -> tuple[bytes, int]:
    """Return a message full of odd values, and their number."""
    values = [odd_value(draw)]
    while sum(map(len, values)) + len(values) < MAX_BYTES - 150:
        values.append(odd_value(draw))
    return f'{{"{KEY}":[{",".join(values)}]}}'.encode(), len(values)


def odd_value(draw: random.Random, depth: int = 0) -> str:
    """Return the JSON text of a value that some reader refuses."""
    kinds: list[Callable[[], Any]] = [
        lambda: draw.choice(["NaN", "Infinity", "-Infinity", "1e999", "-1e999"]),
        lambda: draw.choice(["", "-"]) + str(draw.getrandbits(draw.choice([64, 65, 70, 128]))),
        lambda: f'"{draw.choice(["a", ""])}\\u{draw.randrange(0xD800, 0xE000):04x}"',
        lambda: r'"\u0000"',
        lambda: f'"\\u{draw.randrange(32):04x}"',
        lambda: f"[{odd_value(draw, depth + 1)}]" if depth < 3 else "[]",
        lambda: f'{{"\\u0000": {odd_value(draw, depth + 1)}}}' if depth < 3 else "{}",
    ]
    return str(draw.choice(kinds)())
