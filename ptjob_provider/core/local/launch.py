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

import os
import re
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from ptjob_provider.core.errors import InvalidSpec, UnsupportedByBackend
from ptjob_provider.core.identity import is_object_name
from ptjob_provider.core.kinds import PYTORCHJOB
from ptjob_provider.core.local.image import ImageFacts, command_line, with_interpreter
from ptjob_provider.core.local.store import make_private
from ptjob_provider.core.outputs.contract import normal_path
from ptjob_provider.core.spec.pods import dns_label

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ptjob_provider.core.identity import Manifest
    from ptjob_provider.core.kinds.kind import Replica
    from ptjob_provider.core.local.config import Setup

LOOPBACK = "127.0.0.1"
MARK = "PTJOB_LOCAL_PROCESS"
"""Environment variable of every process of a job: `<job uid>/<pod uid>/<container>/`."""

_LABELS = "training.kubeflow.org"
_TERMINATION_LOG = "/dev/termination-log"
_REFERENCE = re.compile(r"\$(?:\$|\(([^)]*)\))")
_ENV_NAME = re.compile(r"[-._a-zA-Z][-._a-zA-Z0-9]*")
_ABSENT = re.compile(r"metadata\.(labels|annotations)\['[^']+'\]")
"""A label or an annotation, which is empty if the pod does not have it."""

_REFERENCES = ("secretKeyRef", "secretRef", "secret", "configMapKeyRef", "configMapRef", "configMap")


Stores = Mapping[str, Mapping[str, Mapping[str, str]]]
"""The `secrets` and `config_maps` of this machine: name → key → value."""


def values_of(source: Mapping[str, Any], stores: Stores, field: str) -> Mapping[str, str]:
    """Return the values of the Secret or ConfigMap to which a variable, an `envFrom` entry or a volume refers.

    An optional one that does not exist has no values.

    Raises:
        InvalidSpec: it does not exist, or lacks the key; the container could not start on a cluster either.
    """
    kind, name = reference(source)
    store = stores["secrets" if kind.startswith("secret") else "config_maps"]
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


def injected(job: Manifest, rank: int, port: int) -> list[dict[str, str]]:
    """Return the variables that training-operator 1.9 appends to a container's `env`, with this machine's addresses.

    Args:
        job: the job's object.
        rank: the replica's.
        port: where rank 0 listens for the other replicas.
    """
    spec = job["spec"]
    nproc, replicas = str(spec.get("nprocPerNode") or "auto"), len(PYTORCHJOB.replicas(job))
    variables = {"PYTHONUNBUFFERED": "1", "PET_NPROC_PER_NODE": nproc, "PET_NNODES": str(replicas)}
    if "Master" in spec["pytorchReplicaSpecs"]:
        world = replicas * (int(nproc) if nproc.isdigit() else 1)
        variables |= {"MASTER_PORT": str(port), "PET_MASTER_PORT": str(port), "WORLD_SIZE": str(world)}
        variables |= {"MASTER_ADDR": LOOPBACK, "PET_MASTER_ADDR": LOOPBACK}
        variables |= {"RANK": str(rank), "PET_NODE_RANK": str(rank)}
    return [{"name": name, "value": value} for name, value in variables.items()]


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
        UnsupportedByBackend: a pod on this machine does not have the field.
    """
    variables: dict[str, str] = {}
    for number, source in enumerate(container.get("envFrom") or ()):
        values = values_of(source, stores, f"{field}.envFrom[{number}]")
        prefix = source.get("prefix") or ""
        variables |= {prefix + key: value for key, value in values.items() if _ENV_NAME.fullmatch(prefix + key)}
    for entry in container.get("env") or ():
        name, source = entry["name"], entry.get("valueFrom") or {}
        kind, _ = reference(source)
        if kind:
            value = values_of(source, stores, f"{field}.env[{name}].valueFrom").get(source[kind]["key"])
        elif source:
            value = _field(source, fields, f"{field}.env[{name}].valueFrom")
        else:
            value = expand(entry.get("value") or "", variables)
        variables |= {} if value is None else {name: value}
    return variables


def _field(source: Mapping[str, Any], fields: Mapping[str, str], field: str) -> str:
    path = (source.get("fieldRef") or {}).get("fieldPath") or ""
    if path not in fields and not _ABSENT.fullmatch(path):
        known = "metadata.name, .namespace, .uid, .labels['…'], .annotations['…'], status.podIP, status.hostIP"
        raise UnsupportedByBackend.of(field, f"{path or ', '.join(source)!r} is not known here, only fieldRef: {known}")
    return fields.get(path, "")


def expand(text: str, variables: Mapping[str, str]) -> str:
    """Replace every known `$(NAME)`; `$$` becomes `$`."""
    return _REFERENCE.sub(lambda match: "$" if match[0] == "$$" else variables.get(match[1], match[0]), text)


@dataclass(frozen=True, kw_only=True)
class Launch:
    """Parameters of a container's process.

    Attributes:
        container: name of the container.
        image: name of the image, for the container's status.
        argv: the command line.
        env: the whole environment; never written to disk.
        working_dir: the working directory.
        message_file: replaces `/dev/termination-log` in variables and arguments.
    """

    container: str
    image: str
    argv: Sequence[str]
    env: Mapping[str, str]
    working_dir: str
    message_file: str


@dataclass(frozen=True, kw_only=True)
class PodPlan:
    """Common parameters of a pod's containers.

    Attributes:
        job: the job's object.
        replica: the replica that the pod is.
        port: where rank 0 listens for the other replicas.
        setup: the parameters of the job's supervisor.
        directory: the pod's own directory.
        devices: the ids of the pod's devices.
    """

    job: Manifest
    replica: Replica
    port: int
    setup: Setup
    directory: Path
    devices: tuple[str, ...] = ()

    @property
    def pod(self) -> Manifest:
        """Return the pod's object, without a status, as created by the operator and stored by the API server."""
        job, replica, meta = self.job, self.replica, self.job["metadata"]
        requested = replica.template.get("metadata") or {}
        owner = {name: job[name] for name in ("apiVersion", "kind")} | {name: meta[name] for name in ("name", "uid")}
        own = {"operator-name": "pytorchjob-controller", "job-name": meta["name"], "replica-type": replica.role}
        own |= {"replica-index": str(replica.index), **({} if replica.rank else {"job-role": "master"})}
        metadata = {
            "name": replica.name,
            "namespace": meta["namespace"],
            "uid": pod_uid(meta["uid"], replica.name),
            "creationTimestamp": meta["creationTimestamp"],
            "labels": {**(requested.get("labels") or {}), **{f"{_LABELS}/{name}": text for name, text in own.items()}},
            "annotations": dict(requested.get("annotations") or {}),
            "ownerReferences": [{**owner, "controller": True, "blockOwnerDeletion": True}],
        }
        spec = {**replica.template["spec"], "nodeName": os.uname().nodename}
        return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}

    @property
    def root(self) -> Path:
        """Return the directory that replaces the containers' file system."""
        return self.directory / "root"

    @property
    def programs(self) -> Path:
        """Return the directory of the scripts `python` and `torchrun`, for commands inside a shell script."""
        return self.directory / "bin"

    @property
    def volumes(self) -> dict[str, Path]:
        """Return the directories of the pod's volumes by the volumes' names; they need not exist.

        Raises:
            InvalidSpec: the name of a volume or a claim is invalid.
        """
        memory = memory_of(self.job["metadata"]["uid"]) / self.replica.name
        directories = {}
        for volume in self.replica.template["spec"].get("volumes") or ():
            name = dns_label("volumes[].name", volume["name"])
            if claim := volume.get("persistentVolumeClaim"):
                claims = Path(self.setup.claims)
                directories[name] = claim_directory(claims, claim["claimName"], field=f"volumes[{name}]")
            else:
                directories[name] = (memory if "secret" in volume else self.directory / "volumes") / name
        return directories


def pod_uid(job_uid: str, pod: str) -> str:
    """Return the uid of a job's pod: each pod is created once."""
    return str(uuid.uuid5(uuid.UUID(job_uid), pod))


def launch(
    plan: PodPlan, container: Mapping[str, Any], *, is_init: bool = False, field: str = "containers[]"
) -> Launch:
    """Return the parameters of one container's process.

    Args:
        plan: of the container's pod.
        container: from the pod's spec.
        is_init: whether it is an init container, to which the operator adds no variables.
        field: the container's path in errors.

    Raises:
        InvalidSpec: the container refers to a value that does not exist on this machine, or a path leaves its volume.
        UnsupportedByBackend: a variable is of a kind that does not exist on this machine.
    """
    name, image = dns_label(f"{field}.name", container["name"]), plan.setup.image(container["image"])
    env = [*(container.get("env") or ()), *(() if is_init else injected(plan.job, plan.replica.rank, plan.port))]
    variables = resolve({**container, "env": env}, stores=plan.setup.stores, fields=pod_fields(plan.pod), field=field)
    message_file = str(plan.directory / f"{name}.termination-log")
    mounts = mounted_paths(container, plan.volumes, field=field)
    paths = PathMap({**image_paths(image, plan.root), **mounts, _TERMINATION_LOG: message_file})
    argv = [paths.text(expand(word, variables)) for word in command_line(container, image)]
    return Launch(
        container=name,
        image=container["image"],
        argv=with_interpreter(argv, image.python),
        env=_environment(plan, image, variables, paths, name),
        working_dir=working_directory(container, image, paths, plan.root),
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
    return {normal_path(place): f"{root}{normal_path(place)}" for place in (*image.directories, *image.files)}


def working_directory(container: Mapping[str, Any], image: ImageFacts, paths: PathMap, root: Path) -> str:
    """Return the working directory: `workingDir`, else the image's WORKDIR, else its root."""
    directory = normal_path(container.get("workingDir") or image.working_dir or "/")
    return paths.path(directory) or str(root / PurePosixPath(directory).relative_to("/"))


def _environment(
    plan: PodPlan, image: ImageFacts, variables: Mapping[str, str], paths: PathMap, container: str
) -> dict[str, str]:
    own = {name: paths.text(value) for name, value in {**image.env, **variables}.items()}
    devices = {"CUDA_VISIBLE_DEVICES": ",".join(plan.devices)}
    both = {**plan.setup.environment, **devices, "HOSTNAME": plan.replica.name, **own}
    beside = os.path.dirname(image.python)  # noqa: PTH120 - "" for a bare name; not resolved: a link is the environment
    path = [f"{plan.programs}/{container}", *([beside] if beside else []), both.get("PATH", "")]
    return {
        "KUBERNETES_PORT": "",  # Lightning looks for it, and then uses the variables of the operator
        **both,
        "PATH": ":".join(path),
        MARK: f"{plan.job['metadata']['uid']}/{pod_uid(plan.job['metadata']['uid'], plan.replica.name)}/{container}/",
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
        pure = PurePosixPath(normal_path(path))
        for ancestor in (pure, *pure.parents):
            host = self._hosts.get(str(ancestor))
            if host is not None:
                return str(PurePosixPath(host) / pure.relative_to(ancestor))
        return None


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


def mounted_paths(
    container: Mapping[str, Any], volumes: Mapping[str, Path], *, field: str = "containers[]"
) -> dict[str, str]:
    """Return the local paths of the container's mounts, by their paths in the container.

    Raises:
        InvalidSpec: a sub-path leaves its volume, or the mount replaces the whole file system.
    """
    hosts = {}
    for mount in container.get("volumeMounts") or ():
        host, place = volumes[mount["name"]], normal_path(mount["mountPath"])
        if place == "/":
            raise InvalidSpec.of(f"{field}.volumeMounts", place, "allowed: a directory below /")
        if mount.get("subPath"):
            host = inside(host, mount["subPath"], field=f"{field}.volumeMounts[{place}].subPath")
        hosts[place] = str(host)
    return hosts


def prepare(spec: Mapping[str, Any], volumes: Mapping[str, Path], stores: Stores) -> None:
    """Create the pod's volumes: claims on their first use, empty directories, files of config maps and secrets."""
    for volume in spec.get("volumes") or ():
        directory = volumes[volume["name"]]
        make_private(directory)
        for kind in ("configMap", "secret"):
            if kind in volume:
                _write_files(directory, volume[kind], values_of(volume, stores, f"volumes[{volume['name']}]"))


def memory_of(job_uid: str) -> Path:
    """Return the job's directory in memory for Secrets, which must not be written to disk; it need not exist."""
    return MEMORY / f"ptjob-{job_uid}"


def _write_files(directory: Path, source: Mapping[str, Any], values: Mapping[str, str]) -> None:
    items = source.get("items")
    chosen = {item["path"]: values[item["key"]] for item in items if item["key"] in values} if items else values
    for name, value in chosen.items():
        file = inside(directory, name, field="items")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(value, encoding="utf-8")
