"""Tests of the code sources that a user may write."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from ptjob_provider.core.errors import InvalidSpec
from ptjob_provider.core.spec import CodeSource, TrainingJob
from ptjob_provider.core.spec.code import is_credential, is_sync_variable
from rows import each_row

if TYPE_CHECKING:
    from pathlib import Path

HTTPS = "https://git.example/team/mnist.git"


def code(value: Any) -> CodeSource:
    found = TrainingJob.parse(name="digits", image="digits:1", code=value).code
    assert found is not None
    return found


@each_row(
    ("address", "is_over_ssh"),
    [
        (HTTPS, False),
        ("ssh://git@git.example:2222/team/mnist.git", True),
        ("git@git.example:team/mnist.git", True),
        ("git.example:team/mnist.git", True),
        ("ssh://git.example/mnist@2.git", True),
    ],
)
def test_an_address_of_git_is_enough(address: str, is_over_ssh: bool) -> None:  # noqa: FBT001 - a table
    """In all of git's notations; the ones that need a key are known."""
    assert code(f" {address} ") == CodeSource(git=address)
    assert code({"git": address}).is_over_ssh is is_over_ssh


@each_row("address", ["data.example::code/mnist", "rsync://ann@data.example/code/mnist"])
def test_an_address_of_rsync_is_enough(address: str) -> None:
    """Arena's form, and rsync's own; over ssh it looks like git's form, so that it needs a prefix."""
    assert (code(address).rsync, code(address).source, code(address).is_over_ssh) == (address, address, False)
    assert code({"rsync": "ann@data.example:/code/mnist"}).is_over_ssh
    assert code({"rsync": "data.example:./mnist@2"}).is_over_ssh


def test_a_path_is_a_folder_of_this_machine(tmp_path: Path) -> None:
    """Any text without a colon; a relative one starts at the user's directory, and a missing one is named."""
    (tmp_path / "mnist").mkdir()

    assert code("mnist") == CodeSource(folder="mnist")
    assert code("mnist").folder_beside(tmp_path) == tmp_path / "mnist"
    assert code(str(tmp_path)).folder_beside(tmp_path / "mnist") == tmp_path
    with pytest.raises(InvalidSpec, match=r"code: '~no such user/mnist' is not allowed; there is no folder "):
        code("~no such user/mnist").folder_beside(tmp_path)
    assert code(tmp_path / "a:b") == CodeSource(folder=str(tmp_path / "a:b"))
    assert code(HTTPS).folder_beside(tmp_path) is None
    with pytest.raises(InvalidSpec, match=r"code: 'nmist' is not allowed; there is no folder .*/nmist"):
        code("nmist").folder_beside(tmp_path)


def test_every_part_of_a_source_of_code_can_be_given() -> None:
    parts = {"branch": "dev/a", "revision": "v1.0", "submodules": "off", "depth": "0", "secret": "git", "image": "i:1"}

    found = code({"git": HTTPS, **parts})

    assert found == CodeSource(git=HTTPS, **{**parts, "depth": 0})


@each_row(
    ("value", "words"),
    [
        ("-o::x", "code.rsync"),
        ("https://[git.example/mnist.git", "code.git.*allowed: an address"),
        ("https://git.example/a b", "code.git"),
        ("https://git.example/..", "code.git.*ends in the name of a repository"),
        ({}, "one of git, rsync and folder"),
        ({"git": HTTPS, "rsync": "h::m/p"}, "one of git, rsync and folder"),
        ({"folder": ".", "branch": "main"}, "code.branch.*leave it out beside folder"),
        ({"rsync": "h::m/p", "branch": "main"}, "code.branch"),
        ({"git": HTTPS, "revison": "x"}, "did you mean revision"),
        ({"git": HTTPS, "branch": "--upload-pack=x"}, "code.branch"),
        ({"git": HTTPS, "depth": -1}, "code.depth"),
        ({"git": HTTPS, "submodules": "some"}, "code.submodules"),
        (["x"], "a map"),
    ],
)
def test_an_invalid_source_of_code_is_refused_by_its_field(value: Any, words: str) -> None:
    with pytest.raises(InvalidSpec, match=words):
        code(value)


@pytest.mark.parametrize(
    "address",
    [
        "https://ann:tops3cret@git.example/mnist.git",
        "https://tops3cret@git.example/mnist.git",
        "ssh://git:tops3cret@git.example/mnist.git",
        "oauth2:tops3cret@git.example/mnist.git",
        "ann:tops3cret@git.example:team/mnist.git",
        "ann:tops3cret@git.example::team/mnist",
        "git+https://oauth2:tops3cret@git.example/mnist.git",
    ],
)
def test_an_address_with_a_credential_is_refused_without_repeating_it(address: str) -> None:
    """It would be visible in Airflow's rendered fields, in compiled pipelines and on the job.

    GitHub, GitLab and Bitbucket take a token as the user of an address.
    """
    with pytest.raises(InvalidSpec, match="GIT_SYNC_PASSWORD") as error:
        code(address)

    assert "tops3cret" not in str(error.value)


def test_a_path_that_looks_like_a_password_is_refused_with_another_way_to_write_it() -> None:
    with pytest.raises(InvalidSpec, match=r"in the path, write ssh://host/path, or host:\./path for rsync"):
        code("git.example:mnist@2.git")


@each_row(
    ("name", "meant", "hidden"),
    [
        ("GIT_SYNC_PASSWORD", True, True),
        ("GITSYNC_GITHUB_APP_PRIVATE_KEY", True, True),
        ("GIT_SYNC_PASSWORD_FILE", True, False),
        ("GIT_KNOWN_HOSTS", True, False),
        ("GIT_AUTHOR_NAME", False, False),
        ("RSYNC_PASSWORDS", False, False),
    ],
)
def test_variables_of_the_sync_and_its_credentials_are_known_by_name(name: str, *, meant: bool, hidden: bool) -> None:
    """By git-sync's names; a file's path is not a credential."""
    assert (is_sync_variable(name), is_credential(name)) == (meant, hidden)
