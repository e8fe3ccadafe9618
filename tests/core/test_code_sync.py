"""Tests of fetching code from real servers: git over HTTP and ssh, and rsync. The program runs as in its container."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import code_servers
from cluster.fixtures import skip_because
from code_servers import PASSWORD, USER, Net, Repository, Ssh
from ptjob_provider.core.in_pod import sync_code

if TYPE_CHECKING:
    from collections.abc import Iterator

HOSTILE = {"GIT_SYNC_MAX_SYNC_FAILURES": "0", "GIT_SYNC_TIMEOUT": "60"}


@dataclass(frozen=True)
class Synced:
    """The result of one run."""

    code: int
    said: str
    root: Path
    report: dict[str, str]

    @property
    def program(self) -> str:
        return (self.root / "mnist" / "train.py").read_text()

    @property
    def part(self) -> bool:
        return (self.root / "mnist" / "part" / "part.py").is_file()


@pytest.fixture(scope="module", autouse=True)
def _programs() -> None:
    code_servers.ensure_programs()


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Repository:
    return code_servers.repository(tmp_path_factory.mktemp("code"))


@pytest.fixture(scope="module")
def url(repository: Repository) -> Iterator[str]:
    with code_servers.http(repository.path.parent) as address:
        yield f"{address}/mnist.git"


@pytest.fixture(scope="module")
def private_url(repository: Repository) -> Iterator[str]:
    with code_servers.http(repository.path.parent, private=True) as address:
        yield f"{address}/mnist.git"


@pytest.fixture(scope="module")
def ssh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ssh]:
    with code_servers.ssh(tmp_path_factory.mktemp("ssh") / "server") as server:
        yield server


def sync(folder: Path, **environ: str) -> Synced:
    """Run the program as an isolated process."""
    root, report = folder / "code", folder / "report"
    command = [sys.executable, "-I", sync_code.__file__]
    environment = {"GIT_SYNC_ROOT": str(root), "PTJOB_SYNC_REPORT": str(report), "PATH": os.environ["PATH"], **HOSTILE}
    measured = {name: value for name, value in os.environ.items() if name.startswith("COVERAGE_")}
    done = subprocess.run(command, env={**environment, **measured, **environ}, capture_output=True, check=False)
    said = (done.stdout + done.stderr).decode()
    return Synced(done.returncode, said, root, json.loads(report.read_text()) if report.is_file() else {})


def secret(folder: Path, ssh: Ssh, *, key: str = "ssh-privatekey") -> dict[str, str]:
    """Write the keys of a Secret as the kubelet does, and return the variables with their paths."""
    place = folder / "git-secret"
    place.mkdir()
    (place / key).write_text(ssh.key)
    (place / key).chmod(0o444)
    (place / "known_hosts").write_text(ssh.known_hosts)
    return {
        "GIT_SSH_KEY_FILE": str(place / "ssh-privatekey"),
        "GIT_SSH_KNOWN_HOSTS_FILE": str(place / "known_hosts"),
    }


def with_part_at(folder: Path, repository: Repository, url: str) -> Path:
    """Return a folder with the repository, whose sub-module has another URL."""
    work, own = folder / "work", folder / "own"
    code_servers.git(folder, "clone", "--quiet", str(repository.path), str(work))
    (work / ".gitmodules").write_text(f'[submodule "part"]\n\tpath = part\n\turl = {url}\n')
    code_servers.git(work, "commit", "--quiet", "--all", "--message", "Move the part")
    code_servers.git(folder, "clone", "--quiet", "--bare", str(work), str(own / "mnist.git"))
    return own


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    """Return an unrelated file outside the root."""
    file = tmp_path / "elsewhere" / "data.csv"
    file.parent.mkdir()
    file.write_text("1,2\n")
    return file


@pytest.mark.parametrize("names", [("GIT_SYNC_REPO", "GIT_SYNC_DEST"), ("GITSYNC_REPO", "GITSYNC_LINK")])
def test_the_default_branch_comes_with_its_sub_module(
    names: tuple[str, str], repository: Repository, url: str, tmp_path: Path
) -> None:
    """The default branch is not `master`, the revision is reported, and the names of git-sync 3 and 4 both work."""
    found = sync(tmp_path, **{names[0]: url})
    elsewhere = sync(tmp_path, **{names[0]: url, names[1]: "other-place"})

    assert (found.code, found.program, found.part) == (0, "print('v2')\n", True), found.said
    assert found.report == {"git_revision": repository.revisions["main"]}
    assert repository.revisions["main"] in found.said
    assert (elsewhere.root / "other-place" / "train.py").is_file()


@pytest.mark.parametrize(
    ("settings", "revision"),
    [
        ({"GIT_SYNC_BRANCH": "other"}, "other"),
        ({"GITSYNC_REF": "other"}, "other"),
        ({"GIT_SYNC_BRANCH": "v1"}, "first"),
        ({"GIT_SYNC_REV": "v1"}, "first"),
        ({"GIT_SYNC_REV": "first"}, "first"),
        ({"GIT_SYNC_REV": "first short"}, "first"),
        ({"GIT_SYNC_REV": "HEAD", "GIT_SYNC_BRANCH": "HEAD"}, "main"),
    ],
)
def test_the_requested_revision_is_checked_out(
    settings: dict[str, str], revision: str, repository: Repository, url: str, tmp_path: Path
) -> None:
    commits = {"first": repository.revisions["first"], "first short": repository.revisions["first"][:9]}

    found = sync(tmp_path, GIT_SYNC_REPO=url, **{name: commits.get(text, text) for name, text in settings.items()})

    assert found.code == 0, found.said
    assert found.report["git_revision"] == repository.revisions[revision]


def test_the_history_is_as_deep_as_asked_for(url: str, tmp_path: Path) -> None:
    """The default is one commit; sub-modules are optional; a second run starts from scratch."""
    sync(tmp_path, GIT_SYNC_REPO=url)
    shallow = code_servers.git(tmp_path / "code" / "mnist", "rev-list", "--count", "HEAD")

    found = sync(tmp_path, GIT_SYNC_REPO=url, GIT_SYNC_DEPTH="0", GIT_SYNC_SUBMODULES="off")

    assert (shallow, code_servers.git(tmp_path / "code" / "mnist", "rev-list", "--count", "HEAD")) == ("1", "2")
    assert (found.code, found.part) == (0, False)


@pytest.mark.parametrize(
    ("settings", "revision"), [({"GIT_SYNC_DEPTH": "0"}, "main"), ({"GIT_SYNC_REV": "v1"}, "first")]
)
def test_a_server_that_sends_only_the_whole_history_is_asked_for_it(
    settings: dict[str, str], revision: str, repository: Repository, tmp_path: Path
) -> None:
    """Dumb HTTP serves plain files. Without a depth of 0, the error says to set it."""
    with code_servers.dumb_http(repository.path.parent) as address:
        asked = {"GIT_SYNC_REPO": f"{address}/mnist.git", "GIT_SYNC_SUBMODULES": "off"}
        refused, found = (sync(tmp_path, **asked, **more) for more in ({}, settings))

    assert (refused.code, found.code) == (1, 0), found.said
    assert "set `depth` to 0" in refused.said
    assert found.report == {"git_revision": repository.revisions[revision]}


def test_a_private_repository_is_fetched_with_a_password(private_url: str, tmp_path: Path) -> None:
    """The password may be in a file; it appears neither in the log nor in the working copy."""
    (tmp_path / "password").write_text(f"{PASSWORD}\n")
    account = {"GIT_SYNC_REPO": private_url, "GIT_SYNC_USERNAME": USER}

    found = sync(tmp_path, **account, GIT_SYNC_PASSWORD=PASSWORD)
    by_file = sync(tmp_path, **account, GITSYNC_PASSWORD_FILE=str(tmp_path / "password"))

    assert (found.code, found.part, by_file.code) == (0, True, 0), found.said
    assert PASSWORD not in found.said
    left = [file for file in found.root.rglob("*") if file.is_file() and PASSWORD.encode() in file.read_bytes()]
    assert left == []


@pytest.mark.parametrize("account", [{}, {"GIT_SYNC_USERNAME": USER, "GIT_SYNC_PASSWORD": "wrong-pass"}])
def test_wrong_credentials_are_somebodys_to_change(account: dict[str, str], private_url: str, tmp_path: Path) -> None:
    """There is no prompt and no retry, and the log does not contain the password."""
    found = sync(tmp_path, GIT_SYNC_REPO=private_url, **account)

    assert found.code == 1
    assert "the server wants other credentials" in found.said
    assert "wrong-pass" not in found.said


def test_a_password_is_for_its_own_server_alone(repository: Repository, private_url: str, tmp_path: Path) -> None:
    """The password is not sent to the server of a sub-module."""
    with code_servers.http(with_part_at(tmp_path, repository, private_url), private=True) as own:
        found = sync(tmp_path, GIT_SYNC_REPO=f"{own}/mnist.git", GIT_SYNC_USERNAME=USER, GIT_SYNC_PASSWORD=PASSWORD)

    assert found.code == 1
    assert "credentials" in found.said


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"GIT_SYNC_BRANCH": "nope"}, "there is no such branch or tag"),
        ({"GIT_SYNC_REV": "nope"}, "there is no such revision"),
        ({"GIT_SYNC_REV": "0" * 40}, "there is no such revision"),
        ({"GIT_SYNC_REPO": "URL/nope.git"}, "there is no such repository"),
        ({"GIT_SYNC_REPO": "--upload-pack=x"}, "names no repository"),
        ({"GIT_SYNC_REPO": ""}, "names no repository"),
        ({"GIT_SYNC_BRANCH": "--upload-pack=true"}, "GIT_SYNC_BRANCH: .*the name of a branch, a tag or a commit"),
        ({"GITSYNC_REF": "--upload-pack=true"}, "GITSYNC_REF: .*the name of a branch, a tag or a commit"),
        ({"GIT_SYNC_REV": "--upload-pack=true"}, "GIT_SYNC_REV: .*the name of a branch, a tag or a commit"),
    ],
)
def test_a_wrong_branch_revision_or_repository_is_named(
    settings: dict[str, str], words: str, url: str, tmp_path: Path
) -> None:
    """The last line becomes the diagnosis of the job. None is an option of git: some options run a program."""
    variables = {name: text.replace("URL", url.rpartition("/")[0]) for name, text in settings.items()}

    found = sync(tmp_path, **{"GIT_SYNC_REPO": url, **variables})

    assert found.code == 1, found.said
    assert re.search(words, found.said.splitlines()[-1])


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"GIT_SYNC_DEST": "ELSEWHERE"}, "GIT_SYNC_DEST: .*the name of one folder"),
        ({"GIT_SYNC_DEST": "mnist/../../elsewhere"}, "GIT_SYNC_DEST: .*the name of one folder"),
        ({"GIT_SYNC_DEST": ".."}, "GIT_SYNC_DEST: .*the name of one folder"),
        ({"GIT_SYNC_DEST": "."}, "GIT_SYNC_DEST: .*the name of one folder"),
        ({"GITSYNC_LINK": "below/mnist"}, "GITSYNC_LINK: .*the name of one folder"),
        ({"GIT_SYNC_REPO": "http://127.0.0.1:9/.."}, "ends in a folder's name"),
        ({"GIT_SYNC_REPO": "http://127.0.0.1:9/...git"}, "ends in a folder's name"),
        ({"GIT_SYNC_REPO": "git@127.0.0.1:."}, "ends in a folder's name"),
    ],
)
def test_the_code_goes_into_one_folder_of_its_root(
    settings: dict[str, str], words: str, url: str, kept: Path, tmp_path: Path
) -> None:
    """Any other target is refused before a file is changed. By default the folder is named after the address."""
    beside = tmp_path / "code" / "beside"
    beside.mkdir(parents=True)

    given = {name: place.replace("ELSEWHERE", str(kept.parent)) for name, place in settings.items()}
    found = sync(tmp_path, **{"GIT_SYNC_REPO": url, **given})

    assert found.code == 1, found.said
    assert re.search(words, found.said.splitlines()[-1])
    assert (kept.read_text(), beside.is_dir()) == ("1,2\n", True)


def test_a_link_in_the_codes_place_is_replaced_and_not_followed(url: str, kept: Path, tmp_path: Path) -> None:
    """The target of the link is not changed; an existing file is replaced, too."""
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "mnist").symlink_to(kept.parent)
    (tmp_path / "code" / "file").write_text("")

    found = sync(tmp_path, GIT_SYNC_REPO=url)
    over_a_file = sync(tmp_path, GIT_SYNC_REPO=url, GIT_SYNC_DEST="file")

    assert (found.code, found.program, over_a_file.code) == (0, "print('v2')\n", 0), found.said + over_a_file.said
    assert sorted(kept.parent.iterdir()) == [kept]


def test_a_path_is_one_word_for_the_shell_that_calls_ssh(ssh: Ssh, repository: Repository, tmp_path: Path) -> None:
    """Git runs its ssh command through a shell, so the path must be quoted."""
    ran = tmp_path / "ran"
    named = {**secret(tmp_path, ssh), "GIT_SSH_KNOWN_HOSTS_FILE": f"nowhere; touch {ran};"}

    found = sync(tmp_path, GIT_SYNC_REPO=ssh.url(repository.path), **named)

    assert (found.code, ran.exists()) == (1, False), found.said


def test_a_server_that_does_not_answer_is_asked_again(tmp_path: Path) -> None:
    """The number of retries is configurable; the exit code says that another try may help."""
    found = sync(tmp_path, GIT_SYNC_REPO="http://127.0.0.1:9/x.git", GIT_SYNC_MAX_SYNC_FAILURES="1")

    assert found.code == sync_code.UNREACHABLE
    assert found.said.count("trying again") == 1


def test_an_unknown_ssh_host_is_refused(ssh: Ssh, repository: Repository, tmp_path: Path) -> None:
    """The key file may be world-readable and may have git-sync's name."""
    named = {"GIT_SYNC_REPO": ssh.url(repository.path), **secret(tmp_path, ssh, key="ssh")}
    Path(named["GIT_SSH_KNOWN_HOSTS_FILE"]).unlink()

    refused = sync(tmp_path, **named)
    wanted = sync(tmp_path, **named, GITSYNC_SSH_KNOWN_HOSTS="false")

    assert refused.code == 1
    assert "known_hosts does not know that host" in refused.said
    assert wanted.code == 0, wanted.said


def test_a_key_that_the_server_does_not_take_is_said(ssh: Ssh, repository: Repository, tmp_path: Path) -> None:
    """There is no prompt."""
    named = secret(tmp_path, ssh)
    Path(named["GIT_SSH_KEY_FILE"]).unlink()

    found = sync(tmp_path, GIT_SYNC_REPO=ssh.url(repository.path), **named, HOME=str(tmp_path))

    assert found.code == 1
    assert "does not take the Secret's ssh key" in found.said


def test_a_folder_is_fetched_by_rsync(tmp_path: Path) -> None:
    served = folder_to_serve(tmp_path)
    with code_servers.rsync(served) as open_one, code_servers.rsync(served, private=True) as private:
        found = sync(tmp_path, PTJOB_RSYNC_SOURCE=f"{open_one}/mnist")
        nothing = sync(tmp_path, PTJOB_RSYNC_SOURCE=f"{open_one}/nope")
        refused = sync(tmp_path, PTJOB_RSYNC_SOURCE=f"{private}/mnist", RSYNC_PASSWORD="wrong-pass")  # noqa: S106

    assert (found.code, found.report) == (0, {}), found.said
    assert (nothing.code, refused.code) == (1, 1)
    assert "there is no such module or path" in nothing.said
    assert "the server wants other credentials" in refused.said
    assert "wrong-pass" not in refused.said


def test_a_folder_is_fetched_by_rsync_over_ssh(tmp_path: Path) -> None:
    skip_because("" if os.geteuid() == 0 else "an ssh server at its usual port needs root")
    served = folder_to_serve(tmp_path)
    with code_servers.ssh(tmp_path / "server", Net("127.0.0.22"), port=22) as server:
        source = f"{server.user}@{server.address}:{served}/mnist"
        found = sync(tmp_path, PTJOB_RSYNC_SOURCE=source, **secret(tmp_path, server))

    assert (found.code, found.program) == (0, "print('by rsync')\n"), found.said


def folder_to_serve(folder: Path) -> Path:
    """Return the folder that contains the folder `mnist`."""
    served = folder / "served"
    (served / "mnist").mkdir(parents=True)
    (served / "mnist" / "train.py").write_text("print('by rsync')\n")
    return served


def test_a_missing_program_is_named(tmp_path: Path, url: str) -> None:
    """Git may not be installed on a laptop."""
    found = sync(tmp_path, GIT_SYNC_REPO=url, PATH=str(tmp_path))

    assert found.code == 1
    assert "there is no program git here" in found.said


def test_a_fetch_that_takes_too_long_is_given_up(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        limit = {"GIT_SYNC_TIMEOUT": "", "GITSYNC_SYNC_TIMEOUT": "1s"}
        found = sync(tmp_path, GIT_SYNC_REPO=f"http://127.0.0.1:{port}/x.git", **limit)

    assert found.code == sync_code.UNREACHABLE
    assert "longer than 1 s" in found.said
