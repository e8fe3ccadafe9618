"""Map a container's spec to a local process: arguments, environment, paths, volumes.

training-operator appends its variables to those of every container except init containers, so they override the
user's. The kubelet expands `$(NAME)` with the variables defined so far; `$$(NAME)` is the escaped form, and unknown
names stay unchanged.

A directory of the pod (`root`) replaces the container's file system: working directories are created in it, and files
of the image's replacement and mounts are linked into it, so that relative paths resolve as in the container. A claim
is the directory `claims/<namespace>/<claim>`, created on first use; a name, sub-path or link that leads out of it is
refused. Secret volumes are in memory (`/dev/shm`) and are deleted with the pod.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from ptjob_provider.core.errors import InvalidSpec
from ptjob_provider.core.identity import is_object_name
from ptjob_provider.core.local.image import ImageFacts, arguments, with_interpreter
from ptjob_provider.core.local.operator import total_replicas
from ptjob_provider.core.local.store import make_private

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ptjob_provider.core.identity import Manifest
    from ptjob_provider.core.local.config import Setup

LOOPBACK = "127.0.0.1"
MARK = "PTJOB_LOCAL_PROCESS"
"""Environment variable of every process of a job: `<job uid>/<pod uid>/<container>/`."""

_OPERATOR_PORT = 23456
_REFERENCE = re.compile(r"\$(?:\$|\(([^)]*)\))")
_ENV_NAME = re.compile(r"[-._a-zA-Z][-._a-zA-Z0-9]*")
_REFERENCES = ("secretKeyRef", "secretRef", "secret", "configMapKeyRef", "configMapRef", "configMap")


@dataclass(frozen=True, kw_only=True)
class Stores:
    """Secrets and config maps of this machine: name → key → value."""

    secrets: Mapping[str, Mapping[str, str]]
    config_maps: Mapping[str, Mapping[str, str]]

    def values(self, source: Mapping[str, Any], field: str) -> Mapping[str, str]:
        """Return the values of the Secret or ConfigMap to which a variable, an `envFrom` entry or a volume refers.

        An optional one that does not exist has no values.

        Raises:
            InvalidSpec: it does not exist, or lacks the key; the container could not start on a cluster either.
        """
        kind, name = reference(source)
        store = self.secrets if kind.startswith("secret") else self.config_maps
        ref, values = source[kind], store.get(name)
        keys = [ref["key"]] if "key" in ref else [item["key"] for item in ref.get("items") or ()]
        absent = [key for key in keys if key not in (values or {})]
        if not ref.get("optional") and (values is None or absent):
            known = ", ".join(sorted(store)) or "none"
            rule = f"this machine does not have it; configured here (local_secrets, local_config_maps): {known}"
            raise InvalidSpec.of(f"{field}.{kind}", "/".join([name, *absent[:1]]), rule)
        return values or {}


def reference(source: Mapping[str, Any]) -> tuple[str, str]:
    """Return the field that refers to a Secret or ConfigMap, and its name; ("", "") without a reference."""
    kind = next((kind for kind in _REFERENCES if source.get(kind)), "")
    ref = source.get(kind) or {}
    return kind, ref.get("name") or ref.get("secretName") or ""


@dataclass(frozen=True, kw_only=True)
class Place:
    """Position of a replica in its job.

    Attributes:
        role: Master or Worker.
        index: its number within the role.
        port: where rank 0, or the elastic rendezvous, listens for the other replicas.
    """

    role: str
    index: int
    port: int


def injected(job: Manifest, place: Place) -> list[dict[str, str]]:
    """Return the variables that training-operator 1.9 appends to a container's `env`, with this machine's addresses.

    Args:
        job: with defaults, see `operator.defaulted`.
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


def resolve(
    container: Mapping[str, Any], *, stores: Stores, fields: Mapping[str, str], field: str = "containers[]"
) -> dict[str, str]:
    """Return the container's variables as set by the kubelet: `envFrom` first, then `env` in its order.

    Args:
        container: from the pod's spec.
        stores: the secrets and config maps.
        fields: values for `fieldRef`: field path → value.
        field: the container's name in errors.

    Raises:
        InvalidSpec: a Secret, a ConfigMap or a key of it does not exist.
    """
    variables: dict[str, str] = {}
    for number, source in enumerate(container.get("envFrom") or ()):
        values = stores.values(source, f"{field}.envFrom[{number}]")
        prefix = source.get("prefix") or ""
        variables |= {prefix + key: value for key, value in values.items() if _ENV_NAME.fullmatch(prefix + key)}
    for entry in container.get("env") or ():
        name, source = entry["name"], entry.get("valueFrom") or {}
        kind, _ = reference(source)
        if kind:
            value = stores.values(source, f"{field}.env[{name}].valueFrom").get(source[kind]["key"])
        elif "fieldRef" in source:
            value = fields.get(source["fieldRef"]["fieldPath"], "")
        else:
            value = expand(entry.get("value") or "", variables)
        variables |= {} if value is None else {name: value}
    return variables


def expand(text: str, variables: Mapping[str, str]) -> str:
    """Replace every known `$(NAME)`; `$$` becomes `$`."""
    return _REFERENCE.sub(lambda match: "$" if match[0] == "$$" else variables.get(match[1], match[0]), text)


def _master_variables(spec: Mapping[str, Any], place: Place) -> list[tuple[str, str]]:
    rank = str(place.index if place.role == "Master" else place.index + 1)
    port = str(place.port)
    nproc = str(spec.get("nprocPerNode") or "")
    processes = int(nproc) if re.fullmatch(r"[+-]?\d+", nproc) else 1
    return [
        ("MASTER_PORT", port),
        ("PET_MASTER_PORT", port),
        ("MASTER_ADDR", LOOPBACK),
        ("PET_MASTER_ADDR", LOOPBACK),
        ("WORLD_SIZE", str(total_replicas(spec) * processes)),
        ("RANK", rank),
        ("PET_NODE_RANK", rank),
    ]


def _elastic_variables(job: Manifest, place: Place) -> list[tuple[str, str]]:
    policy = job["spec"]["elasticPolicy"]
    names = {"PET_MAX_RESTARTS": "maxRestarts", "PET_NPROC_PER_NODE": "nProcPerNode", "PET_RDZV_ID": "rdzvId"}
    variables = [
        ("PET_RDZV_ENDPOINT", _endpoint(job, policy, place)),
        ("PET_RDZV_BACKEND", policy.get("rdzvBackend") or "c10d"),
        ("PET_NNODES", f"{policy['minReplicas']}:{policy['maxReplicas']}"),
    ]
    variables += [(name, str(policy[key])) for name, key in names.items() if policy.get(key) is not None]
    if conf := policy.get("rdzvConf"):
        variables.append(("PET_RDZV_CONF", ",".join(f"{item['key']}={item['value']}" for item in conf)))
    if policy.get("standalone"):
        variables.append(("PET_STANDALONE", ""))
    return variables


def _endpoint(job: Manifest, policy: Mapping[str, Any], place: Place) -> str:
    host = policy.get("rdzvHost")
    if host and not is_own_host(job, host):
        return f"{host}:{policy.get('rdzvPort') or _OPERATOR_PORT}"
    return f"{LOOPBACK}:{place.port}"


def is_own_host(job: Manifest, host: str) -> bool:
    """Return whether the host is one of the job's pods or loopback; loopback and the job's port then replace it."""
    name = job["metadata"]["name"]
    head = host.split(".", 1)[0]
    return host in ("localhost", LOOPBACK, "::1") or bool(re.fullmatch(rf"{re.escape(name)}-(master|worker)-\d+", head))


_TERMINATION_LOG = "/dev/termination-log"


@dataclass(frozen=True, kw_only=True)
class Launch:
    """Parameters of a container's process.

    Attributes:
        pod: name of the pod.
        container: name of the container.
        image: name of the image, for the container's status.
        argv: the command line.
        env: the whole environment; never written to disk.
        working_dir: the working directory.
        logs_as_message: a failed container without a termination message gets the end of its log as message.
        message_file: replaces `terminationMessagePath` in variables and arguments.
    """

    pod: str
    container: str
    image: str
    argv: Sequence[str]
    env: Mapping[str, str]
    working_dir: str
    logs_as_message: bool = True
    message_file: str = ""


@dataclass(frozen=True, kw_only=True)
class PodPlan:
    """Common parameters of a pod's containers.

    Attributes:
        job: with the operator's defaults.
        pod: the pod's object.
        place: the pod's position in the job.
        setup: the parameters of the job's supervisor.
        directory: the pod's own directory.
        devices: the numbers of the pod's devices.
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
        """Return the directory of the scripts `python` and `torchrun`, for commands inside a shell script."""
        return self.directory / "bin"


def launch(plan: PodPlan, container: Mapping[str, Any], mounts: Mapping[str, str], *, is_init: bool = False) -> Launch:
    """Return the parameters of one container's process.

    Args:
        plan: of the container's pod.
        container: from the pod's spec.
        mounts: local paths of the container's mounts, which hide paths of the image.
        is_init: whether it is an init container, to which the operator adds no variables.

    Raises:
        InvalidSpec: the container refers to a value that does not exist on this machine.
    """
    image = plan.setup.image(container["image"])
    env = [*(container.get("env") or ()), *(() if is_init else injected(plan.job, plan.place))]
    variables = resolve(
        {**container, "env": env}, stores=plan.setup.stores, fields=pod_fields(plan.pod), field=container["name"]
    )
    message = container.get("terminationMessagePath") or _TERMINATION_LOG
    message_file = str(plan.directory / f"{container['name']}.termination-log")
    paths = PathMap({**image_paths(image, plan.root), **mounts, normal(message): message_file})
    argv = [paths.text(expand(word, variables)) for word in arguments(container, image)]
    return Launch(
        pod=plan.pod["metadata"]["name"],
        container=container["name"],
        image=container["image"],
        argv=with_interpreter(argv, image.python),
        env=_environment(plan, image, variables, paths, container["name"]),
        working_dir=working_directory(container, image, paths, plan.root),
        logs_as_message=container.get("terminationMessagePolicy") != "File",
        message_file=message_file,
    )


def pod_fields(pod: Manifest) -> dict[str, str]:
    """Return the pod's values for `fieldRef`: field path → value."""
    meta = pod["metadata"]
    fields = {f"metadata.{name}": str(meta[name]) for name in ("name", "namespace", "uid")}
    for kind in ("labels", "annotations"):
        fields |= {f"metadata.{kind}['{key}']": value for key, value in (meta.get(kind) or {}).items()}
    return {**fields, "status.podIP": LOOPBACK, "status.hostIP": LOOPBACK}


def image_paths(image: ImageFacts, root: Path) -> dict[str, str]:
    """Return the local paths of the image's own files and directories, linked below the root."""
    return {normal(place): f"{root}{normal(place)}" for place in (*image.directories, *image.files)}


def working_directory(container: Mapping[str, Any], image: ImageFacts, paths: PathMap, root: Path) -> str:
    """Return the working directory: `workingDir`, else the image's WORKDIR, else its root."""
    directory = normal(container.get("workingDir") or image.working_dir or "/")
    return paths.path(directory) or str(root / PurePosixPath(directory).relative_to("/"))


def _environment(
    plan: PodPlan, image: ImageFacts, variables: Mapping[str, str], paths: PathMap, container: str
) -> dict[str, str]:
    own = {name: paths.text(value) for name, value in {**image.env, **variables}.items()}
    both = {**plan.setup.environment, "HOSTNAME": plan.pod["metadata"]["name"], **own}
    return {
        **both,
        "PATH": f"{plan.programs}/{container}:{both.get('PATH', '')}",
        "CUDA_VISIBLE_DEVICES": ",".join(str(device) for device in plan.devices),
        MARK: f"{plan.job['metadata']['uid']}/{plan.pod['metadata']['uid']}/{container}/",
    }


_BEFORE = r"(?:(?<=[\s'\"=:;,(\[{<>|&@`])|^)"
_AFTER = r"(?=[\s'\"/:;,)\]}<>|&`]|$)"


class PathMap:
    """Replaces the paths of one container with paths of this machine.

    The longest container path wins, and only whole path components match: with `/data` mounted, `/data2` is unchanged.
    A path is replaced if it stands alone, after `=`, in a list like `a:b`, or between quotes or blanks in a command.
    """

    def __init__(self, hosts: Mapping[str, str]) -> None:
        self._hosts = hosts
        longest_first = sorted(self._hosts, key=len, reverse=True)
        choices = "|".join(re.escape(path) for path in longest_first)
        self._pattern = re.compile(f"{_BEFORE}({choices}){_AFTER}") if choices else None

    def text(self, text: str) -> str:
        """Return the text with every mapped container path replaced."""
        if self._pattern is None:
            return text
        return self._pattern.sub(lambda match: self._hosts[match[1]], text)

    def path(self, path: str) -> str | None:
        """Return the local path for one absolute container path; None if no mapped path contains it."""
        pure = PurePosixPath(normal(path))
        for ancestor in (pure, *pure.parents):
            host = self._hosts.get(str(ancestor))
            if host is not None:
                return str(PurePosixPath(host) / pure.relative_to(ancestor))
        return None


def normal(path: str) -> str:
    """Return the path without doubled and trailing slashes."""
    return str(PurePosixPath("/" + path.lstrip("/")))


MEMORY = Path("/dev/shm")  # noqa: S108 - memory on purpose; each pod gets a private directory in it


def claim_directory(claims: Path, claim: str, *, field: str = "claim") -> Path:
    """Return the directory of a claim, which need not exist.

    Raises:
        InvalidSpec: the claim's name is invalid.
    """
    if not is_object_name(claim):
        raise InvalidSpec.of(field, claim, "allowed: lower-case letters, digits, '-' and '.', at most 253 characters")
    return claims / claim


def inside(directory: Path, sub_path: str, *, field: str) -> Path:
    """Return the path below the directory.

    Raises:
        InvalidSpec: the path leaves the directory, by `..` or through a symbolic link.
    """
    pure = PurePosixPath(sub_path)
    if pure.is_absolute() or ".." in pure.parts:
        raise InvalidSpec.of(field, sub_path, "allowed: a relative path without '..'")
    path = directory / pure
    if not path.resolve().is_relative_to(directory.resolve()):
        raise InvalidSpec.of(field, sub_path, "a symbolic link on this path leads out of the volume")
    return path


def volume_directories(spec: Mapping[str, Any], *, claims: Path, pod: Path, memory: Path) -> dict[str, Path]:
    """Return the directories of a pod's volumes by the volumes' names; they need not exist.

    Args:
        spec: of the pod.
        claims: the directory of the namespace's claims.
        pod: the pod's own directory.
        memory: the pod's private directory in memory, for Secrets.

    Raises:
        InvalidSpec: the name of a claim is invalid.
    """
    directories = {}
    for volume in spec.get("volumes") or ():
        name = volume["name"]
        if claim := volume.get("persistentVolumeClaim"):
            directories[name] = claim_directory(claims, claim["claimName"], field=f"volumes[{name}]")
        else:
            directories[name] = (memory if "secret" in volume else pod / "volumes") / name
    return directories


def mounted_paths(container: Mapping[str, Any], volumes: Mapping[str, Path]) -> dict[str, str]:
    """Return the local paths of the container's mounts, by their paths in the container.

    Raises:
        InvalidSpec: a sub-path leaves its volume.
    """
    hosts = {}
    for mount in container.get("volumeMounts") or ():
        host = volumes[mount["name"]]
        if mount.get("subPath"):
            host = inside(host, mount["subPath"], field=f"volumeMounts[{mount['mountPath']}].subPath")
        hosts[normal(mount["mountPath"])] = str(host)
    return hosts


def read_only_mounts(spec: Mapping[str, Any]) -> list[str]:
    """Return the mount paths that are read-only on a cluster, because of the mount or its claim."""
    claims = {volume["name"]: volume.get("persistentVolumeClaim") or {} for volume in spec.get("volumes") or ()}
    containers = [*(spec.get("initContainers") or ()), *spec["containers"]]
    mounts = [mount for container in containers for mount in container.get("volumeMounts") or ()]
    return [mount["mountPath"] for mount in mounts if mount.get("readOnly") or claims[mount["name"]].get("readOnly")]


def prepare(spec: Mapping[str, Any], volumes: Mapping[str, Path], stores: Stores) -> None:
    """Create the pod's volumes: claims on their first use, empty directories, files of config maps and secrets."""
    for volume in spec.get("volumes") or ():
        directory = volumes[volume["name"]]
        make_private(directory)
        for kind in ("configMap", "secret"):
            if kind in volume:
                _write_files(directory, volume[kind], stores.values(volume, f"volumes[{volume['name']}]"))


def memory_of(pod_uid: str) -> Path:
    """Return the pod's directory in memory for Secrets, which must not be written to disk; it need not exist."""
    return MEMORY / f"ptjob-{pod_uid}"


def _write_files(directory: Path, source: Mapping[str, Any], values: Mapping[str, str]) -> None:
    items = source.get("items")
    chosen = {item["path"]: values[item["key"]] for item in items if item["key"] in values} if items else values
    for name, value in chosen.items():
        file = inside(directory, name, field="items")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(value, encoding="utf-8")
