"""Tests of the watcher of a bucket: with a real S3 server behind a gateway that injects faults."""

from __future__ import annotations

import asyncio
import json
import time
from typing import TYPE_CHECKING, Any, ClassVar

import pytest
from fsspec import AbstractFileSystem
from fsspec.implementations.memory import MemoryFileSystem

import faulty_s3
import s3_server
from airflow_adapter.stand_ins import until
from airflow_adapter.triggerer import INCOMING, StandInStore, Triggerer
from airflow_versions import since
from cluster.fixtures import skip_because
from ptjob_provider.retraining import sources
from ptjob_provider.retraining.batches import BatchRules
from ptjob_provider.retraining.sources import Source, Store
from ptjob_provider.retraining.triggers import DataArrivalTrigger
from ptjob_provider.retraining.troubles import SourceTrouble, trouble_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from faulty_s3 import FaultyS3
    from s3_server import S3Server

pytestmark = since(3, 3, "shared streams and a state store of the asset")

BUCKET = "training-data"


@pytest.fixture(scope="module")
def server(tell: Callable[[str], None]) -> Iterator[S3Server]:
    """Start a real S3 server."""
    skip_because(s3_server.unmet())
    with s3_server.running(tell) as found:
        yield found


@pytest.fixture
def gateway(server: S3Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultyS3]:
    """Create an empty bucket behind a gateway; Airflow's connection `store` points to it."""
    if server.files.exists(BUCKET):
        server.files.rm(BUCKET, recursive=True)
    server.files.mkdir(BUCKET)
    monkeypatch.setattr("ptjob_provider.retraining.troubles.SHORTEST_PAUSE", 1.0)
    with faulty_s3.before(server) as found:
        monkeypatch.setenv("AIRFLOW_CONN_STORE", server.connection(found.endpoint))
        yield found


def drop(server: S3Server, name: str, content: bytes = b"data", *, marker: bool = True) -> None:
    """Write a batch as its producer would."""
    server.files.pipe(f"{BUCKET}/incoming/{name}/part-0", content)
    if marker:
        server.files.pipe(f"{BUCKET}/incoming/{name}/_SUCCESS", b"")


def watcher(**changes: Any) -> DataArrivalTrigger:
    """Return a watcher built from its JSON, as a triggerer builds it."""
    settings: dict[str, Any] = {"conn_id": "store", "poll_seconds": 1, "settle_seconds": 1, **changes}
    _, kwargs = DataArrivalTrigger(f"s3://{BUCKET}/incoming", **settings).serialize()
    return DataArrivalTrigger(**json.loads(json.dumps(kwargs)))


async def test_batches_in_a_bucket_are_announced_once_also_over_a_restart(server: S3Server, gateway: FaultyS3) -> None:
    """Each look is one request, plus one when there are new batches."""
    drop(server, "first")
    drop(server, "unfinished", marker=False)
    store = StandInStore()
    began = time.monotonic()
    async with Triggerer(watcher(), store).running() as triggerer:
        await triggerer.until(1)
        await asyncio.to_thread(drop, server, "second", b"more data")
        await triggerer.until(2)
        await until(lambda: len(store[INCOMING].writes) >= 3)
    asked, looks = gateway.requests.total(), 1 + (time.monotonic() - began) / 1.0
    await asyncio.to_thread(drop, server, "third")

    async with Triggerer(watcher(), store).running() as later:
        await later.until(1)
        await asyncio.sleep(2)

    assert triggerer.names == ["first", "second"]
    assert later.names == ["third"]
    assert gateway.requests.keys() == {"list"}
    assert asked <= 2 * looks
    second = triggerer.events[1]
    assert second["source"] == f"s3://{BUCKET}/incoming"
    assert second["batches"][0]["uri"] == f"s3://{BUCKET}/incoming/second"
    assert (second["files"], second["bytes"]) == (1, 9)
    assert second["batches"][0]["modified"].startswith("20")


async def test_the_same_content_written_again_is_no_news_and_other_content_is(
    server: S3Server, gateway: FaultyS3
) -> None:
    """A bucket's etag identifies content; its dates do not count."""
    drop(server, "one")
    async with Triggerer(watcher(), StandInStore()).running() as triggerer:
        await triggerer.until(1)
        await asyncio.to_thread(drop, server, "one")
        await asyncio.sleep(3.5)
        assert triggerer.names == ["one"]
        await asyncio.to_thread(drop, server, "one", b"DATA")
        await triggerer.until(2)

    assert len(set(triggerer.ids)) == 2


TROUBLE = [
    ("403", "PermissionError"),
    ("500", "OSError"),
    ("silence", "Timeout"),
    ("reset", "Connection"),
    ("cut xml", "OSError"),  # the client's error for it
    ("fewer", "CutOffListing: a page says"),
    ("endless", "CutOffListing: a page of the listing"),
]


@pytest.mark.parametrize(("harm", "text"), TROUBLE)
async def test_a_broken_store_is_said_once_and_what_came_meanwhile_is_announced(
    server: S3Server,
    gateway: FaultyS3,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    *,
    harm: str,
    text: str,
) -> None:
    """The watcher retries with growing pauses and logs the end of the failure; the bucket keeps its data."""
    if harm == "silence":  # only here: a short timeout would also report a slow machine
        monkeypatch.setattr(sources, "READ_TIMEOUT", 2)
    drop(server, "before")
    async with Triggerer(watcher(), StandInStore()).running() as triggerer:
        await triggerer.until(1)
        gateway.harm = harm
        await asyncio.to_thread(drop, server, "meanwhile")
        gateway.requests.clear()
        await until(lambda: gateway.requests["list"] >= 2)
        await asyncio.sleep(2)
        asked = gateway.requests["list"]
        assert triggerer.names == ["before"]
        gateway.harm = ""
        await triggerer.until(2)

    said = capsys.readouterr().out
    assert triggerer.names == ["before", "meanwhile"]
    assert said.count("it cannot be listed (") == 1
    assert text in said
    assert "Nothing is lost" in said
    assert said.count("can be listed again") == 1
    assert 1 <= asked <= 6
    assert server.password not in said


async def test_eleven_hundred_objects_are_two_pages(server: S3Server, gateway: FaultyS3) -> None:
    """A page has 1,000 objects: two requests."""
    files = {f"{BUCKET}/incoming/b{number // 100:03d}/{number:05d}": b"" for number in range(1_100)}
    await asyncio.to_thread(server.files.pipe, files)
    store = Store(Source(address=f"s3://store@{BUCKET}/incoming"), BatchRules(marker=None))

    listing = await asyncio.to_thread(store.look)

    assert listing.files == 1_100
    assert [batch.files for batch in listing.batches] == [100] * 11
    assert gateway.requests == {"list": 2}


async def test_a_marker_that_is_a_folder_is_odd_in_a_bucket_too(server: S3Server, gateway: FaultyS3) -> None:
    """Consoles create folders as empty objects whose names end with a slash."""
    server.files.pipe(f"{BUCKET}/incoming/b/part-0", b"data")
    server.files.call_s3("put_object", Bucket=BUCKET, Key="incoming/b/_SUCCESS/", Body=b"")
    server.files.call_s3("put_object", Bucket=BUCKET, Key="incoming/", Body=b"")
    store = Store(Source(address=f"s3://store@{BUCKET}/incoming"), BatchRules())

    listing = await asyncio.to_thread(store.look)

    assert list(listing.oddities) == ["b"]
    assert "its _SUCCESS is a folder" in listing.oddities["b"]
    assert [(batch.name, batch.files) for batch in listing.batches] == [("b", 1)]


async def test_after_a_failure_the_connection_is_read_anew(
    server: S3Server, gateway: FaultyS3, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rotated secret needs no restart of the triggerer."""
    drop(server, "one")
    wrong = json.loads(server.connection(gateway.endpoint)) | {"password": "wrong-wrong"}
    monkeypatch.setenv("AIRFLOW_CONN_STORE", json.dumps(wrong))
    async with Triggerer(watcher(), StandInStore()).running() as triggerer:
        await until(lambda: gateway.requests["list"] >= 2)
        monkeypatch.setenv("AIRFLOW_CONN_STORE", server.connection(gateway.endpoint))
        await triggerer.until(1)

    assert triggerer.names == ["one"]


def trouble(source: Source) -> SourceTrouble:
    """Return the logged text for a source that cannot be listed."""
    try:
        Store(source, BatchRules()).look()
    except Exception as error:  # noqa: BLE001 - the watcher catches it, too
        return trouble_of(error)
    raise AssertionError(source)


@pytest.mark.parametrize(
    ("address", "conn_id", "text"),
    [
        ("s3://no-such-bucket/x", "store", "FileNotFoundError"),
        (f"s3://{BUCKET}/x", "no_such_connection", "AirflowNotFoundException: The conn_id `no_such_connection`"),
        ("gs://bucket/x", None, "ImportError: Please install gcsfs"),
        ("no-such-scheme://bucket/x", None, "Protocol not known"),
        ("/no/such/directory", None, "No such file or directory: '/no/such/directory'"),
        (__file__, None, "Not a directory: "),
    ],
)
def test_a_source_that_cannot_be_used_is_explained(
    address: str, conn_id: str | None, text: str, gateway: FaultyS3
) -> None:
    """In the triggerer's log: parsing a DAG file does not access the source."""
    assert text in trouble(Source(address=address, conn_id=conn_id)).text


def test_a_role_to_be_assumed_is_refused_without_the_amazon_provider(
    gateway: FaultyS3, server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The role would be ignored, and the listing refused without a useful reason."""
    connection = json.loads(server.connection())
    connection["extra"]["role_arn"] = "arn:aws:iam::1:role/x"
    monkeypatch.setenv("AIRFLOW_CONN_STORE", json.dumps(connection))

    said = trouble(Source(address=f"s3://{BUCKET}/incoming", conn_id="store"))

    assert "role_arn in its extra needs apache-airflow-providers-amazon" in said.text


class StandInListing(MemoryFileSystem):
    """A store that has no listing of a whole tree, as SFTP; each folder is listed until it fails."""

    find = AbstractFileSystem.find
    store: ClassVar[dict[str, Any]] = {}
    pseudo_dirs: ClassVar[list[str]] = [""]
    fails: ClassVar[dict[str, OSError]] = {}

    def ls(self, path: str, **options: Any) -> Any:
        """Return the folder's entries, or raise its error."""
        if path in self.fails:
            raise self.fails[path]
        return super().ls(path, **options)


def test_a_folder_that_cannot_be_listed_is_not_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """With fsspec's own walk, a batch would be announced without some of its files."""
    store, files = Store(Source(address="memory://incoming"), BatchRules(pattern="b*")), StandInListing()
    monkeypatch.setattr(store, "_files", files)
    for path in ("b/part-0", "b/sub/part-1", "b/_SUCCESS"):
        files.pipe(f"/incoming/{path}", b"data")
    assert store.look().files == 3

    files.fails["/incoming/b/sub"] = OSError("the connection is lost")
    with pytest.raises(OSError, match="lost"):
        store.look()

    files.fails["/incoming/b/sub"] = PermissionError("no right to list it")
    assert store.look().oddities == {"b": "'/incoming/b/sub' may not be read (no right to list it)"}

    files.fails["/incoming/b/sub"] = FileNotFoundError("deleted meanwhile")
    assert store.look().files == 2

    files.pipe("/incoming/private/part-0", b"data")
    files.fails["/incoming/private"] = PermissionError("no right to list it")
    assert not store.look().oddities
