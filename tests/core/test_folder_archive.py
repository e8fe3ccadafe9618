"""Tests of packing a code folder: the content of the archive, what is left out, and what is refused."""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import socket
import tarfile
from typing import TYPE_CHECKING, Any

import pytest

from code_servers import git
from ptjob_provider.core.code import folder as folders
from ptjob_provider.core.code.folder import Packed, compressed, pack, revision_of
from ptjob_provider.core.errors import InvalidSpec
from rows import each_row

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CERTIFICATE = "-----BEGIN CERTIFICATE-----\n" + 30 * f"{64 * 'A'}\n" + "-----END CERTIFICATE-----\n"
KEY = "-----BEGIN OPENSSH PRIVATE KEY-----\nb3Bl\n-----END OPENSSH PRIVATE KEY-----\n"


def write(folder: Path, files: dict[str, str]) -> Path:
    for path, text in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    return folder


def packed(folder: Path) -> tuple[Packed, bytes]:
    """Return the report on the archive, and the archive."""
    stream = io.BytesIO()
    return pack(folder, stream), stream.getvalue()


def names(folder: Path) -> list[str]:
    """Return the names in the archive of a folder."""
    with tarfile.open(fileobj=io.BytesIO(packed(folder)[1])) as archive:
        return archive.getnames()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with a program and a package."""
    files = {"train.py": "import net\n", "net/__init__.py": "", "net/größe.py": "SIZE = 3\n", "run.sh": "#!/bin/sh\n"}
    write(tmp_path / "project", files)
    (tmp_path / "project" / "run.sh").chmod(0o700)
    return tmp_path / "project"


def test_files_arrive_at_their_places(folder: Path, tmp_path: Path) -> None:
    (folder / "net" / "link.py").symlink_to("../train.py")
    (folder / "absolute.py").symlink_to(folder / "net" / "größe.py")

    packed_folder, archive = packed(folder)

    target = tmp_path / "pod"
    with tarfile.open(fileobj=io.BytesIO(archive)) as found:
        found.extraction_filter = lambda member, _: member  # Debian's Python 3.11.2 has no argument `filter`
        found.extractall(target)  # noqa: S202 - packed above
    for path in ("train.py", "net/__init__.py", "net/größe.py", "run.sh", "net/link.py", "absolute.py"):
        assert (target / path).read_bytes() == (folder / path).read_bytes()
    assert [(target / name).stat().st_mode & 0o777 for name in ("run.sh", "train.py")] == [0o755, 0o644]
    assert os.readlink(target / "absolute.py") == "net/größe.py"  # noqa: PTH115 - the text itself
    assert packed_folder.left_out == ()
    assert packed_folder.digest == hashlib.sha256(archive).hexdigest()


def test_the_same_files_make_the_same_archive(folder: Path, tmp_path: Path) -> None:
    """Place, time and owner of the files do not matter, before and after compression."""
    other = tmp_path / "elsewhere" / "copy"
    for path in sorted((path for path in folder.rglob("*") if path.is_file()), reverse=True):
        (other / path.relative_to(folder)).parent.mkdir(parents=True, exist_ok=True)
        (other / path.relative_to(folder)).write_bytes(path.read_bytes())
    (other / "run.sh").chmod(0o755)
    (other / "train.py").chmod(0o600)
    os.utime(other / "train.py", (1, 1))
    (other / "empty").mkdir()
    (other / "__pycache__").mkdir()
    (other / "__pycache__" / "train.pyc").write_bytes(b"x")

    assert packed(other) == packed(folder)
    assert compressed(packed(other)[1]) == compressed(packed(folder)[1])
    assert gzip.decompress(compressed(packed(folder)[1])) == packed(folder)[1]


@each_row(
    ("ignore", "stays"),
    [
        ({".gitignore": "*.pt\nout/\n!keep.pt"}, ["a/keep.pt", "keep.pt", "src/a.py", "src/out.py"]),
        ({".gitignore": "/src/*\n!/src/out.py"}, ["a/b.pt", "a/keep.pt", "b.pt", "keep.pt", "out/x", "src/out.py"]),
        (
            {"src/.gitignore": "a.py\n", "a/.gitignore": "*\n!b.pt"},
            ["a/b.pt", "b.pt", "keep.pt", "out/x", "src/out.py"],
        ),
        ({".dockerignore": "*.pt\nout\n# a comment\n"}, ["a/b.pt", "a/keep.pt", "src/a.py", "src/out.py"]),
        ({".dockerignore": "*\n!src\nsrc/a.py"}, ["src/out.py"]),
        ({".dockerignore": "a\n!a/keep.pt\n**/*.py"}, ["a/keep.pt", "b.pt", "keep.pt", "out/x"]),
        ({"../.gitignore": "*.pt\nproject/out"}, ["src/a.py", "src/out.py"]),
        ({"../.gitignore": "*.pt", ".gitignore": "!/keep.pt"}, ["keep.pt", "out/x", "src/a.py", "src/out.py"]),
    ],
)
def test_ignored_files_stay_behind(tmp_path: Path, ignore: dict[str, str], stays: list[str]) -> None:
    """Git's rules apply per folder from the root of the repository on, Docker's from the packed folder."""
    made = tmp_path / str(abs(hash(str(ignore)))) / "project"
    (made.parent / ".git").mkdir(parents=True)
    write(made, dict.fromkeys(["a/b.pt", "a/keep.pt", "b.pt", "keep.pt", "out/x", "src/a.py", "src/out.py"], "x"))
    write(made, ignore)

    found = [name for name in names(made) if "ignore" not in name]

    assert found == stays


def test_ignore_files_above_count_in_a_repository_only(folder: Path) -> None:
    write(folder.parent, {".gitignore": "*.py"})

    assert "train.py" in names(folder)


def test_version_control_and_caches_stay_behind(folder: Path) -> None:
    paths = [".git/HEAD", "net/__pycache__/a.pyc", ".ipynb_checkpoints/a", ".mypy_cache/a", "venv/pyvenv.cfg"]
    write(folder, dict.fromkeys(paths, ""))

    assert names(folder) == ["net/__init__.py", "net/größe.py", "run.sh", "train.py"]
    assert packed(folder)[0].left_out == ("venv: a virtual environment: install its packages in the image",)


@each_row(
    ("path", "text"),
    [
        (".env", "TOKEN=1"),
        ("conf/prod.env.local", "TOKEN=1"),
        ("secrets.yaml", "token: 1"),
        (".aws/credentials", "[default]"),
        ("id_rsa", ""),
        ("deploy", KEY),
        ("certificate.pem", f"\n{KEY}"),
        ("chain.pem", f"{3 * CERTIFICATE}{KEY}"),
        ("account.json", '{"type": "service_account", "private_key": "x"}'),
        (".netrc", "machine"),
    ],
)
def test_credentials_stay_behind_and_are_named(tmp_path: Path, path: str, text: str) -> None:
    """They are found by name or by the header of a private key, even if they are ignored."""
    made = write(tmp_path / path.replace("/", "-"), {path: text, "train.py": "", ".gitignore": ".env\n"})

    packed_folder, archive = packed(made)

    assert [
        each for each in packed_folder.left_out if "credentials: give them by `env`" in each or "a private key" in each
    ]
    assert packed_folder.left_out[0].partition(":")[0] in {path, path.rpartition("/")[0]}
    assert names(made) == [".gitignore", "train.py"]
    assert text.encode() not in archive or not text


def test_files_that_only_look_like_credentials_are_packed(folder: Path) -> None:
    paths = [".env.example", "prod.env.example", "secrets.py", "ca.pem", "credentials/__init__.py", "id_rsa.pub"]
    paths.append("net/key.py")
    write(folder, {**dict.fromkeys(paths, "-----BEGIN CERTIFICATE-----"), "net/key.py": f"KEY = '''{KEY}'''"})

    assert set(paths) < set(names(folder))


def test_links_that_lead_out_stay_behind_and_are_named(folder: Path) -> None:
    """Their targets are not in the pod; circular links are harmless."""
    (folder / "circle").symlink_to(".")
    (folder / "net" / "up").symlink_to("../net")
    (folder / "itself").symlink_to("itself")
    (folder / "data").symlink_to("/data")
    (folder / "net" / "out").symlink_to("../../other")

    packed_folder, archive = packed(folder)

    with tarfile.open(fileobj=io.BytesIO(archive)) as found:
        links = {each.name: each.linkname for each in found if each.issym()}
    assert links == {"circle": ".", "net/up": ".", "itself": "itself"}
    assert packed_folder.left_out == (
        "data: a link that leads out of the folder, to /data",
        f"net/out: a link that leads out of the folder, to {folder.parent / 'other'}",
    )


def test_sockets_and_pipes_stay_behind_and_are_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Packing does not block on a pipe without a writer."""
    os.mkfifo(folder / "pipe")
    monkeypatch.chdir(folder)  # the path of a socket is short
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("socket")

        packed_folder, _ = packed(folder)

    assert packed_folder.left_out == ("pipe: neither a file nor a folder", "socket: neither a file nor a folder")
    assert len(names(folder)) == 4


class Changing(io.BytesIO):
    """An archive that runs a function once while it is written."""

    def __init__(self, change: Any) -> None:
        super().__init__()
        self._change = [change]

    def write(self, data: Any) -> int:
        for change in self._change:
            change()
        self._change = []
        return super().write(data)


def _appended(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"more")


@each_row(
    "change",
    [
        _appended,
        lambda path: os.truncate(path, 3 * 1024 * 1024),
        lambda path: os.utime(path, (1, 1)),
        lambda path: path.unlink(),
    ],
)
def test_a_file_that_changes_meanwhile_is_refused(tmp_path: Path, change: Any) -> None:
    """The archive would mix two states; the error names the file and the remedy."""
    made = write(tmp_path / str(id(change)), {"a.bin": "a" * 20_000, "z.log": "z" * 4 * 1024 * 1024})
    archive = Changing(lambda: change(made / "z.log"))

    with pytest.raises(
        InvalidSpec, match=r"code: (z.log changed while it was packed; allowed:|'z.log' is not)"
    ) as error:
        pack(made, archive)

    assert ".dockerignore" in str(error.value)
    assert error.value.retryable is ("changed while" in str(error.value))


def test_a_file_that_goes_while_files_are_listed_is_left_out(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Editors make such temporary files."""
    write(folder, {"a.tmp": ""})
    entry = folders._FolderWalk._entry

    def gone(self: Any, path: str, place: Path) -> Iterator[Any]:
        (folder / "a.tmp").unlink(missing_ok=True)
        return entry(self, path, place)

    monkeypatch.setattr(folders._FolderWalk, "_entry", gone)  # a test cannot delete it in time from outside

    assert names(folder) == ["net/__init__.py", "net/größe.py", "run.sh", "train.py"]


def test_a_folder_that_is_too_large_is_refused_with_what_is_largest(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folders, "MAX_BYTES", 1_000_000)
    write(folder, {"data/a.bin": "a" * 3_000_000, "data/b.bin": "b" * 1_000_000, "model.pt": "m" * 2_000_000})
    archive = io.BytesIO()

    with pytest.raises(InvalidSpec) as error:
        pack(folder, archive)

    assert str(error.value).startswith(
        "code: 6.0 MB are not allowed; allowed: 1.0 MB; the largest are data/ (4.0 MB), "
    )
    assert "model.pt (2.0 MB)" in str(error.value)
    assert "into .dockerignore, and data on a claim" in str(error.value)
    assert archive.getvalue() == b""


def test_a_folder_without_files_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty" / "empty").mkdir(parents=True)

    with pytest.raises(InvalidSpec, match=r"code: '.*/empty' is not allowed; allowed: a folder with files that"):
        packed(tmp_path / "empty")


def test_a_folder_with_an_unreadable_file_is_refused(folder: Path) -> None:
    """The ignore file is a folder here, because root can read files without permission."""
    write(folder, {"net/.gitignore/a": ""})

    with pytest.raises(InvalidSpec, match=r"code: 'net/.gitignore' is not allowed; .* Is a directory; exclude it in"):
        packed(folder)


@each_row(("name", "line"), [(".gitignore", "!"), (".dockerignore", "[z-a]")])
def test_an_ignore_file_with_a_line_that_is_no_pattern_is_refused(tmp_path: Path, name: str, line: str) -> None:
    """Otherwise files that should be ignored might be packed."""
    made = write(tmp_path / name, {"train.py": "", name: f"*.pt\n{line}\n"})

    with pytest.raises(
        InvalidSpec, match=rf"{name}: a line is no pattern of .gitignore \((Invalid git pattern|bad char).*; correct it"
    ):
        packed(made)


# --- the checkout


def test_the_commit_of_a_checkout_is_known_and_whether_it_is_dirty(folder: Path, tmp_path: Path) -> None:
    """Changes outside the folder and ignored files do not count."""
    repository = tmp_path
    git(repository, "init", "--quiet")
    assert revision_of(folder) == {"commit": None, "dirty": None}

    write(repository, {".gitignore": "*.log\n"})
    git(repository, "add", ".")
    git(repository, "commit", "--quiet", "-m", "first")
    commit = git(repository, "rev-parse", "HEAD")
    states = []
    for path in ("outside.py", "project/a.log", "project/new.py"):
        write(repository, {path: "x"})
        states.append(revision_of(folder))

    assert states == [{"commit": commit, "dirty": is_dirty} for is_dirty in (False, False, True)]


def test_without_git_there_is_no_commit(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(folder))

    assert revision_of(folder) == {"commit": None, "dirty": None}
