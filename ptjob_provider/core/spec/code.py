"""Source of a job's code: a git repository, a folder that rsync fetches, or a folder of this machine."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Self
from urllib.parse import urlsplit

from ptjob_provider.core.errors import InvalidSpec
from ptjob_provider.core.in_pod.sync_code import is_folder_name, repository_name
from ptjob_provider.core.spec import parsers
from ptjob_provider.core.spec.parsers import parse_into, setting

if TYPE_CHECKING:
    from collections.abc import Mapping

MAX_TRAVELS = 16_000_000
"""Maximum bytes of a compressed archive in Secrets: etcd, usually of 2 GB, holds them for as long as the job exists."""

_SYNC = r"GIT_SYNC_|GITSYNC_|GIT_SSH_|GIT_KNOWN_HOSTS$|RSYNC_PASSWORD$"
_CREDENTIAL = r"USERNAME|PASSWORD|TOKEN|SECRET|PRIVATE_KEY|ASKPASS"
_NO_CREDENTIAL = r"_(FILE|PATH)$"
_GIT = r"(?:https?|ssh|git)://[^\s/]\S*|[^\s/:-][^\s/:]*:(?!:)\S+"
_WITH_CREDENTIAL = r"(?i)(?:[a-z]+\+)?https?://[^/?#]*@|(?:[a-z][a-z\d+.-]*://)?[^/@]*:[^/@]*@"
"""Matches an address with a password, also without a scheme, and one of HTTP with a user, who is often a token."""
_RSYNC = r"rsync://[^\s/]+/\S+|[^\s/:-][^\s/:]*::?\S+"
_REF = r"(?!-)[^\s~^:?*\[\\]+"
_OF_GIT = ("branch", "revision", "submodules", "depth")
SOURCES = ("git", "rsync", "folder")
"""Parts that say where the code is; a source has exactly one of them."""
_ALLOWED = (
    "allowed: an address such as https://host/team/repository.git, git@host:team/repository.git or host::module/path"
)


def is_sync_variable(name: str) -> bool:
    """Return whether a variable configures the sync container, by the names of git-sync's variables."""
    return bool(re.match(_SYNC, name))


def is_credential(name: str) -> bool:
    """Return whether a variable of the sync container holds a credential."""
    return is_sync_variable(name) and bool(re.search(_CREDENTIAL, name)) and not re.search(_NO_CREDENTIAL, name)


def _address(pattern: str) -> parsers.Reader[str]:
    def read(field: str, value: Any) -> str:
        address = parsers.text(field, value)
        if re.match(_WITH_CREDENTIAL, address):
            raise InvalidSpec.at(
                field,
                "the address has a user or a password in it, which would be shown wherever the job is, and is often a"
                " token; leave out what is before the @, and give a `secret`, or the variables GIT_SYNC_USERNAME and"
                " GIT_SYNC_PASSWORD in `env`; if the @ is in the path, write ssh://host/path, or host:./path for rsync",
            )
        try:
            urlsplit(address)  # refuses half an IPv6 address, which would end the program that fetches the code
        except ValueError:
            raise InvalidSpec.of(field, value, _ALLOWED) from None
        if not re.fullmatch(pattern, address):
            raise InvalidSpec.of(field, value, _ALLOWED)
        if not is_folder_name(repository_name(address)):
            raise InvalidSpec.of(field, value, "allowed: an address that ends in the name of a repository or a folder")
        return address

    return read


def _ref(field: str, value: Any) -> str:
    name = parsers.text(field, value)
    if not re.fullmatch(_REF, name):
        raise InvalidSpec.of(field, value, "allowed: the name of a branch, a tag or a commit")
    return name


@dataclass(frozen=True, kw_only=True)
class CodeSource:
    """Source of the code: `git`, `rsync` or `folder`, with settings. A setting of None is left to the sync image."""

    git: str | None = setting(_address(_GIT))
    """Address of a repository."""
    rsync: str | None = setting(_address(_RSYNC))
    """`host::module/path`, `rsync://host/module/path` or, over ssh, `user@host:path`."""
    folder: str | None = setting(parsers.text)
    """Folder of this machine; a relative path begins at the DAG file's folder, or where the command is run."""
    branch: str | None = setting(_ref)
    """Branch or tag. None: the repository's default branch."""
    revision: str | None = setting(_ref)
    """Commit, by its hash or the beginning of the hash, or tag. None: the branch's newest commit."""
    submodules: str | None = setting(parsers.word("recursive", "shallow", "off"))
    """Sub-modules to fetch: `recursive` all, `shallow` those of the repository itself, `off` none. None: all."""
    depth: int | None = setting(parsers.integer(0))
    """Number of commits of the history to fetch; 0 for all. None: one."""
    secret: str | None = setting(parsers.text)
    """Secret with the credentials: `password` (or a token) and `username`, or `ssh-privatekey` and `known_hosts`."""
    image: str | None = setting(parsers.text)
    """Image that fetches the code instead of the installation's: git-sync 3 or 4, or for rsync any image with rsync."""

    @classmethod
    def parse(cls, field: str, value: Any) -> Self:
        """Parse an address, a folder's path, or a map of these parts.

        Raises:
            InvalidSpec: the value is none of these, a part is unknown or invalid, or an address contains a credential.
        """
        given = parsers.mapping(field, cls.as_map(value))
        source = parse_into(cls, given, prefix=f"{field}.")
        named = [part for part in SOURCES if getattr(source, part) is not None]
        if len(named) != 1:
            raise InvalidSpec.of(field, sorted(given), "allowed: one of git, rsync and folder")
        excluded = {"git": (), "rsync": _OF_GIT, "folder": (*_OF_GIT, "secret", "image")}
        for part in excluded[named[0]]:
            if getattr(source, part) is not None:
                raise InvalidSpec.of(f"{field}.{part}", getattr(source, part), f"leave it out beside {named[0]}")
        return source

    @staticmethod
    def as_map(value: Any) -> Any:
        """Return the map for an address or a path; return any other value unchanged."""
        if isinstance(value, Path):
            return {"folder": str(value)}
        if not isinstance(value, str):
            return value
        if ":" not in value:
            return {"folder": value}
        is_rsync = "::" in value or value.strip().startswith("rsync:")
        return {"rsync" if is_rsync else "git": value}

    @classmethod
    def is_folder(cls, value: Any) -> bool:
        """Return whether a value that is not parsed yet is a folder of this machine."""
        source = cls.as_map(value)
        return isinstance(source, dict) and "folder" in source

    @property
    def source(self) -> str:
        """Return the address."""
        return self.git or self.rsync or ""

    def folder_beside(self, place: Path) -> Path | None:
        """Return the folder of this machine, where a relative path begins at the place; None for any other source.

        Raises:
            InvalidSpec: the folder does not exist.
        """
        if self.folder is None:
            return None
        folder = place / os.path.expanduser(self.folder)  # noqa: PTH111 - leaves the ~ of an unknown user
        if not folder.is_dir():
            allowed = f"{_ALLOWED}, or a folder of this machine"
            raise InvalidSpec.of("code", self.folder, f"there is no folder {folder.absolute()}; {allowed}")
        return folder

    @property
    def is_over_ssh(self) -> bool:
        """Return whether the code is fetched over SSH, with a key instead of a password."""
        if "://" in self.source:
            return self.source.startswith("ssh://")
        return "::" not in self.source


@dataclass(frozen=True, kw_only=True)
class PackedCode(CodeSource):
    """A folder whose archive is ready to travel; see `core.code.folder.with_packed_folder`.

    Attributes:
        archive: gzip of the tar archive, in base64; "" if the folder is too large to be kept in memory.
        digest: SHA-256 of the tar archive, in hexadecimal.
        code_revision: {digest, commit, dirty}; commit and dirty are None outside of a git checkout.
        left_out: `path: reason` for each file or folder that was not packed.
        tar: the tar archive, if it is too large for a cluster's Secrets; closed when this object is collected.
    """

    archive: str = field(repr=False)
    digest: str
    code_revision: Mapping[str, Any]
    left_out: tuple[str, ...] = ()
    tar: IO[bytes] | None = field(default=None, repr=False, compare=False)
