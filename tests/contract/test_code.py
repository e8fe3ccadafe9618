"""Tests of code fetched from real servers before the training, on each back-end: by password, key and rsync."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

import code_servers
from cluster.sync_image import SYNC
from code_servers import PASSWORD, USER
from contract.places import on_cluster, on_this_machine
from ptjob_provider.core.run.outcome import Outcome

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from code_servers import Repository
    from contract.places import Place

PROGRAM = """
import os, pathlib, sys
sys.path.insert(0, "code/mnist/part")
import part
print("trained", part.PART, sorted(name for name in os.environ if name.startswith(("GIT_SYNC_", "GITSYNC_"))))
"""


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Repository:
    code_servers.ensure_programs()
    return code_servers.repository(tmp_path_factory.mktemp("code"), PROGRAM)


@pytest.fixture(params=["local", pytest.param("kubernetes", marks=pytest.mark.cluster)])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """Return each back-end in turn."""
    work = {"working_dir": "/work", "command": ["python3", "code/mnist/train.py"]}
    if request.param == "local":
        made = on_this_machine(tmp_path)
    else:
        image = SYNC.ensure(request.getfixturevalue("cluster"), request.getfixturevalue("tell"))
        made = replace(on_cluster(request, "code"), sync_image=image)
    return replace(made, fields={**made.fields, **work})


@pytest.fixture
def private_url(repository: Repository, place: Place) -> Iterator[str]:
    with code_servers.http(repository.path.parent, place.net, private=True) as address:
        yield f"{address}/mnist.git"


async def test_the_code_of_a_branch_is_trained_and_its_revision_reported(place: Place, repository: Repository) -> None:
    """It is in `code/<repository>` of the working directory; the result names the commit."""
    with code_servers.http(repository.path.parent, place.net) as address:
        conclusion, sink, _ = await place.run(code=f"{address}/mnist.git")
        other, _, _ = await place.run(code={"git": f"{address}/mnist.git", "branch": "other"})

    assert conclusion.outcome is Outcome.SUCCEEDED, conclusion
    assert sink.lines == ["trained 1 []"]
    assert (conclusion.result or {})["git_revision"] == repository.revisions["main"]
    assert (other.result or {})["git_revision"] == repository.revisions["other"]


async def test_credentials_among_the_variables_are_hidden(
    place: Place, private_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    """They are only in a Secret that the job owns; one message says so, without them."""
    env = {"GIT_SYNC_USERNAME": USER, "GIT_SYNC_PASSWORD": PASSWORD}

    conclusion, sink, job = await place.run(code=private_url, env=env)

    assert conclusion.outcome is Outcome.SUCCEEDED, conclusion
    assert sink.lines == ["trained 1 []"]  # the training has none of the variables
    assert PASSWORD not in json.dumps([job, conclusion.to_dict(), sink.notices]) + caplog.text
    assert caplog.text.count("the values of GIT_SYNC_PASSWORD, GIT_SYNC_USERNAME are in the Secret") == 1
    for secret in place.job_secrets():
        assert secret["metadata"]["ownerReferences"][0]["uid"] == job["metadata"]["uid"]


async def test_a_key_opens_the_repository(place: Place, repository: Repository, tmp_path: Path) -> None:
    """This includes users that the image does not define; no Secret is made, and no further right is needed."""
    with code_servers.ssh(tmp_path / "server", place.net) as server:
        place.secret("deploy", {"ssh-privatekey": server.key, "known_hosts": server.known_hosts})
        conclusion, sink, _ = await place.run(code={"git": server.url(repository.path), "secret": "deploy"})

    assert conclusion.outcome is Outcome.SUCCEEDED, conclusion
    assert sink.lines == ["trained 1 []"]
    assert place.job_secrets() == []


async def test_a_folder_is_fetched_by_rsync(place: Place, tmp_path: Path) -> None:
    """Arena's other way, with a password and a custom image; the local back-end uses the machine's programs."""
    own = {"image": place.sync_image or "team/sync:1"}
    elsewhere = replace(place, sync_image="not.there/sync:1")
    (tmp_path / "served" / "mnist").mkdir(parents=True)
    (tmp_path / "served" / "mnist" / "train.py").write_text("print('by rsync')\n")
    with code_servers.rsync(tmp_path / "served", place.net, private=True) as address:
        code = {"rsync": f"{address}/mnist", **own}
        conclusion, sink, _ = await elsewhere.run(code=code, env={"RSYNC_PASSWORD": PASSWORD})

    assert conclusion.outcome is Outcome.SUCCEEDED, conclusion
    assert sink.lines == ["by rsync"]
    assert (conclusion.result or {})["git_revision"] is None
