from __future__ import annotations

from typing import Any

from core.test_spec import job, refusal
from ptjob_provider.core.spec import EnvVar, Resources, TrainingJob, VolumeMount
from rows import each_row

KIND = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob"}


@each_row(
    ("values", "namespace"),
    [
        ({}, "default-of-the-connection"),
        ({"namespace": "mine"}, "mine"),
        ({"manifest": {**KIND, "metadata": {"namespace": "theirs"}}}, None),
        ({"manifest": {**KIND, "metadata": None}}, "default-of-the-connection"),
    ],
)
def test_a_jobs_own_namespace_wins_over_a_default(values: dict[str, Any], namespace: str | None) -> None:
    assert job(**values).in_namespace("default-of-the-connection").namespace == namespace
    assert job().in_namespace(None).namespace is None


@each_row(
    ("values", "message"),
    [
        ({"env_from": [{"secret": ""}]}, "env_from[0].secret: '' is not allowed"),
        ({"env_from": [{"prefix": "A_"}]}, "env_from[0]: this value is not allowed; allowed: {"),
        ({"init_containers": [{"image": "a"}]}, "init_containers[0].name: None is not allowed"),
        ({"pod_template": {"kind": "Deployment"}}, "pod_template.kind: 'Deployment' is not allowed; allowed: Pod"),
        ({"pod_template": "spec: ["}, "pod_template: not one sound YAML document; line 1"),
        ({"pod_template": "\x1b"}, "pod_template: not one sound YAML document; unacceptable character #x001b"),
        ({"pod_template": "\ud800"}, "pod_template: NUL or half of a surrogate pair"),
        ({"volumes": [{"name": "a"}, {"name": "a"}]}, "volumes[1].name: 'a' is not allowed; allowed: one volume per"),
        (
            {"volume_mounts": [{"name": "a", "mountPath": "/a"}, {"name": "b", "mountPath": "/a/"}]},
            "volume_mounts[1].mountPath: '/a' is not allowed; allowed: one mount per path",
        ),
    ],
)
def test_parts_in_kubernetes_words_are_checked_as_far_as_they_are_read(values: dict[str, Any], message: str) -> None:
    assert message in refusal(**values)


# volumes


@each_row(
    ("written", "read"),
    [
        ("runs:/runs", VolumeMount(claim="runs", mount_path="/runs")),
        ("runs:/runs/:ro", VolumeMount(claim="runs", mount_path="/runs", read_only=True)),
        ("runs:/runs:rw", VolumeMount(claim="runs", mount_path="/runs")),
        ("my.claim/a/b:/x/y", VolumeMount(claim="my.claim", sub_path="a/b", mount_path="/x/y")),
        ({"claim": "runs", "mount_path": "/r"}, VolumeMount(claim="runs", mount_path="/r")),
        (
            {"claim": "runs", "mount_path": "/r", "sub_path": "a/./b/", "read_only": "true"},
            VolumeMount(claim="runs", mount_path="/r", sub_path="a/b", read_only=True),
        ),
    ],
)
def test_a_volume_is_read_from_its_short_form_or_its_parts(written: Any, read: VolumeMount) -> None:
    assert job(volumes=[written]).volumes == (read,)


@each_row(
    ("written", "message"),
    [
        ("runs", "volumes[1]: 'runs' is not allowed; allowed: claim:/path"),
        ("Runs:/a", "volumes[1].claim: 'Runs' is not allowed; allowed: the name of a PersistentVolumeClaim"),
        ("runs:/", "volumes[1].mount_path: '/' is not allowed; allowed: an absolute path other than '/'"),
        ("runs/../x:/a", "volumes[1].sub_path: '../x' is not allowed; allowed: a path inside the claim"),
        ({"claim": "runs", "mount_path": "/a:b"}, "volumes[1].mount_path: '/a:b'"),
        ({"claim": "runs"}, "volumes[1].mount_path: None is not allowed; required"),
        ("other:/data/", "volumes[1].mount_path: '/data' is not allowed; allowed: one mount per path"),
    ],
)
def test_a_wrong_volume_is_refused_by_its_place_in_the_list(written: Any, message: str) -> None:
    assert message in refusal(volumes=["first:/data", written])


# environment


def test_the_environment_is_read_from_values_and_references() -> None:
    """Numbers become strings; a secret and a config map become references whose values are never read here."""
    found = job(
        env={
            "A": "x",
            "N": 3,
            "S": {"secret": "hub", "key": "token"},
            "C": {"config_map": "settings", "key": "lr", "optional": "true"},
        }
    ).env

    assert [variable.to_wire() for variable in found or ()] == [
        {"name": "A", "value": "x"},
        {"name": "N", "value": "3"},
        {"name": "S", "valueFrom": {"secretKeyRef": {"name": "hub", "key": "token"}}},
        {"name": "C", "valueFrom": {"configMapKeyRef": {"name": "settings", "key": "lr", "optional": True}}},
    ]


def test_the_environment_is_read_from_kubernetes_own_objects() -> None:
    """A list of EnvVar objects, as Kubernetes' client serialises them, keeps each kind of reference."""
    wire: list[dict[str, Any]] = [
        {"name": "B"},
        {"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
    ]

    found = job(env=wire).env

    assert found == (EnvVar(name="B", value=""), EnvVar(name="IP", value_from=wire[1]["valueFrom"]))


@each_row(
    ("env", "message"),
    [
        ({"1A": "x"}, "env.1A: this value is not allowed; allowed: a name of letters"),
        ({"A": True}, "env.A: this value is not allowed; allowed: a text, a number"),
        ({"A": {"secret": "hub", "config_map": "x", "key": "k"}}, "env.A: this value is not allowed; allowed: a text"),
        ({"A": {"secrets": "hub", "key": "k"}}, "env.A.secrets: there is no such field; did you mean secret?"),
        ([{"value": "x"}], "env[0].name: None"),
        ([{"name": "A", "valueFrom": "x"}], "env[0].valueFrom: this value is not allowed; allowed: a map"),
    ],
)
def test_a_wrong_variable_is_refused_by_its_name(env: Any, message: str) -> None:
    assert message in refusal(env=env)


_REFUSED = ["canary"], {"secret": "s", "key": "k", "value": "canary"}, {"canary"}, b"canary", {"password": "canary"}


@each_row(
    "given",
    [
        *({"env": {"TOKEN": value}} for value in _REFUSED),
        {"env": "TOKEN=canary"},
        {"env": {"TOKEN=canary": "x"}},
        {"env": [{"name": "TOKEN=canary"}]},
        {"env": [{"name": "TOKEN", "valueFrom": "canary"}]},
        {"worker": {"env": ["TOKEN=canary"]}},
        {"worker": [{"env": {"TOKEN": "canary"}}]},
        {"worker": '{"env": {"TOKEN": "canary"}}'},
        {"init_containers": {"name": "a", "env": [{"name": "TOKEN", "value": "canary"}]}},
        {"pod_template": {"spec": {"containers": {"env": [{"name": "TOKEN", "value": "canary"}]}}}},
        {"env_from": ["TOKEN=canary"]},
    ],
)
def test_a_refused_variable_does_not_tell_its_value(given: Any) -> None:
    """A secret in the wrong field does not get into a log through the error message."""
    said = refusal(**given)

    assert said.startswith(next(iter(given)))
    assert "canary" not in said


# resources


def test_requests_and_limits_are_read_apart() -> None:
    """Each part is kept by resource name, numbers as strings, and a missing part is empty."""
    found = job(
        container_resources={"requests": {"cpu": 2, "memory": "4Gi"}, "limits": {"cpu": "1k", "rdma/hca": 1}}
    ).container_resources

    assert found == Resources(requests={"cpu": "2", "memory": "4Gi"}, limits={"cpu": "1k", "rdma/hca": "1"})


@each_row(
    ("values", "message"),
    [
        ({"container_resources": {"requests": {"gpu": 1}}}, "requests.gpu: 'gpu' is not allowed; allowed: a device"),
        ({"container_resources": {"limits": {"hugepages-2Mi": "x"}}}, "container_resources.limits.hugepages-2Mi: 'x'"),
        ({"container_resources": {"limits": {"a/b": "x"}}}, "limits.a/b: 'x' is not allowed; allowed: a number of"),
        (
            {"container_resources": {"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}},
            "cpu: '2' is not allowed; allowed: at",
        ),
        (
            {"cpu": 1, "container_resources": {"limits": {"cpu": 2}}},
            "cpu: '1' is not allowed; allowed: either cpu or cpu",
        ),
        (
            {"gpus": 1, "container_resources": {"limits": {"nvidia.com/gpu": 2}}},
            "gpus: 1 is not allowed; allowed: either",
        ),
        ({"cpu": 2, "master": {"container_resources": {"limits": {"cpu": "6"}}}}, "master.cpu: '2' is not allowed"),
    ],
)
def test_resources_that_no_node_could_give_are_refused(values: dict[str, Any], message: str) -> None:
    """Unknown parts and devices, wrong amounts, requests above limits, and the same resource in two fields."""
    assert message in refusal(**values)


# roles and elastic jobs


def test_a_roles_own_fields_win_and_its_environment_and_selector_are_merged() -> None:
    """The master's fields apply to the master alone; fields that it does not set are the job's."""
    described = job(
        cpu=2,
        env={"A": "1", "B": "1"},
        node_selector={"zone": "a", "gpu": "no"},
        master={"image": "registry.example/big:1", "env": {"B": "2", "C": "3"}, "node_selector": {"gpu": "yes"}},
    )

    master, worker = described.role("master"), described.role("worker")

    assert (master.image, worker.image) == ("registry.example/big:1", "registry.example/digits:1")
    assert (master.cpu, worker.cpu) == ("2", "2")
    assert master.node_selector == {"zone": "a", "gpu": "yes"}
    assert [(each.name, each.value) for each in master.env or ()] == [("A", "1"), ("B", "2"), ("C", "3")]
    assert [(each.name, each.value) for each in worker.env or ()] == [("A", "1"), ("B", "1")]


def test_images_may_be_given_by_role_alone() -> None:
    """A job needs an image for each of its roles, not one for all."""
    described = TrainingJob.parse(name="digits", workers=2, master={"image": "a"}, worker={"image": "b"})

    assert [described.role(role).image for role in described.roles] == ["a", "b"]
    assert "image: None" in refusal(image=None, workers=2, master={"image": "a"})


@each_row(
    ("values", "pods", "roles"),
    [
        ({}, 1, ("master",)),
        ({"workers": 4}, 4, ("master", "worker")),
        ({"elastic_policy": {"min_replicas": 2}}, 2, ("worker",)),
        ({"elastic_policy": {"min_replicas": 2, "max_replicas": 5}, "workers": 3}, 3, ("worker",)),
    ],
)
def test_pods_are_counted_with_rank_0_and_a_master_is_left_out_only_of_elastic_jobs(
    values: dict[str, Any], pods: int, roles: tuple[str, ...]
) -> None:
    """`workers` counts each pod; without a number an elastic job starts with as many as it can use."""
    described = job(**values)

    assert (described.pod_count, described.roles) == (pods, roles)


@each_row(
    ("policy", "more", "message"),
    [
        ({"min_replicas": 3, "max_replicas": 2}, {}, "elastic_policy.min_replicas: 3"),
        ({"rdzv_backend": "zeus"}, {}, "allowed: c10d, etcd, etcd-v2"),
        ({"min_replicas": 2}, {"workers": 1}, "workers: 1 is not allowed; allowed: 2 (`min_replicas`) to"),
        ({"max_replicas": 4}, {"workers": 2}, "allowed: 4 (`min_replicas`) to 4 (`max_replicas`)"),
        ({}, {"master": {"cpu": 1}}, "master: leave it out: all pods of an elastic job"),
    ],
)
def test_an_elastic_job_that_could_never_begin_is_refused(
    policy: dict[str, Any], more: dict[str, Any], message: str
) -> None:
    """Wrong settings, and numbers of pods with which the ranks would wait for each other forever."""
    assert message in refusal(elastic_policy=policy, **more)
