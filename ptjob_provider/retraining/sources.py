"""List a source of data, a directory or any store that fsspec supports, in threads that do not delay an exit.

The threads of `asyncio.to_thread` are joined when the loop is closed and once more at the interpreter's exit: a thread
that hangs in a network file system would keep a triggerer from stopping.

Importing this module loads neither fsspec nor a client, because Airflow parses a DAG file that watches a bucket often.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import threading
import time
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

from ptjob_provider.core.shared import OnePerLoop
from ptjob_provider.core.status import since_1970
from ptjob_provider.retraining.batches import BatchRules, Listing, StoredFile, group

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence

T = TypeVar("T")

AT_ONCE = 4
"""Maximum calls of one event loop that run at the same time, because each running thread takes time from the loop."""

LONGEST_TURN = 10.0
"""Seconds after which a call no longer counts as running: by then it hangs or waits, and uses no CPU."""


class AllStuck(Exception):
    """Error of a call that was not started, because too many earlier calls have not returned."""


class _Slots:
    """Limits the number of running calls; a call that takes longer than `LONGEST_TURN` frees its slot."""

    def __init__(self) -> None:
        self._free = asyncio.Semaphore(AT_ONCE)

    @contextlib.asynccontextmanager
    async def hold(self) -> AsyncIterator[None]:
        """Hold a slot, for at most `LONGEST_TURN`."""
        await self._free.acquire()
        end = asyncio.get_running_loop().call_later(LONGEST_TURN, self._free.release)
        try:
            yield
        finally:
            if end.when() > asyncio.get_running_loop().time():
                end.cancel()
                self._free.release()


_slots = OnePerLoop(_Slots)


class Threads:
    """Runs one kind of call, each in a daemon thread of its own.

    Args:
        name: the threads' name.
        most: maximum number of calls in progress, including those that have timed out.
    """

    def __init__(self, name: str, *, most: int = 2) -> None:
        self._name = name
        self._most = most
        self._under_way = 0

    async def call(self, function: Callable[[], T], *, within: float) -> T:
        """Return what the function returns, or raise what it raises.

        Raises:
            TimeoutError: the function has not returned within these seconds; its thread continues.
            AllStuck: too many calls have not returned; the function was not started.
        """
        if self._under_way >= self._most:
            raise AllStuck(f"{self._under_way} earlier calls have not returned")
        result: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        async with _slots.get().hold():
            self._under_way += 1
            threading.Thread(target=self._work, args=(function, result), name=self._name, daemon=True).start()
            return await asyncio.wait_for(result, within)

    def _work(self, function: Callable[[], T], result: asyncio.Future[T]) -> None:
        try:
            settle = partial(result.set_result, function())
        except Exception as error:  # noqa: BLE001 - raised in the waiting task
            settle = partial(result.set_exception, error)
        with contextlib.suppress(RuntimeError):  # the loop is closed: no task waits any more
            result.get_loop().call_soon_threadsafe(self._deliver, result, settle)

    def _deliver(self, result: asyncio.Future[T], settle: Callable[[], None]) -> None:
        self._under_way -= 1
        if not result.done():
            settle()


LOCAL = ("", "file", "local")
"""Schemes of directories that are mounted on this machine."""

S3 = ("s3", "s3a")

MOST_ENTRIES, DEEPEST, LONGEST = 100_000, 32, 60.0
"""Limits on the entries, levels and seconds of one folder directly below a directory source.

Links are followed, and may lead to the same folder again and again.
"""

CONNECT_TIMEOUT, READ_TIMEOUT = 10, 30
"""Seconds for one request to S3."""

_MARKS = (
    "ETag",
    "etag",
    "md5Hash",
    "content_md5",
    "generation",
    "mtime",
    "LastModified",
    "last_modified",
    "updated",
    "created",
)
_TIMES = ("LastModified", "last_modified", "mtime", "updated", "modified")


_WALKS = {"fsspec.spec", "fsspec.asyn"}
"""Modules whose `find` omits each folder that cannot be listed, and so parts of a batch; stores inherit it."""

_ODD_LINKS = {errno.ELOOP, errno.ENAMETOOLONG}
"""Errors of one entry, from dangling or circular links; any other error concerns the whole source."""

_now = time.monotonic


class CutOffListing(Exception):
    """Error of a store's response that is not the whole listing."""


@dataclass(frozen=True, kw_only=True)
class Source:
    """Source of data.

    Attributes:
        address: a path or a URL; `s3://connection@bucket/path` names a connection, too.
        conn_id: Airflow's connection to the store. None: the address's, else the store's client uses its defaults.
        storage_options: further options of the store's client; they hold no secret.
    """

    address: str
    conn_id: str | None = None
    storage_options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def scheme(self) -> str:
        """Return the part before `://`; empty if there is none."""
        return urlsplit(self.address).scheme

    @property
    def is_local(self) -> bool:
        """Return whether the source is a directory of this machine."""
        return self.scheme in LOCAL

    @property
    def url(self) -> str:
        """Return the address without a connection, as it is in events."""
        if self.is_local:
            return f"file://{self.path}"
        parts = urlsplit(self.address)
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}".rstrip("/")

    @property
    def path(self) -> str:
        """Return the directory's absolute path."""
        return os.path.abspath(self.address.removeprefix(f"{self.scheme}://"))  # noqa: PTH100 - keeps links

    @property
    def connection(self) -> str | None:
        """Return the connection's name; None if the store's client uses its defaults."""
        return self.conn_id or urlsplit(self.address).netloc.rpartition("@")[0] or None


class Store:
    """One watcher's access to one source; the client is reused between listings and replaced after a failure."""

    def __init__(self, source: Source, rules: BatchRules) -> None:
        self._source = source
        self._rules = rules
        self._files: Any = None

    def look(self) -> Listing:
        """List the whole source and group it into batches; errors of the store are raised unchanged."""
        began = time.monotonic()
        return group(self._everything(), self._rules, began=began)

    def drop_client(self) -> None:
        """Make the next listing create a new client, from the connection as it is then."""
        self._files = None

    def _everything(self) -> Iterable[StoredFile]:
        if self._source.is_local:
            return _below(self._source.path)
        if self._files is None:
            self._files = file_system(self._source)
        return _stored(self._files, self._source.url)


class _BeyondBudget(Exception):
    """Error of a folder that exceeds one of the limits."""


class _Budget:
    """Counts entries and time of one folder directly below a source, and enforces their limits."""

    def __init__(self) -> None:
        self._entries = 0
        self._until = _now() + LONGEST

    def spend(self, path: str, depth: int) -> None:
        """Count one entry.

        Raises:
            _BeyondBudget: a limit is exceeded.
        """
        self._entries += 1
        links = "does a link lead to a folder that it is in, or several to the same one?"
        if depth > DEEPEST:
            raise _BeyondBudget(f"{path!a} is more than {DEEPEST} folders deep; {links}")
        if self._entries > MOST_ENTRIES:
            raise _BeyondBudget(f"it has more than {MOST_ENTRIES:,} files and folders; {links}")
        if _now() > self._until:
            raise _BeyondBudget(f"listing it takes longer than {LONGEST:.0f} s")


def _below(source: str) -> Iterator[StoredFile]:
    """Yield the files of a directory and follow links; files that vanish meanwhile are left out."""
    for entry in _entries(source):
        try:
            yield from _at(entry, entry.name, _Budget(), 0)
        except _BeyondBudget as error:
            yield StoredFile(f"{entry.name}/", is_folder=True, trouble=str(error))


def _entries(folder: str) -> list[os.DirEntry[str]]:
    with os.scandir(folder) as entries:
        return sorted(entries, key=lambda entry: entry.name)


def _at(entry: os.DirEntry[str], path: str, budget: _Budget, depth: int) -> Iterator[StoredFile]:
    budget.spend(path, depth)
    try:
        if entry.is_dir():
            yield StoredFile(path, is_folder=True)
            for each in _entries(entry.path):
                yield from _at(each, f"{path}/{each.name}", budget, depth + 1)
        elif entry.is_file():
            yield _local_file(path, entry.stat())
    except FileNotFoundError:
        return
    except PermissionError as error:
        yield StoredFile(f"{path}/", is_folder=True, trouble=f"{error.filename!a} may not be read ({error.strerror})")
    except OSError as error:
        if error.errno not in _ODD_LINKS:
            raise
        yield StoredFile(f"{path}/", is_folder=True, trouble=f"{path!a}: {error.strerror}")


def _local_file(path: str, stat: os.stat_result) -> StoredFile:
    return StoredFile(path, stat.st_size, str(stat.st_mtime_ns), _instant(stat.st_mtime))


def _instant(seconds: float) -> str:
    """Return the time as in RFC 3339; "" for one outside the calendar."""
    instant = since_1970(seconds)
    return instant.isoformat(timespec="seconds") if instant else ""


def _stored(files: Any, url: str) -> Iterator[StoredFile]:
    if hasattr(files, "call_s3"):
        return _in_bucket(files, url)
    return _in_store(files, url)


def _in_bucket(files: Any, url: str) -> Iterator[StoredFile]:
    """Yield the objects below an S3 address with one request per thousand, and check each page.

    fsspec's `find` is not used: it also adds folders, which takes a time that grows with the square of their number.
    """
    parts = urlsplit(url)
    prefix = f"{parts.path.strip('/')}/".removeprefix("/")
    query = {"Bucket": parts.netloc, "Prefix": prefix}
    while True:
        page = files.call_s3("list_objects_v2", **query)
        objects = page.get("Contents", [])
        _check_page(page, objects)
        for each in objects:
            path = each["Key"].removeprefix(prefix)
            if path:
                mark = each["ETag"].strip('"')
                is_folder = path.endswith("/")
                yield StoredFile(path.rstrip("/"), each["Size"], mark, _modified(each), is_folder)
        if not page.get("IsTruncated"):
            return
        query["ContinuationToken"] = page["NextContinuationToken"]


def _check_page(page: Mapping[str, Any], objects: Sequence[Mapping[str, Any]]) -> None:
    """Raise if the page has fewer keys than it declares, or no continuation token although more follow."""
    declared = page.get("KeyCount", len(objects))
    if declared != len(objects):
        raise CutOffListing(f"a page says that it has {declared} keys, and has {len(objects)}")
    if page.get("IsTruncated") and not page.get("NextContinuationToken"):
        raise CutOffListing("a page of the listing has no continuation token although more follow")


def _in_store(files: Any, url: str) -> Iterator[StoredFile]:
    root = files._strip_protocol(url)  # noqa: SLF001 - fsspec's own method for a store's paths
    prefix = f"{root}/"
    files.invalidate_cache(root)
    is_inherited = files.find.__module__ in _WALKS
    entries = _tree(files, root) if is_inherited else files.find(root, detail=True, withdirs=True).items()
    for name, info in entries:
        if not name.startswith(prefix) or name.rstrip("/") == root:
            continue
        is_folder = info["type"] != "file" or name.endswith("/")
        path = name.removeprefix(prefix).rstrip("/") + ("/" if "trouble" in info else "")
        mark = next((str(info[key]) for key in _MARKS if info.get(key)), "")
        yield StoredFile(path, info["size"] or 0, mark, _modified(info), is_folder, info.get("trouble", ""))


def _tree(files: Any, folder: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield all entries below a folder, by their names; those that vanish meanwhile are left out."""
    for info in files.ls(folder, detail=True):
        yield info["name"], info
        name = info["name"].rstrip("/")
        if info["type"] == "directory" and name != folder:
            try:
                yield from _tree(files, name)
            except FileNotFoundError:
                continue
            except PermissionError as error:
                yield name, {**info, "trouble": f"{name!a} may not be read ({error})"}


def _modified(info: Mapping[str, Any]) -> str:
    for value in (info[key] for key in _TIMES if info.get(key)):
        if isinstance(value, datetime):
            return value.isoformat(timespec="seconds")
        if isinstance(value, int | float):
            return _instant(value)
        return str(value)
    return ""


def file_system(source: Source) -> Any:
    """Return fsspec's file system for a source, with Airflow's connection.

    A scheme that a provider has registered with Airflow uses that provider; S3 also works without one.
    """
    options = dict(source.storage_options)
    if source.connection is not None:
        registered = import_module("ptjob_provider.airflow.compat").file_systems()
        if source.scheme not in S3 or registered.has_fs(source.scheme):
            return registered.get_fs(source.scheme, source.connection, options or None)
        options = {**_s3_options(source.connection), **options}
    if source.scheme in S3:
        return _s3(options)
    return import_module("fsspec").filesystem(source.scheme, skip_instance_cache=True, **options)


def _s3(options: dict[str, Any]) -> Any:
    """Return S3's file system with timeouts and one attempt per request: the watcher retries, and counts failures."""
    bounds = {"connect_timeout": CONNECT_TIMEOUT, "read_timeout": READ_TIMEOUT, "retries": {"total_max_attempts": 1}}
    options["config_kwargs"] = {**bounds, **options.get("config_kwargs", {})}
    files = import_module("fsspec").filesystem("s3", skip_instance_cache=True, use_listings_cache=False, **options)
    files.retries = 1
    return files


def _s3_options(conn_id: str) -> dict[str, Any]:
    """Return a connection's options as the amazon provider reads them: keys in login and password, others in extra."""
    connection = import_module("airflow.sdk").BaseHook.get_connection(conn_id)
    extra = connection.extra_dejson
    unknown = sorted(set(extra) & {"role_arn", "profile_name", "assume_role_method", "session_kwargs"})
    if unknown:
        raise ValueError(
            f"connection {conn_id!r}: {unknown[0]} in its extra needs apache-airflow-providers-amazon with its s3fs "
            "extra; without it: aws_access_key_id (login), aws_secret_access_key (password), aws_session_token, "
            "region_name, endpoint_url"
        )
    options = {
        "key": connection.login or extra.get("aws_access_key_id"),
        "secret": connection.password or extra.get("aws_secret_access_key"),
        "token": extra.get("aws_session_token"),
        "endpoint_url": extra.get("endpoint_url"),
    }
    region = extra.get("region_name")
    given = {name: value for name, value in options.items() if value}
    return {**given, "client_kwargs": {"region_name": region}} if region else given
