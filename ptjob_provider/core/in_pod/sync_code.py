"""Fetch training code once, with git or rsync: the program of a job's sync container, in the image of `docker/sync`.

This file needs only the standard library, because the image has nothing else. Its settings are git-sync's variables
(`GIT_SYNC_*` of version 3 and `GITSYNC_*` of version 4), so that a job can use a git-sync image instead, and
`PTJOB_RSYNC_SOURCE` for rsync. It does not print credentials, and sends them only to the host that they are for.

Exit codes: 0, the code is in place; 75, a server was unreachable and a retry may help; 1, the configuration must
change.
"""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

CONTAINER = "init-code"
"""Name of the sync container in a job's pods; `arena logs` expects it."""

FAILED = "code sync failed: "
"""Prefix of the last line of a failed run."""

RSYNC_SOURCE = "PTJOB_RSYNC_SOURCE"
REPORT = "PTJOB_SYNC_REPORT"
"""Variable with the path of a JSON report about the code that was fetched; if unset, no report is written."""

UNREACHABLE = 75  # EX_TEMPFAIL

_KEY = "/etc/git-secret/ssh-privatekey"
_KNOWN_HOSTS = "/etc/git-secret/known_hosts"
_TIMEOUT = 600.0
_ATTEMPTS = 3
_PAUSE = 2.0
_NSS_WRAPPER = "libnss_wrapper.so"
# Patterns are texts, so that importing this module, as every DAG file does, compiles none.
_SHA = r"[0-9a-f]{40}([0-9a-f]{24})?"
_SECONDS = r"(\d+(?:\.\d+)?)(s|m|h)?"
_UNITS = {"": 1, "s": 1, "m": 60, "h": 3600}
_IS_SSH = r"(?:git\+)?ssh://|[^/:]+@[^/:]+:|[^/:@]+:[^/:]"
_TEMPORARY = (
    r"Could not resolve host|Temporary failure in name resolution|Connection (?:refused|reset|timed out|closed)"
    r"|Failed to connect|Operation timed out|early EOF|RPC failed|unexpected disconnect|remote end hung up"
    r"|Empty reply|No route to host|Network is unreachable|error: 5\d\d|timeout in data|failed to connect to"
    r"|getaddrinfo: |connection unexpectedly closed|max connections"
)
_LASTING = (
    r"Authentication failed|Permission denied|could not read (?:Username|Password)|Host key verification failed"
    r"|[Rr]epository .*not found|couldn't find remote ref|Access denied|auth failed|Unknown module"
    r"|No such file or directory|error: 40[134]"
)
_HELPER = '!f() { test "$1" = get || exit 0; printf "username=%s\\npassword=%s\\n" "$SYNC_USER" "$SYNC_PASS"; }; f'
_ADVICE = (
    (r"Host key verification failed", "the Secret's known_hosts does not know that host by this key"),
    (r"Permission denied \(", "the server does not take the Secret's ssh key"),
    (
        r"Authentication failed|could not read (?:Username|Password)|Access denied|error: 40[13]|auth failed",
        "the server wants other credentials",
    ),
    (r"not found|does not exist|not appear to be a git repository", "there is no such repository, or it is private"),
    (r"couldn't find remote ref", "there is no such branch or tag"),
    (r"Unknown module|No such file or directory", "there is no such module or path"),
    (r"not support (?:shallow|--depth)|expected shallow", "the server sends only the whole history: set `depth` to 0"),
)


class SyncFailed(Exception):
    """The code was not fetched.

    Attributes:
        temporary: a retry may help.
    """

    def __init__(self, text: str, *, temporary: bool = False) -> None:
        super().__init__(text)
        self.temporary = temporary


class SyncOptions:
    """Settings for fetching the code, read from the variables of either git-sync version."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self.environ = environ
        self.root = Path(self.text("ROOT") or "/code")

    def text(self, *names: str) -> str:
        """Return the first of these settings that is not empty; `GIT_SYNC_NAME` has precedence over `GITSYNC_NAME`.

        Raises:
            SyncFailed: the value is not allowed.
        """
        for name in names:
            for variable in (f"GIT_SYNC_{name}", f"GITSYNC_{name}"):
                if value := self.environ.get(variable, "").strip():
                    return _accepted(variable, value)
        return ""

    @property
    def revision(self) -> str:
        """Return the commit, tag or other git revision; "" for the newest commit of the branch."""
        text = self.text("REV")
        return "" if text == "HEAD" else text

    @property
    def depth(self) -> list[str]:
        """Return git's option for the number of commits to fetch; [] for all."""
        text = self.text("DEPTH") or "1"
        return [] if text == "0" else [f"--depth={text if text.isdecimal() else 1}"]

    @property
    def timeout(self) -> float:
        """Return the maximum seconds of each git or rsync command."""
        match = re.fullmatch(_SECONDS, self.text("TIMEOUT", "SYNC_TIMEOUT"))
        return float(match[1]) * _UNITS[match[2] or ""] if match else _TIMEOUT

    @property
    def attempts(self) -> int:
        """Return the maximum number of tries while the server is unreachable."""
        text = self.text("MAX_SYNC_FAILURES", "MAX_FAILURES")
        return int(text) + 1 if text.isdecimal() else _ATTEMPTS

    @property
    def credentials(self) -> tuple[str, str]:
        """Return user name and password, each "" if it is not set."""
        file = self.text("PASSWORD_FILE")
        password = Path(file).read_text().strip() if file else self.text("PASSWORD")
        return self.text("USERNAME"), password


def refusal(variable: str, value: str) -> str:
    """Return text about the allowed values if the variable's value is invalid; "" if it is valid."""
    setting = re.sub("^GIT_?SYNC_", "", variable)
    if setting in {"DEST", "LINK"} and value.strip() and not is_folder_name(value.strip()):
        return "allowed: the name of one folder, which is made in the root of the code"
    if setting in {"BRANCH", "REF", "REV"} and value.strip().startswith("-"):
        return "allowed: the name of a branch, a tag or a commit"
    return ""


def is_folder_name(name: str) -> bool:
    """Return whether the name is a single path component, and neither `.` nor `..`."""
    return name not in {"", ".", ".."} and "/" not in name


def main(environ: Mapping[str, str]) -> int:
    """Fetch the code that the variables describe, and return the exit code."""
    options = SyncOptions(environ)
    secret = [value for value in (*options.credentials, environ.get("RSYNC_PASSWORD", "")) if value]
    try:
        with tempfile.TemporaryDirectory(prefix="sync-") as folder:
            fetched = _again(options, Path(folder))
    except SyncFailed as error:
        _say(f"{FAILED}{error}", secret)
        return UNREACHABLE if error.temporary else 1
    _say(f"code: {fetched.get('git_revision') or fetched['source']} is in {fetched['path']}", secret)
    if environ.get(REPORT):
        report = {name: fetched[name] for name in ("git_revision",) if name in fetched}
        Path(environ[REPORT]).write_text(json.dumps(report))
    return 0


def _again(options: SyncOptions, folder: Path) -> dict[str, str]:
    """Fetch the code, and retry until the server answers or the tries are used up."""
    for attempt in range(1, options.attempts + 1):
        try:
            return _rsync(options, folder) if options.environ.get(RSYNC_SOURCE) else _git(options, folder)
        except SyncFailed as error:
            if not error.temporary or attempt == options.attempts:
                raise
            _say(f"{error}; trying again", ())
            time.sleep(_PAUSE * attempt)
    raise AssertionError


def revision_in(message: str) -> str:
    """Return the revision in the report of a run; "" if the text is no report or has none."""
    try:
        return str(json.loads(message)["git_revision"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return ""


# --- git


def _git(options: SyncOptions, folder: Path) -> dict[str, str]:
    url = options.text("REPO")
    if not url or url.startswith("-"):
        raise SyncFailed("GIT_SYNC_REPO names no repository")
    target = _emptied(options.root.resolve() / (options.text("DEST", "LINK") or _folder_of(url)))
    git = _git_in(target, _git_environment(options, url, folder), options.timeout)
    git("init", "--quiet")
    git("remote", "add", "--", "origin", url)
    _checkout(git, options)
    if (submodules := options.text("SUBMODULES") or "recursive") != "off":
        recursive = ["--recursive"] if submodules == "recursive" else []
        # Only the options decide the depth: a server may refuse the depth that .gitmodules recommends.
        git("submodule", "--quiet", "update", "--init", "--no-recommend-shallow", *recursive, *options.depth)
    return {"git_revision": git("rev-parse", "HEAD").strip(), "path": str(target), "source": url}


def _emptied(folder: Path) -> Path:
    """Delete what an earlier run of the container has left, and create the empty folder; links are not followed."""
    if folder.is_symlink() or folder.is_file():
        folder.unlink()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


def _folder_of(url: str) -> str:
    """Return the name of the folder into which a repository is checked out.

    Raises:
        SyncFailed: the address does not end in a name.
    """
    name = repository_name(url)
    if not is_folder_name(name):
        raise SyncFailed(f"GIT_SYNC_REPO: {url!r} is not allowed; allowed: an address that ends in a folder's name")
    return name


def _accepted(variable: str, value: str) -> str:
    if allowed := refusal(variable, value):
        raise SyncFailed(f"{variable}: {value!r} is not allowed; {allowed}")
    return value


def _checkout(git: Callable[..., str], options: SyncOptions) -> None:
    """Check out the requested revision with as little history as possible."""
    fetch = ("fetch", "--quiet", "--no-recurse-submodules")
    if options.revision and not re.fullmatch(_SHA, options.revision):
        _checkout_from_history(git, options.revision)
        return
    wanted = options.revision or options.text("BRANCH", "REF") or "HEAD"
    try:
        git(*fetch, *options.depth, "--end-of-options", "origin", wanted)
    except SyncFailed as error:
        if not options.revision or error.temporary:
            raise
        _checkout_from_history(git, options.revision)  # a server may refuse to serve a commit by its hash
        return
    git("checkout", "--quiet", "--detach", "FETCH_HEAD")


def _checkout_from_history(git: Callable[..., str], revision: str) -> None:
    git("fetch", "--quiet", "--tags", "--no-recurse-submodules", "origin")
    for name in (revision, f"origin/{revision}"):
        with contextlib.suppress(SyncFailed):
            commit = git("rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}").strip()
            git("checkout", "--quiet", "--detach", commit)
            return
    raise SyncFailed(f"there is no such revision: {revision}")


def _git_in(folder: Path, environ: Mapping[str, str], timeout: float) -> Callable[..., str]:
    """Return a function that runs a git command in a working copy, and returns its output."""
    return lambda *words: _run(["git", "-C", str(folder), *words], environ, timeout)


def repository_name(source: str) -> str:
    """Return the default folder name for a source: the last part of its path, without `.git`."""
    path = source.rstrip("/").removesuffix(".git")
    return re.split(r"[/:]", path)[-1] or "code"


def _git_environment(options: SyncOptions, url: str, folder: Path) -> dict[str, str]:
    """Return the environment of git: it shows no prompts, and sends credentials to the server of `url` only."""
    settings = [("credential.helper", ""), ("advice.detachedHead", "false"), ("safe.directory", "*")]
    user, password = options.credentials
    parts = urlsplit(url)
    if password and parts.scheme in {"http", "https"}:
        settings.append((f"credential.{parts.scheme}://{parts.netloc.rpartition('@')[2]}.helper", _HELPER))
    numbered = {
        name: text
        for number, pair in enumerate(settings)
        for name, text in zip((f"GIT_CONFIG_KEY_{number}", f"GIT_CONFIG_VALUE_{number}"), pair, strict=True)
    }
    own = {"SYNC_USER": user or unquote(parts.username or "") or "git", "SYNC_PASS": password, "HOME": str(folder)}
    environment = {
        **options.environ,
        **own,
        **numbered,
        "GIT_CONFIG_COUNT": str(len(settings)),
        "GIT_TERMINAL_PROMPT": "0",
    }
    if re.match(_IS_SSH, url) and parts.scheme not in {"http", "https", "git", "file"}:
        environment |= {"GIT_SSH_COMMAND": shlex.join(_ssh(options, folder)), **_account(options.environ, folder)}
    return environment


# --- rsync


def _rsync(options: SyncOptions, folder: Path) -> dict[str, str]:
    source = options.environ[RSYNC_SOURCE]
    if source.startswith("-"):
        raise SyncFailed(f"{RSYNC_SOURCE} names no source")
    options.root.mkdir(parents=True, exist_ok=True)
    environ = {**options.environ, "HOME": str(folder)}
    words = ["rsync", "--recursive", "--links", "--perms", "--times", "--timeout=60"]
    if "::" not in source and not source.startswith(("rsync://", "/", ".")):
        words.append(f"--rsh={shlex.join(_ssh(options, folder))}")
        environ |= _account(options.environ, folder)
    _run([*words, "--", source, f"{options.root}/"], environ, options.timeout)
    path = options.root if source.endswith("/") else options.root / re.split(r"[/:]", source)[-1]
    return {"path": str(path), "source": source}


# --- ssh


def _ssh(options: SyncOptions, folder: Path) -> list[str]:
    """Return the ssh command: it uses only the given key, and verifies host keys unless that is disabled."""
    words = ["ssh", "-oBatchMode=yes", "-oConnectTimeout=20", f"-F{os.devnull}"]
    named = Path(options.environ.get("GIT_SSH_KEY_FILE") or options.text("SSH_KEY_FILE") or _KEY)
    # beside the named file, the names that Kubernetes and git-sync use for a Secret's ssh key
    keys = (named, named.with_name("ssh-privatekey"), named.with_name("ssh"))
    if key := next((path for path in keys if path.is_file()), None):
        own = folder / "key"
        own.touch(mode=0o600)  # ssh requires a key file that only its owner can read
        own.write_bytes(key.read_bytes().rstrip(b"\r\n") + b"\n")
        words += ["-i", str(own), "-oIdentitiesOnly=yes"]
    known = options.environ.get("GIT_SSH_KNOWN_HOSTS_FILE") or options.text("SSH_KNOWN_HOSTS_FILE") or _KNOWN_HOSTS
    known_hosts = options.environ.get("GIT_KNOWN_HOSTS") or options.text("SSH_KNOWN_HOSTS")
    if known_hosts.lower() in {"false", "0"}:
        return [*words, "-oStrictHostKeyChecking=no", f"-oUserKnownHostsFile={folder / 'hosts'}"]
    return [*words, "-oStrictHostKeyChecking=yes", f"-oUserKnownHostsFile={known}"]


def _account(environ: Mapping[str, str], folder: Path) -> dict[str, str]:
    """Return variables that give this process's user a name, if it has none: ssh needs a name."""
    with contextlib.suppress(KeyError):
        pwd.getpwuid(os.getuid())
        return {}
    passwd, group = folder / "passwd", folder / "group"
    passwd.write_text(f"sync:x:{os.getuid()}:{os.getgid()}::{folder}:/bin/sh\n")
    group.write_text(f"sync:x:{os.getgid()}:\n")
    preload = " ".join(filter(None, [environ.get("LD_PRELOAD"), _NSS_WRAPPER]))
    return {"LD_PRELOAD": preload, "NSS_WRAPPER_PASSWD": str(passwd), "NSS_WRAPPER_GROUP": str(group)}


# --- programs


def _run(words: Sequence[str], environ: Mapping[str, str], timeout: float) -> str:
    """Run a program, and return its output.

    Raises:
        SyncFailed: the program failed, timed out or is missing.
    """
    try:
        done = subprocess.run(  # noqa: S603 - the command is built here
            words, env=dict(environ), stdin=subprocess.DEVNULL, capture_output=True, timeout=timeout, check=False
        )
    except FileNotFoundError:
        raise SyncFailed(f"there is no program {words[0]} here; install it") from None
    except subprocess.TimeoutExpired:
        raise SyncFailed(f"{words[0]} took longer than {timeout:g} s", temporary=True) from None
    if done.returncode == 0:
        return done.stdout.decode("utf-8", "replace")
    message = done.stderr.decode("utf-8", "replace").strip()
    raise SyncFailed(_explained(words[0], message), temporary=_is_temporary(message))


def _is_temporary(message: str) -> bool:
    return bool(re.search(_TEMPORARY, message)) and not re.search(_LASTING, message)


def _explained(program: str, message: str) -> str:
    """Return an error text: advice, and the most specific line of the program's message."""
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    specific = [line for line in lines if re.search(f"{_TEMPORARY}|{_LASTING}", line)] or lines[:1] or ["no word"]
    advice = next((f"{text}: " for pattern, text in _ADVICE if re.search(pattern, message)), "")
    return f"{advice}{program} says “{specific[0].removeprefix('fatal: ')}”"


def _say(text: str, secret: Sequence[str]) -> None:
    for value in secret:
        text = text.replace(value, "***")
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(os.environ))
