"""Pack a folder of code: the same files make the same archive, byte for byte, on every machine.

The tar archive has the regular files and symbolic links in order of their names, with the same owner, time and modes
for all. It is named by the hash of its content. Files that `.gitignore` or `.dockerignore` excludes are left out, and
so are version control, caches and empty folders. Paths that look like credentials, lead out of the folder or are no
files are left out, too, and are reported.
"""

from __future__ import annotations

import base64
import contextlib
import gzip
import hashlib
import os
import re
import stat
import subprocess
import tarfile
import tempfile
import weakref
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING

from ptjob_provider.core.errors import InvalidSpec
from ptjob_provider.core.spec.code import MAX_TRAVELS, PackedCode

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import IO

    from pathspec import GitIgnoreSpec

    from ptjob_provider.core.spec import TrainingJob

MAX_BYTES = 1024**3
"""Maximum bytes of a folder."""

MAX_PACKED = 64_000_000
"""Maximum bytes of a folder that travels in Secrets or is used on this machine: its archive is kept in memory."""

_SKIPPED = {".git", ".hg", ".svn", "__pycache__", ".ipynb_checkpoints", ".mypy_cache", ".pytest_cache", ".ruff_cache"}
_CREDENTIALS = (
    *(".env", ".env.*", "*.env", "*.env.*", ".envrc", ".netrc", "_netrc", ".pgpass", ".pypirc", ".npmrc"),
    *(".git-credentials", ".htpasswd", ".s3cfg", ".vault-token"),
    *(".databrickscfg", "kubeconfig", "*.kubeconfig", ".dockerconfigjson"),
    *("id_rsa", "id_dsa", "id_ecdsa", "id_ed25519", "*.key", "*.p12", "*.pfx", "*.jks", "*.kdbx", "*.ppk"),
    *("secrets.json", "secrets.toml", "secrets.yaml", "secrets.yml", "kaggle.json"),
    *("credentials", "credentials.json", "application_default_credentials.json"),
    *("client_secret*.json", "service-account*.json", "service_account*.json"),
)
_CREDENTIAL_FOLDERS = {".aws", ".azure", ".docker", ".gnupg", ".kube", ".ssh"}
_EXAMPLES = ("*.example", "*.sample", "*.template", "*.dist")
_PRIVATE_KEY = re.compile(rb"\s*-----BEGIN [A-Z ]*PRIVATE KEY|\s*\{[^{}]*\"private_key\"\s*:")
_KEY_BEHIND_CERTIFICATES = re.compile(rb".*-----BEGIN [A-Z ]*PRIVATE KEY", re.DOTALL)
_HEAD = 64 * 1024
_PIECE = 1024 * 1024
_MODES = (0o644, 0o755)
_TIME = 315532800  # 1980, the first year that zip archives have, so that tools can pack the files again
_MOST_NAMED = 5
_GIT_TIMEOUT = 20.0


@dataclass(frozen=True, kw_only=True)
class Packed:
    """A folder's archive.

    Attributes:
        digest: SHA-256 of the archive, in hexadecimal.
        bytes: total size of its files and links.
        left_out: `path: reason` for each path that is left out for another reason than an ignore file.
    """

    digest: str
    bytes: int
    left_out: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class _Entry:
    path: str
    place: Path
    facts: os.stat_result
    link: str = ""


def pack(folder: Path, archive: IO[bytes]) -> Packed:
    """Write the folder to the archive, an empty file.

    Raises:
        InvalidSpec: the folder has no files, is too large, or changed meanwhile; the text says what to do.
    """
    walk = _FolderWalk(folder)
    try:
        entries = list(walk.entries())
    except OSError as error:
        raise _unreadable(os.path.relpath(error.filename, walk.folder), error) from None
    size = sum(each.facts.st_size for each in entries)
    if not entries:
        raise InvalidSpec.of("code", str(folder), "allowed: a folder with files that are not ignored")
    if size > MAX_BYTES:
        files = [(each.path, each.facts.st_size) for each in entries]
        raise _too_large(files, allowed=megabytes(MAX_BYTES))
    with tarfile.open(fileobj=archive, mode="w", format=tarfile.PAX_FORMAT) as tar:
        sizes = [each.facts.st_size for each in entries if _add(tar, each, walk)]
    archive.seek(0)
    digest = hashlib.file_digest(archive, "sha256").hexdigest()  # type: ignore[arg-type]  # `IO` lacks readinto
    return Packed(digest=digest, bytes=sum(sizes), left_out=tuple(walk.left_out))


def with_packed_folder(job: TrainingJob, *, beside: Path) -> TrainingJob:
    """Return the job with the folder of its `code` packed; unchanged if `code` is no folder.

    Raises:
        InvalidSpec: the folder does not exist or cannot be packed.
    """
    folder = job.code.folder_beside(beside) if job.code else None
    if job.code is None or folder is None:
        return job
    with contextlib.ExitStack() as closing:
        tar = closing.enter_context(tempfile.SpooledTemporaryFile(MAX_PACKED))
        packed = pack(folder, tar)
        tar.seek(0)
        archive = compressed(tar.read()) if packed.bytes <= MAX_PACKED else b""
        code = PackedCode(
            folder=job.code.folder,
            archive=base64.b64encode(archive).decode(),
            digest=packed.digest,
            code_revision={"digest": f"sha256:{packed.digest}", **revision_of(folder)},
            left_out=packed.left_out,
            tar=None if 0 < len(archive) <= MAX_TRAVELS else tar,
        )
        if code.tar is not None:
            weakref.finalize(code, closing.pop_all().close)
    return replace(job, code=code)


def too_large(tar: IO[bytes], *, allowed: str) -> InvalidSpec:
    """Return the error about a packed folder that is too large; the text names the largest parts."""
    tar.seek(0)
    with tarfile.open(fileobj=tar, mode="r:") as archive:
        files = [(each.name, each.size) for each in archive]
    return _too_large(files, allowed=allowed)


def compressed(archive: bytes) -> bytes:
    """Return the archive in gzip format; the same bytes for the same archive and version of zlib."""
    return gzip.compress(archive, 6, mtime=0)


def revision_of(folder: Path) -> dict[str, str | bool | None]:
    """Return the commit of the folder's git checkout, and whether files differ from it; None if there is none."""
    commit = _git(folder, "rev-parse", "--verify", "--quiet", "HEAD")
    changes = _git(folder, "status", "--porcelain", "--", ".")
    is_known = bool(commit) and changes is not None
    return {"commit": commit, "dirty": bool(changes)} if is_known else {"commit": None, "dirty": None}


def _git(folder: Path, *words: str) -> str | None:
    """Return what git prints; None if it fails or is missing."""
    environ = {**os.environ, "GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0"}
    command = ["git", "-C", str(folder), "-c", "core.fsmonitor=false", *words]
    try:
        process = subprocess.run(command, env=environ, capture_output=True, timeout=_GIT_TIMEOUT, check=True)  # noqa: S603
    except (OSError, subprocess.SubprocessError):
        return None
    return process.stdout.decode("utf-8", "replace").strip()


# --- the archive


def _add(tar: tarfile.TarFile, entry: _Entry, walk: _FolderWalk) -> bool:
    """Add the entry to the archive unless it is a private key; return whether it was added."""
    info = tarfile.TarInfo(entry.path)
    info.mtime = _TIME
    if entry.link:
        info.type, info.linkname, info.mode = tarfile.SYMTYPE, entry.link, 0o777
        tar.addfile(info)
        return True
    info.size, info.mode = entry.facts.st_size, _MODES[bool(entry.facts.st_mode & stat.S_IXUSR)]
    try:
        with entry.place.open("rb", buffering=_PIECE) as file:
            head = file.read(_HEAD)
            if (_KEY_BEHIND_CERTIFICATES if entry.path.lower().endswith(".pem") else _PRIVATE_KEY).match(head):
                walk.leave_out(entry.path, "a private key")
                return False
            file.seek(0)
            try:
                tar.addfile(info, file)
            finally:
                _check_unchanged(file, entry)
    except OSError as error:
        raise _unreadable(entry.path, error) from None
    return True


def _check_unchanged(file: IO[bytes], entry: _Entry) -> None:
    """Check that the file is as it was when the folder was listed.

    Raises:
        InvalidSpec: the file has changed.
    """
    before, now = entry.facts, os.fstat(file.fileno())
    if (before.st_size, before.st_mtime_ns) != (now.st_size, now.st_mtime_ns):
        error = InvalidSpec.at(
            "code",
            f"{entry.path} changed while it was packed; allowed: files that stay the same meanwhile; try"
            " again, or put it into .dockerignore",
        )
        error.retryable = True
        raise error


def _unreadable(path: str, error: OSError) -> InvalidSpec:
    return InvalidSpec.of("code", path, f"it cannot be read: {error.strerror}; exclude it in .dockerignore")


def _too_large(files: Sequence[tuple[str, int]], *, allowed: str) -> InvalidSpec:
    sizes: dict[str, int] = {}
    for path, bytes_ in files:
        top, slash, _ = path.partition("/")
        sizes[top + slash] = sizes.get(top + slash, 0) + bytes_
    parts = sorted(sizes, key=lambda name: -sizes[name])[:_MOST_NAMED]
    largest = ", ".join(f"{name} ({megabytes(sizes[name])})" for name in parts)
    return InvalidSpec.at(
        "code",
        f"{megabytes(sum(sizes.values()))} are not allowed; allowed: {allowed}; the largest are {largest}: put what is"
        " no code into .dockerignore, and data on a claim (ptjob data cp); or build an image with the folder, or name a"
        " git repository",
    )


def megabytes(size: int) -> str:
    """Format a number of bytes for people."""
    return f"{size / 1e6:,.1f} MB"


# --- which files


class _FolderWalk:
    """Finds a folder's files, in order of their names."""

    def __init__(self, folder: Path) -> None:
        self.left_out: list[str] = []
        self.folder = folder.resolve()
        self._ignored = _Ignored(self.folder)

    def leave_out(self, path: str, why: str) -> None:
        self.left_out.append(f"{path}: {why}")

    def entries(self, inner: str = "") -> Iterator[_Entry]:
        """Yield the files and links below an inner folder; "" is the folder itself."""
        self._ignored.enter(inner)
        with os.scandir(self.folder / inner) as unsorted:
            children = sorted(unsorted, key=lambda each: os.fsencode(each.name))
        for each in children:
            path = f"{inner}{each.name}"
            is_folder = each.is_dir(follow_symlinks=False)
            if why := _credential(each.name, is_folder=is_folder):
                self.leave_out(path, why)  # also if it is ignored, so that people know why the pod lacks it
            elif each.name in _SKIPPED or self._ignored.excludes(path + "/" * is_folder):
                continue
            elif is_folder and (Path(each.path) / "pyvenv.cfg").is_file():
                self.leave_out(path, "a virtual environment: install its packages in the image")
            elif is_folder:
                yield from self.entries(f"{path}/")
            else:
                yield from self._entry(path, Path(each.path))

    def _entry(self, path: str, place: Path) -> Iterator[_Entry]:
        with contextlib.suppress(FileNotFoundError):  # the file was deleted meanwhile
            facts = place.lstat()
            if stat.S_ISREG(facts.st_mode):
                yield _Entry(path=path, place=place, facts=facts)
            elif stat.S_ISLNK(facts.st_mode):
                yield from self._link(path, place, facts)
            else:
                self.leave_out(path, "neither a file nor a folder")

    def _link(self, path: str, place: Path, facts: os.stat_result) -> Iterator[_Entry]:
        """Yield a link without following it, so that circular links do no harm."""
        target = os.path.normpath(place.parent / place.readlink())
        if Path(target).is_relative_to(self.folder):
            yield _Entry(path=path, place=place, facts=facts, link=os.path.relpath(target, place.parent))
        else:
            self.leave_out(path, f"a link that leads out of the folder, to {target}")


class _Ignored:
    """Patterns of the ignore files of a folder and of those above it, up to its repository's root."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._specs: dict[str, GitIgnoreSpec] = {}
        above = [folder, *folder.parents]
        roots = [number for number, each in enumerate(above) if (each / ".git").exists()]
        self._above = above[1 : roots[0] + 1] if roots else []
        self._outer = [(each, spec) for each in self._above if (spec := _spec(each / ".gitignore"))]
        file = folder / ".dockerignore"
        lines = _lines(file)
        self._docker = _spec_of(file, [_anchored(line) for line in lines])
        self._may_come_back = any(line.startswith("!") for line in lines)

    def enter(self, inner: str) -> None:
        """Read the ignore file of a folder."""
        if spec := _spec(self._folder / inner / ".gitignore"):
            self._specs[inner] = spec

    def excludes(self, path: str) -> bool:
        """Return whether a path is excluded; the path of a folder ends in a slash."""
        is_kept_open = self._may_come_back and path.endswith("/")
        if self._docker and not is_kept_open and self._docker.check_file(path).include:
            return True
        return self._by_git(path)

    def _by_git(self, path: str) -> bool:
        """Return whether the path is excluded by the nearest .gitignore that has a pattern for it."""
        inner = path.rstrip("/")
        while inner:
            inner = inner.rpartition("/")[0]
            spec = self._specs.get(f"{inner}/" if inner else "")
            if spec and (match := spec.check_file(path.removeprefix(f"{inner}/" if inner else "")).include) is not None:
                return match
        for folder, spec in self._outer:
            outer = (self._folder / path).relative_to(folder).as_posix() + "/" * path.endswith("/")
            if (match := spec.check_file(outer).include) is not None:
                return match
        return False


def _spec(file: Path) -> GitIgnoreSpec | None:
    return _spec_of(file, _lines(file))


def _spec_of(file: Path, lines: Sequence[str]) -> GitIgnoreSpec | None:
    if not lines:
        return None
    from pathspec import GitIgnoreSpec  # noqa: PLC0415 - only for folders with ignore files

    try:
        return GitIgnoreSpec.from_lines(lines)
    except (ValueError, re.error) as error:
        raise InvalidSpec.at(str(file), f"a line is no pattern of .gitignore ({error}); correct it") from None


def _lines(file: Path) -> list[str]:
    try:
        return [line for line in file.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    except (FileNotFoundError, NotADirectoryError):
        return []


def _anchored(line: str) -> str:
    """Convert a line of .dockerignore, where all paths begin at the folder, to .gitignore's syntax."""
    sign, pattern = ("!", line[1:]) if line.startswith("!") else ("", line)
    return line if line.startswith("#") else f"{sign}/{pattern.strip().removeprefix('./').lstrip('/')}"


def _credential(name: str, *, is_folder: bool) -> str:
    """Return why a name looks like that of a credential; "" if it does not."""
    is_example = any(fnmatchcase(name, pattern) for pattern in _EXAMPLES)
    matches = any(fnmatchcase(name.lower(), pattern) for pattern in _CREDENTIALS) and not is_example
    is_credential = name in _CREDENTIAL_FOLDERS if is_folder else matches
    return "may have credentials: give them by `env`, from a Secret" if is_credential else ""
