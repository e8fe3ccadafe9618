from __future__ import annotations

import pytest

from ptjob_provider.core.errors import InvalidSpec
from ptjob_provider.core.outputs.contract import ResolvedOutput, ResolvedOutputs
from recorded import recorded
from rendered import container, mounted, render, variables
from rows import each_row


def found(uri: str, container_path: str) -> ResolvedOutput:
    claim, _, path = uri.removeprefix("pvc://").partition("/")
    return ResolvedOutput(uri=uri, claim=claim, path=path, container_path=container_path)


@pytest.mark.parametrize(
    ("text", "output"),
    [
        ("/data/run/model.pt", found("pvc://team-data/run/model.pt", "/data/run/model.pt")),
        ("out/model.pt", found("pvc://team-data/code/out/model.pt", "/data/code/out/model.pt")),
        ("/models/model.pt", found("pvc://team-data/models/digits/model.pt", "/models/model.pt")),
        ("pvc://team-data/models/digits/m.pt", found("pvc://team-data/models/digits/m.pt", "/models/m.pt")),
    ],
)
def test_an_output_is_found_through_rank_0s_mounts(text: str, output: ResolvedOutput) -> None:
    """Absolute, relative to the manifest's working directory, through a sub-path, and by address; no mount is added."""
    rendered = render(manifest=recorded("manifest-rich"), model=text)

    assert rendered.outputs == ResolvedOutputs(model=output)
    assert len(container(rendered.manifest)["volumeMounts"]) == 6
    assert variables(rendered.manifest)["PTJOB_MODEL_PATH"] == output.container_path


def test_a_claim_that_only_an_output_names_is_mounted_once_in_every_replica() -> None:
    """Two outputs on it share the mount; the address gives their directories in the claim."""
    rendered = render(workers=2, model="pvc://runs/a/model.pt", tfevents="pvc://runs/a/logs")

    assert rendered.outputs == ResolvedOutputs(
        model=found("pvc://runs/a/model.pt", "/mnt/ptjob/runs/a/model.pt"),
        tfevents=found("pvc://runs/a/logs", "/mnt/ptjob/runs/a/logs"),
    )
    for role in ("Master", "Worker"):
        assert mounted(rendered.manifest, role)["/mnt/ptjob/runs"]["persistentVolumeClaim"] == {"claimName": "runs"}


def test_a_mount_that_an_output_needs_takes_no_other_mounts_place() -> None:
    rendered = render(volumes=["runs/a:/mnt/ptjob/runs", "x:/mnt/ptjob/runs-2"], model="pvc://runs/b/model.pt")

    assert rendered.outputs.model == found("pvc://runs/b/model.pt", "/mnt/ptjob/runs-3/b/model.pt")
    assert len(container(rendered.manifest)["volumeMounts"]) == 4


@each_row(
    ("text", "message"),
    [
        ("/elsewhere/model.pt", "model: '/elsewhere/model.pt' is not allowed; it is on none of the claims"),
        ("/reference/model.pt", "it is mounted read-only"),
        ("pvc://reference-sets/model.pt", "it is mounted read-only"),
        ("/data/scratch/model.pt", "it is on none of the claims that the container mounts"),
        ("/data/shards/model.pt", "it is on none of the claims that the container mounts"),
    ],
)
def test_an_output_that_would_be_lost_is_refused(text: str, message: str) -> None:
    """On a read-only claim, under an emptyDir, in a directory whose name is known to the pod alone."""
    with pytest.raises(InvalidSpec) as error:
        render(manifest=recorded("manifest-rich"), model=text)

    assert message in str(error.value)
