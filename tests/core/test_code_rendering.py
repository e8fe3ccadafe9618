"""Tests of the container that fetches code, as part of the submitted object."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ptjob_provider.core.errors import InvalidSpec
from ptjob_provider.core.kinds.code import SYNC_IMAGE, variables_of, with_prefix
from ptjob_provider.core.spec import Installation
from rendered import container, mounted, over, pod, render, variables
from rows import each_row

ARENAS = "/root"
HTTPS = "https://git.example/team/mnist.git"
SSH = "git@git.example:team/mnist.git"
BY_HAND = {"GIT_SYNC_USERNAME": "ann", "GIT_SYNC_PASSWORD": "tops3cret"}


def sync(manifest: dict[str, Any], role: str = "Master") -> dict[str, Any]:
    """Return the container that fetches the code: the first init container."""
    found: dict[str, Any] = pod(manifest, role)["initContainers"][0]
    assert found["name"] == "init-code"
    return found


def sync_env(manifest: dict[str, Any], role: str = "Master") -> dict[str, Any]:
    """Return the environment of this container: values or Secret references."""
    return {
        each["name"]: each.get("value") or each["valueFrom"]["secretKeyRef"] for each in sync(manifest, role)["env"]
    }


def test_the_code_is_beside_the_training_in_every_pod() -> None:
    """The code lies below the working directory, by default Arena's; a job without code gets no container."""
    manifest = render(workers=2, code=HTTPS).manifest
    elsewhere = render(code=HTTPS, working_dir="/training").manifest

    for role in ("Master", "Worker"):
        assert container(manifest, role)["workingDir"] == ARENAS
        assert mounted(manifest, role)[f"{ARENAS}/code"] == {"name": "code-sync", "emptyDir": {}}
        assert sync_env(manifest, role)["GIT_SYNC_REPO"] == HTTPS
        assert sync_env(manifest, role)["GIT_SYNC_DEST"] == "mnist"
    assert (container(elsewhere)["workingDir"], "/training/code" in mounted(elsewhere)) == ("/training", True)
    assert "initContainers" not in pod(render(workers=2).manifest)


def test_fields_of_a_repository_become_variables_of_git_sync() -> None:
    """An image of git-sync can therefore fetch it; only fields that are set become variables."""
    parts = {"branch": "dev", "revision": "v1", "submodules": "off", "depth": 0}

    found = sync_env(render(code={"git": HTTPS, **parts}).manifest)

    wanted = {"GIT_SYNC_BRANCH": "dev", "GIT_SYNC_REV": "v1", "GIT_SYNC_SUBMODULES": "off", "GIT_SYNC_DEPTH": "0"}
    assert wanted.items() <= found.items()
    assert not wanted.keys() & sync_env(render(code=HTTPS).manifest).keys()


def test_variables_for_the_sync_container_are_its_own() -> None:
    """The names of git-sync 3 and 4 count, per job and per role; the fields of `code` and the target win over them."""
    env = {"LR": 1, "GIT_SYNC_BRANCH": "old", "GITSYNC_DEPTH": 5, "GIT_SYNC_ROOT": "/tmp", "GIT_SYNC_REPO": "x"}  # noqa: S108
    worker = {"env": {"GIT_SYNC_DEST": "other"}}

    manifest = render(workers=2, code={"git": HTTPS, "branch": "new"}, env=env, worker=worker).manifest

    assert variables(manifest) == {"PTJOB_ATTEMPT": "1", "LR": "1"}
    assert (sync_env(manifest)["GIT_SYNC_BRANCH"], sync_env(manifest)["GITSYNC_DEPTH"]) == ("new", "5")
    assert (sync_env(manifest)["GIT_SYNC_ROOT"], sync_env(manifest)["GIT_SYNC_REPO"]) == ("/ptjob-code", HTTPS)
    assert (sync_env(manifest)["GIT_SYNC_DEST"], sync_env(manifest, "Worker")["GIT_SYNC_DEST"]) == ("mnist", "other")
    assert sync_env(render(code=HTTPS, env={"GIT_SYNC_BRANCH": "old"}).manifest)["GIT_SYNC_BRANCH"] == "old"


@each_row(
    ("name", "value", "words"),
    [
        ("GIT_SYNC_DEST", "/data", "the name of one folder"),
        ("GITSYNC_LINK", "../mnist", "the name of one folder"),
        ("GIT_SYNC_DEST", " .. ", "the name of one folder"),
        ("GIT_SYNC_BRANCH", "--upload-pack=x", "the name of a branch"),
        ("GITSYNC_REF", "-x", "the name of a branch"),
        ("GIT_SYNC_REV", "--x", "the name of a branch"),
    ],
)
def test_a_variable_that_would_lead_astray_is_refused(name: str, value: str, words: str) -> None:
    """This holds for every image; a value from a Secret is checked by the sync program in the pod."""
    with pytest.raises(InvalidSpec, match=rf"env\[{name}\]: .*{words}"):
        render(code=HTTPS, env={name: value})

    with pytest.raises(InvalidSpec, match=rf"env\[{name}\]"):
        render(workers=2, code=HTTPS, worker={"env": {name: value}})
    render(code=HTTPS, env={name: {"secret": "hub", "key": "place"}})


def test_without_code_nothing_is_moved() -> None:
    """The variables may be for an init container of the user."""
    rendered = render(env=BY_HAND)

    assert variables(rendered.manifest)["GIT_SYNC_PASSWORD"] == "tops3cret"  # noqa: S105 - the test's
    assert rendered.secret is None


def test_credentials_are_moved_into_a_secret() -> None:
    """The job contains no plain value; references stay, and each role has its own entries."""
    reference = {"GIT_SYNC_PASSWORD": {"secret": "hub", "key": "token"}}

    rendered = render(workers=2, code=HTTPS, env=BY_HAND, worker={"env": reference})

    name = f"{rendered.manifest['metadata']['name']}-code"
    assert rendered.secret is not None
    assert rendered.secret["metadata"]["name"] == name
    assert rendered.secret["stringData"] == {
        "master.GIT_SYNC_USERNAME": "ann",
        "master.GIT_SYNC_PASSWORD": "tops3cret",
        "worker.GIT_SYNC_USERNAME": "ann",
    }
    assert variables_of(rendered.secret["stringData"]) == ["GIT_SYNC_PASSWORD", "GIT_SYNC_USERNAME"]
    assert "tops3cret" not in json.dumps(rendered.manifest)
    assert "tops3cret" not in repr(rendered)
    assert sync_env(rendered.manifest)["GIT_SYNC_PASSWORD"] == {"name": name, "key": "master.GIT_SYNC_PASSWORD"}
    assert sync_env(rendered.manifest, "Worker")["GIT_SYNC_PASSWORD"] == {"name": "hub", "key": "token"}


def test_credentials_do_not_change_what_was_asked_for() -> None:
    """All attempts of a job have one hash, whatever the name and content of the Secret."""
    first = render(code=HTTPS, env=BY_HAND)
    again = render(code=HTTPS, env={**BY_HAND, "GIT_SYNC_PASSWORD": "another"}, attempt=2)

    assert first.spec_hash == again.spec_hash
    assert first.spec_hash != render(code={"git": HTTPS, "branch": "dev"}, env=BY_HAND).spec_hash


def test_a_secret_has_a_password_for_an_address_of_http() -> None:
    """The user name is optional: with a token, most servers accept any name."""
    found = sync_env(render(code={"git": HTTPS, "secret": "hub"}).manifest)

    assert found["GIT_SYNC_PASSWORD"] == {"name": "hub", "key": "password"}
    assert found["GIT_SYNC_USERNAME"] == {"name": "hub", "key": "username", "optional": True}
    rsync = sync_env(render(code={"rsync": "h::m/p", "secret": "hub"}).manifest)
    assert rsync["RSYNC_PASSWORD"] == {"name": "hub", "key": "password"}
    assert "GIT_SYNC_USERNAME" not in rsync


def test_a_secret_has_a_key_for_an_address_of_ssh() -> None:
    """Only the sync container mounts the key."""
    manifest = render(code={"git": SSH, "secret": "deploy"}).manifest

    (volume,) = [each for each in pod(manifest)["volumes"] if each["name"] == "code-secret"]
    assert volume["secret"] == {"secretName": "deploy", "defaultMode": 0o444}
    assert {"name": "code-secret", "mountPath": "/etc/git-secret"} in sync(manifest)["volumeMounts"]
    assert "/etc/git-secret" not in mounted(manifest)
    assert sync_env(manifest)["GIT_SSH_KEY_FILE"] == "/etc/git-secret/ssh-privatekey"
    assert sync_env(manifest)["GIT_SSH_KNOWN_HOSTS_FILE"] == "/etc/git-secret/known_hosts"
    assert sync_env(render(code=SSH).manifest).keys() & {"GIT_SSH_KEY_FILE"} == set()


def test_the_image_is_the_jobs_the_installations_or_ours() -> None:
    """The image of an installation may come from a mirror."""
    own = {"git": HTTPS, "image": "git-sync:v4"}

    assert sync(render(code=HTTPS).manifest)["image"] == SYNC_IMAGE
    assert sync(render(code=HTTPS, installation=Installation(sync_image="sync:2")).manifest)["image"] == "sync:2"
    assert sync(render(code=own, installation=Installation(sync_image="sync:2")).manifest)["image"] == "git-sync:v4"
    assert with_prefix("mirror/", "sync:2") == "mirror/sync:2"
    assert with_prefix("", "sync:2") == "sync:2"


def test_a_folder_of_rsync_needs_no_program_of_ours() -> None:
    """With an image of the user, the container runs rsync itself, as in Arena."""
    ours, theirs = render(code="h::m/p").manifest, render(code={"rsync": "h::m/p", "image": "rsync:3"}).manifest

    assert sync_env(ours)["PTJOB_RSYNC_SOURCE"] == "h::m/p"
    assert "command" not in sync(ours)
    assert sync(theirs)["command"] == ["rsync", "-rlpt", "--", "h::m/p", "/ptjob-code/"]


RESTRICTED = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}


@pytest.mark.parametrize(
    ("fields", "user"),
    [
        ({}, {"runAsNonRoot": True, "readOnlyRootFilesystem": True}),
        (
            {"security_context": {"runAsUser": 1000, "runAsGroup": 5}},
            {"runAsUser": 1000, "runAsGroup": 5, "runAsNonRoot": True, "readOnlyRootFilesystem": True},
        ),
        (
            {"security_context": {"runAsUser": 1000}, "container_security_context": {"runAsUser": 0}},
            {"runAsUser": 0, "runAsNonRoot": False, "readOnlyRootFilesystem": True},
        ),
        ({"code": {"git": HTTPS, "image": "git-sync:v4"}}, {}),
    ],
)
def test_the_fetching_container_has_the_user_of_the_training_and_no_more_rights(
    fields: dict[str, Any], user: dict[str, Any]
) -> None:
    """It meets PodSecurity `restricted`, has requests and limits, and writes the code as the user of the training."""
    found = sync(render(**{"code": HTTPS, **fields}).manifest)

    seccomp = {"seccompProfile": {"type": "RuntimeDefault"}}
    assert found["securityContext"] == {**RESTRICTED, **seccomp, **user}
    assert found["resources"].keys() == {"requests", "limits"}


def test_a_manifest_gets_code_too() -> None:
    """The container replaces one of its name and precedes the others; the manifest's working directory is used."""
    own = [{"name": "init-code", "image": "old"}, {"name": "second", "image": "busybox"}]
    manifest = over("manifest-rich", code=HTTPS, init_containers=own)

    assert [each["name"] for each in pod(manifest)["initContainers"]][:1] == ["init-code"]
    assert [each["name"] for each in pod(manifest)["initContainers"]].count("init-code") == 1
    assert "second" in [each["name"] for each in pod(manifest)["initContainers"]]
    assert sync(manifest)["image"] == SYNC_IMAGE
    assert f"{container(manifest)['workingDir']}/code" in mounted(manifest)
