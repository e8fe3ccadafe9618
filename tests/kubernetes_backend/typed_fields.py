"""TrainingJobs drawn from their typed fields, each as a DAG file or a template writes it, with occasional mistakes."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st

from kubernetes_backend.specs import (
    IMAGES,
    INT32,
    LABEL_KEYS,
    LABEL_VALUES,
    NAMES,
    NOWHERE,
    POD_PATH,
    QUANTITIES,
    TEMPLATE_PATH,
    TEXTS,
    mostly,
)
from ptjob_provider.core.spec import (
    JOB_FIELDS,
    CodeSource,
    ElasticPolicy,
    EnvVar,
    PodVolume,
    Resources,
    RoleFields,
    TensorBoard,
    VolumeMount,
)
from ptjob_provider.core.spec.parsers import names

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from kubernetes_backend.specs import Specs

    Draw = Callable[[st.SearchStrategy[Any]], Any]
    Strategies = Mapping[str, st.SearchStrategy[Any]]

PARTS: Mapping[str, tuple[type, ...]] = {
    **dict.fromkeys(("master", "worker"), (RoleFields,)),
    "elastic_policy": (ElasticPolicy,),
    "code": (CodeSource,),
    "tensorboard": (TensorBoard,),
    "container_resources": (Resources,),
    "env": (EnvVar,),
    "volumes": (VolumeMount, PodVolume),
}
"""Fields whose values have fields of their own."""


def settings() -> Iterator[str]:
    """Yield every field of a TrainingJob and of its parts: `workers`, `master.image`."""
    yield from JOB_FIELDS
    for part, classes in PARTS.items():
        yield from (f"{part}.{each.name}" for cls in classes for each in fields(cls))


def set_settings(value: Any, prefix: str = "") -> Iterator[str]:
    """Yield every such field that is set."""
    for name in names(type(value)) if is_dataclass(value) else ():
        found = getattr(value, name)
        if found is not None:
            yield f"{prefix}{name}"
            for part in found if isinstance(found, tuple) else (found,):
                yield from set_settings(part, f"{name}.")


def typed_fields(specs: Specs, namespace: str) -> st.SearchStrategy[dict[str, Any]]:
    """Return a strategy for arguments of `TrainingJob.parse`; each sets a name, an image and a few more fields."""
    every = {**_fields(specs), "namespace": st.just(namespace), "manifest": specs.manifests(namespace)}
    usual = st.fixed_dictionaries({"name": NAMES, "image": IMAGES, "namespace": st.just(namespace)})
    return st.builds(_completed, usual, _some(every, at_most=7))


def _completed(usual: dict[str, Any], more: dict[str, Any]) -> dict[str, Any]:
    """Return both merged; a mount gets a volume with its name."""
    found = {**usual, **more}
    if "volume_mounts" in found:
        given = found.get("volumes") or []
        wanted = {mount["name"] for mount in found["volume_mounts"]} - {NOWHERE}
        missing = wanted - {volume.get("name") for volume in given if isinstance(volume, dict)}
        found["volumes"] = [*given, *({"name": name, "emptyDir": {}} for name in sorted(missing))]
    if "manifest" in found and more.get("name") is None:
        del found["name"]
    return found


def _some(strategies: Strategies, *, at_most: int) -> st.SearchStrategy[dict[str, Any]]:
    names = st.lists(st.sampled_from(sorted(strategies)), max_size=at_most, unique=True)

    @st.composite
    def chosen(draw: Draw) -> dict[str, Any]:
        return {name: draw(strategies[name]) for name in draw(names)}

    return chosen()


def _written(*usual: int, rarely: tuple[Any, ...] = ()) -> st.SearchStrategy[Any]:
    """Return a strategy for whole numbers, or for their texts as templates render them."""
    return mostly(*usual, *map(str, usual), rarely=rarely)


_SWITCHES = st.booleans() | mostly("true", "False", rarely=("yes",))
_SECONDS = _written(0, 1, 3600, INT32, rarely=(-1, INT32 + 1, "soon"))
_LABELS = st.dictionaries(LABEL_KEYS, LABEL_VALUES, max_size=2)
_ARGUMENTS = st.lists(TEXTS | st.integers(-1, 3), max_size=3)
_CORES = mostly("4", 2, 0.5, "500m", "1e1", rarely=("0", "1Ki1", "-1", "٣"))
_BYTES = mostly("4Gi", "1.5Gi", 2**30, "1e9", rarely=("4", "512m", "9" * 60))
_CLAIMS = ("team-data:/data", "logs:/logs:ro", "team-data/models:/models", "a.b:/x", "shm:/dev/shm")
_PATHS = ("pvc://team-data/models/m.pt", "pvc://new-claim/logs", "/data/m.pt", "models/m.pt")
_KEYED = {"secret": mostly("hub", rarely=("",)), "key": st.just("token"), "optional": _SWITCHES}
_VARIABLES = mostly("A", "B_C", "d.e", "PTJOB_ATTEMPT", rarely=("", "1A", "RANK", "a b", "ä"))
_ENVIRONMENT = st.one_of(
    st.dictionaries(_VARIABLES, TEXTS | st.integers(0, 3) | st.fixed_dictionaries(_KEYED), max_size=2),
    st.lists(st.fixed_dictionaries({"name": _VARIABLES, "value": TEXTS}), max_size=2),
)
_DEVICES = mostly("nvidia.com/gpu", "amd.com/gpu", "example.com/npu", rarely=("gpu", "a..b/gpu", "nvidia.com/"))
_COUNTED = mostly("cpu", "memory", "nvidia.com/gpu", "rdma/hca", "ephemeral-storage", rarely=("disk",))
_AMOUNTS = st.dictionaries(_COUNTED, QUANTITIES)
_REFS = mostly("main", "v1", "feature/x", rarely=("-x", "a b", "a..b"))
_GIT: Strategies = {
    "branch": _REFS,
    "revision": _REFS,
    "submodules": mostly("recursive", "shallow", "off", rarely=("all",)),
    "depth": _written(0, 1, rarely=(-1,)),
    "secret": mostly("hub", rarely=("",)),
    "image": IMAGES,
}
_ADDRESSES = ("https://git.example/team/mnist.git", "git@git.example:team/mnist.git", "code.example::mnist/src")
_TENSORBOARD: Strategies = {
    "logdir": mostly("pvc://team-data/logs", rarely=("/nowhere", "logs")),
    "image": IMAGES,
    "service_type": mostly("ClusterIP", "NodePort", rarely=("Node",)),
}
_ROLE: Strategies = {
    "image": IMAGES,
    "command": _ARGUMENTS,
    "args": _ARGUMENTS,
    "env": _ENVIRONMENT,
    "cpu": _CORES,
    "memory": _BYTES,
    "gpus": _written(0, 1, 8, rarely=(-1, "all")),
    "container_resources": _some({"requests": _AMOUNTS, "limits": _AMOUNTS}, at_most=2),
    "node_selector": _LABELS,
}
_ELASTIC: Strategies = {
    "min_replicas": _written(1, 2),
    "max_replicas": _written(2, 8, rarely=(1, 10_001)),
    "max_restarts": _written(0, 100),
    "rdzv_backend": mostly("c10d", "etcd", "etcd-v2", rarely=("zeus",)),
    "rdzv_host": TEXTS,
    "rdzv_port": _written(1, 65535, rarely=(0, 65536)),
    "rdzv_id": TEXTS,
    "rdzv_conf": st.dictionaries(TEXTS, TEXTS | st.integers(), max_size=2),
    "standalone": _SWITCHES,
}


def _fields(specs: Specs) -> Strategies:
    return {**_ROLE, **_OWN, **_in_kubernetes_words(specs)}


_OWN: Strategies = {
    "name": NAMES,
    "workers": _written(1, 2, 4, 10_000, rarely=(0, 10_001, "two")),
    "nproc_per_node": mostly(1, 8, "2", "auto", "cpu", "gpu", rarely=(0, "all", "1٣")),
    "gpu_resource": _DEVICES,
    "shared_memory": mostly("8Gi", "true", "false", 0, rarely=("8", "1e1.5")),
    "working_dir": mostly("/srv/app", "/srv/app/", "//x", rarely=("app", "/a/../b")),
    "restart_policy": mostly("Never", "OnFailure", "ExitCode", "Always", rarely=("never",)),
    "clean_pod_policy": mostly("Running", "All", "None", rarely=("all",)),
    "backoff_limit": _written(0, 3, INT32, rarely=(-1, INT32 + 1)),
    "active_deadline_seconds": _SECONDS,
    "ttl_seconds_after_finished": _SECONDS,
    "termination_grace_period_seconds": _SECONDS,
    "suspend": _SWITCHES,
    "elastic_policy": _some(_ELASTIC, at_most=5),
    "priority_class_name": TEXTS,
    "scheduler_name": TEXTS,
    "kind": st.just("PyTorchJob"),
    "queue_name": LABEL_VALUES,
    "gang": _SWITCHES,
    "service_account_name": TEXTS,
    "image_pull_secrets": st.lists(mostly("hub", "own", {"name": "hub"}), max_size=3),
    "image_pull_policy": mostly("Always", "IfNotPresent", "Never", rarely=("Sometimes",)),
    "host_network": _SWITCHES,
    "labels": _LABELS,
    "annotations": st.dictionaries(LABEL_KEYS, TEXTS | st.integers(), max_size=2),
    "master": _some(_ROLE, at_most=3),
    "worker": _some(_ROLE, at_most=3),
    "model": mostly(*_PATHS, rarely=("pvc://", "s3://x/y")),
    "tfevents": mostly(*_PATHS),
    "checkpoints": mostly(*_PATHS),
    "code": mostly(*_ADDRESSES, rarely=("mnist",))
    | st.builds(lambda more: {"git": _ADDRESSES[0], **more}, _some(_GIT, at_most=3)),
    "tensorboard": _some(_TENSORBOARD, at_most=3),
}


def _in_kubernetes_words(specs: Specs) -> Strategies:
    """Return strategies for the fields whose values are parts of the schema."""
    container = (*POD_PATH, "containers", "[]")
    claim = {"claim": mostly("team-data", rarely=("A",)), "mount_path": mostly("/data", "/mnt/x", rarely=("x",))}
    mapped = st.fixed_dictionaries(
        claim, optional={"sub_path": mostly("a/b", rarely=("../x",)), "read_only": _SWITCHES}
    )
    claims = st.lists(mostly(*_CLAIMS, rarely=("team-data", "A:/x")) | mapped, max_size=2)
    return {
        "env_from": specs.parts((*container, "envFrom")) | st.just([{"secret": "hub"}, {"config_map": "team"}]),
        "volumes": st.builds(lambda one, two: one + two, claims, specs.parts((*POD_PATH, "volumes")) | st.just([])),
        "volume_mounts": specs.parts((*container, "volumeMounts")),
        "tolerations": specs.parts((*POD_PATH, "tolerations"))
        | st.just([{"key": "gpu", "value": 1, "tolerationSeconds": "60"}]),
        "affinity": specs.parts((*POD_PATH, "affinity")),
        "security_context": specs.parts((*POD_PATH, "securityContext")),
        "container_security_context": specs.parts((*container, "securityContext")),
        "init_containers": specs.parts((*POD_PATH, "initContainers")),
        "pod_template": specs.parts(TEMPLATE_PATH),
    }
