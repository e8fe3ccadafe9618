"""Tests of the HTTP client: retries, their timing, and errors, against a scripted API server."""

from __future__ import annotations

import asyncio
import base64
import json
import re
import traceback
from typing import TYPE_CHECKING, Any

import pytest

from api_server_stand_in import RESET, SILENT, STALLED, StandInApiServer, stand_in_api_server
from ptjob_provider.core.errors import (
    ClusterError,
    ClusterUnavailable,
    InvalidSpec,
    JobAlreadyExists,
    JobNotFound,
    PermissionDenied,
)
from ptjob_provider.core.kubernetes import ClusterConfig, KubernetesBackend
from ptjob_provider.core.kubernetes.client import paths
from ptjob_provider.core.kubernetes.client.api_errors import Refusal
from ptjob_provider.core.kubernetes.client.credentials import Credentials, Endpoint
from ptjob_provider.core.kubernetes.client.http import shared_client
from recorded import recorded
from rows import each_row

if TYPE_CHECKING:
    from pathlib import Path

    from ptjob_provider.core.kubernetes.client.http import Client

pytestmark = pytest.mark.skips_waits

PODS = paths.pods("team")


NEW_QUOTA = (403, {"kind": "Status", "message": "forbidden: status unknown for quota: q, resources: pods"})


@each_row("bad", [429, 500, 503, 504, RESET, NEW_QUOTA])
async def test_a_request_is_tried_again_after_a_bad_moment(bad: object) -> None:
    """The causes are overload, a restart, a broken connection and a quota that has no usage yet."""
    async with stand_in_api_server(bad) as server, shared_client(server.config()) as client:
        assert (await client.get(PODS))["items"] == []

    assert len(server.requests) == 2


@pytest.mark.parametrize("refusal", [401, 403, 400])
async def test_a_create_that_is_refused_behind_one_without_an_answer_may_have_arrived(refusal: int) -> None:
    """The job may exist: the caller looks for it, and a retry may help. A first refusal is final."""
    script = [RESET, *[(refusal, {"kind": "Status", "message": "not now"})] * 2]
    async with stand_in_api_server(*script) as server, shared_client(server.config()) as client:
        with pytest.raises(ClusterUnavailable, match=r"not now.+may have been done"):
            await client.post(paths.jobs("PyTorchJob", "team"), {})


async def test_a_create_behind_one_without_an_answer_may_have_arrived_also_if_no_credential_is_left(
    tmp_path: Path,
) -> None:
    """The kubeconfig is removed, or its plugin fails, while the create is repeated."""
    file = tmp_path / "config"
    async with stand_in_api_server(200, RESET, 401) as server:
        file.write_text(server.config().kube_config or "")
        async with shared_client(ClusterConfig(kube_config_path=str(file))) as client:
            await client.get(PODS)
            file.unlink()
            (raised,) = await asyncio.gather(client.post(PODS, {}), return_exceptions=True)

    assert isinstance(raised, ClusterUnavailable)
    assert re.search(r"create .+it is not there.+may have been done", str(raised))


@each_row(
    ("answer", "error", "words"),
    [
        (403, InvalidSpec, "must be positive"),
        (404, InvalidSpec, "must be positive"),
        ((200, "<html>sign in</html>"), InvalidSpec, "must be positive"),
        (503, ClusterUnavailable, "read /openapi/v3"),
    ],
)
async def test_a_refused_job_has_the_servers_words_also_where_its_fields_cannot_be_looked_up(
    answer: Any, error: type[Exception], words: str
) -> None:
    """They are looked up for the old operator's CRD; an account may have no right to, which is not the fault.

    Neither is a gateway that does not pass the look-up on; where the look-up fails for a moment, a retry helps.
    """
    job = recorded("pytorchjob-succeeded")
    invalid = (422, {"kind": "Status", "code": 422, "message": "spec.replicas: must be positive"})
    async with stand_in_api_server() as server:
        server.answers = lambda line: invalid if line.startswith("POST") else answer
        with pytest.raises(error, match=words):
            await KubernetesBackend(server.config(attempts=1)).submit(job)


async def test_a_client_certificate_that_is_half_written_is_a_refusal_and_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is renewed in place, and its key a moment later; the jobs are not at fault."""
    certificate = tmp_path / "tls.crt"
    certificate.touch()

    async def renewed(this: Credentials) -> None:
        this.endpoint = Endpoint(host=server.url, cert_file=str(certificate))

    async with stand_in_api_server(200, 401, 401) as server, shared_client(server.config()) as client:
        await client.get(PODS)
        monkeypatch.setattr(Credentials, "load", renewed)
        for _ in range(2):
            with pytest.raises(ClusterError, match=r"client-certificate: .+tls\.crt cannot be used"):
                await client.get(PODS)


async def test_a_create_whose_name_is_taken_behind_one_without_an_answer_is_a_taken_name() -> None:
    """The existing job is most likely from the first request."""
    taken = (409, {"kind": "Status", "reason": "AlreadyExists", "message": "taken"})
    async with stand_in_api_server(RESET, taken) as server, shared_client(server.config()) as client:
        with pytest.raises(JobAlreadyExists):
            await client.post(paths.jobs("PyTorchJob", "team"), {})


@each_row(("asked", "kept"), [(7, 7), (3600, 60)])
async def test_the_pause_that_a_server_asks_for_is_kept_up_to_a_minute(asked: int, kept: int) -> None:
    """The server knows best when to retry, but gateways send an hour by mistake."""
    async with stand_in_api_server((429, asked)) as server, shared_client(server.config()) as client:
        await client.get(PODS)

    first, second = server.came_at
    assert kept <= second - first < kept + 1


async def test_a_server_that_never_answers_is_given_up() -> None:
    """Each try has a timeout; a retry of the task may help."""
    async with (
        stand_in_api_server(SILENT, SILENT) as server,
        shared_client(server.config(timeout=1.0, attempts=2)) as client,
    ):
        with pytest.raises(ClusterUnavailable, match="read pods in team") as raised:
            await client.get(PODS)

    assert raised.value.retryable
    assert len(server.requests) == 2


async def test_a_stream_whose_refusal_does_not_end_is_given_up() -> None:
    """As from a gateway whose own connection has broken; a stream itself may be silent for an hour."""
    async with (
        stand_in_api_server((STALLED, 502)) as server,
        shared_client(server.config(timeout=1.0)) as client,
        asyncio.timeout(60),
    ):
        with pytest.raises(ClusterUnavailable, match="read pods in team"):
            async with client.stream(PODS, silence=3600.0):
                pass


async def test_a_handshake_that_fails_for_a_moment_is_tried_again() -> None:
    """A load balancer that reloads sends an alert of TLS (internal error), which is no word about a certificate."""
    came: list[bytes] = []

    async def alert(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        came.append(await reader.read(1))
        writer.write(bytes.fromhex("15 03 03 00 02 02 50"))
        writer.close()
        await writer.wait_closed()

    async with await asyncio.start_server(alert, "127.0.0.1", 0) as server:
        balancer = StandInApiServer(url=f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        async with shared_client(balancer.config(attempts=2)) as client:
            with pytest.raises(ClusterUnavailable):
                await client.get(PODS)

    assert len(came) == 2


@pytest.mark.parametrize("verb", ["get", "post", "patch", "delete"])
async def test_the_error_of_a_refused_request_names_its_verb(verb: str) -> None:
    """The error has kubectl's verb, followed by the server's message; a refusal is not tried again."""
    words = {"get": "read", "post": "create", "patch": "change", "delete": "delete"}
    refusal = (403, {"kind": "Status", "message": "not you"})
    async with stand_in_api_server(refusal) as server, shared_client(server.config()) as client:
        with pytest.raises(PermissionDenied, match=rf"{words[verb]} pods team/one: not you \(403\)"):
            await getattr(client, verb)(paths.pods("team", "one"), *([{}] if verb in {"post", "patch"} else []))

    assert len(server.requests) == 1


async def test_a_refused_credential_is_loaded_anew_once() -> None:
    """The token may have been renewed; a second refusal is final."""
    refused = (401, {"kind": "Status", "code": 401, "message": "Unauthorized"})
    async with stand_in_api_server(refused) as server, shared_client(server.config()) as client:
        (answer,) = await asyncio.gather(client.get(PODS), return_exceptions=True)
    async with stand_in_api_server(refused, refused) as other, shared_client(other.config()) as client:
        (refusal,) = await asyncio.gather(client.get(PODS), return_exceptions=True)

    assert isinstance(answer, dict)
    assert isinstance(refusal, PermissionDenied)
    assert (len(server.requests), len(other.requests)) == (2, 2)


def behind(server: StandInApiServer, address: str, **proxy: str) -> ClusterConfig:
    """Return the configuration of a client for this address, which only the server as its proxy knows."""
    config = json.loads(server.config().kube_config or "")
    config["clusters"][0]["cluster"] = {"server": address, **proxy}
    return ClusterConfig(kube_config=json.dumps(config), attempts=1)


@pytest.mark.parametrize(
    ("variables", "proxy_of_cluster", "through"),
    [
        ({"http_proxy": "http://{}"}, False, True),
        ({"http_proxy": "http://name:word@{}"}, False, True),
        ({"http_proxy": "http://{}", "no_proxy": "api.invalid"}, False, False),
        ({"https_proxy": "http://{}"}, False, False),
        ({"http_proxy": "http://127.0.0.1:1"}, True, True),
    ],
)
async def test_the_proxy_of_the_environment_is_used_and_no_netrc(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *, variables: dict[str, str], proxy_of_cluster: bool, through: bool
) -> None:
    """A netrc, which may be meant for git or pip, would replace the bearer token."""
    (tmp_path / "netrc").write_text("default login me password s3cret\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    async with stand_in_api_server() as server:
        proxy = {"proxy-url": server.url} if proxy_of_cluster else {}
        for name, value in variables.items():
            monkeypatch.setenv(name, value.format(server.url.removeprefix("http://")))

        async with shared_client(behind(server, "http://api.invalid", **proxy)) as client:
            (answer,) = await asyncio.gather(client.get("/api"), return_exceptions=True)

    assert server.requests == (["GET http://api.invalid/api HTTP/1.1"] if through else [])
    assert isinstance(answer, dict if through else ClusterUnavailable)
    assert not any("\r\nAuthorization: " in head for head in server.heads)


@pytest.mark.parametrize("scheme", ["http", "https"])
@each_row(
    ("start", "secret"),
    [
        ("http://alice:hunter%202@", "alice:hunter 2"),
        ("alice:hunter2@", "alice:hunter2"),
        ("http://alice:hunter#2@", "alice:hunter#2"),
        ("alice:hunter/[@://2@", "alice:hunter/[@://2"),
    ],
)
async def test_a_proxy_gets_its_password_and_no_error_quotes_it(scheme: str, start: str, secret: str) -> None:
    """The address of a proxy is part of the client's errors; of an error in a log the causes are shown, too.

    As in curl, the scheme may be missing.
    """
    async with stand_in_api_server(*[503] * 2) as server:
        proxy = {"proxy-url": server.url.replace("http://", start)}
        async with shared_client(behind(server, f"{scheme}://api.invalid", **proxy)) as client:
            refusals = await asyncio.gather(client.get("/api"), _opened(client), return_exceptions=True)

    assert all(isinstance(each, ClusterUnavailable) for each in refusals)
    assert "hunter" not in "".join(text for each in refusals for text in traceback.format_exception(each))  # type: ignore[arg-type]
    sent = f"Proxy-Authorization: Basic {base64.b64encode(secret.encode()).decode()}"
    assert [sent in head for head in server.heads] == [True, True]


async def _opened(client: Client) -> None:
    async with client.socket("/exec", []):
        pass


async def test_each_configuration_has_a_client_of_its_own() -> None:
    """Two connections may lead to two clusters, or to one cluster with two credentials."""
    async with (
        shared_client(ClusterConfig(kube_config="{}")) as one,
        shared_client(ClusterConfig(kube_config="{}")) as same,
        shared_client(ClusterConfig(kube_config="{ }")) as other,
    ):
        assert one is same
        assert one is not other


async def test_a_list_of_many_pages_is_one_list() -> None:
    """Each item gets its kind, which lists of built-in resources omit."""
    first = {
        "kind": "PodList",
        "apiVersion": "v1",
        "metadata": {"resourceVersion": "7", "continue": "next"},
        "items": [{"metadata": {"uid": "a"}}],
    }
    second = {**first, "metadata": {"resourceVersion": "7"}, "items": [{"metadata": {"uid": "b"}}]}
    async with stand_in_api_server((200, first), (200, second)) as server, shared_client(server.config()) as client:
        items = await client.items(PODS)

    assert [(item["kind"], item["metadata"]["uid"]) for item in items] == [("Pod", "a"), ("Pod", "b")]
    assert "continue=next" in server.requests[1]


@each_row(
    ("code", "reason", "more", "becomes"),
    [
        (400, "BadRequest", {}, InvalidSpec),
        (422, "Invalid", {}, InvalidSpec),
        (401, "Unauthorized", {}, PermissionDenied),
        (403, "Forbidden", {}, PermissionDenied),
        (403, "Forbidden", {"message": "exceeded quota: pods"}, ClusterUnavailable),
        (403, "Forbidden", {"message": 'admission webhook "v.trainer" denied the request: spec'}, InvalidSpec),
        (404, "NotFound", {"named": True}, JobNotFound),
        (404, "NotFound", {}, ClusterError),
        (409, "AlreadyExists", {}, JobAlreadyExists),
        (409, "Conflict", {}, ClusterError),
        (410, "Gone", {}, ClusterError),
        (429, "TooManyRequests", {}, ClusterUnavailable),
        (500, "InternalError", {}, ClusterUnavailable),
        (0, "ClientOSError", {}, ClusterUnavailable),
        (0, "CertificateError", {"final": True}, ClusterError),
    ],
)
def test_a_refusal_becomes_the_cores_word_for_it(
    code: int, reason: str, more: dict[str, Any], becomes: type[Exception]
) -> None:
    assert type(Refusal(code=code, reason=reason, **more).error("read x")) is becomes


def test_an_error_about_a_path_that_is_not_served_says_so() -> None:
    """The server's 404 for it names neither kind nor job."""
    job, path = (Refusal(code=404, message="not found", named=named).error("read x") for named in (True, False))

    assert str(path) == "read x: not found (404); the cluster does not serve this resource"
    assert str(job) == "read x: not found (404)"


def lacking(verb: str, resource: str, group: str, scope: str = 'in the namespace "team"') -> str:
    """Return the API server's message about a missing right."""
    named, who = f"{resource}.{group}".rstrip("."), "system:serviceaccount:team:pipeline-runner"
    return f'{named} is forbidden: User "{who}" cannot {verb} resource "{resource}" in API group "{group}" {scope}'


@each_row(
    ("verb", "resource", "group", "folder"),
    [
        ("create", "trainjobs", "trainer.kubeflow.org", "deploy/components/kinds"),
        ("watch", "pods", "", "deploy/base"),
        ("create", "pods/exec", "", "deploy/components/data"),
    ],
)
def test_an_error_about_a_missing_right_names_the_role_that_grants_it(
    verb: str, resource: str, group: str, folder: str
) -> None:
    """The account may be another one than that of the component."""
    refusal = Refusal(code=403, reason="Forbidden", message=lacking(verb, resource, group))

    assert str(refusal.error("x")).endswith(
        f"(403 Forbidden); the Role of {folder} grants this: bind it to this account"
    )


def test_a_right_in_the_whole_cluster_is_another_one() -> None:
    in_cluster = lacking("list", "pods", "", "at the cluster scope")

    assert "the Role of deploy/components/cluster-view" in str(Refusal(code=403, message=in_cluster).error("x"))
    assert "deploy" not in str(Refusal(code=403, message=lacking("get", "nodes", "")).error("x"))
    assert "deploy" not in str(Refusal(code=403, message="it is a gateway's").error("x"))


async def test_a_question_that_is_found_wrong_says_nothing_about_a_job() -> None:
    """A gateway may send this to a read; for a create, the object is invalid."""
    script = [(400, {"kind": "Status"})] * 2
    async with stand_in_api_server(*script) as server, shared_client(server.config()) as client:
        with pytest.raises(ClusterError):
            await client.get(PODS)
        with pytest.raises(InvalidSpec):
            await client.post(PODS, {})


@pytest.mark.parametrize(
    "answer",
    [{"error": "login first"}, {"kind": "Pod", "metadata": {}}, {"metadata": "no"}, "<html>\nlog in\n</html>", "[]"],
)
async def test_an_answer_that_is_no_object_is_a_refusal(answer: object) -> None:
    """The login page of a gateway, which would be waited for without limit if it counted as no answer."""
    async with stand_in_api_server(*[(200, answer)] * 2) as server, shared_client(server.config()) as client:
        for request in (client.object(paths.pods("team", "one")), client.items(PODS)):
            with pytest.raises(ClusterError, match="the response is not from Kubernetes: ") as raised:
                await request
            assert not isinstance(raised.value, ClusterUnavailable)


async def test_an_answer_that_is_cut_is_none() -> None:
    async with stand_in_api_server((200, ' {"kind": "Po')) as server, shared_client(server.config()) as client:
        assert (await client.get(PODS))["items"] == []


def test_an_answer_that_is_no_status_is_quoted() -> None:
    """It may come from a proxy; a whole page becomes one line."""
    refusal = Refusal.read(502, b"<html>\n<h1>bad\r\n gateway</h1>\n</html>", "soon")

    assert "read x: <html> <h1>bad gateway</h1> </html> (502)" in str(refusal.error("read x"))
    assert refusal.retry_after is None


def test_two_ways_to_a_cluster_are_refused() -> None:
    with pytest.raises(InvalidSpec, match=r"kube_config_path.*in_cluster"):
        ClusterConfig(in_cluster=True, kube_config_path="/x")


@pytest.mark.parametrize(
    ("path", "words"),
    [
        (paths.pod_log("team", "one"), "read pods/log team/one"),
        (paths.events("team"), "read events in team"),
        ("/openapi/v3", "read /openapi/v3"),
    ],
)
def test_a_request_is_described_in_words(path: str, words: str) -> None:
    assert paths.described("GET", path) == words


async def test_a_program_in_a_pod_that_is_gone_is_not_said_to_be_unknown_to_the_cluster() -> None:
    async with stand_in_api_server(404) as server, shared_client(server.config()) as client:
        with pytest.raises(JobNotFound) as raised:
            async with client.socket(f"{paths.pods('team', 'files')}/exec", []):
                pass

    assert "does not serve" not in str(raised.value)


@pytest.mark.parametrize(("part", "folder"), [("exec", "data"), ("portforward", "tensorboard")])
async def test_the_role_that_opens_a_socket_to_a_pod_is_named(part: str, folder: str) -> None:
    """Of an answer to a web socket's handshake only the code is seen, not the server's words."""
    async with stand_in_api_server(403) as server, shared_client(server.config()) as client:
        with pytest.raises(PermissionDenied, match=f'"pods/{part}".*the Role of deploy/.*{folder} grants this'):
            async with client.socket(f"{paths.pods('team', 'files')}/{part}", []):
                pass
