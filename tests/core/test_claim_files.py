"""Tests of files on claims: listing, copying, and that no archive writes outside the claim."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import subprocess
import sys
import tarfile
from typing import TYPE_CHECKING
from uuid import UUID

import pytest

from ptjob_provider.core.in_pod import claim_files

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return the folder of a claim with a file and a folder."""
    folder = tmp_path / "claim"
    (folder / "runs").mkdir(parents=True)
    (folder / "model.pt").write_bytes(b"m" * 10)
    (folder / "runs" / "log").write_text("x")
    return folder


def archive(*members: tuple[str, bytes | str | None], kind: bytes = tarfile.REGTYPE) -> io.BytesIO:
    """Return an archive of these files; a member without content is a folder, one with a text a link."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w|") as made:
        for name, content in members:
            info, content_bytes = tarfile.TarInfo(name), content if isinstance(content, bytes) else b""
            info.type = kind if content is not None else tarfile.DIRTYPE
            if isinstance(content, str):
                info.type, info.linkname = tarfile.SYMTYPE, content
            info.size = len(content_bytes) if info.isfile() else 0
            made.addfile(info, io.BytesIO(content_bytes))
    stream.seek(0)
    return stream


def program(root: Path, *words: str, given: bytes = b"") -> bytes:
    """Run the program in its own process, as a pod does."""
    command = [sys.executable, claim_files.__file__, words[0], str(root), *words[1:]]
    return subprocess.run(command, input=given, capture_output=True, check=True).stdout


def test_a_folder_and_a_file_are_listed(root: Path) -> None:
    """Folder names end in a slash and have no size."""
    found = claim_files.listed(claim_files.below(root, ""))

    assert [(each["name"], each["bytes"]) for each in found] == [("model.pt", 10), ("runs/", None)]
    assert [each["name"] for each in claim_files.listed(claim_files.below(root, "/model.pt"))] == ["model.pt"]


def test_a_compressed_file_is_verified_by_its_content(root: Path) -> None:
    """Two compressions of one content may differ."""
    digests = set()
    for level in (1, 9):
        (root / "code.tar.gz").write_bytes(gzip.compress(b"code" * 99, level))
        digests.add(json.loads(program(root, "digest", "code.tar.gz")))
        assert claim_files.digest(root / "code.tar.gz") in digests

    assert digests == {hashlib.sha256(b"code" * 99).hexdigest()}


@pytest.mark.parametrize("path", ["../x", "/../x", "runs/../../x", "out/x"])
def test_no_path_leads_out_of_the_claim(root: Path, path: str) -> None:
    (root / "out").symlink_to("/tmp")  # noqa: S108 - a link that leads out

    with pytest.raises(SystemExit, match="leads out of the claim"):
        claim_files.below(root, path)


def test_an_archive_cannot_write_elsewhere(root: Path) -> None:
    """Neither entry names nor links can leave the folder, and devices are refused."""
    folder, up = ("a", None), archive(("a", None), ("a/b", None), ("a/b/up", ".."), ("a/x", "b/up/../.."))
    for each in (archive(("a/../../../x", b"1")), archive(folder, ("a/x", "/etc")), archive(folder, ("a/x", "..")), up):
        with pytest.raises(SystemExit, match="leads out"):
            claim_files.unpack(each, root, root.resolve(), "a")
    with pytest.raises(SystemExit, match="neither a file nor a folder"):
        claim_files.unpack(archive(("a", b""), kind=tarfile.FIFOTYPE), root, root.resolve(), "a")
    (root / "b").mkdir()
    (root / "b" / "out").symlink_to("/tmp")  # noqa: S108 - a link that leads out
    with pytest.raises(SystemExit, match="leads out"):
        claim_files.unpack(archive(("b", None), ("b/out", None), ("b/out/x", b"1")), root, root.resolve(), "b")

    assert sorted(path.name for path in root.iterdir()) == ["b", "model.pt", "runs"]


def test_a_folder_is_copied_with_its_links_and_with_files_of_several_names(root: Path, tmp_path: Path) -> None:
    """Hugging Face's cache has snapshots that are links to its blobs. Existing files are replaced."""
    blobs, snapshot = root / "cache" / "blobs", root / "cache" / "snapshots" / "1a2b"
    blobs.mkdir(parents=True)
    snapshot.mkdir(parents=True)
    (blobs / "0f").write_text("weights")
    (snapshot / "model").symlink_to("../../blobs/0f")
    (root / "cache" / "latest").symlink_to("snapshots/1a2b")
    (blobs / "same").hardlink_to(blobs / "0f")
    stream, other = io.BytesIO(), tmp_path / "other"

    claim_files.pack(root / "cache", stream)
    (other / "copy" / "blobs").mkdir(parents=True)
    (other / "copy" / "blobs" / "0f").write_text("old")
    for _ in range(2):  # the second copy finds the links of the first one
        stream.seek(0)
        claim_files.unpack(stream, other, other.resolve(), "copy")

    assert (other / "copy" / "latest" / "model").read_text() == "weights"
    assert (other / "copy" / "snapshots" / "1a2b" / "model").readlink().parts == ("..", "..", "blobs", "0f")
    assert (other / "copy" / "blobs" / "same").read_text() == "weights"


def test_a_folder_that_cannot_be_copied_completely_is_not_packed(root: Path) -> None:
    for name, leads_to in (("absolute", root / "model.pt"), ("above", "../model.pt")):
        (root / "runs" / name).symlink_to(leads_to)
        with pytest.raises(SystemExit, match=rf"runs/{name} is a symbolic link .* leads out of the folder"):
            claim_files.pack(root / "runs", io.BytesIO())
        (root / "runs" / name).unlink()
    os.mkfifo(root / "runs" / "pipe")
    with pytest.raises(SystemExit, match="runs/pipe is neither a file nor a folder"):
        claim_files.pack(root / "runs", io.BytesIO())


def test_a_link_in_the_place_of_the_temporary_file_is_not_followed(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another user of the claim who guesses the temporary name cannot redirect the copy."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_bytes(b"kept")
    monkeypatch.setattr(claim_files.uuid, "uuid4", lambda: UUID(int=1))
    (root / f".{UUID(int=1).hex}.unfinished").symlink_to(elsewhere)

    with pytest.raises(FileExistsError):
        claim_files.unpack(archive(("a", b"new")), root, root.resolve(), "a")

    assert elsewhere.read_bytes() == b"kept"


def test_two_copies_of_a_file_at_once_do_not_mix(root: Path) -> None:
    """Two jobs with the same folder write the same archive; the last complete one stays."""
    other = archive(("a", b"2"))

    class Interrupted(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            if self.tell() > 0 and other.tell() == 0:
                claim_files.unpack(other, root, root.resolve(), "a")
            return super().read(size)

    claim_files.unpack(Interrupted(archive(("a", 50_000 * b"1")).getvalue()), root, root.resolve(), "a")

    assert (root / "a").read_bytes() == 50_000 * b"1"
    assert sorted(path.name for path in root.iterdir()) == ["a", "model.pt", "runs"]


def test_an_archive_that_cannot_be_written_is_read_to_its_end(root: Path) -> None:
    """A sender on a web socket sends everything before it reads the error."""
    stream = archive(("a", 50_000 * b"1"), ("a/b", 50_000 * b"2"))

    with pytest.raises(OSError, match="Not a directory"):
        claim_files.unpack(stream, root, (root / "model.pt" / "x").resolve(), "a")

    assert stream.read() == b""


@pytest.mark.parametrize("sent", [20_000, 512, 512 + 512 + 50_176, 512 + 512 + 50_176 + 100])
def test_a_copy_that_breaks_off_leaves_nothing(root: Path, sent: int) -> None:
    """Also between two files, where tarfile sees no error."""
    whole = archive(("a", None), ("a/x", 50_000 * b"1"), ("a/y", b"2")).getvalue()

    with pytest.raises(tarfile.ReadError):
        claim_files.unpack(io.BytesIO(whole[:sent]), root, root.resolve(), "a")

    assert sorted(path.name for path in root.iterdir()) == ["model.pt", "runs"]


def test_a_copy_that_meets_a_folder_in_the_place_of_a_file_changes_nothing(root: Path) -> None:
    (root / "runs" / "step").mkdir()

    with pytest.raises(SystemExit, match="runs/step"):
        claim_files.unpack(archive(("a", None), ("a/log", b"y"), ("a/step", b"z")), root, root.resolve(), "runs")

    assert (root / "runs" / "log").read_text() == "x"
    assert sorted(path.name for path in root.iterdir()) == ["model.pt", "runs"]


def test_a_missing_path_is_named(root: Path) -> None:
    for act in (claim_files.listed, lambda place: claim_files.pack(place, io.BytesIO())):
        with pytest.raises(SystemExit, match="there is no none"):
            act(root / "none")


def test_claim_files_runs_as_a_program_of_its_own(root: Path, tmp_path: Path) -> None:
    """In a cluster, the Python of the pod's image runs it, with its streams on a web socket."""
    other = tmp_path / "other"
    other.mkdir()

    packed = program(root, "pack", "runs")
    program(other, "unpack", "deep/er", "here", given=packed)

    assert json.loads(program(other, "list", "deep/er/here"))[0]["name"] == "log"
