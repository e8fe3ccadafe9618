"""Tests of a job's layers: the installation's template, a pod template, a manifest, typed fields, a last change."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from ptjob_provider.core import kinds
from ptjob_provider.core.errors import InvalidSpec
from ptjob_provider.core.kinds.queue import QUEUE_LABEL
from ptjob_provider.core.spec import Installation, TrainingJob, job_template
from recorded import OWNER, recorded
from rendered import SHM, container, mounted, pod, render, variables
from rows import each_row

if TYPE_CHECKING:
    from ptjob_provider.core.identity import Manifest

MANIFEST = "manifest-args-only"


def installed(**values: Any) -> Installation:
    return Installation(template=job_template(values, field="template"))


def test_a_typed_field_wins_over_everything_below_it() -> None:
    rendered = render(
        installation=installed(env={"A": "1", "B": "1", "C": "1"}, scheduler_name="volcano", priority_class_name="low"),
        pod_template={"spec": {"containers": [{"env": [{"name": "B", "value": "2"}, {"name": "C", "value": "2"}]}]}},
        env={"C": "3"},
        priority_class_name="high",
    ).manifest

    found = variables(rendered)
    assert {name: found[name] for name in "ABC"} == {"A": "1", "B": "2", "C": "3"}
    assert (pod(rendered)["schedulerName"], pod(rendered)["priorityClassName"]) == ("volcano", "high")


@each_row("fields", [{"workers": 4}, {"manifest": recorded(MANIFEST), "workers": 4}])
def test_an_installations_gang_has_all_pods_of_the_job(fields: dict[str, Any]) -> None:
    """A smaller gang would start a job that then waits for its other pods."""
    rendered = render(installation=installed(gang=True), **fields).manifest

    assert rendered["spec"]["runPolicy"]["schedulingPolicy"] == {"minAvailable": 4}


@each_row(
    ("below", "fields"),
    [
        ({"scheduler_name": "volcano"}, {"queue_name": "team"}),
        ({"queue_name": "team"}, {"scheduler_name": "volcano"}),
        ({"scheduler_name": "volcano"}, {"manifest": recorded(MANIFEST), "queue_name": "team"}),
    ],
)
def test_a_queue_is_that_of_the_jobs_scheduler(below: dict[str, Any], fields: dict[str, Any]) -> None:
    """Whichever layer sets the queue, and whichever selects Volcano."""
    rendered = render(installation=installed(**below), **fields).manifest

    assert rendered["spec"]["runPolicy"]["schedulingPolicy"] == {"queue": "team"}
    assert QUEUE_LABEL not in rendered["metadata"]["labels"]


def test_a_manifest_wins_over_templates() -> None:
    """Its fields stay as they are; missing ones are filled."""
    manifest = recorded(MANIFEST)
    image = container(manifest)["image"]

    rendered = render(
        manifest=manifest,
        installation=installed(image="theirs", service_account_name="trainer", ttl_seconds_after_finished=60),
        pod_template={"metadata": {"labels": {"team": "vision"}}, "spec": {"containers": [{"tty": True}]}},
    ).manifest

    assert (container(rendered)["image"], container(rendered)["tty"]) == (image, True)
    assert pod(rendered)["serviceAccountName"] == "trainer"
    assert rendered["spec"]["runPolicy"]["ttlSecondsAfterFinished"] == 60
    for role in rendered["spec"]["pytorchReplicaSpecs"].values():
        assert role["template"]["metadata"]["labels"]["team"] == "vision"


def test_our_defaults_give_way() -> None:
    """The installation's settings come before them; without these: the golden manifest `typed-smallest`."""
    on = {"sidecar.istio.io/inject": "true"}
    said = installed(clean_pod_policy="None", ttl_seconds_after_finished=0, restart_policy="OnFailure", annotations=on)

    spec = render(installation=said).manifest["spec"]

    assert spec["runPolicy"] == {"cleanPodPolicy": "None", "ttlSecondsAfterFinished": 0}
    master = spec["pytorchReplicaSpecs"]["Master"]
    assert (master["restartPolicy"], master["template"]["metadata"]["annotations"]) == ("OnFailure", on)


POLICY = {"ttl_seconds_after_finished": 60, "restart_policy": "OnFailure", "queue_name": "q", "labels": {"a": "b"}}


@each_row(
    ("kind", "fields", "names"),
    [
        ("PyTorchJob", {}, []),
        ("TrainJob", {}, ["queue_name, restart_policy, ttl_seconds_after_finished"]),
        ("TrainJob", {"queue_name": "mine"}, ["restart_policy, ttl_seconds_after_finished"]),
        ("PyTorchTrainingJob", {}, ["queue_name, restart_policy, ttl_seconds_after_finished"]),
    ],
)
def test_a_kind_that_takes_no_policy_from_the_template_says_so(
    kind: str, fields: dict[str, Any], names: list[str]
) -> None:
    job = TrainingJob.parse(name="digits", kind=kind, image="i", **fields)

    changes = kinds.named(kind).render(job, owner=OWNER, attempt=1, installation=installed(**POLICY)).changes

    assert [each.partition(" of [ptjob] job_template: not applied")[0] for each in changes] == names


CACHE = {"name": "cache", "emptyDir": {}}
AT_SHM = [{"name": "cache", "mountPath": SHM}]
OF_TEMPLATE = {"volumes": [CACHE], "containers": [{"name": "pytorch", "volumeMounts": AT_SHM}]}


@each_row(
    ("values", "volume"),
    [
        ({"pod_template": {"spec": OF_TEMPLATE}}, CACHE),
        ({"volumes": [CACHE], "volume_mounts": AT_SHM}, CACHE),
        ({"volumes": [f"ram:{SHM}"]}, {"name": "ram", "persistentVolumeClaim": {"claimName": "ram"}}),
    ],
)
def test_shared_memory_that_is_there_is_left_alone(values: dict[str, Any], volume: dict[str, Any]) -> None:
    rendered = render(**values).manifest

    assert mounted(rendered) == {SHM: volume}
    assert len(pod(rendered)["volumes"]) == 1


def test_a_pod_template_can_bring_the_image() -> None:
    """As for KubernetesPodOperator; its other containers stay as they are."""
    containers = [{"name": "base", "image": "theirs"}, {"name": "side", "image": "proxy"}]

    rendered = render(image=None, pod_template={"kind": "Pod", "apiVersion": "v1", "spec": {"containers": containers}})

    found = [(each["name"], each["image"]) for each in pod(rendered.manifest)["containers"]]
    assert found == [("pytorch", "theirs"), ("side", "proxy")]


def test_a_pod_template_keeps_nothing_that_only_one_pod_can_have() -> None:
    """The API server refuses a name, and fields that it writes itself, in a template."""
    meta = {"name": "mine", "namespace": "n", "uid": "u", "labels": {"a": "b"}, "annotations": None}
    template = {"kind": "PodTemplate", "template": {"metadata": meta, "spec": {"nodeName": "n1"}, "status": {}}}

    rendered = render(pod_template=template).manifest["spec"]["pytorchReplicaSpecs"]["Master"]["template"]

    assert {"name", "namespace", "uid"} & set(rendered["metadata"]) == set()
    assert rendered["metadata"]["labels"]["a"] == "b"
    assert rendered["spec"]["nodeName"] == "n1"


def test_the_last_change_is_not_part_of_what_was_asked_for() -> None:
    """The pod of each role is changed, and the hash stays the same."""

    def change(found: Manifest) -> Manifest:
        return {**found, "spec": {**found["spec"], "nodeName": found["metadata"]["name"]}}

    plain = render(workers=2)
    changed = render(workers=2, installation=Installation(change_pod=change))

    assert (changed.spec_hash, changed.outputs) == (plain.spec_hash, plain.outputs)
    assert pod(changed.manifest, "Worker")["nodeName"] == f"{plain.manifest['metadata']['name']}-worker-0"


def test_a_change_that_breaks_the_job_is_refused() -> None:
    def change(found: Manifest) -> Manifest:
        return {**found, "spec": {**found["spec"], "containers": []}}

    with pytest.raises(InvalidSpec, match="containers"):
        render(installation=Installation(change_pod=change))


def test_a_template_may_not_set_a_variable_of_the_operator() -> None:
    """It would be replaced silently in each job."""
    with pytest.raises(InvalidSpec, match=r"env\.RANK"):
        render(installation=installed(env={"RANK": "0"}))


@each_row(
    ("field", "value", "said"),
    [
        *(
            (field, "x", "leave it to each job")
            for field in ("name", "namespace", "manifest", "workers", "model", "master", "command", "code")
        ),
        ("labels", "x", "'x' is not allowed; allowed: a map"),
        ("image_pull_policy", "Sometimes", "'Sometimes' is not allowed"),
    ],
)
def test_a_template_refuses_wrong_fields_and_those_that_only_one_job_can_have(
    field: str, value: str, said: str
) -> None:
    """By their path: the author of a task may never have seen the template."""
    with pytest.raises(InvalidSpec, match=rf"^template.{field}: {said}"):
        installed(**{field: value})
