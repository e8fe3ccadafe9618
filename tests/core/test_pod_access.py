"""Tests of the connection of a pod: the service account's files, and two variables."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from ptjob_provider.core.errors import InvalidSpec
from ptjob_provider.core.kubernetes import ClusterConfig
from ptjob_provider.core.kubernetes.client.credentials import Credentials, Endpoint, of_pod

if TYPE_CHECKING:
    from pathlib import Path

ENVIRON = {"KUBERNETES_SERVICE_HOST": "10.96.0.1", "KUBERNETES_SERVICE_PORT": "443"}

LOADED = """
import json, sys
import ptjob_provider.core.kubernetes.backend
print(json.dumps(sorted({name.partition(".")[0] for name in sys.modules})))
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a directory as a kubelet mounts it."""
    (tmp_path / "token").write_text("secret-token\n")
    (tmp_path / "ca.crt").write_text("a certificate")
    return tmp_path


@pytest.mark.parametrize(("host", "name"), [("10.96.0.1", "10.96.0.1"), ("fd00::1", "[fd00::1]")])
def test_a_pods_service_account_says_all_that_a_connection_needs(folder: Path, host: str, name: str) -> None:
    """Address, trust and credential; the credential is never shown."""
    settings = of_pod({**ENVIRON, "KUBERNETES_SERVICE_HOST": host}, folder)

    expected = Endpoint(host=f"https://{name}:443", authorization="Bearer secret-token", ca_file=str(folder / "ca.crt"))
    assert settings == expected
    assert "secret-token" not in repr(settings)


def test_another_token_needs_no_other_connection(folder: Path) -> None:
    """A kubelet renews it every hour."""
    before = of_pod(ENVIRON, folder)
    (folder / "token").write_text("renewed")
    after = of_pod(ENVIRON, folder)

    assert after != before
    assert after.without_credential == before.without_credential


@pytest.mark.parametrize("absent", ["token", "ca.crt", *ENVIRON])
@pytest.mark.parametrize("empty", [True, False])
def test_a_missing_part_of_a_service_account_is_named(folder: Path, absent: str, empty: bool) -> None:  # noqa: FBT001
    environ = {name: "" if name == absent else text for name, text in ENVIRON.items() if empty or name != absent}
    for file in folder.iterdir():
        if file.name == absent and empty:
            file.write_text("")
        elif file.name == absent:
            file.unlink()

    with pytest.raises(InvalidSpec, match=f"the pod's service account: .*{absent}"):
        of_pod(environ, folder)


async def test_an_image_without_the_kubeconfig_library_is_refused_with_its_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An image for pods only omits the library; a pod without a service account would search for a kubeconfig."""
    monkeypatch.setitem(sys.modules, "kubernetes_asyncio", None)  # imports behave as if it were absent

    with pytest.raises(InvalidSpec, match="the default kubeconfig: kubernetes_asyncio"):
        await Credentials(ClusterConfig()).load()


def test_the_back_end_is_loaded_without_the_models_of_a_client() -> None:
    """They cost a second and 75 MB, and only kubeconfigs need them."""
    loaded = json.loads(subprocess.check_output([sys.executable, "-c", LOADED]))

    assert "aiohttp" in loaded
    assert "kubernetes_asyncio" not in loaded
