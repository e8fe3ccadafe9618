"""Map a container's spec to a local process: arguments, environment, working directory. Pure.

training-operator appends its variables to the user's in every container (init containers excepted), so it wins on a
clash. The kubelet expands `$(NAME)` with the variables defined so far, `$$(NAME)` is the escaped form, and unknown
names stay unchanged.

A directory of the pod (`root`) replaces the container's file system: working directories are created in it, and files
of the image's replacement and mounts are linked into it, so that relative paths resolve as in the container.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from ptjob_provider.core.errors import InvalidSpec
from ptjob_provider.core.local.image import ImageFacts, arguments, with_interpreter
from ptjob_provider.core.local.processes import MARK
from ptjob_provider.core.local.volumes import Binding, PathMap, normal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from ptjob_provider.core.identity import Manifest
    from ptjob_provider.core.local.config import Setup

LOOPBACK = "127.0.0.1"

_OPERATOR_PORT = 23456
_REFERENCE = re.compile(r"\$(?:\$|\(([^)]*)\))")
_ENV_NAME = re.compile(r"[-._a-zA-Z][-._a-zA-Z0-9]*")


@dataclass(frozen=True, kw_only=True)
class Stores:
    """Values that the manifest only refers to: name → key → value."""

    secrets: Mapping[str, Mapping[str, str]]
    config_maps: Mapping[str, Mapping[str, str]]

    def lookup(self, source: Mapping[str, Any], field: str) -> str | None:
        """Return the value of a `secretKeyRef` or `configMapKeyRef`; None if it is optional and absent.

        Raises:
            InvalidSpec: it is absent, so the container could not start on a cluster either.
        """
        kind, store = self._store(source)
        ref = source[kind]
        value = store.get(ref["name"], {}).get(ref["key"])
        if value is None and not ref.get("optional"):
            raise _missing(f"{field}.{kind}", f"{ref['name']}/{ref['key']}", store)
        return value

    def lookup_all(self, source: Mapping[str, Any], field: str) -> Mapping[str, str]:
        """Return all values of an `envFrom` entry or a volume; nothing if it is optional and absent.

        Raises:
            InvalidSpec: it is absent.
        """
        kind, store = self._store(source)
        ref = source[kind]
        name = ref.get("name") or ref.get("secretName", "")
        values = store.get(name)
        wanted = {item["key"] for item in ref.get("items") or ()}
        absent = sorted(wanted - (values or {}).keys())
        if not ref.get("optional") and (values is None or absent):
            raise _missing(f"{field}.{kind}", "/".join([name, *absent[:1]]), store)
        return values or {}

    def only(self, source: Mapping[str, Any], field: str) -> Stores:
        """Return a store with only the values of this reference.

        Raises:
            InvalidSpec: it does not exist.
        """
        kind, _ = self._store(source)
        ref = source[kind]
        name = ref.get("name") or ref.get("secretName", "")
        if "key" in ref:
            value = self.lookup(source, field)
            values = {} if value is None else {ref["key"]: value}
        else:
            values = dict(self.lookup_all(source, field))
        is_there = values or name in (self.secrets if kind.startswith("secret") else self.config_maps)
        found = {name: values} if is_there else {}
        is_secret = kind.startswith("secret")
        return Stores(secrets=found if is_secret else {}, config_maps={} if is_secret else found)

    def _store(self, source: Mapping[str, Any]) -> tuple[str, Mapping[str, Mapping[str, str]]]:
        for kind in ("secretKeyRef", "secretRef", "secret"):
            if source.get(kind):
                return kind, self.secrets
        return next(
            kind for kind in ("configMapKeyRef", "configMapRef", "configMap") if source.get(kind)
        ), self.config_maps


@dataclass(frozen=True, kw_only=True)
class Place:
    """Position of a replica in its job.

    Attributes:
        role: Master or Worker.
        index: its number within the role.
        port: the port on which rank 0 listens for the others.
        rdzv_port: the port of the elastic rendezvous.
    """

    role: str
    index: int
    port: int
    rdzv_port: int


def injected(job: Manifest, place: Place) -> list[dict[str, str]]:
    """Return the variables that training-operator 1.9 appends to a container's `env`, with this machine's addresses.

    Args:
        job: with defaults, see `defaults.defaulted`.
        place: the replica.
    """
    spec = job["spec"]
    replicas = spec["pytorchReplicaSpecs"]
    variables = [("PYTHONUNBUFFERED", "1")]
    if "Master" in replicas:
        variables += _master_variables(spec, place)
    if spec.get("nprocPerNode") is not None:
        variables.append(("PET_NPROC_PER_NODE", str(spec["nprocPerNode"])))
    if spec.get("elasticPolicy") is not None:
        variables += _elastic_variables(job, place)
    else:
        variables.append(("PET_NNODES", str(total_replicas(spec))))
    return [{"name": name, "value": value} for name, value in variables]


def total_replicas(spec: Mapping[str, Any]) -> int:
    """Return the job's number of pods."""
    return sum(replica["replicas"] for replica in spec["pytorchReplicaSpecs"].values())


def resolve(
    container: Mapping[str, Any], *, stores: Stores, fields: Mapping[str, str], field: str = "containers[]"
) -> dict[str, str]:
    """Return the container's variables as set by the kubelet: `envFrom` first, then `env` in its order.

    Args:
        container: of the pod's spec.
        stores: values of references.
        fields: values for `fieldRef`: field path → value.
        field: the container's name in errors.

    Raises:
        InvalidSpec: a reference does not exist.
    """
    variables: dict[str, str] = {}
    for number, source in enumerate(container.get("envFrom") or ()):
        values = stores.lookup_all(source, f"{field}.envFrom[{number}]")
        prefix = source.get("prefix") or ""
        variables |= {prefix + key: value for key, value in values.items() if _ENV_NAME.fullmatch(prefix + key)}
    for entry in container.get("env") or ():
        value = _value(entry, stores, fields, f"{field}.env[{entry['name']}]", variables)
        if value is not None:
            variables[entry["name"]] = value
    return variables


def expand(text: str, variables: Mapping[str, str]) -> str:
    """Replace every known `$(NAME)`; `$$` becomes `$`."""

    def replacement(match: re.Match[str]) -> str:
        if match[0] == "$$":
            return "$"
        return variables.get(match[1], match[0])

    return _REFERENCE.sub(replacement, text)


def _value(
    entry: Mapping[str, Any],
    stores: Stores,
    fields: Mapping[str, str],
    field: str,
    variables: Mapping[str, str],
) -> str | None:
    source = entry.get("valueFrom")
    if not source:
        return expand(entry.get("value") or "", variables)
    if "fieldRef" in source:
        return fields.get(source["fieldRef"]["fieldPath"], "")
    return stores.lookup(source, f"{field}.valueFrom")


def _master_variables(spec: Mapping[str, Any], place: Place) -> list[tuple[str, str]]:
    rank = str(place.index if place.role == "Master" else place.index + 1)
    port = str(place.port)
    return [
        ("MASTER_PORT", port),
        ("PET_MASTER_PORT", port),
        ("MASTER_ADDR", LOOPBACK),
        ("PET_MASTER_ADDR", LOOPBACK),
        ("WORLD_SIZE", str(total_replicas(spec) * _processes(spec))),
        ("RANK", rank),
        ("PET_NODE_RANK", rank),
    ]


def _processes(spec: Mapping[str, Any]) -> int:
    text = str(spec.get("nprocPerNode") or "")
    return int(text) if re.fullmatch(r"[+-]?\d+", text) else 1


def _elastic_variables(job: Manifest, place: Place) -> list[tuple[str, str]]:
    policy = job["spec"]["elasticPolicy"]
    conf: Iterable[Mapping[str, str]] = policy.get("rdzvConf") or ()
    texts: list[tuple[str, str, Callable[[Any], str]]] = [
        ("PET_MAX_RESTARTS", "maxRestarts", str),
        ("PET_NPROC_PER_NODE", "nProcPerNode", str),
        ("PET_RDZV_ID", "rdzvId", str),
    ]
    variables = [
        ("PET_RDZV_ENDPOINT", _endpoint(job, policy, place)),
        ("PET_RDZV_BACKEND", policy.get("rdzvBackend") or "c10d"),
        ("PET_NNODES", f"{policy['minReplicas']}:{policy['maxReplicas']}"),
    ]
    variables += [(name, text(policy[key])) for name, key, text in texts if policy.get(key) is not None]
    if conf:
        variables.append(("PET_RDZV_CONF", ",".join(f"{item['key']}={item['value']}" for item in conf)))
    if policy.get("standalone"):
        variables.append(("PET_STANDALONE", ""))
    return variables


def _endpoint(job: Manifest, policy: Mapping[str, Any], place: Place) -> str:
    host = policy.get("rdzvHost")
    if host and not is_own_host(job, host):
        return f"{host}:{policy.get('rdzvPort') or _OPERATOR_PORT}"
    return f"{LOOPBACK}:{place.rdzv_port}"


def is_own_host(job: Manifest, host: str) -> bool:
    """Return whether the name is one of the job's pods, or loopback: then it is here, at a port of the job's own."""
    name = job["metadata"]["name"]
    head = host.split(".", 1)[0]
    return host in ("localhost", LOOPBACK, "::1") or bool(re.fullmatch(rf"{re.escape(name)}-(master|worker)-\d+", head))


def _missing(field: str, name: str, store: Mapping[str, Any]) -> InvalidSpec:
    known = ", ".join(sorted(store)) or "none"
    return InvalidSpec.of(
        field, name, f"this machine has it not; configured here ([ptjob] local_secrets, local_config_maps): {known}"
    )


DEVICES = "CUDA_VISIBLE_DEVICES"
_TERMINATION_LOG = "/dev/termination-log"


@dataclass(frozen=True, kw_only=True)
class Launch:
    """Parameters of a container's process.

    Attributes:
        pod: its pod's name.
        container: its name.
        image: its image, for its status.
        argv: the command line.
        env: its whole environment; never written anywhere.
        working_dir: its working directory.
        mark: identifies its processes.
        waiting_reason: reason before it is started.
        logs_as_message: the end of its log is its termination message.
        told: the file that replaces its `terminationMessagePath` in variables and arguments.
    """

    pod: str
    container: str
    image: str
    argv: Sequence[str]
    env: Mapping[str, str]
    working_dir: str
    mark: str
    waiting_reason: str = "ContainerCreating"
    logs_as_message: bool = True
    told: str = ""


@dataclass(frozen=True, kw_only=True)
class PodPlan:
    """Common parameters of a pod's containers.

    Attributes:
        job: with defaults.
        pod: its object.
        place: its position in the job.
        setup: of this machine.
        directory: the pod's own.
        devices: the numbers of its devices.
    """

    job: Manifest
    pod: Manifest
    place: Place
    setup: Setup
    directory: Path
    devices: tuple[int, ...] = ()

    @property
    def root(self) -> Path:
        """Return the directory that replaces the containers' file system."""
        return self.directory / "root"

    @property
    def programs(self) -> Path:
        """Return the directory with links to the interpreter, for commands inside a shell's text."""
        return self.directory / "bin"


def launch(plan: PodPlan, container: Mapping[str, Any], mounts: Sequence[Binding], *, is_init: bool = False) -> Launch:
    """Plan one container.

    Args:
        plan: of its pod.
        container: of the pod's spec.
        mounts: local paths of its mounts.
        is_init: it is an init container; the operator injects nothing there.

    Raises:
        InvalidSpec: it refers to a value that does not exist on this machine.
    """
    image = plan.setup.image(container["image"])
    appended = (
        container if is_init else {**container, "env": [*(container.get("env") or ()), *injected(plan.job, plan.place)]}
    )
    variables = resolve(appended, stores=plan.setup.stores, fields=pod_fields(plan.pod), field=container["name"])
    message = container.get("terminationMessagePath") or _TERMINATION_LOG
    told = str(plan.directory / f"{container['name']}.termination-log")
    paths = PathMap(
        [*image_bindings(image, plan.root), *mounts, Binding(container_path=normal(message), host_path=told)]
    )
    argv = [paths.text(expand(word, variables)) for word in arguments(container, image)]
    return Launch(
        pod=plan.pod["metadata"]["name"],
        container=container["name"],
        image=container["image"],
        argv=with_interpreter(argv, image.python),
        env=_environment(plan, image, variables, paths, container["name"]),
        working_dir=working_directory(container, image, paths, plan.root),
        mark=mark(plan, container["name"]),
        logs_as_message=container.get("terminationMessagePolicy") != "File",
        told=told,
    )


def mark(plan: PodPlan, container: str) -> str:
    """Return the mark of all processes of one container, wherever they move."""
    return f"{plan.job['metadata']['uid']}/{plan.pod['metadata']['uid']}/{container}/"


def pod_fields(pod: Manifest) -> dict[str, str]:
    """Return the values for `fieldRef`."""
    meta = pod["metadata"]
    names = ("name", "namespace", "uid")
    plain = {f"metadata.{name}": str(meta[name]) for name in names}
    told = {
        f"metadata.{kind}['{key}']": value
        for kind in ("labels", "annotations")
        for key, value in (meta.get(kind) or {}).items()
    }
    return {**plain, **told, "status.podIP": "127.0.0.1", "status.hostIP": "127.0.0.1"}


def image_bindings(image: ImageFacts, root: Path) -> list[Binding]:
    """Return the local paths of the image's own files and directories, linked below the root."""
    places = [*image.directories, *image.files]
    return [Binding(container_path=normal(place), host_path=f"{root}{normal(place)}") for place in places]


def working_directory(container: Mapping[str, Any], image: ImageFacts, paths: PathMap, root: Path) -> str:
    """Return the working directory: `workingDir`, else the image's WORKDIR, else its root."""
    wanted = normal(container.get("workingDir") or image.working_dir or "/")
    return paths.path(wanted) or str(root / PurePosixPath(wanted).relative_to("/"))


def _environment(
    plan: PodPlan, image: ImageFacts, variables: Mapping[str, str], paths: PathMap, container: str
) -> dict[str, str]:
    inherited = {**plan.setup.environment, "HOSTNAME": plan.pod["metadata"]["name"]}
    told = {name: paths.text(value) for name, value in {**image.env, **variables}.items()}
    both = {**inherited, **told}
    programs = f"{plan.programs}/{container}:{both.get('PATH', '')}"
    devices = ",".join(str(device) for device in plan.devices)
    return {**both, "PATH": programs, DEVICES: devices, MARK: mark(plan, container)}
