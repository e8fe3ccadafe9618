from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ptjob_provider.core.errors import InvalidSpec, UnsupportedByBackend
from ptjob_provider.core.outputs.location import MountedOutput, local_path, volume_name
from ptjob_provider.core.spec.pods import VolumeMount

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def claims(tmp_path: Path) -> Path:
    (tmp_path / "claims" / "digits" / "models").mkdir(parents=True)
    return tmp_path / "claims"


def test_an_address_on_a_claim_of_this_machine_is_a_path_in_its_directory(claims: Path) -> None:
    """A file that a job wrote below its mount path is found by the address in the job's result; links are followed."""
    (claims / "digits" / "models" / "run+00:00").mkdir()
    (claims / "digits" / "models" / "run+00:00" / "one.pt").write_text("parameters")
    (claims / "digits" / "latest.pt").symlink_to("models/run+00:00/one.pt")

    for path in ("models/run+00:00/one.pt", "latest.pt"):
        assert local_path(f"pvc://digits/{path}", claims=claims).read_text() == "parameters"


def test_a_claim_that_is_not_on_this_machine_is_refused_with_what_to_do(claims: Path) -> None:
    with pytest.raises(UnsupportedByBackend) as caught:
        local_path("pvc://elsewhere/model.pt", claims=claims)

    assert "the claim elsewhere is no directory on this machine" in str(caught.value)
    assert str(claims) in str(caught.value)
    assert "in a job or pod that mounts it" in str(caught.value)


@pytest.mark.parametrize("uri", ["/data/model.pt", "pvc://digits", "pvc:///model.pt", "pvc://digits/../other/model.pt"])
def test_an_invalid_claim_address_is_refused(claims: Path, uri: str) -> None:
    with pytest.raises(InvalidSpec, match="uri: "):
        local_path(uri, claims=claims)


def test_a_link_that_leads_out_of_the_claim_is_refused(claims: Path, tmp_path: Path) -> None:
    """Code in a job must not make the next task read another file of this machine."""
    (tmp_path / "secret").write_text("not yours")
    (claims / "digits" / "model.pt").symlink_to(tmp_path / "secret")

    with pytest.raises(InvalidSpec, match="a link leads out of the claim"):
        local_path("pvc://digits/model.pt", claims=claims)


def test_a_pod_sees_an_output_below_the_mount_of_its_claim() -> None:
    """The mount is read-only, and its path depends only on the volume's name, which is known before the address."""
    output = MountedOutput.of("pvc://digits/models/run 1/model.pt", volume="train-model")

    assert output.mount_path == "/mnt/outputs/train-model"
    assert output.container_path == "/mnt/outputs/train-model/models/run 1/model.pt"
    assert VolumeMount.parse("volumes", output.short) == VolumeMount(
        claim="digits", mount_path="/mnt/outputs/train-model", read_only=True
    )


@pytest.mark.parametrize(
    ("parts", "name"),
    [
        (("train", "model"), "train-model"),
        (("group.Train_A", "model"), "group-train-a-model"),
        (("t" * 62, "model"), "t" * 62),
    ],
)
def test_a_volume_is_called_as_kubernetes_allows(parts: tuple[str, ...], name: str) -> None:
    """Task ids contain dots, underscores and capitals; the name of a volume is a DNS label."""
    assert volume_name(*parts) == name
