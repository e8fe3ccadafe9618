"""Source of a job's code: a git repository, or a folder that rsync fetches."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Self
from urllib.parse import urlsplit

from ptjob_provider.core.errors import InvalidSpec
from ptjob_provider.core.in_pod.sync_code import is_folder_name, repository_name
from ptjob_provider.core.spec import parsers
from ptjob_provider.core.spec.parsers import parse_into, setting

_SYNC = r"GIT_SYNC_|GITSYNC_|GIT_SSH_|GIT_KNOWN_HOSTS$|RSYNC_PASSWORD$"
_CREDENTIAL = r"USERNAME|PASSWORD|TOKEN|SECRET|PRIVATE_KEY|ASKPASS"
_NO_CREDENTIAL = r"_(FILE|PATH)$"
_GIT = r"(?:https?|ssh|git)://[^\s/]\S*|[^\s/:-][^\s/:]*:(?!:)\S+"
_RSYNC = r"rsync://[^\s/]+/\S+|[^\s/:-][^\s/:]*::?\S+"
_REF = r"(?!-)[^\s~^:?*\[\\]+"
_OF_GIT = ("branch", "revision", "submodules", "depth")
_ALLOWED = "an address such as https://host/team/repository.git, git@host:team/repository.git or host::module/path"


def is_sync_variable(name: str) -> bool:
    """Return whether a variable, by git-sync's names, configures the sync container."""
    return bool(re.match(_SYNC, name))


def is_credential(name: str) -> bool:
    """Return whether such a variable's value is secret."""
    return is_sync_variable(name) and bool(re.search(_CREDENTIAL, name)) and not re.search(_NO_CREDENTIAL, name)


def _address(pattern: str) -> parsers.Reader[str]:
    def read(field: str, value: Any) -> str:
        address = parsers.text(field, value)
        if urlsplit(address).password is not None:
            raise InvalidSpec(
                f"{field}: the address has a password in it, which would be shown wherever the job is; give a `secret`,"
                " or the variables GIT_SYNC_USERNAME and GIT_SYNC_PASSWORD in `env`"
            )
        if not re.fullmatch(pattern, address):
            raise InvalidSpec.of(field, value, _ALLOWED)
        if not is_folder_name(repository_name(address)):
            raise InvalidSpec.of(field, value, "allowed: an address that ends in the name of a repository or a folder")
        return address

    return read


def _ref(field: str, value: Any) -> str:
    name = parsers.text(field, value)
    if not re.fullmatch(_REF, name):
        raise InvalidSpec.of(field, value, "the name of a branch, a tag or a commit")
    return name


@dataclass(frozen=True, kw_only=True)
class CodeSource:
    """Source of the code, either `git` or `rsync`, with settings. None leaves a setting to the sync image."""

    git: str | None = setting(_address(_GIT))
    """Address of a repository."""
    rsync: str | None = setting(_address(_RSYNC))
    """`host::module/path`, `rsync://host/module/path` or, over ssh, `user@host:path`."""
    branch: str | None = setting(_ref)
    """Branch or tag. None: the repository's default branch."""
    revision: str | None = setting(_ref)
    """Commit, by its whole name or the beginning of it, or tag. None: the newest of the branch."""
    submodules: str | None = setting(parsers.word("recursive", "shallow", "off"))
    """Which sub-modules come too: all, those of the repository itself, none. None: all."""
    depth: int | None = setting(parsers.integer(0))
    """How many commits of the history; 0 for all. None: one."""
    secret: str | None = setting(parsers.text)
    """Secret with the credentials: `password` (or a token) and `username`, or `ssh-privatekey` and `known_hosts`."""
    image: str | None = setting(parsers.text)
    """What fetches it instead of the installation's sync image: git-sync 3 or 4, or for rsync any image with it."""

    @classmethod
    def parse(cls, field: str, value: Any) -> Self:
        """Parse an address, or a map of these parts.

        Raises:
            InvalidSpec: it is neither; a part is unknown or invalid; an address contains a password.
        """
        given = parsers.mapping(field, cls.as_map(value))
        found = parse_into(cls, given, prefix=f"{field}.")
        if (found.git is None) == (found.rsync is None):
            raise InvalidSpec.of(field, sorted(given), "one of git and rsync")
        for part in _OF_GIT if found.rsync else ():
            if getattr(found, part) is not None:
                raise InvalidSpec.of(f"{field}.{part}", getattr(found, part), "left out for rsync")
        return found

    @staticmethod
    def as_map(value: Any) -> Any:
        """Return an address as its map; anything else unchanged."""
        if not isinstance(value, str):
            return value
        is_rsync = "::" in value or value.strip().startswith("rsync:")
        return {"rsync" if is_rsync else "git": value}

    @property
    def source(self) -> str:
        """Return the address."""
        return self.git or self.rsync or ""

    @property
    def is_over_ssh(self) -> bool:
        """Return whether it is fetched with an SSH key instead of a password."""
        if "://" in self.source:
            return self.source.startswith("ssh://")
        return "::" not in self.source
