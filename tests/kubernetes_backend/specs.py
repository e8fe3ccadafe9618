"""PyTorchJobs drawn from the CRD's own schema: all its fields, with valid values.

Each manifest is drawn towards one field, so that a few thousand of them cover every field. Where the schema only says
"string" but our validation has a rule, most values follow it and a few break it: what we accept, the API server must
accept. Values also follow the rules that only the webhook and the API server have: these refuse a job before anything
runs. Null must be accepted, too; it equals a missing value.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st

from kubernetes_backend.crd_schema import ITEM, VALUE, fields

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kubernetes_backend.crd_schema import Field

    Draw = Callable[[st.SearchStrategy[Any]], Any]

ROLES_PATH = ("spec", "pytorchReplicaSpecs")
TEMPLATE_PATH = (*ROLES_PATH, VALUE, "template")
POD_PATH = (*TEMPLATE_PATH, "spec")

INT32, INT64 = 2**31 - 1, 2**63 - 1
VOLUMES = ("data", "scratch", "shm", "models")
NOWHERE = "nowhere"


def mostly(*usual: Any, rarely: tuple[Any, ...] = ()) -> st.SearchStrategy[Any]:
    """Return a strategy of the usual values, and sometimes of one that is invalid."""
    return st.sampled_from([*usual] * (1 + 40 * len(rarely) // len(usual)) + [*rarely])


TEXTS = st.one_of(
    st.sampled_from(["a", "data", "-x", "1", "true", "null", "0x1f", "12:30", "a: b", "#", "{}", "ä", "\n", " "]),
    st.text(st.characters(codec="utf-8"), min_size=1, max_size=12),
)
_AMOUNTS = ("1", "0.5", "100m", "2Gi", "1.5Gi", "4E", "1e3", "2E-2", "5.", ".5", "16k", "0", 3, 2**40)
QUANTITIES = mostly(*_AMOUNTS, rarely=("+1", "-1", "1e1.5", "1e400", "9" * 60, 0.5))
LABEL_KEYS = mostly(
    *("team", "a", "app.kubernetes.io/name", "x_y.z-1", "K", "9", "k" * 63, "p" * 63 + ".example/k"),
    rarely=("", "/k", "a/b/c", "-k", "k" * 64, "A.B/k", "a..b/k", "ä", "p" * 300 + "/k", "a b"),
)
LABEL_VALUES = mostly("vision", "", "a_b.C-d", "v" * 63, "1", rarely=("-", "a b", "v" * 64, "é"))
NAMES = mostly("a", "digits", "digits-2", "a" * 40, rarely=("", "A", "1a", "a.b", "a-", "a" * 64))
RESOURCES = st.sampled_from(["cpu", "memory", "nvidia.com/gpu", "rdma/hca", "ephemeral-storage", "hugepages-2Mi", "x"])
ENV_NAMES = st.sampled_from(["A", "B_C", "d.e", "PATH", "PTJOB_ATTEMPT", "PTJOB_MODEL_PATH", "RANK"])
CONTAINER_NAMES = st.sampled_from(["pytorch", "sidecar", "init", "x"])
PORTS = mostly(1, 80, 65535, "http")
MOUNT_PATHS = st.sampled_from(["/data", "/data/", "/dev/shm", "/mnt/ptjob/data", "/a b", "/x/../y", "relative", "/"])  # noqa: S108
IMAGES = mostly("registry.example/digits:1", "a", rarely=("",))
VOLUME_NAMES = mostly(*VOLUMES, rarely=(NOWHERE,))

_WORDS: Mapping[Field, st.SearchStrategy[Any]] = {
    ("metadata", "name"): NAMES,
    ("metadata", "generateName"): mostly("digits-", "a"),
    ("metadata", "namespace"): NAMES,
    ("metadata", "labels", VALUE): LABEL_VALUES,
    ("metadata", "finalizers", ITEM): mostly("example.com/audit", "foregroundDeletion"),
    ("metadata", "ownerReferences", ITEM, "apiVersion"): mostly("v1", "apps/v1"),
    ("metadata", "ownerReferences", ITEM, "kind"): mostly("Workflow", "Pod"),
    ("metadata", "ownerReferences", ITEM, "name"): mostly("launcher", "a.b"),
    ("metadata", "ownerReferences", ITEM, "uid"): mostly("1", "2", "3"),
    ("metadata", "ownerReferences", ITEM, "controller"): st.just(False),  # noqa: FBT003 - one owner may be
    ("spec", "nprocPerNode"): mostly("auto", "cpu", "gpu", "1", "8", rarely=("0", "two", "1٣", "")),
    ("spec", "elasticPolicy", "rdzvBackend"): mostly("c10d", "etcd", "etcd-v2", rarely=("c10", "")),
    ("spec", "elasticPolicy", "minReplicas"): mostly(1, rarely=(0, -1, 2, INT32)),
    ("spec", "elasticPolicy", "maxReplicas"): mostly(1, 3, 500, rarely=(0, -1, INT32)),
    ("spec", "runPolicy", "schedulingPolicy", "minAvailable"): mostly(1, rarely=(0, -1, 3, INT32)),
    ("spec", "runPolicy", "cleanPodPolicy"): mostly("Running", "All", "None", rarely=("Some", "")),
    ("spec", "runPolicy", "managedBy"): mostly(
        "kubeflow.org/training-operator", "kueue.x-k8s.io/multikueue", rarely=("me", "")
    ),
    (*ROLES_PATH, VALUE, "restartPolicy"): mostly("Never", "OnFailure", "ExitCode", "Always", rarely=("Sometimes", "")),
    (*ROLES_PATH, VALUE, "replicas"): mostly(1, rarely=(0, -1, 2, 500, 10_001, INT32)),
    (*TEMPLATE_PATH, "metadata", "labels", VALUE): LABEL_VALUES,
    (*POD_PATH, "volumes", ITEM, "name"): st.sampled_from(VOLUMES),
}
"""Values of single fields."""

_IN_TOLERATION = ("tolerations", ITEM)
_ENDINGS: Mapping[Field, st.SearchStrategy[Any]] = {
    ("containers", ITEM, "name"): CONTAINER_NAMES,
    ("initContainers", ITEM, "name"): CONTAINER_NAMES,
    ("ephemeralContainers", ITEM, "name"): CONTAINER_NAMES,
    ("containers", ITEM, "image"): IMAGES,
    ("initContainers", ITEM, "image"): IMAGES,
    ("env", ITEM, "name"): ENV_NAMES,
    ("volumeMounts", ITEM, "name"): VOLUME_NAMES,
    ("volumeMounts", ITEM, "mountPath"): MOUNT_PATHS,
    (*_IN_TOLERATION, "operator"): mostly("Equal", "Exists", "Lt", "Gt", rarely=("Is",)),
    (*_IN_TOLERATION, "effect"): mostly("NoSchedule", "PreferNoSchedule", "NoExecute", rarely=("", "No")),
    ("httpGet", "port"): PORTS,
    ("tcpSocket", "port"): PORTS,
    ("grpc", "port"): PORTS.filter(lambda port: isinstance(port, int)),
}
"""Values of fields that several parts of a pod have."""

_MAP_KEYS: Mapping[str, st.SearchStrategy[tuple[str, ...]]] = {
    **dict.fromkeys(("labels", "annotations"), st.tuples(LABEL_KEYS)),
    **dict.fromkeys(("requests", "limits", "overhead", "minResources"), st.tuples(RESOURCES, RESOURCES)),
}
"""Keys of maps whose keys mean something."""

_FREE_KEYS = st.tuples(st.sampled_from(["a", "b.c", "example.com/x", "E F", "0", "ä"]))
_ROLES = st.sampled_from([("Master", "Worker"), ("Master", "Worker"), ("Worker",), ("Master",)])
_SIZES = {True: st.integers(1, 2), False: st.integers(0, 2)}
_RARELY = st.sampled_from([False] * 15 + [True])
_INTEGERS = {
    "int32": st.one_of(st.integers(0, 10), st.sampled_from([INT32, -INT32 - 1, -1])),
    "int64": st.one_of(st.integers(0, 10), st.sampled_from([INT64, -INT64 - 1, -1])),
}
_CONTAINERS = {(each, ITEM) for each in ("containers", "initContainers")}


class Specs:
    """Strategies for one schema."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self._schema = schema
        self._goals = st.sampled_from(list(fields(schema)))
        self._names: dict[Field, st.SearchStrategy[str]] = {}

    def manifests(self, namespace: str) -> st.SearchStrategy[dict[str, Any]]:
        """Return a strategy for manifests in one namespace."""

        @st.composite
        def drawn(draw: Draw) -> dict[str, Any]:
            found = _Drawing(draw, self._names).value(self._schema, (), draw(self._goals))
            return _completed(found, namespace)

        return drawn()


class _Drawing:
    """One value, drawn from the schema; nothing on the path to the goal is left out."""

    def __init__(self, draw: Draw, names: dict[Field, st.SearchStrategy[str]]) -> None:
        self._draw = draw
        self._names = names

    def value(self, schema: Mapping[str, Any], path: Field, goal: Field) -> Any:
        known = _words_at(path)
        if known is not None:
            return self._draw(known)
        if schema.get("x-kubernetes-int-or-string"):
            return self._draw(QUANTITIES if _is_resource(path) else st.sampled_from(_AMOUNTS))
        read: Callable[..., Any] = getattr(self, f"_{schema['type']}")
        return read(schema, path, goal)

    def _object(self, schema: Mapping[str, Any], path: Field, goal: Field) -> dict[str, Any]:
        if "additionalProperties" in schema:
            return self._map(schema["additionalProperties"], path, goal)
        known = schema["properties"]
        needed = {*_needed(path, schema), *goal[:1]}
        some = self._names_of(path, known)
        names = (needed | {self._draw(some), self._draw(some)}) - {""}
        nothing = {self._draw(some)} - needed if self._draw(_RARELY) else set()
        said = {
            name: self.value(known[name], (*path, name), goal[1:] if goal[:1] == (name,) else ())
            for name in sorted(names)
        }
        return said | dict.fromkeys(nothing - {""})

    def _names_of(self, path: Field, known: Mapping[str, Any]) -> st.SearchStrategy[str]:
        if path not in self._names:
            self._names[path] = st.sampled_from(["", *known])
        return self._names[path]

    def _map(self, inner: Mapping[str, Any], path: Field, goal: Field) -> dict[str, Any]:
        keys = self._draw(_ROLES if path == ROLES_PATH else _MAP_KEYS.get(path[-1], _FREE_KEYS))
        return {name: self.value(inner, (*path, VALUE), goal[1:]) for name in keys}

    def _array(self, schema: Mapping[str, Any], path: Field, goal: Field) -> list[Any]:
        is_needed = goal or path[-1] == "containers" or path[0] == "metadata"  # an empty list in metadata is dropped
        size = self._draw(_SIZES[bool(is_needed)])
        items = [self.value(schema["items"], (*path, ITEM), goal[1:]) for _ in range(size)]
        return _without_repeats(items, schema)

    def _string(self, _: Mapping[str, Any], __: Field, ___: Field) -> str:
        return str(self._draw(TEXTS))

    def _integer(self, schema: Mapping[str, Any], _: Field, __: Field) -> int:
        return int(self._draw(_INTEGERS[schema.get("format", "int64")]))

    def _boolean(self, _: Mapping[str, Any], __: Field, ___: Field) -> bool:
        return bool(self._draw(st.booleans()))


def _completed(found: dict[str, Any], namespace: str) -> dict[str, Any]:
    given = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", **found}
    given["metadata"] = {"name": "digits", **(found.get("metadata") or {})}
    if "namespace" in given["metadata"]:
        given["metadata"]["namespace"] = namespace
    for replica in given["spec"]["pytorchReplicaSpecs"].values():
        _connect(replica["template"]["spec"])
    return given


def _words_at(path: Field) -> st.SearchStrategy[Any] | None:
    places = ((_WORDS, path), *((_ENDINGS, path[-length:]) for length in (3, 2)))
    return next((known[place] for known, place in places if place in known), None)


def _is_resource(path: Field) -> bool:
    """Return whether our validation reads the quantity: a container's request or limit."""
    return path[-5:-3] in _CONTAINERS and path[-3:-1] in {("resources", "requests"), ("resources", "limits")}


def _needed(path: Field, schema: Mapping[str, Any]) -> list[str]:
    """Return the properties without which the object is refused, or the rest of it is not checked."""
    more = {(): ["spec"], (*ROLES_PATH, VALUE): ["replicas", "template"], TEMPLATE_PATH: ["spec"]}.get(path, [])
    return [*schema.get("required", []), *more, *(["image"] if path[-2:] in _CONTAINERS else [])]


def _without_repeats(items: list[Any], schema: Mapping[str, Any]) -> list[Any]:
    """Return the items without duplicates: one per key, where the API server would keep one per key."""
    if schema.get("x-kubernetes-list-type") not in {"map", "set"}:
        return items
    implied = {
        key: schema["items"]["properties"][key].get("default") for key in schema.get("x-kubernetes-list-map-keys") or ()
    }
    known = {
        repr([item.get(key) or default for key, default in implied.items()] if implied else item): item
        for item in reversed(items)
    }
    return list(known.values())


def _connect(pod: dict[str, Any]) -> None:
    """Add a training container, and let every mount name a volume of the pod."""
    containers = pod.get("containers") or [{}]
    if all(each.get("name") != "pytorch" for each in containers):
        containers[0]["name"] = "pytorch"
    every = [each for key in ("containers", "initContainers") for each in pod.get(key) or []]
    mounts = [mount for each in every for mount in each.get("volumeMounts") or []]
    if mounts and not pod.get("volumes"):
        pod["volumes"] = [{"name": VOLUMES[0], "emptyDir": {}}]
    names = [volume["name"] for volume in pod.get("volumes") or []]
    for mount in mounts:
        if mount["name"] != NOWHERE:
            mount["name"] = names[VOLUMES.index(mount["name"]) % len(names)]
