"""Find the newest complete checkpoint below a directory, by each format's own rules of completeness.

This file needs only the standard library, Python 3.6 or newer, and imports nothing of this package: it runs in the
job's own image, as `python find_checkpoint.py < request.json > report.json`. The local back-end imports it.

    request  {"path": directory of the checkpoints, "root": directory that it must not leave,
              "since": when the task's first attempt was created, in seconds since 1970,
              "seconds": time limit}
    report   {"path": path of the checkpoint below the directory, or null; "" is the directory itself,
              "step": its step, if its name has one, or null,
              "order": why it is the newest one,
              "skipped": [[path, why it is not complete], ...] of newer ones, "older": number of those before `since`}

Nothing is unpickled: a pickle can run any code. The values of `.metadata` and of torch.save's old format are read by
an unpickler for which every class is a class without behavior. Where the rules come from (releases that were read):

- Trainer of transformers 5.24, `Trainer._save_checkpoint`: `trainer_state.json` is written last by rank 0; other ranks
  write `rng_state_N.pth` meanwhile. `Accelerator.save_state`: rank 0 writes `random_states_0.pkl` after the rest;
  other ranks write theirs at once.
- torch.distributed.checkpoint 2.15, `FileSystemWriter.finish`: `.metadata` is written after all `__i_j.distcp`, and
  says which bytes of them are read. Lightning 2.6 writes `meta.pt` after that into the directory `NAME.ckpt`.
- torch.save: a zip archive, whose directory is written last; its old format is a few pickles and then the storages.
- safetensors 0.8: the header says where the data ends, which is the end of the file. `save_pretrained` writes the
  index of the shards last.
"""
# As in probe_outputs: no pathlib, because of old versions of Python.
# ruff: noqa: PTH112, PTH116, PTH118, PTH119, PTH120, PTH123, PTH208

import errno
import io
import json
import os
import pickle
import re
import stat
import struct
import sys
import time
import zipfile
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import IO

    Entries = dict[str, os.stat_result]

ALLOWANCE = 120.0  # seconds that clocks of storage and cluster, or the times of a copy, may differ
MAX_SKIPPED = 10
_MAX_ENTRIES = 50000
_MAX_PICKLE = 8 * 1024 * 1024  # takes 170 MB, of the 256 that the pod may use
_MAX_HEADER = 100 * 1000 * 1000  # safetensors' own limit
_MAX_SUMMED = 2 * 1024 * 1024 * 1024  # bytes whose checksums are compared in one look
_CHUNK = 1024 * 1024

_TORCH = (".pt", ".pth", ".ckpt", ".bin", ".pth.tar")
_PARTS = (".pt", ".pth", ".bin", ".safetensors")
_NO_CHECKPOINTS = (".json", ".yaml", ".yml", ".toml", ".txt", ".md", ".csv", ".log", ".py", ".out", ".err")
_TEMPORARY = re.compile(r"^(\.(?!metadata$)|tmp)|(\.(tmp|temp|part|partial|incomplete|swp|lock)|~)$")
_NUMBERED = re.compile(r"checkpoint[-_](\d{1,18})$")  # of Trainer and of Accelerator
_STEP = re.compile(r"(?:step|iter|checkpoint)[-_=]?(\d{1,18})(?!\d)")
_SHARD = re.compile(r"-\d+-of-\d+\.(safetensors|bin)$")
_ZIP, _OLD = b"PK\x03\x04", b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."
_LENGTH = struct.Struct("<Q")
_SIZES = {"Double": 8, "Long": 8, "ComplexFloat": 8, "ComplexDouble": 16, "Float": 4, "Int": 4, "QInt32": 4}
_SIZES.update({"Half": 2, "BFloat16": 2, "Short": 2})

_BY_STEP = "the highest step of the folders checkpoint-N beside it, as Trainer orders them"
_BY_TIME = "the newest by its time of modification: nothing in its format orders checkpoints"
_UNKNOWN = "the newest file that is not temporary: nothing there has a format with a known rule"


def find(request: "dict[str, Any]") -> "dict[str, Any]":
    """Return the report for a request.

    Raises:
        OSError: the directory cannot be read, or not in time.
        ValueError: there are too many files, or the request is malformed.
    """
    top, root = os.path.realpath(request["path"]), os.path.realpath(request["root"])
    if os.path.commonpath([top, root]) != root:
        raise ValueError(f"{_text(top)} is outside of {_text(root)}")
    os.stat(root)
    look = _Look(top, request["seconds"])
    report = {"path": None, "step": None, "order": "", "skipped": [], "older": 0}  # type: dict[str, Any]
    for path, modified_at, order in _newest_first(look):
        name = "" if path == top else os.path.relpath(path, top)
        if modified_at < request["since"]:
            report["older"] += 1
            continue
        why = "its name is no text" if _text(name) != name else _problem(path, look)
        if not why:
            step = _STEP.search(os.path.basename(name))
            return dict(report, path=name, order=order, step=int(step.group(1)) if step else None)
        if len(report["skipped"]) < MAX_SKIPPED:
            report["skipped"].append([_text(name), why])
    return report


class _Look:
    """One look at a directory: its limits, and the entries that count."""

    def __init__(self, top: str, seconds: float) -> None:
        self.top = top
        self._ends, self._entries, self._summed = time.monotonic() + seconds, 0, 0

    def go_on(self, reads: int = 0) -> bool:
        """Return whether so many more bytes may be read for their checksums; raise if the time is over."""
        if time.monotonic() > self._ends:
            raise TimeoutError("the time for looking at checkpoints was over")
        self._summed += reads
        return self._summed <= _MAX_SUMMED

    def entries(self, folder: str) -> "Entries":
        """Return a directory's files and directories, without temporaries and links; none if it is not there."""
        self.go_on()
        try:
            names = os.listdir(folder)
        except (FileNotFoundError, NotADirectoryError, PermissionError) as error:
            if isinstance(error, PermissionError) and folder == self.top:
                raise
            return {}
        self._entries += len(names)
        if self._entries > _MAX_ENTRIES:
            raise ValueError(f"there are more than {_MAX_ENTRIES} files")
        found = {name: os.lstat(os.path.join(folder, name)) for name in names if not _TEMPORARY.search(name)}
        return {name: info for name, info in found.items() if stat.S_IFMT(info.st_mode) in {stat.S_IFDIR, stat.S_IFREG}}

    def below(self, folder: str) -> "Iterator[tuple[str, Entries]]":
        """Yield the directory and those below it, each with its files."""
        waiting = [folder]
        while waiting:
            path = waiting.pop()
            entries = self.entries(path)
            waiting.extend(os.path.join(path, name) for name, info in entries.items() if stat.S_ISDIR(info.st_mode))
            yield path, {name: info for name, info in entries.items() if stat.S_ISREG(info.st_mode)}


def _newest_first(look: _Look) -> "list[tuple[str, float, str]]":
    """Return the checkpoints, complete or not, with their times and why they are in this order."""
    found = list(_checkpoints(look))
    known = [
        (os.path.dirname(path) if number else path, number, at, path)
        for path, at, number in found
        if number is not None
    ]
    times = {}  # type: dict[str, float]
    for group, _, at, _ in known:
        times[group] = max(at, times.get(group, 0.0))
    if not known:
        return sorted(((path, at, _UNKNOWN) for path, at, _ in found), key=lambda each: each[1], reverse=True)
    # A model beside numbered folders is what Trainer saved once train() returned, also because of SIGTERM.
    known.sort(key=lambda each: (each[1] > 0, times[each[0]], *each[1:]), reverse=True)
    return [(path, at, _BY_STEP if number else _BY_TIME) for _, number, at, path in known]


def _checkpoints(look: _Look) -> "Iterator[tuple[str, float, int | None]]":
    """Yield path, time and number of each checkpoint: 0 without a number, None for a file of an unknown format."""
    waiting = [look.top]
    while waiting:
        folder = waiting.pop()
        entries = look.entries(folder)
        number = _NUMBERED.match(os.path.basename(folder)) if folder != look.top else None
        if number or _is_one(folder, entries, look):
            # Not the folder's own time: another run changes it by a new folder in it, or by a file that it removes.
            times = [info.st_mtime for info in entries.values() if stat.S_ISREG(info.st_mode)]
            yield folder, max(times or [os.stat(folder).st_mtime]), int(number.group(1)) if number else 0
            # Trainer saves its final model into the parent of its checkpoints.
            entries = {name: info for name, info in entries.items() if _NUMBERED.match(name)}
        for name, info in entries.items():
            if stat.S_ISDIR(info.st_mode):
                waiting.append(os.path.join(folder, name))
            elif name.endswith((*_TORCH, ".safetensors")):
                yield os.path.join(folder, name), info.st_mtime, 0
            elif info.st_size and not name.endswith(_NO_CHECKPOINTS) and "tfevents" not in name:
                yield os.path.join(folder, name), info.st_mtime, None


def _is_one(folder: str, entries: "Entries", look: _Look) -> bool:
    """Return whether the files of a directory are one checkpoint: by what is in it, or by a number in its name."""
    if {".metadata", "trainer_state.json"} & set(entries) or folder.endswith(".ckpt"):
        return True
    if any(name.endswith((".distcp", ".index.json")) or _SHARD.search(name) for name in entries):
        return True
    has_number = re.search(r"\d$", os.path.basename(folder)) and folder != look.top
    return bool(has_number and sum(name.endswith(_PARTS) for name in entries) > 1)


def _problem(path: str, look: _Look) -> str:
    """Return why a checkpoint is not complete, as a clause; "" if it is."""
    try:
        before = _marks(path, look)
        why = _problem_of_folder(path, look) if os.path.isdir(path) else _problem_of_file(path, look)
        return why or ("" if _marks(path, look) == before else "it changed while it was read")
    except FileNotFoundError:
        return "it changed while it was read"
    except PermissionError as error:
        return f"{_text(os.path.basename(error.filename or path))} cannot be read: {error.strerror}"


def _marks(path: str, look: _Look) -> "list[tuple[int, int, int]]":
    infos = [os.stat(path), *(info for _, files in look.below(path) for info in files.values())]
    return sorted((info.st_ino, info.st_size, info.st_mtime_ns) for info in infos)


def _problem_of_folder(top: str, look: _Look) -> str:
    has_model, names = False, set()  # type: bool, set[str]
    for folder, files in look.below(top):
        names.update(files if folder == top else ())
        if ".metadata" in files or any(name.endswith(".distcp") for name in files):
            has_model, why = True, _problem_of_distributed(folder, files)
        elif any(map(_SHARD.search, files)) and not any(name.endswith(".index.json") for name in files):
            why = "it has shards, and not their index, which is written last"
        else:
            why = ""
        for name in sorted(files):
            path = os.path.join(folder, name)
            wrong = _problem_of_index(path, files) if name.endswith(".index.json") else _problem_of_file(path, look)
            why = why or (f"{_text(os.path.relpath(path, top))} {wrong}" if wrong else "")
            has_model = has_model or ("model" in name and name.endswith(_PARTS))
        if why:
            return why
    return _lacks(top, names, has_model=has_model)


def _lacks(top: str, names: "set[str]", *, has_model: bool) -> str:
    """Return what a directory lacks that is written last, if what is in it is whole."""
    if "checkpoint-is-incomplete.txt" in names:
        return "it is marked as incomplete: Trainer's `enable_jit_checkpoint` was still writing it"
    if _NUMBERED.match(os.path.basename(top)) or "trainer_state.json" in names:
        if not {"trainer_state.json", "random_states_0.pkl"} & names:
            return "it has no trainer_state.json, which is written last"
        return "" if has_model else "it has no model"
    if top.endswith(".ckpt") and not {"meta.pt", "latest"} & names:
        return "it has no meta.pt, which is written last"
    return ""


def _problem_of_file(path: str, look: _Look) -> str:
    """Return what is wrong with a file, by its suffix and by its content; "" for nothing, or if that is unknown."""
    look.go_on()
    with open(path, "rb") as stream:
        size = os.fstat(stream.fileno()).st_size
        if path.endswith(".safetensors"):
            return _problem_of_tensors(stream, size)
        if path.endswith(".json"):
            return _parsed(stream.read(_MAX_HEADER))[1]
        begin = stream.read(len(_OLD))
        stream.seek(0)
        try:
            if begin.startswith(_ZIP):
                return _problem_of_zip(stream, look, is_torchs=path.endswith(_TORCH))
            if begin == _OLD:
                return _problem_of_old(stream, size)
        except Exception as error:  # whatever a damaged file can cause
            if isinstance(error, OSError) and error.errno != errno.EINVAL:  # that is a place before the file's begin
                raise
            return f"is cut or damaged: {type(error).__name__}: {_text(str(error))[:200]}"
    is_torchs = path.endswith(_TORCH) or (path.endswith(".pkl") and size < len(_ZIP))
    return "does not begin as torch.save writes it" if is_torchs else ""


def _parsed(data: bytes) -> "tuple[dict[str, Any], str]":
    try:
        value = json.loads(data.decode())
    except (ValueError, RecursionError):
        return {}, "is cut: it is no JSON"
    return value if isinstance(value, dict) else {}, ""


def _problem_of_tensors(stream: "IO[bytes]", size: int) -> str:
    """Compare the size of a safetensors file with the end of its last tensor, which the header has."""
    begin = stream.read(_LENGTH.size)
    length = _LENGTH.unpack(begin)[0] if len(begin) == _LENGTH.size else _MAX_HEADER
    if length > min(size - _LENGTH.size, _MAX_HEADER):
        return f"is cut in its header: it has {size} bytes"
    header, why = _parsed(stream.read(length))
    try:
        ends = [each["data_offsets"][1] for name, each in header.items() if name != "__metadata__"]
        needed = _LENGTH.size + length + max(ends, default=0)
    except (TypeError, KeyError, IndexError):
        return "has a header that is not safetensors'"
    return why or ("" if size == needed else f"is cut: it has {size} of {needed} bytes")


def _problem_of_index(path: str, files: "Entries") -> str:
    """Return what is wrong with an index; its shards are looked at as files."""
    with open(path, "rb") as stream:
        index, why = _parsed(stream.read(_MAX_HEADER))
    places = index.get("weight_map")
    if why or not isinstance(places, dict):
        return why or "has no weight_map"
    shards = sorted({str(shard) for shard in places.values()})
    missing = [shard for shard in shards if shard not in files]
    if missing:
        return f"names {_text(missing[0])}, which is not there"
    latest = files[os.path.basename(path)].st_mtime + ALLOWANCE  # a copy without times may write the index first
    newer = [shard for shard in shards if files[shard].st_mtime > latest]
    return f"is older than {_text(newer[0])}: it was being overwritten" if newer else ""


def _problem_of_zip(stream: "IO[bytes]", look: _Look, *, is_torchs: bool) -> str:
    """Look up what the archive's directory lists, and read it as far as its checksums can be compared in time."""
    with zipfile.ZipFile(stream) as archive:
        if is_torchs and not any(member.filename.endswith("/data.pkl") for member in archive.infolist()):
            return "has no data.pkl"
        for member in archive.infolist():
            with archive.open(member) as content:  # compares names, and at the end the checksum
                # torch writes 0 where torch.serialization.set_crc32_options has switched checksums off
                while member.CRC and look.go_on(reads=_CHUNK) and content.read(_CHUNK):
                    pass
    return ""


def _problem_of_old(stream: "IO[bytes]", size: int) -> str:
    """Add up what torch.save wrote before version 1.6: five pickles, and each storage after its number of elements."""
    pickles = io.BytesIO(stream.read(_MAX_PICKLE))
    readers = [_Reader(pickles) for _ in range(5)]
    keys = [reader.load() for reader in readers][-1]
    storages = {each[2]: each for each in readers[3].persistent if each[0] == "storage"}
    needed = pickles.tell()
    for key in keys:
        _, kind, _, _, elements = storages[key][:5]
        needed += 8 + elements * _SIZES.get(kind.__name__[: -len("Storage")], 1)
    return "" if size >= needed else f"is cut: it has {size} of {needed} bytes"


def _problem_of_distributed(folder: str, files: "Entries") -> str:
    """Compare the files with the places of the values, which `.metadata` has."""
    if ".metadata" not in files:
        return "it has no .metadata, which is written last"
    if files[".metadata"].st_size > _MAX_PICKLE:  # of very many values; it is renamed once it is whole
        return ""
    with open(os.path.join(folder, ".metadata"), "rb") as stream:
        reader = _Reader(io.BytesIO(stream.read(_MAX_PICKLE)))
    ends = {}  # type: dict[str, int]
    try:
        reader.load()
        for place in [state for kind, state in reader.states if kind == "_StorageInfo"]:
            name = place["relative_path"]
            ends[name] = max(ends.get(name, 0), place["offset"] + place["length"])
    except Exception as error:  # noqa: BLE001 - whatever a damaged pickle can cause
        return f".metadata is cut or damaged: {type(error).__name__}"
    for name, end in sorted(ends.items()):
        if name not in files or files[name].st_size < end:
            has = f"has {files[name].st_size} of {end} bytes" if name in files else "is not there"
            return f"{_text(name)} {has}"
        if files[name].st_mtime > files[".metadata"].st_mtime + ALLOWANCE:
            return f"{_text(name)} is newer than .metadata: it was being overwritten"
    return ""


class _Inert:
    """Value of any class: takes everything and does nothing, but keeps its state."""

    states = []  # type: list[tuple[str, Any]]  # noqa: RUF012 - replaced by each reader

    def __init__(self, *_: "Any") -> None:
        pass

    __call__ = __setitem__ = append = extend = add = __init__

    def __setstate__(self, state: "Any") -> None:
        self.states.append((type(self).__name__, state))


class _Reader(pickle._Unpickler):  # noqa: SLF001 - C's takes memory for any index of its memo
    """Reads the values of a pickle; imports, calls and makes nothing that the pickle names."""

    dispatch = dict(pickle._Unpickler.dispatch)  # noqa: RUF012, SLF001
    dispatch.pop(ord("\x96"), None)  # BYTEARRAY8 takes memory of any size

    def __init__(self, data: "IO[bytes]") -> None:
        super().__init__(data)
        self.states, self.persistent = [], []  # type: list[tuple[str, Any]], list[Any]

    def find_class(self, _module: str, name: str) -> "Any":
        return type(name, (_Inert,), {"states": self.states})

    def persistent_load(self, pid: "Any") -> "Any":
        self.persistent.append(pid)
        return pid[1] if pid[0] == "module" else _Inert()


def _text(name: str) -> str:
    shown = name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    return re.sub(r"[\x00-\x1f\x7f]", "\ufffd", shown)


if __name__ == "__main__":  # pragma: no cover - a test runs it as a process of its own
    json.dump(find(json.load(sys.stdin)), sys.stdout)
