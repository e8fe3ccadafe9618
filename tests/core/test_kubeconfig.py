"""Tests of invalid kubeconfigs: the error says what is expected, shows no content, and no request is made."""

from __future__ import annotations

import asyncio
import base64
import os
import re
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml
from kubernetes_asyncio.config import kube_config

from ptjob_provider.core.errors import ClusterError, ClusterUnavailable, InvalidSpec
from ptjob_provider.core.kubernetes import ClusterConfig
from ptjob_provider.core.kubernetes.client.credentials import Credentials
from ptjob_provider.core.kubernetes.client.http import shared_client

FORM = "it is no kubeconfig: a YAML map of `clusters`, `contexts`, `users` and `current-context`"
HERE = "https://127.0.0.1:1"
SECRET = "s3cret"  # noqa: S105 - must not be shown


def document(server: str = HERE, user: Any = None, **cluster: str) -> dict[str, Any]:
    """Return a kubeconfig with one context."""
    return {
        "current-context": "x",
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": server, **cluster}}],
        "users": [{"name": "u", **({"user": {"token": SECRET}} if user is None else user)}],
    }


MISSING_PLUGIN = {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "no-such-plugin"}}


def write(path: Path, content: object) -> str:
    """Write a kubeconfig, given as a text or as a document, and return its path."""
    path.write_text(content if isinstance(content, str) else yaml.safe_dump(content))
    return str(path)


async def loaded(**config: Any) -> Credentials:
    credentials = Credentials(ClusterConfig(**config))
    await credentials.load()
    return credentials


async def refusal(**config: Any) -> str:
    with pytest.raises(InvalidSpec) as raised:
        async with shared_client(ClusterConfig(attempts=1, **config)) as client:
            await client.get("/api")
    return str(raised.value)


async def test_the_error_on_a_machine_without_a_kubeconfig_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A first-time user has none; the path of an Airflow connection is often one of another machine."""
    monkeypatch.setattr(kube_config, "KUBE_CONFIG_DEFAULT_LOCATION", str(tmp_path / "none"))

    assert re.search("the default kubeconfig: it is not there; name one, or .*backend: local", await refusal())
    assert f"{tmp_path}/none: it is not there" in await refusal(kube_config_path=f"{tmp_path}/none")


@pytest.mark.parametrize(
    ("content", "context", "message"),
    [
        ("", None, FORM),
        ("a: [b", None, "it is not YAML"),
        ({**document(), "contexts": 5}, None, FORM),
        (document(user={"token": SECRET}), None, "Expected key user in"),
        (document(), "nope", "context: 'nope' is not allowed; allowed: a context of"),
        (document(server="not a url"), None, "server: 'not a url' is not allowed; allowed: https://HOST:PORT"),
        (document(**{"certificate-authority": "/none"}), None, "/none"),
        # Usual in images of Airflow, to which a kubeconfig of EKS or GKE is copied.
        (document(user={"user": MISSING_PLUGIN}), None, "no-such-plugin is not here; .*put its folder on the PATH"),
    ],
)
async def test_a_file_that_is_no_kubeconfig_is_refused_in_words(
    tmp_path: Path, content: object, context: str | None, message: str
) -> None:
    """The error contains neither the library's messages nor the content of the file."""
    said = await refusal(kube_config_path=write(tmp_path / "config", content), context=context)

    assert re.search(message, said)
    assert not re.search(rf"NoneType|object|\w+Error|_ssl|{SECRET}", said.replace("object with name", "")), said


def two_contexts(**servers: str) -> str:
    """Return a kubeconfig with a context for each server, of which the last one is current."""
    content = document()
    content["clusters"] = [{"name": name, "cluster": {"server": server}} for name, server in servers.items()]
    content["contexts"] = [{"name": name, "context": {"cluster": name, "user": "u"}} for name in servers]
    return yaml.safe_dump({**content, "current-context": list(servers)[-1]})


async def test_of_several_kubeconfigs_the_first_that_says_it_counts_and_empty_ones_say_nothing(tmp_path: Path) -> None:
    """As for kubectl: an empty member, a missing file and an empty file are left out."""
    first, second = two_contexts(a="https://127.0.0.1:2"), two_contexts(b="https://127.0.0.1:3")
    for name, content in (("empty", ""), ("first", first), ("second", second), ("comment", "# nothing")):
        write(tmp_path / name, content)
    names = ("empty", "comment", "missing", "first", "second")
    paths = ":".join(["", *(str(tmp_path / name) for name in names), ""])

    credentials = await loaded(kube_config_path=paths)

    assert credentials.endpoint.host == "https://127.0.0.1:2"
    assert "no kubeconfig" in await refusal(kube_config_path=f"{tmp_path}/empty:{tmp_path}/comment")


@pytest.mark.parametrize("files", [1, 2])
async def test_a_context_that_becomes_current_meanwhile_does_not_change_the_server(tmp_path: Path, files: int) -> None:
    """On another server, each followed job would count as deleted."""
    paths = [tmp_path / "config", tmp_path / "more"][:files]
    for path in paths:
        path.write_text(two_contexts(b="https://b", a="https://a"))
    credentials = await loaded(kube_config_path=":".join(map(str, paths)))

    for path in paths:
        path.write_text(two_contexts(a="https://a", b="https://b"))
    loaded_again = await asyncio.gather(credentials.load(), return_exceptions=True)

    assert loaded_again == [None]
    assert credentials.endpoint.host == "https://a"


@pytest.mark.parametrize(
    ("later", "reason"), [({"b": "https://b"}, "is gone"), ({"a": "https://b"}, "is now of https://b")]
)
async def test_a_context_that_loses_its_server_is_waited_for(
    tmp_path: Path, later: dict[str, str], reason: str
) -> None:
    file = tmp_path / "config"
    credentials = await loaded(kube_config_path=write(file, two_contexts(a="https://a")))

    file.write_text(two_contexts(**later))
    with pytest.raises(ClusterUnavailable, match=f"the context 'a' of https://a {reason}; "):
        await credentials.load()

    assert credentials.endpoint.host == "https://a"


@pytest.mark.parametrize(
    "later",
    [
        "current-context: x\nclusters: [",
        "",
        None,
        document(user={"user": MISSING_PLUGIN}),
        document(server="not a url"),
    ],
    ids=["half-written", "empty", "gone", "its plugin is not installed", "no address"],
)
async def test_a_kubeconfig_that_breaks_after_it_has_worked_is_no_fault_of_a_job(tmp_path: Path, later: object) -> None:
    """An invalid specification would end the followers of all its jobs for good, and refusals are waited for."""
    file = tmp_path / "config"
    credentials = await loaded(kube_config_path=write(file, document()))

    file.unlink()
    if later is not None:
        write(file, later)
    (raised,) = await asyncio.gather(credentials.load(), return_exceptions=True)
    assert type(raised) is ClusterError

    write(file, document())
    await credentials.load()


@pytest.mark.parametrize("in_file", [True, False])
async def test_an_embedded_certificate_is_written_anew_after_a_clean_up_of_temporary_files(
    tmp_path: Path, *, in_file: bool
) -> None:
    """systemd-tmpfiles removes what is older than ten days; a triggerer runs longer, and loads a token each hour."""
    text = yaml.safe_dump(document(**{"certificate-authority-data": base64.b64encode(b"a certificate").decode()}))
    path = write(tmp_path / "config", text)
    credentials = await loaded(**({"kube_config_path": path} if in_file else {"kube_config": text}))
    _file(credentials).unlink()

    await credentials.load()

    assert _file(credentials).read_bytes() == b"a certificate"


def _file(credentials: Credentials) -> Path:
    return Path(credentials.endpoint.ca_file or "")


async def test_a_client_certificate_that_is_renewed_in_its_file_needs_a_new_connection(tmp_path: Path) -> None:
    """cert-manager does so; with the old one the API server refuses each request once it has expired."""
    certificate = tmp_path / "tls.crt"
    certificate.touch()
    user = {"client-certificate": str(certificate), "client-key": str(certificate)}
    credentials = Credentials(ClusterConfig(kube_config=yaml.safe_dump(document(user={"user": user}))))
    settings = []
    for renewed_at in (1, 1, 2):
        os.utime(certificate, (renewed_at, renewed_at))
        await credentials.load()
        settings.append(credentials.endpoint.without_credential)

    first, same, renewed = settings
    assert first == same != renewed


def with_plugin(script: str) -> ClusterConfig:
    plugin = {"apiVersion": "client.authentication.k8s.io/v1", "command": "sh", "args": ["-c", script]}
    return ClusterConfig(kube_config=yaml.safe_dump(document(user={"user": {"exec": plugin}})), attempts=1)


ANSWERS = """echo '{"apiVersion": "client.authentication.k8s.io/v1", "kind": "", "status": {"token": "t"}}'"""


async def test_a_credential_plugin_that_hangs_is_ended_and_started_anew_by_the_next_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ptjob_provider.core.kubernetes.client.credentials._PLUGIN_TIMEOUT", 0.5)
    started, go_on = tmp_path / "started", tmp_path / "go-on"
    config = with_plugin(f"echo $$ >> {started}; [ -e {go_on} ] || exec sleep 600; {ANSWERS}")

    async with shared_client(config) as client:
        refused = await asyncio.gather(*(client.get("/api") for _ in range(3)), return_exceptions=True)
        assert {str(each).partition(";")[0] for each in refused} == {
            "the connection's kubeconfig: its credential plugin did not answer within 0.5 s and was ended"
        }
        (process,) = started.read_text().split()
        assert not psutil.pid_exists(int(process))

        go_on.touch()
        with pytest.raises(ClusterUnavailable, match="Cannot connect"):
            await client.get("/api")
        assert client._credentials.headers == {"Authorization": "Bearer t"}


async def test_a_credential_plugin_is_ended_with_its_client(tmp_path: Path) -> None:
    started = tmp_path / "started"
    async with asyncio.timeout(30), asyncio.TaskGroup() as group:
        loading = group.create_task(Credentials(with_plugin(f"echo $$ > {started}; exec sleep 600")).load())
        while not (started.exists() and started.read_text()):  # noqa: ASYNC110 - of another process
            await asyncio.sleep(0.01)
        loading.cancel()
        while psutil.pid_exists(int(started.read_text())):  # noqa: ASYNC110 - of another process
            await asyncio.sleep(0.01)


async def test_a_credential_plugin_may_write_much_and_does_not_read_our_stdin(tmp_path: Path) -> None:
    """In a triggerer, stdin is the socket to Airflow; a plugin's debug log is longer than a pipe."""
    seen = tmp_path / "stdin"
    credentials = Credentials(with_plugin(f"readlink /proc/$$/fd/0 > {seen}; head -c 1000000 /dev/zero >&2; {ANSWERS}"))
    reading, writing = os.pipe()
    ours = os.dup(0)
    os.dup2(reading, 0)
    try:
        await credentials.load()
    finally:
        os.dup2(ours, 0)
        for each in (reading, writing, ours):
            os.close(each)

    assert credentials.headers == {"Authorization": "Bearer t"}
    assert seen.read_text().strip() == "/dev/null"


async def test_a_credential_that_is_loaded_again_at_once_serves_whoever_waited_for_the_first_load() -> None:
    async with shared_client(ClusterConfig(kube_config=yaml.safe_dump(document()))) as client:

        async def load_twice() -> None:
            await client._load()
            await client._load()

        await asyncio.gather(*(load_twice() for _ in range(3)))
