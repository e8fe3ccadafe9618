"""Tests of one TrainJob in the fields of each version of Trainer that changed them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from core.test_trainjob_rendering import BASE, rendered
from ptjob_provider.core.errors import InvalidSpec
from ptjob_provider.core.kinds import TRAINJOB
from rows import each_row

if TYPE_CHECKING:
    from ptjob_provider.core.identity import Manifest

PLAIN = {**BASE, "shared_memory": False}
COMMON = {"runtimeRef", "trainer", "initializer", "suspend", "managedBy"}
V2_0 = frozenset({*COMMON, "labels", "annotations", "podSpecOverrides"})
V2_1 = frozenset({*COMMON, "labels", "annotations", "podTemplateOverrides"})
V2_3 = frozenset({*COMMON, "runtimePatches", "activeDeadlineSeconds"})
"""The fields of a TrainJob's spec, from the models of those versions."""


def manifest_with(**spec: Any) -> Manifest:
    spec = {"runtimeRef": {"name": "torch-distributed"}, **spec}
    return {"apiVersion": TRAINJOB.API_VERSION, "kind": "TrainJob", "spec": spec}


def spec(fields: frozenset[str], **given: Any) -> Manifest:
    """Return the spec for a server with these fields."""
    found: Manifest = TRAINJOB.converted_for(rendered(**{**PLAIN, **given}), fields)["spec"]
    return found


def test_a_job_for_the_newest_trainer_is_sent_unchanged() -> None:
    job = rendered(**PLAIN, volumes=["data:/data"])

    assert TRAINJOB.converted_for(job, V2_3) is job
    assert TRAINJOB.converted_for(job, frozenset()) is job


def test_2_1_has_overrides_of_the_pod_template() -> None:
    """Metadata and spec apart, for the training nodes."""
    found = spec(V2_1, volumes=["data:/data"], node_selector={"a": "b"}, image_pull_secrets=["hub"])

    [override] = found["podTemplateOverrides"]
    assert found.keys() <= V2_1
    assert override["targetJobs"] == [{"name": "node"}]
    assert override["metadata"]["labels"]["ptjob-provider/managed"] == "true"
    assert override["spec"] == {
        "imagePullSecrets": [{"name": "hub"}],
        "nodeSelector": {"a": "b"},
        "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}],
        "containers": [{"name": "node", "volumeMounts": [{"name": "data", "mountPath": "/data"}]}],
    }


def test_2_0_has_overrides_of_the_pod_spec_and_labels_for_the_whole_job() -> None:
    """Its overrides have no metadata."""
    found = spec(V2_0, service_account_name="trainer")

    assert found.keys() <= V2_0
    assert found["podSpecOverrides"] == [{"targetJobs": [{"name": "node"}], "serviceAccountName": "trainer"}]
    assert found["labels"]["ptjob-provider/managed"] == "true"
    assert found["annotations"] == {"sidecar.istio.io/inject": "false"}


@each_row(
    ("fields", "given", "name"),
    [
        (V2_1, {"active_deadline_seconds": 60}, "active_deadline_seconds"),
        (V2_1, {"termination_grace_period_seconds": 1}, "terminationGracePeriodSeconds"),
        (V2_1, {"container_security_context": {"runAsUser": 1}}, "container_security_context"),
        (V2_1, {"code": "https://git.example/mnist.git", "runtime": "ours"}, "code"),
        (V2_0, {"code": "https://git.example/mnist.git", "runtime": "ours"}, "code"),
        (V2_0, {"affinity": {"nodeAffinity": {}}}, "affinity"),
        (V2_0, {"image_pull_secrets": ["hub"]}, "imagePullSecrets"),
    ],
)
def test_a_field_that_an_older_version_lacks_is_refused(fields: frozenset[str], given: Any, name: str) -> None:
    with pytest.raises(InvalidSpec, match=f"^{name}: "):
        spec(fields, **given)


@pytest.mark.parametrize("name", ["podTemplateOverrides", "podSpecOverrides"])
def test_a_manifest_in_the_words_of_an_older_version_is_refused(name: str) -> None:
    """An old server would overwrite it with the job's own overrides, and a new one does not have the fields."""
    with pytest.raises(InvalidSpec, match=f"^spec.{name}: .*runtimePatches"):
        rendered(manifest=manifest_with(**{name: [{"serviceAccountName": "trainer"}]}))


def test_a_job_without_patches_has_no_overrides() -> None:
    bare = {"spec": {"runtimeRef": {"name": "torch-distributed"}}}

    assert TRAINJOB.converted_for(bare, V2_0) == bare


def test_labels_that_a_manifest_has_for_trainer_2_0_stay() -> None:
    found = spec(V2_0, manifest=manifest_with(labels={"app": "bert"}))["labels"]

    assert found.items() >= {"app": "bert", "ptjob-provider/managed": "true"}.items()
