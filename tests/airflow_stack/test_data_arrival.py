"""Test of DAGs scheduled on data arrival, in a real Airflow on PostgreSQL whose triggerer is killed."""

from __future__ import annotations

import json
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import postgresql
import s3_server
from cluster.fixtures import skip_because
from demo.stack import Stack, StackConfig
from task_run import until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from s3_server import S3Server

pytestmark = pytest.mark.timeout(1800)

DAGS = Path(__file__).parent / "arrival_dags"
BUCKET = "training-data"
PATIENCE = 600


@dataclass(frozen=True)
class Place:
    """A source of batches, and the record of its events that the DAG's runs write."""

    name: str
    address: str
    stack: Stack
    seen: Path
    write: Callable[[str, bytes], None]

    def drop(self, batch: str) -> None:
        """Write a batch, its marker last."""
        self.write(f"{batch}/part-0", batch.encode())
        self.write(f"{batch}/_SUCCESS", b"")

    def recorded_events(self) -> Counter[str]:
        """Return the number of recorded events per batch name; a batch has one content here, so it must have one id."""
        lines = set(self.seen.read_text().splitlines()) if self.seen.exists() else set()
        ids = [line.partition(" ")[2] for line in lines]
        assert len(set(ids)) == len({each.rpartition("@")[0] for each in ids}), "one content, two ids"
        return Counter(each.rpartition("@")[0] for each in ids)

    def announcements(self) -> int:
        """Return how often the triggerer's log announces something of this source."""
        said = self.stack["triggerer"].log.read_text()
        return sum("announcing" in line and self.address in line for line in said.splitlines())

    def wait_for(self, *batches: str) -> None:
        """Wait until runs have recorded these batches."""
        until(
            lambda: set(batches) <= self.recorded_events().keys(),
            timeout=PATIENCE,
            what=lambda: str(self.recorded_events()),
        )

    def settle(self) -> Counter[str]:
        """Wait a few polls and until no run is active, then return the recorded events."""
        time.sleep(5)
        until(self._is_idle, timeout=PATIENCE, what=f"the end of the runs of {self.name}")
        return self.recorded_events()

    def _is_idle(self) -> bool:
        return all(run["state"] == "success" for run in self.stack.api.runs(f"consume_{self.name}"))


@pytest.fixture(scope="module")
def server(tell: Callable[[str], None]) -> Iterator[S3Server]:
    """A real S3 server with a bucket."""
    skip_because(s3_server.unmet())
    with s3_server.running(tell) as found:
        found.files.mkdir(BUCKET)
        yield found


@pytest.fixture(scope="module")
def places(
    tmp_path_factory: pytest.TempPathFactory, server: S3Server, tell: Callable[[str], None]
) -> Iterator[dict[str, Place]]:
    """Start Airflow on PostgreSQL, with one DAG that waits for a directory and one that waits for a bucket."""
    skip_because(postgresql.unmet())
    root = tmp_path_factory.mktemp("arrivals")
    directory, seen = root / "incoming", root / "seen"
    for folder in (directory, seen):
        folder.mkdir()
    often = {"poll_seconds": 1, "settle_seconds": 2}
    sources: dict[str, dict[str, Any]] = {
        "directory": {"source": str(directory), **often},
        "bucket": {"source": f"s3://{BUCKET}/incoming", "conn_id": "store", "events": "together", **often},
    }
    settings = {
        "ARRIVALS_SOURCES": json.dumps(sources),
        "ARRIVALS_SEEN": str(seen),
        "AIRFLOW_CONN_STORE": server.connection(),
        "AIRFLOW__SCHEDULER__SCHEDULER_IDLE_SLEEP_TIME": "0.3",
        "AIRFLOW__TRIGGERER__JOB_HEARTBEAT_SEC": "2",
        "AIRFLOW__TRIGGERER__TRIGGERER_HEALTH_CHECK_THRESHOLD": "30",
    }

    def to_directory(path: str, content: bytes) -> None:
        (directory / path).parent.mkdir(exist_ok=True)
        (directory / path).write_bytes(content)

    def to_bucket(path: str, content: bytes) -> None:
        server.files.pipe(f"{BUCKET}/incoming/{path}", content)

    with postgresql.database(tell) as address:
        config = StackConfig(
            home=root / "home", dags=DAGS, database_url=address, settings=settings, paused_at_creation=False
        )
        with Stack(config) as stack:
            for name in sources:
                stack.api.wait_for_dag(f"consume_{name}")
            yield {
                "directory": Place("directory", str(directory), stack, seen / "directory", to_directory),
                "bucket": Place("bucket", f"s3://{BUCKET}", stack, seen / "bucket", to_bucket),
            }


def test_no_batch_is_lost_when_the_triggerer_is_killed_at_any_moment(places: dict[str, Place]) -> None:
    """A kill may cause a second event of a batch, with the same id; batches written without a triggerer come later.

    Each source has a kill immediately after an announcement: its event exists only in the memory of a process.
    """
    triggerer = places["directory"].stack["triggerer"]
    before = {name: place.settle() for name, place in places.items()}
    dropped: list[str] = []

    for kill, (name, moment) in enumerate([("directory", 0.0), ("bucket", 0.0), ("bucket", 1.0)]):
        announced = places[name].announcements()
        dropped += _drop(places, *(f"kill-{kill}-{number}" for number in range(3)))
        until(lambda name=name, known=announced: places[name].announcements() > known, timeout=PATIENCE, interval=0.02)
        time.sleep(moment)
        triggerer.kill()
        dropped += _drop(places, f"down-{kill}")
        triggerer.start()
        places[name].stack.wait_healthy(["triggerer"])
        for place in places.values():
            place.wait_for(*dropped)

    for name, place in places.items():
        found = place.settle() - before[name]
        assert found.keys() == set(dropped)
        assert max(found.values()) <= 2


def _drop(places: dict[str, Place], *batches: str) -> tuple[str, ...]:
    for batch in batches:
        for place in places.values():
            place.drop(batch)
    return batches
