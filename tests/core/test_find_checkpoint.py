from __future__ import annotations

import errno
import io
import itertools
import json
import os
import pickle
import shutil
import struct
import subprocess
import sys
import zipfile
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any
from unittest.mock import Mock

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from half_written import LONG_AGO, copied, cut, found, look
from ptjob_provider.core.in_pod import find_checkpoint

if TYPE_CHECKING:
    from collections.abc import Callable

RECORDED = Path(__file__).parent / "recorded_checkpoints"
TRAINER, LIGHTNING, SHARDS = RECORDED / "trainer/checkpoint-4", RECORDED / "lightning/step=4.ckpt", RECORDED / "shards"


def zipped(number: int = 1) -> bytes:
    """Return a file as torch.save lays it out, without torch."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr("archive/data.pkl", pickle.dumps({"step": number}))
        archive.writestr("archive/data/0", bytes(range(256)) * number)
    return stream.getvalue()


def misplaced() -> bytes:
    """Return such a file whose directory says that it begins 8 bytes later: the members begin before the file."""
    data = zipped()
    place = struct.Struct("<L")
    return data[:-6] + place.pack(place.unpack(data[-6:-2])[0] + 8) + data[-2:]


def tensors(**sizes: int) -> bytes:
    """Return a safetensors file."""
    header, place = {}, 0
    for name, size in sizes.items():
        header[name] = {"dtype": "U8", "shape": [size], "data_offsets": [place, place + size]}
        place += size
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + bytes(place)


class StorageInfo:
    """Stands for the class of torch that says where a value is."""


StorageInfo.__qualname__ = StorageInfo.__name__ = "_StorageInfo"
_StorageInfo = StorageInfo


def metadata(**ends: int) -> bytes:
    """Return the `.metadata` of a checkpoint whose files have these sizes, as far as it is read."""
    places = []
    for name, end in ends.items():
        place = StorageInfo()
        place.__dict__ |= {"relative_path": f"{name}.distcp", "offset": 0, "length": end}
        places.append(place)
    return pickle.dumps({"storage_data": places})


class FloatStorage:
    """Stands for torch's class of this name."""


class Old(pickle.Pickler):
    """Writes the pickle of an object with one storage of ten numbers, and a module, as torch.save did before 1.6."""

    def persistent_id(self, value: Any) -> Any:
        if isinstance(value, bytearray):
            return ("storage", FloatStorage, "0", "cpu", len(value), None)
        return ("module", FloatStorage, "f.py", "class…") if value is Old else None


def old() -> bytes:
    """Return a file in the old format of torch.save, without torch."""
    stream = io.BytesIO()
    stream.write(find_checkpoint._OLD)
    for each in (1001, {"little_endian": True}):
        stream.write(pickle.dumps(each, protocol=2))
    Old(stream, protocol=2).dump({"weights": bytearray(10), "layer": Old})
    stream.write(pickle.dumps(["0"], protocol=2))
    return stream.getvalue() + struct.pack("<Q", 10) + bytes(4 * 10)


def write(path: Path, data: bytes | str = b"x", *, at: float | None = None) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    if at is not None:
        os.utime(path, (at, at))
    return path


def why(top: Path, **asked: Any) -> str:
    """Return why the only checkpoint is skipped."""
    report = look(top, **asked)
    assert report["path"] is None
    [[_, reason]] = report["skipped"]
    return str(reason)


def test_the_program_answers_a_request_with_a_report(tmp_path: Path) -> None:
    write(tmp_path / "ckpt/a.pt", zipped())
    request = {"path": str(tmp_path / "ckpt"), "root": str(tmp_path), "since": 0, "seconds": 60}
    program = shutil.copy(find_checkpoint.__file__, tmp_path)

    done = subprocess.run(
        [sys.executable, "-I", program], input=json.dumps(request).encode(), capture_output=True, check=True
    )

    assert json.loads(done.stdout) == find_checkpoint.find(request)
    assert json.loads(done.stdout)["path"] == "a.pt"


@pytest.mark.parametrize(
    ("recorded", "name", "step"),
    [(TRAINER, "checkpoint-4", 4), (LIGHTNING, "step=4.ckpt", 4), (SHARDS, "base", None)],
)
def test_a_complete_checkpoint_that_a_library_has_written_is_found(
    recorded: Path, name: str, step: int | None, tmp_path: Path
) -> None:
    copied(recorded, tmp_path / name)

    report = look(tmp_path)

    assert (report["path"], report["step"], report["skipped"]) == (name, step, [])


@pytest.mark.parametrize(
    ("recorded", "names"), [(TRAINER, ("checkpoint-3", "checkpoint-4")), (LIGHTNING, ("a.ckpt", "b.ckpt"))]
)
def test_a_half_written_checkpoint_gives_way_to_the_complete_one_before_it(
    recorded: Path, names: tuple[str, str], tmp_path: Path
) -> None:
    copied(recorded, tmp_path / names[0], is_old=True)
    newer = copied(recorded, tmp_path / names[1])
    [*_, last] = [newer] if newer.is_file() else [newer / "optimizer.pt"]
    os.truncate(last, last.stat().st_size // 2)

    report = look(tmp_path)

    assert report["path"] == names[0]
    [[skipped, reason]] = report["skipped"]
    assert skipped == names[1]
    assert "is cut" in reason
    assert ("optimizer.pt" in reason) is newer.is_dir()


@pytest.mark.parametrize(
    ("missing", "reason"),
    [("trainer_state.json", "it has no trainer_state.json"), ("model.safetensors", "it has no model")],
)
def test_a_folder_of_trainer_needs_its_state_and_a_model(missing: str, reason: str, tmp_path: Path) -> None:
    (copied(TRAINER, tmp_path / "checkpoint-4") / missing).unlink()

    assert why(tmp_path).startswith(reason)


def test_a_folder_that_trainer_has_marked_as_incomplete_is_skipped(tmp_path: Path) -> None:
    """On SIGTERM it writes the mark first, and removes it last: other ranks may still write."""
    write(copied(TRAINER, tmp_path / "checkpoint-4") / "checkpoint-is-incomplete.txt")

    assert why(tmp_path).startswith("it is marked as incomplete")


def test_a_folder_of_trainer_without_the_optimizer_is_complete(tmp_path: Path) -> None:
    """`save_only_model` leaves it out."""
    (copied(TRAINER, tmp_path / "checkpoint-4") / "optimizer.pt").unlink()

    assert found(tmp_path) == "checkpoint-4"


def test_a_folder_of_accelerate_is_complete_with_rank_0s_random_states(tmp_path: Path) -> None:
    """They are written last, and one that is cut is seen. Rank 0 writes the rest: rank 1's are there before it."""
    for name in ("optimizer.bin", "random_states_0.pkl"):
        write(tmp_path / "checkpoint_1" / name, zipped())
    write(tmp_path / "checkpoint_1/model.safetensors", tensors(a=3))
    assert found(tmp_path) == "checkpoint_1"

    states = (tmp_path / "checkpoint_1/random_states_0.pkl").rename(tmp_path / "checkpoint_1/random_states_1.pkl")
    assert why(tmp_path).startswith("it has no trainer_state.json")

    os.truncate(states, 3)
    assert why(tmp_path).startswith("random_states_1.pkl ")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda top: (top / ".metadata").unlink(), "it has no .metadata, which is written last"),
        (lambda top: (top / ".metadata").rename(top / ".metadata.tmp"), "it has no .metadata, which is written last"),
        (lambda top: os.truncate(top / ".metadata", 20), ".metadata is cut or damaged: "),
        (lambda top: (top / "b.distcp").unlink(), "b.distcp is not there"),
        (lambda top: os.truncate(top / "b.distcp", 199), "b.distcp has 199 of 200 bytes"),
        (lambda top: os.utime(top / ".metadata", (LONG_AGO, LONG_AGO)), "a.distcp is newer than .metadata"),
    ],
)
def test_a_distributed_checkpoint_has_its_metadata_and_the_bytes_that_it_names(
    change: Callable[[Path], object], reason: str, tmp_path: Path
) -> None:
    for name, size in (("a", 100), ("b", 200)):
        write(tmp_path / f"step_7/{name}.distcp", bytes(size))
    write(tmp_path / "step_7/.metadata", metadata(a=100, b=200))
    assert look(tmp_path)["step"] == 7

    change(tmp_path / "step_7")

    assert why(tmp_path).startswith(reason)


def test_the_folder_itself_may_be_the_checkpoint(tmp_path: Path) -> None:
    write(tmp_path / "a.distcp", bytes(10))
    write(tmp_path / ".metadata", metadata(a=10))

    assert found(tmp_path) == ""


def test_metadata_too_large_to_be_read_counts_as_written(tmp_path: Path) -> None:
    """It is renamed when it is whole."""
    write(tmp_path / "step_7/a.distcp", bytes(10))
    with (tmp_path / "step_7/.metadata").open("wb") as stream:
        stream.truncate(find_checkpoint._MAX_PICKLE + 1)

    assert found(tmp_path) == "step_7"


def test_a_folder_of_lightning_ends_with_its_metadata(tmp_path: Path) -> None:
    write(tmp_path / "last.ckpt/a.distcp", bytes(10))
    write(tmp_path / "last.ckpt/.metadata", metadata(a=10))
    assert why(tmp_path) == "it has no meta.pt, which is written last"

    write(tmp_path / "last.ckpt/meta.pt", zipped())
    assert found(tmp_path) == "last.ckpt"


@pytest.mark.parametrize(
    ("index", "reason"),
    [
        (None, "it has shards, and not their index"),
        ('{"weight_map": {"a": "m-1-of-2.safetensors"', "m.safetensors.index.json is cut"),
        ("[]", "m.safetensors.index.json has no weight_map"),
        ('{"weight_map": {"a": "m-2-of-2.safetensors"}}', "m.safetensors.index.json names m-2-of-2.safetensors, which"),
    ],
)
def test_shards_are_complete_with_their_index(index: str | None, reason: str, tmp_path: Path) -> None:
    write(tmp_path / "base/m-1-of-2.safetensors", tensors(a=3))
    if index is not None:
        write(tmp_path / "base/m.safetensors.index.json", index)

    assert why(tmp_path).startswith(reason)


@pytest.mark.parametrize(
    ("ahead", "reason"),
    [
        (60, None),
        (600, "m.safetensors.index.json is older than m-1-of-2.safetensors: it was being overwritten"),
    ],
)
def test_shards_that_are_written_over_are_complete_with_a_new_index(
    ahead: float, reason: str | None, tmp_path: Path
) -> None:
    """The old index names the new shard and the old one. A copy without times may have the index a little earlier."""
    index = '{"weight_map": {"a": "m-1-of-2.safetensors", "b": "m-2-of-2.safetensors"}}'
    write(tmp_path / "base/m-2-of-2.safetensors", tensors(b=3), at=1_900_000_000)
    write(tmp_path / "base/m.safetensors.index.json", index, at=1_900_000_000)
    write(tmp_path / "base/m-1-of-2.safetensors", tensors(a=3), at=1_900_000_000 + ahead)

    assert (look(tmp_path)["skipped"] or [["base", None]]) == [["base", reason]]


@pytest.mark.parametrize(
    ("name", "data", "reason"),
    [
        ("a.safetensors", b"", "is cut in its header: it has 0 bytes"),
        ("a.safetensors", tensors(a=3)[:20], "is cut in its header: it has 20 bytes"),
        ("a.safetensors", tensors(a=3)[:-1], "is cut: it has"),
        ("a.safetensors", struct.pack("<Q", 3) + b"{,}", "is cut: it is no JSON"),
        ("a.safetensors", struct.pack("<Q", 31) + b'{"a":{"data_offsets":[0,null]}}', "has a header that is not"),
        ("a.pt", zipped()[:3], "does not begin as torch.save writes it"),
        ("a.ckpt", zipped()[:-1], "is cut or damaged: BadZipFile"),
        ("a.pth", zipped().replace(b"archive/data.pkl", b"archive/data.txt"), "has no data.pkl"),
        ("a.bin", zipped().replace(bytes(range(9)), bytes(9), 1), "is cut or damaged: BadZipFile: Bad CRC-32"),
        ("a.pt", misplaced(), "is cut or damaged: OSError"),
        ("a.pt", find_checkpoint._OLD + b"\x80\x02", "is cut or damaged: "),
        ("a.pt", old()[:-1], "is cut: it has"),
    ],
)
def test_a_file_that_is_cut_or_damaged_is_skipped_with_the_reason(
    name: str, data: bytes, reason: str, tmp_path: Path
) -> None:
    write(tmp_path / name, data)

    assert why(tmp_path).startswith(reason)


def test_a_file_in_the_old_format_has_its_storages(tmp_path: Path) -> None:
    write(tmp_path / "a.pt", old())

    assert found(tmp_path) == "a.pt"


def test_a_file_without_checksums_is_no_damaged_file(tmp_path: Path) -> None:
    """PyTorch writes 0 in their place if somebody has switched them off."""
    with zipfile.ZipFile(io.BytesIO(zipped())) as archive:
        sums = {member.CRC for member in archive.infolist()}
    data = zipped()
    for each in sums:
        data = data.replace(struct.pack("<I", each), bytes(4))
    write(tmp_path / "a.pt", data)

    assert found(tmp_path) == "a.pt"


def test_beyond_the_bytes_that_are_summed_the_layout_decides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "a.pt", zipped().replace(bytes(range(9)), bytes(9), 1))
    monkeypatch.setattr(find_checkpoint, "_MAX_SUMMED", 0)

    assert found(tmp_path) == "a.pt"


class TestOrder:
    def test_folders_of_trainer_are_ordered_by_their_step(self, tmp_path: Path) -> None:
        """As text, 9 is above 10; and a copy has made the older folder the newer one."""
        for number in (9, 10):
            copied(TRAINER, tmp_path / f"checkpoint-{number}", is_old=number == 10)

        report = look(tmp_path)

        assert (report["path"], report["step"]) == ("checkpoint-10", 10)
        assert "highest step" in report["order"]

    def test_of_two_runs_of_trainer_the_one_that_wrote_last_counts(self, tmp_path: Path) -> None:
        for name, is_old in (("a/checkpoint-9", True), ("b/checkpoint-3", False)):
            (tmp_path / name).parent.mkdir()
            copied(TRAINER, tmp_path / name, is_old=is_old)

        assert found(tmp_path) == "b/checkpoint-3"

    def test_a_final_model_comes_after_the_checkpoints_beside_it(self, tmp_path: Path) -> None:
        """`Trainer.save_model` writes it and `training_args.bin` there; neither has the optimizer's state."""
        copied(TRAINER, tmp_path / "out/checkpoint-4")
        for number, name in enumerate(("model.safetensors", "training_args.bin", "best/model.safetensors")):
            write(tmp_path / "out" / name, tensors(a=3) if "model" in name else zipped(), at=4_000_000_000 + number)
        assert found(tmp_path) == "out/checkpoint-4"

        (tmp_path / "out/checkpoint-4/trainer_state.json").unlink()
        assert found(tmp_path) == "out/best/model.safetensors"

    def test_a_checkpoint_older_than_the_first_attempt_is_not_used(self, tmp_path: Path) -> None:
        write(tmp_path / "finished.pt", zipped(), at=1_900_000_000)

        report = look(tmp_path, since=1_900_000_001)

        assert (report["path"], report["older"], report["skipped"]) == (None, 1, [])

    @pytest.mark.parametrize("name", ["trainer_state.json", "model.safetensors.index.json"])
    def test_an_earlier_runs_model_beside_new_checkpoints_is_not_used(self, name: str, tmp_path: Path) -> None:
        """Trainer saves the final model into the parent of its checkpoints, whose time a new folder moves."""
        write(tmp_path / "model.safetensors", tensors(a=4), at=1_900_000_000)
        write(tmp_path / name, '{"weight_map": {"a": "model.safetensors"}}', at=1_900_000_000)
        for path in copied(TRAINER, tmp_path / "checkpoint-4").iterdir():
            os.utime(path, (2_000_000_000, 2_000_000_000))

        report = look(tmp_path, since=1_950_000_000)

        assert (report["path"], report["step"]) == ("checkpoint-4", 4)

    def test_an_earlier_runs_checkpoint_of_which_this_run_removes_files_is_not_used(self, tmp_path: Path) -> None:
        """`save_total_limit` removes its files one by one, which changes the folder's time."""
        (copied(TRAINER, tmp_path / "checkpoint-9", is_old=True) / "optimizer.pt").unlink()
        copied(TRAINER, tmp_path / "checkpoint-4")

        assert found(tmp_path, since=LONG_AGO + 1) == "checkpoint-4"

    def test_the_files_of_a_numbered_folder_are_one_checkpoint(self, tmp_path: Path) -> None:
        """A part of it, such as the optimizer's state, is none."""
        for step in (1, 2):
            for name in ("model.pt", "optimizer.pt"):
                write(tmp_path / f"step_{step}" / name, zipped(), at=1_900_000_000 + step)
        report = look(tmp_path)
        assert (report["path"], "time of modification" in report["order"]) == ("step_2", True)

        os.truncate(tmp_path / "step_2/model.pt", 9)
        assert look(tmp_path)["path"] == "step_1"


class TestUnknownFormats:
    def test_the_newest_file_that_is_no_temporary_is_found(self, tmp_path: Path) -> None:
        for number, name in enumerate(("a.npz", "b.zst", "b.zst.tmp", ".c.zst.part", "tmpabc", "log.txt", "empty")):
            write(tmp_path / name, b"" if name == "empty" else b"x", at=1_900_000_000 + number)

        report = look(tmp_path)

        assert report["path"] == "b.zst"
        assert "newest file that is not temporary" in report["order"]

    def test_a_file_beside_half_written_checkpoints_of_a_known_format_is_none(self, tmp_path: Path) -> None:
        write(tmp_path / "scaler.msgpack")
        write(tmp_path / "a.pt", zipped()[:-1])

        assert found(tmp_path) is None

    def test_an_archive_that_is_not_torchs_may_have_any_content(self, tmp_path: Path) -> None:
        with zipfile.ZipFile(tmp_path / "policy.zip", "w") as archive:
            archive.writestr("policy.pth", b"x")
        assert found(tmp_path) == "policy.zip"

        os.truncate(tmp_path / "policy.zip", 40)
        assert "is cut or damaged" in why(tmp_path)


class TestLimits:
    def test_an_empty_folder_has_no_checkpoint(self, tmp_path: Path) -> None:
        assert found(tmp_path) is None
        assert found(tmp_path / "not/there", root=tmp_path) is None
        assert found(write(tmp_path / "file"), root=tmp_path) is None

    def test_a_root_that_is_not_there_is_no_answer(self, tmp_path: Path) -> None:
        """Else a volume that is not mounted would begin the training at 0."""
        with pytest.raises(FileNotFoundError):
            look(tmp_path / "gone/ckpt", root=tmp_path / "gone")

    def test_a_folder_outside_of_the_root_is_no_answer(self, tmp_path: Path) -> None:
        (tmp_path / "claim").mkdir()
        (tmp_path / "claim/ckpt").symlink_to(tmp_path)

        with pytest.raises(ValueError, match="is outside of"):
            look(tmp_path / "claim/ckpt", root=tmp_path / "claim")

    def test_links_are_not_followed(self, tmp_path: Path) -> None:
        """What they lead to is found in its own place, if it is in the folder."""
        write(tmp_path / "other/a.pt", zipped())
        write(tmp_path / "claim/b.pt", zipped(), at=1_900_000_000)
        for name, place in (("a.pt", "../other/a.pt"), ("folder", "../other"), ("up", "."), ("gone.pt", "nowhere")):
            (tmp_path / "claim" / name).symlink_to(place)

        report = look(tmp_path / "claim")

        assert (report["path"], report["skipped"]) == ("b.pt", [])

    def test_too_many_files_are_no_answer(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(find_checkpoint, "_MAX_ENTRIES", 2)
        for number in range(3):
            write(tmp_path / f"{number}.pt", zipped())

        with pytest.raises(ValueError, match="more than 2 files"):
            look(tmp_path)

    def test_a_look_that_takes_too_long_is_no_answer(self, tmp_path: Path) -> None:
        """It is no damaged file either."""
        write(tmp_path / "a.pt", zipped())

        with pytest.raises(TimeoutError):
            look(tmp_path, seconds=-1)

    def test_the_time_also_ends_a_checksum(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        write(tmp_path / "a.pt", zipped())
        passed = itertools.chain([0.0] * 4, itertools.repeat(9.0))
        monkeypatch.setattr(find_checkpoint.time, "monotonic", lambda: next(passed))

        with pytest.raises(TimeoutError):
            look(tmp_path, seconds=5)

    def test_at_most_ten_skipped_checkpoints_are_reported(self, tmp_path: Path) -> None:
        for number in range(12):
            write(tmp_path / f"{number}.pt", b"cut")

        assert len(look(tmp_path)["skipped"]) == 10

    @pytest.mark.parametrize("name", ["a\udcff.pt", "a\n.pt"])
    def test_a_name_that_is_no_text_is_skipped(self, name: str, tmp_path: Path) -> None:
        """No variable of a container can have it."""
        write(tmp_path / name, zipped())

        assert why(tmp_path) == "its name is no text"


class TestChanges:
    def test_a_checkpoint_that_grows_while_it_is_read_is_skipped(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        path = write(tmp_path / "a.pt", zipped())

        def read(*_: Any, **__: Any) -> str:
            write(path, zipped(2))
            return ""

        monkeypatch.setattr(find_checkpoint, "_problem_of_zip", read)

        assert why(tmp_path) == "it changed while it was read"

    @pytest.mark.parametrize(
        ("error", "reason"),
        [
            (FileNotFoundError(errno.ENOENT, "No such file"), "it changed while it was read"),
            (PermissionError(errno.EACCES, "Permission denied", "a.pt"), "a.pt cannot be read: Permission denied"),
        ],
    )
    def test_a_checkpoint_that_goes_or_may_not_be_read_is_skipped(
        self, error: OSError, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Tests may run as root, who may read everything."""
        write(tmp_path / "a.pt", zipped())
        monkeypatch.setattr(find_checkpoint, "_problem_of_file", Mock(side_effect=error))

        assert why(tmp_path) == reason

    def test_another_users_folder_is_left_out(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Such as lost+found; the folder itself must be readable."""
        write(tmp_path / "a.pt", zipped())
        (tmp_path / "lost+found").mkdir()
        listed = os.listdir

        def refuse(path: str) -> list[str]:
            if path.endswith(refused):
                raise PermissionError(13, "Permission denied", path)
            return listed(path)

        monkeypatch.setattr(find_checkpoint.os, "listdir", refuse)
        refused = "lost+found"
        assert found(tmp_path) == "a.pt"

        refused = tmp_path.name
        with pytest.raises(PermissionError):
            look(tmp_path)

    def test_a_broken_disk_is_no_answer(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        write(tmp_path / "a.pt", zipped())

        def break_(*_: Any, **__: Any) -> str:
            raise OSError(5, "Input/output error")

        monkeypatch.setattr(find_checkpoint, "_problem_of_zip", break_)

        with pytest.raises(OSError, match="Input/output error"):
            look(tmp_path)

    def test_a_file_that_goes_while_the_folder_is_listed_is_no_answer(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The look is repeated."""
        monkeypatch.setattr(find_checkpoint.os, "listdir", lambda _: ["gone.pt"])

        with pytest.raises(FileNotFoundError):
            look(tmp_path)


class Runs:
    """A pickle that runs a command when it is loaded."""

    def __init__(self, command: str) -> None:
        self.command = command

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (self.command,)


class TestPickles:
    def test_nothing_in_a_pickle_is_run(self, tmp_path: Path) -> None:
        """In `.metadata`, and in the old format of torch.save."""
        evil = pickle.dumps(Runs(f"touch {tmp_path}/ran"), protocol=2)
        write(tmp_path / "ckpt/step_1/.metadata", evil)
        write(tmp_path / "ckpt/a.pt", find_checkpoint._OLD + evil * 4)

        look(tmp_path / "ckpt")

        assert not (tmp_path / "ran").exists()
        pickle.loads(evil)  # noqa: S301 - the counter-check
        assert (tmp_path / "ran").exists()

    def test_a_pickle_takes_no_memory_that_its_file_does_not_have(self, tmp_path: Path) -> None:
        """A bytearray of any size is one opcode; so is a place in the memo, for the unpickler in C."""
        for opcodes in (b"\x96" + struct.pack("<Q", 2**62) + b".", b"Nr\xff\xff\xff\x7f."):
            write(tmp_path / "step_1/.metadata", b"\x80\x05" + opcodes)
            look(tmp_path)

    @settings(max_examples=200, deadline=None)
    @given(
        data=st.binary(max_size=60) | st.builds(lambda end: metadata(a=3) + end, st.binary(max_size=9)),
        name=st.sampled_from(["step_1/.metadata", "a.pt", "a.safetensors", "checkpoint-1/trainer_state.json"]),
        prefix=st.sampled_from([b"", b"PK\x03\x04", find_checkpoint._OLD, struct.pack("<Q", 20)]),
    )
    def test_whatever_a_file_has_the_look_ends_with_a_report(
        self, data: bytes, name: str, prefix: bytes, tmp_path_factory: pytest.TempPathFactory
    ) -> None:
        top = tmp_path_factory.mktemp("any")
        write(top / name, prefix + data)

        assert look(top)["path"] in {None, name.partition("/")[0]}


def is_json(file: Path) -> bool:
    try:
        json.loads(file.read_text())
    except (OSError, ValueError):
        return False
    return True


@settings(max_examples=100, deadline=None)
@given(seed=st.integers(0, 2**32))
@example(seed=709610)
@example(seed=475385489)
def test_a_cut_folder_of_trainer_is_found_only_if_nothing_of_it_is_missing(
    seed: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Cut off the last line's end, its JSON is still whole."""
    top = tmp_path_factory.mktemp("cut")
    copied(TRAINER, top / "checkpoint-3", is_old=True)
    newer = copied(TRAINER, top / "checkpoint-4")
    what = cut(newer, Random(seed))  # noqa: S311 - a cut, no secret

    is_whole = is_json(newer / what.partition(" ")[0]) and (newer / "trainer_state.json").exists()
    assert found(top) == ("checkpoint-4" if is_whole else "checkpoint-3"), what
