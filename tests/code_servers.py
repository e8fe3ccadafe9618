"""Servers for training code: git over HTTP and ssh, and rsync. They are the distribution's programs.

They run as the current user, have one account, and stop when their context ends.
"""

from __future__ import annotations

import base64
import contextlib
import os
import pwd
import random
import shutil
import socket
import subprocess
import sys
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from cluster.boot import Cluster

USER, PASSWORD = "ann", "s3cr3t-of-ann"
DIGITS = Path(__file__).parents[1] / "docker" / "digits"
PACKAGES = ("git", "openssh-server", "rsync")
PROGRAMS = ("git", "/usr/sbin/sshd", "rsync")
_SSH_PORT = 22
_BACKEND = "/usr/lib/git-core/git-http-backend"


def ensure_programs() -> None:
    """Install the servers; skip the test with the reason if that is impossible."""
    from cluster import boot, debian  # noqa: PLC0415 - the HTTP server, which runs this file, has no packages
    from cluster.fixtures import skip_because  # noqa: PLC0415 - as above

    missing = [program for program in PROGRAMS if shutil.which(program) is None]
    if not missing:
        return
    reason = boot.not_root() or debian.unmet()
    skip_because(f"{', '.join(missing)}: not installed ({reason})" if reason else "")
    debian.install(PACKAGES, lambda _: None)


def git(folder: Path, *words: str) -> str:
    """Run git without the user's configuration and return its output."""
    environ = {"PATH": os.environ["PATH"], "HOME": str(folder), "GIT_CONFIG_NOSYSTEM": "1"}
    who = ["-c", "user.name=Ann", "-c", "user.email=ann@example.org", "-c", "protocol.file.allow=always"]
    who += ["-c", "init.defaultBranch=main", "-c", "safe.directory=*"]
    done = subprocess.run(["git", "-C", str(folder), *who, *words], env=environ, capture_output=True, check=True)
    return done.stdout.decode().strip()


@dataclass(frozen=True)
class Repository:
    """A repository with two commits on `main`, the first one tagged, another branch, and a submodule.

    Attributes:
        path: Path of the bare repository that is served.
        revisions: Commits by their name in tests.
    """

    path: Path
    revisions: dict[str, str]

    @property
    def name(self) -> str:
        """The directory that it is checked out to."""
        return self.path.stem


@dataclass(frozen=True)
class Served:
    """A repository that can be cloned.

    Attributes:
        address: URL of the repository.
        revision: Its only commit.
    """

    address: str
    revision: str


@contextlib.contextmanager
def digits(folder: Path, net: Net) -> Iterator[Served]:
    """Serve a repository with the programs of the digits image; they are checked out to `code/digits`."""
    ensure_programs()
    path = plain_repository(folder, "digits", {file.name: file.read_text() for file in DIGITS.glob("*.py")})
    with http(folder, net) as address:
        yield Served(f"{address}/{path.name}", git(path, "rev-parse", "HEAD"))


def repository(folder: Path, program: str = "print('v2')\n") -> Repository:
    """Create the repository; its default branch is not `master`."""
    part = _bare(folder, "part", {"part.py": "PART = 1\n"})
    work = folder / "work"
    work.mkdir()
    git(work, "init", "--quiet")
    git(work, "submodule", "--quiet", "add", "../part.git", "part")
    revisions = {"first": _commit(work, {"train.py": "print('v1')\n"})}
    git(work, "tag", "v1")
    git(work, "checkout", "--quiet", "-b", "other")
    revisions["other"] = _commit(work, {"train.py": "print('other')\n"})
    git(work, "checkout", "--quiet", "main")
    revisions["main"] = _commit(work, {"train.py": program})
    git(folder, "clone", "--quiet", "--bare", str(work), str(folder / "mnist.git"))
    assert part.exists()
    return Repository(folder / "mnist.git", revisions)


def plain_repository(folder: Path, name: str, files: Mapping[str, str]) -> Path:
    """Create a repository with one commit, and return the bare repository to serve."""
    work = folder / f"{name}-work"
    work.mkdir()
    git(work, "init", "--quiet")
    _commit(work, files)
    git(folder, "clone", "--quiet", "--bare", str(work), str(folder / f"{name}.git"))
    return folder / f"{name}.git"


def _bare(folder: Path, name: str, files: Mapping[str, str]) -> Path:
    bare = plain_repository(folder, name, files)
    # The submodule's URL is relative to the superproject, as on a real server.
    shutil.copytree(bare, folder / "x" / f"{name}.git")
    return bare


def _commit(work: Path, files: Mapping[str, str]) -> str:
    for name, text in files.items():
        (work / name).write_text(text)
    git(work, "add", "--all")
    git(work, "commit", "--quiet", "--message", "Change it")
    return git(work, "rev-parse", "HEAD")


# --- addresses


@dataclass(frozen=True)
class Net:
    """An address that servers listen on.

    Attributes:
        address: Address of this machine or of a cluster's node.
        enter: Prefix of a command that starts it in the network of that address.
    """

    address: str = "127.0.0.1"
    enter: tuple[str, ...] = ()

    @classmethod
    def of(cls, cluster: Cluster) -> Self:
        """Return the address of a cluster's node, which pods can reach; servers run in the node's network namespace."""
        return cls(cluster.layout.node_address, ("nsenter", "--target", str(cluster.machine.first_pid), "--net"))

    def free_port(self) -> int:
        """Return a free port outside the range that jobs on this machine use."""
        while True:
            port = random.randrange(12000, 20000)  # noqa: S311 - no secret
            if not self.answers(port):
                return port

    def answers(self, port: int) -> bool:
        """Return whether a server accepts connections on the port."""
        with contextlib.suppress(OSError), socket.create_connection((self.address, port), timeout=1):
            return True
        return False

    @contextlib.contextmanager
    def running(self, command: list[str], port: int, log: Path) -> Iterator[None]:
        """Run a server until the context ends.

        Raises:
            ClusterFailed: it does not listen in time; the message has its log.
        """
        from serving import serving  # noqa: PLC0415 - as above

        argv = [*self.enter, *command]
        with serving(command[0], argv, env=os.environ, log=log, answers=lambda: self.answers(port)):
            yield


HERE = Net()


# --- git over HTTP


@contextlib.contextmanager
def http(folder: Path, net: Net = HERE, *, private: bool = False) -> Iterator[str]:
    """Serve the repositories in the folder with git's own back-end; yield the URL of the folder."""
    port = net.free_port()
    command = [sys.executable, "-I", __file__, str(folder), net.address, str(port), "private" if private else "open"]
    with net.running(command, port, folder / f"http-{port}.log"):
        yield f"http://{net.address}:{port}"


@contextlib.contextmanager
def dumb_http(folder: Path, net: Net = HERE) -> Iterator[str]:
    """Serve the repositories in the folder as plain files (git's dumb transport); yield the URL of the folder."""
    for bare in folder.glob("*.git"):
        git(bare, "update-server-info")
    port = net.free_port()
    command = [sys.executable, "-m", "http.server", str(port), f"--bind={net.address}", f"--directory={folder}"]
    with net.running(command, port, folder / f"dumb-http-{port}.log"):
        yield f"http://{net.address}:{port}"


class _GitHandler(BaseHTTPRequestHandler):
    folder: str
    private: bool

    def do_GET(self) -> None:
        self._serve()

    def do_POST(self) -> None:
        self._serve()

    def log_message(self, *_: object) -> None:
        """Log nothing."""

    def _serve(self) -> None:
        credentials = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
        if self.private and self.headers.get("Authorization") != f"Basic {credentials}":
            self.send_response(401)
            self.send_header("WWW-Authenticate", 'Basic realm="code"')
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        path, _, query = self.path.partition("?")
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        environ = {
            "PATH": os.environ["PATH"],
            "GIT_PROJECT_ROOT": self.folder,
            "GIT_HTTP_EXPORT_ALL": "1",
            "GIT_CONFIG_COUNT": "1",
            "GIT_CONFIG_KEY_0": "safe.directory",
            "GIT_CONFIG_VALUE_0": "*",
            "PATH_INFO": path,
            "QUERY_STRING": query,
            "REQUEST_METHOD": self.command,
            "CONTENT_TYPE": self.headers.get("Content-Type", ""),
            "CONTENT_LENGTH": str(len(body)),
            "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
            "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
        }
        # The program answers and then fails if the requested path does not exist.
        done = subprocess.run([_BACKEND], env=environ, input=body, capture_output=True, check=False)
        head, _, content = done.stdout.partition(b"\r\n\r\n")
        fields = dict(line.split(": ", 1) for line in head.decode().split("\r\n") if line)
        self.send_response(int(fields.pop("Status", "200").split()[0]))
        for name, value in fields.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


# --- git and rsync over ssh


@dataclass(frozen=True)
class Ssh:
    """An ssh server of the current user.

    Attributes:
        port: Port of the server.
        key: Private key that it accepts.
        known_hosts: Line for `known_hosts` with its host key.
        user: User that can log in.
    """

    address: str
    port: int
    key: str
    known_hosts: str
    user: str

    def url(self, path: Path) -> str:
        """Return the URL of a folder."""
        return f"ssh://{self.user}@{self.address}:{self.port}{path}"


@contextlib.contextmanager
def ssh(folder: Path, net: Net = HERE, port: int = 0) -> Iterator[Ssh]:
    """Run an ssh server that accepts one key, on a free port by default; rsync's `host:path` cannot name a port."""
    folder.mkdir()
    folder.chmod(0o755)
    user = pwd.getpwuid(os.getuid()).pw_name
    for name in ("host", "user"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / name], check=True)
    (folder / "authorized").write_text((folder / "user.pub").read_text())
    address, port = net.address, port or net.free_port()
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(exist_ok=True)
    settings = {
        "ListenAddress": f"{address}:{port}",
        "HostKey": folder / "host",
        "AuthorizedKeysFile": folder / "authorized",
        "PasswordAuthentication": "no",
        "PermitRootLogin": "prohibit-password",
        "StrictModes": "no",
        "UsePAM": "no",
        "PidFile": "none",
    }
    (folder / "config").write_text("".join(f"{name} {value}\n" for name, value in settings.items()))
    command = ["/usr/sbin/sshd", "-D", "-e", "-f", str(folder / "config")]
    host_key = " ".join((folder / "host.pub").read_text().split()[:2])
    with net.running(command, port, folder / "sshd.log"):
        host = address if port == _SSH_PORT else f"[{address}]:{port}"
        yield Ssh(address, port, (folder / "user").read_text(), f"{host} {host_key}\n", user)


# --- rsync's daemon


@contextlib.contextmanager
def rsync(folder: Path, net: Net = HERE, *, private: bool = False) -> Iterator[str]:
    """Serve the folder as the module `code`; yield `rsync://address:port/code`."""
    address, port = net.address, net.free_port()
    place = folder.parent / f"rsyncd-{port}"
    place.mkdir()
    (place / "secrets").touch(mode=0o600)
    (place / "secrets").write_text(f"{USER}:{PASSWORD}\n")
    auth = [f"auth users = {USER}", f"secrets file = {place / 'secrets'}"] if private else []
    root = ["uid = root", "gid = root"] if os.geteuid() == 0 else []
    lines = ["use chroot = no", "[code]", f"path = {folder}", "read only = yes", *root, *auth]
    (place / "config").write_text("\n".join(lines) + "\n")
    command = ["rsync", "--daemon", "--no-detach", f"--port={port}", f"--address={address}"]
    with net.running([*command, f"--config={place / 'config'}"], port, place / "log"):
        who = f"{USER}@" if private else ""
        yield f"rsync://{who}{address}:{port}/code"


if __name__ == "__main__":
    folder_, address_, port_, access_ = sys.argv[1:]
    handler = type("Handler", (_GitHandler,), {"folder": folder_, "private": access_ == "private"})
    ThreadingHTTPServer((address_, int(port_)), handler).serve_forever()
