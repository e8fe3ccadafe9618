"""Read, merge, change and check pod templates, independent of CRDs.

Layers are merged like `kubectl apply`: maps are merged, and the upper layer overrides. Lists are merged where
Kubernetes has a key for their items, and replaced elsewhere:

    containers, initContainers      by name, each merged in turn
    env, volumes, imagePullSecrets  by name, an upper item replaces the lower one as a whole
    volumeMounts                    by mountPath, likewise
    tolerations, envFrom            the items of the lower layer, then those that only the upper layer has

Labels, annotations and the types of a pod's parts are checked as the API server does; CRDs' schemas do not cover them.

Callers pass the training container's name, which depends on the CRD.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Mapping
from functools import reduce
from typing import TYPE_CHECKING, Any

from ptjob_provider.core.errors import InvalidSpec
from ptjob_provider.core.outputs.contract import Mount
from ptjob_provider.core.spec import PodVolume, pods
from ptjob_provider.core.spec.places import places
from ptjob_provider.core.spec.pods import DEFAULT_GPU, DEFAULT_SHARED_MEMORY, NO_SHARED_MEMORY

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from ptjob_provider.core.identity import Manifest
    from ptjob_provider.core.spec import ElasticPolicy, RoleFields, TrainingJob, VolumeMount
    from ptjob_provider.core.spec.job import Role


Shape = type | list[Any] | Mapping[str, Any]

NO_ISTIO = {"sidecar.istio.io/inject": "false"}
SHARED_MEMORY_PATH = "/dev/shm"  # noqa: S108 - a mount point, not a temporary file

_GPU = re.compile(r".+/(gpu(\.shared)?|mig-.+|gaudi|tpu|npu|mlu|Ascend.*|i915|xe)")
_MAX_VOLUME_NAME = 63
_EXCLUSIVE = ("livenessProbe", "readinessProbe", "startupProbe", "lifecycle")
"""Maps whose keys exclude each other: the API server would refuse a merged one."""


def requested_template(
    own: Manifest, job: TrainingJob, under: TrainingJob | None, *, role: Role, container: str
) -> Manifest:
    """Return the template of one role's pods.

    Layers from the lowest to the highest: our defaults for typed fields, the installation's template, the job's
    `pod_template`, its manifest, its typed fields.

    Args:
        own: the template in the manifest or, without a manifest, in the object of typed fields.
        job: the specification.
        under: the installation's template.
        role: the role.
        container: the name of the training container.
    """
    lower = [*_of_installation(under, role, container), *_of_pods(job.pod_template, container)]
    if job.manifest is not None:
        return overlaid(reduce(laid_over, [*lower, own]), job, job.role(role), container=container)
    merged = reduce(laid_over, [{"metadata": {"annotations": NO_ISTIO}}, own, *lower])
    typed = overlaid(merged, job, job.role(role), container=container)
    is_chosen = job.shared_memory is not None or (under is not None and under.shared_memory is not None)
    if is_chosen or _has_shared_memory(typed, container):
        return typed
    return with_shared_memory(typed, DEFAULT_SHARED_MEMORY, container=container)


def _of_installation(template: TrainingJob | None, role: Role, container: str) -> Iterator[Manifest]:
    if template is None:
        return
    yield from _of_pods(template.pod_template, container)
    bare = {"spec": {"containers": [{"name": container}]}}
    yield overlaid(bare, template, template.role(role), container=container)


def _of_pods(template: Manifest | None, container: str) -> Iterator[Manifest]:
    if template is None:
        return
    pod = template["spec"]
    whole = {**pod, "containers": _with_training_container(pod.get("containers") or [], container)}
    check_shape("pod_template.spec", whole, POD_SHAPE)
    yield {**template, "spec": whole}


def _with_training_container(containers: list[Manifest], name: str) -> list[Manifest]:
    """Return the containers; without one of this name, the first gets it, which KubernetesPodOperator calls `base`."""
    if any(each.get("name") == name for each in containers):
        return containers
    first, *others = containers or [{}]
    return [{**first, "name": name}, *others]


def _has_shared_memory(template: Manifest, container: str) -> bool:
    return SHARED_MEMORY_PATH in {mount["mountPath"] for mount in volume_mounts(template, container=container)}


# --- typed fields


def overlaid(template: Manifest, job: TrainingJob, fields: RoleFields, *, container: str) -> Manifest:
    """Return the template with every set field applied; without any, the template is unchanged.

    Args:
        template: one role's pod template.
        job: the specification; labels, placement, volumes and shared memory are the same for all roles.
        fields: the role's fields.
        container: name of the training container.
    """
    named = with_metadata(template, labels=job.labels or {}, annotations=job.annotations or {})
    pod = placed("pod", named["spec"], job, fields)
    if job.host_network:
        pod["dnsPolicy"] = "ClusterFirstWithHostNet"
    ready = map_container({**named, "spec": pod}, container, lambda each: _container(each, job, fields))
    for volume in job.volumes or ():
        ready = _with_volume(ready, volume, container=container)
    for mounted in job.volume_mounts or ():
        ready = _with_mount(ready, dict(mounted), container=container)
    return ready if job.shared_memory is None else with_shared_memory(ready, job.shared_memory, container=container)


def placed(
    owner: str, part: Mapping[str, Any], job: TrainingJob | ElasticPolicy, role: RoleFields | None = None
) -> Manifest:
    """Return a part of the job's object with each set field at its place, except those that functions write.

    Args:
        owner: the part, see `spec.places`.
        part: the part.
        job: the fields.
        role: fields that override the job's. None: no others.
    """
    whole, values = dict(part), {**vars(job), **(vars(role) if role else {})}
    declaring: type = type(job)
    for name, place in places(declaring, owner).items():
        if values[name] is not None and place.wire is not None:
            whole = with_value(whole, place.path, place.wire(values[name]))
    return whole


def with_value(part: Any, path: str, value: Any) -> Any:
    """Return a part of an object with the value at this path, see `spec.places.Place`."""
    name, _, rest = path.partition(".")
    if name == "*":
        names = range(len(part)) if isinstance(part, list) else part
        changed = {each: with_value(part[each], rest, value) for each in names}
        return list(changed.values()) if isinstance(part, list) else changed
    lower = part.get(name)
    if rest:
        return {**part, name: with_value(lower or {}, rest, value)}
    return {**part, name: _JOINED[name](lower or (), value) if name in _JOINED else value}


def _container(container: Manifest, job: TrainingJob, fields: RoleFields) -> Manifest:
    whole = placed("container", container, job, fields)
    if (fields.cpu, fields.memory, fields.gpus, fields.container_resources) == (None, None, None, None):
        return whole
    resources = _resources(container.get("resources") or {}, job, fields)
    return {**_without(whole, "resources"), **({"resources": resources} if resources else {})}


def _resources(current: Mapping[str, Any], job: TrainingJob, fields: RoleFields) -> Manifest:
    gpu = job.gpu_resource or next(filter(_GPU.fullmatch, requested_by({"resources": current})), DEFAULT_GPU)
    both = {name: size for name, size in (("cpu", fields.cpu), ("memory", fields.memory)) if size is not None}
    separate = fields.container_resources
    requests = {**(current.get("requests") or {}), **both, **(separate.requests if separate else {})}
    limits = {**(current.get("limits") or {}), **both, **(separate.limits if separate else {})}
    if fields.gpus is not None:
        requests = _without(requests, gpu)
        limits = {**_without(limits, gpu), **({gpu: str(fields.gpus)} if fields.gpus else {})}
    parts = {"requests": requests, "limits": limits}
    return {**_without(current, *parts), **{part: amounts for part, amounts in parts.items() if amounts}}


def _without(fields: Mapping[str, Any], *names: str) -> Manifest:
    return {name: value for name, value in fields.items() if name not in names}


def _with_volume(template: Manifest, volume: VolumeMount | PodVolume, *, container: str) -> Manifest:
    if isinstance(volume, PodVolume):
        pod = template["spec"]
        return {**template, "spec": {**pod, "volumes": named_over(pod.get("volumes") or [], [volume.to_wire()])}}
    return with_claim(template, volume, container=container)


# --- single changes


def with_metadata(template: Manifest, *, labels: Mapping[str, str], annotations: Mapping[str, str]) -> Manifest:
    """Return the template, or any other object with metadata, with these labels and annotations over its own."""
    meta = dict(template.get("metadata") or {})
    for key, upper in (("labels", labels), ("annotations", annotations)):
        if upper:
            meta[key] = {**(meta.get(key) or {}), **upper}
    return {**template, "metadata": meta} if meta else template


def with_claim(template: Manifest, mount: Mount | VolumeMount, *, container: str) -> Manifest:
    """Return the template with a claim mounted in the training container, replacing a mount at its path."""
    pod = template["spec"]
    volumes = pod.get("volumes") or []
    name = next((volume["name"] for volume in volumes if _claim_of(volume) == (mount.claim, False)), None)
    if name is None:
        name = _free_name(mount.claim, volumes)
        volumes = [*volumes, {"name": name, "persistentVolumeClaim": {"claimName": mount.claim}}]
    added: Manifest = {"name": name, "mountPath": mount.mount_path}
    if mount.sub_path:
        added["subPath"] = mount.sub_path
    if mount.read_only:
        added["readOnly"] = True
    return _with_mount({**template, "spec": {**pod, "volumes": volumes}}, added, container=container)


def with_shared_memory(template: Manifest, size: str, *, container: str) -> Manifest:
    """Return the template with /dev/shm of this size in the training container, or without one for NO_SHARED_MEMORY."""
    if size == NO_SHARED_MEMORY:
        return map_container(template, container, lambda each: _without_mount(each, SHARED_MEMORY_PATH))
    pod = template["spec"]
    volumes = pod.get("volumes") or []
    name = _free_name("shared-memory", volumes)
    volume = {"name": name, "emptyDir": {"medium": "Memory", "sizeLimit": size}}
    whole = {**template, "spec": {**pod, "volumes": [*volumes, volume]}}
    return _with_mount(whole, {"name": name, "mountPath": SHARED_MEMORY_PATH}, container=container)


def with_leading_env(template: Manifest, variables: Mapping[str, str], *, container: str) -> Manifest:
    """Return the template with these variables first in the training container, so that later ones can refer to them.

    Existing variables of the same names are removed.
    """
    leading = [{"name": name, "value": value} for name, value in variables.items()]

    def change(training: Manifest) -> Manifest:
        others = [each for each in training.get("env") or [] if each["name"] not in variables]
        return {**training, "env": leading + others}

    return map_container(template, container, change)


def with_log_tails(template: Manifest) -> Manifest:
    """Return the template with FallbackToLogsOnError for containers without a terminationMessagePolicy."""
    pod = template["spec"]
    changed = {
        key: [_with_log_tail(each) for each in pod[key]] for key in ("initContainers", "containers") if pod.get(key)
    }
    return {**template, "spec": {**pod, **changed}}


def _with_log_tail(container: Manifest) -> Manifest:
    if container.get("terminationMessagePolicy"):
        return container
    return {**container, "terminationMessagePolicy": "FallbackToLogsOnError"}


def _with_mount(template: Manifest, added: Manifest, *, container: str) -> Manifest:
    def change(each: Manifest) -> Manifest:
        kept = _without_mount(each, added["mountPath"])
        return {**kept, "volumeMounts": [*(kept.get("volumeMounts") or []), added]}

    return map_container(template, container, change)


def _without_mount(container: Manifest, path: str) -> Manifest:
    mounts = container.get("volumeMounts") or []
    kept = [mount for mount in mounts if str(mount["mountPath"]).rstrip("/") != path]
    return container if len(kept) == len(mounts) else {**container, "volumeMounts": kept}


def _free_name(preferred: str, volumes: Iterable[Mapping[str, Any]]) -> str:
    """Return a valid, unused volume name: the preferred one if possible, else one with its hash."""
    taken = {volume["name"] for volume in volumes}
    if preferred not in taken and "." not in preferred and len(preferred) <= _MAX_VOLUME_NAME:
        return preferred
    digest = hashlib.sha256(preferred.encode()).hexdigest()[:8]
    return f"{preferred.replace('.', '-')[: _MAX_VOLUME_NAME - 9]}-{digest}"


def map_container(template: Manifest, name: str, change: Callable[[Manifest], Manifest]) -> Manifest:
    """Return the template with one container changed."""
    pod = template["spec"]
    containers = [change(each) if each.get("name") == name else each for each in pod["containers"]]
    return {**template, "spec": {**pod, "containers": containers}}


# --- reading


def find_container(template: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """Return the container of that name; the first one if there is none."""
    containers: Sequence[Mapping[str, Any]] = template["spec"]["containers"]
    return next((each for each in containers if each.get("name") == name), containers[0])


def mounts_of(template: Mapping[str, Any], *, container: str) -> tuple[Mount, ...]:
    """Return the training container's mounts; without a claim: other volumes, folders that only the pod knows."""
    claims = {volume["name"]: _claim_of(volume) for volume in template["spec"].get("volumes") or []}
    mounts = volume_mounts(template, container=container)
    names = ("" if each.get("subPathExpr") else each["name"] for each in mounts)
    return tuple(_mount(each, *claims.get(name, ("", False))) for each, name in zip(mounts, names, strict=True))


def _mount(mount: Mapping[str, Any], claim: str, read_only: bool) -> Mount:  # noqa: FBT001 - a pair's second part
    return Mount(
        claim=claim,
        mount_path=mount["mountPath"],
        sub_path=mount.get("subPath") or "",
        read_only=read_only or bool(mount.get("readOnly")),
    )


def _claim_of(volume: Mapping[str, Any]) -> tuple[str, bool]:
    source = volume.get("persistentVolumeClaim") or {}
    return source.get("claimName") or "", bool(source.get("readOnly"))


def volume_mounts(template: Mapping[str, Any], *, container: str) -> Sequence[Mapping[str, Any]]:
    """Return the training container's volumeMounts."""
    return find_container(template, container).get("volumeMounts") or []


def count(role: Mapping[str, Any]) -> int:
    """Return the number of pods of a role; one, the operators' default, if it is not given."""
    number = role.get("replicas")
    return 1 if number is None else int(number)


def count_gpus(template: Mapping[str, Any]) -> int:
    """Return the number of GPUs (or similar: MIG slices, TPUs, NPUs) that one pod requests."""
    return sum(
        int(str(amount))
        for each in template["spec"]["containers"]
        for name, amount in requested_by(each).items()
        if is_gpu(name) and str(amount).isdecimal()
    )


def is_gpu(resource: str) -> bool:
    """Return whether a device's resource is a GPU or similar."""
    return _GPU.fullmatch(resource) is not None


def requested_by(container: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the resources that a container requests, or has as its limits."""
    resources = container.get("resources") or {}
    return {**(resources.get("requests") or {}), **(resources.get("limits") or {})}


def secrets_in_env(templates: Iterable[Mapping[str, Any]]) -> dict[str, set[str] | None]:
    """Return the Secrets that variables of any container come from: name → keys, or None for all keys."""
    secrets: dict[str, set[str] | None] = {}
    for container in (each for template in templates for each in _containers(template)):
        for variable in container.get("env") or ():
            if reference := (variable.get("valueFrom") or {}).get("secretKeyRef"):
                keys = secrets.setdefault(reference["name"], set())
                if keys is not None:
                    keys.add(reference["key"])
        for source in container.get("envFrom") or ():
            if reference := source.get("secretRef"):
                secrets[reference["name"]] = None
    return secrets


def _containers(template: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    pod = template["spec"]
    yield from pod.get("initContainers") or ()
    yield from pod["containers"]


# --- merging


def laid_over(lower: Mapping[str, Any], upper: Mapping[str, Any]) -> Manifest:
    """Return a new merged object; where both have a value, the upper one's is used."""
    return {**lower, **{name: _merged(name, lower.get(name), part) for name, part in upper.items()}}


def named_over(lower: Iterable[Any], upper: Iterable[Any], *, key: str = "name") -> list[Any]:
    """Return the items of both lists; an upper item replaces the lower item of the same name."""
    by_name = {item.get(key): item for item in upper}
    kept = [by_name.get(item.get(key), item) for item in lower]
    taken = {item.get(key) for item in kept}
    return kept + [item for name, item in by_name.items() if name not in taken]


def added(lower: Iterable[Any], upper: Iterable[Any]) -> list[Any]:
    """Return the items of both lists, each once."""
    items = list(lower)
    return items + [item for item in upper if item not in items]


def _merged_containers(lower: Iterable[Any], upper: Iterable[Any]) -> list[Any]:
    known = {item.get("name"): item for item in lower}
    return named_over(known.values(), [laid_over(known.get(item.get("name"), {}), item) for item in upper])


_LISTS: Mapping[str, Callable[[Iterable[Any], Iterable[Any]], list[Any]]] = {
    "containers": _merged_containers,
    "initContainers": _merged_containers,
    "env": named_over,
    "volumes": named_over,
    "imagePullSecrets": named_over,
    "volumeMounts": lambda lower, upper: named_over(lower, upper, key="mountPath"),
    "tolerations": added,
    "envFrom": added,
}
_JOINED: Mapping[str, Callable[[Iterable[Any], Any], Any]] = {
    **_LISTS,
    "initContainers": named_over,
    "nodeSelector": lambda lower, upper: {**dict(lower), **upper},
}
"""Parts whose values add to the lower layer's if a field sets them; other values replace it."""


def _merged(name: str, lower: Any, upper: Any) -> Any:
    if isinstance(lower, Mapping) and isinstance(upper, Mapping) and name not in _EXCLUSIVE:
        return laid_over(lower, upper)
    if name in _LISTS and isinstance(lower, list) and isinstance(upper, list):
        return _LISTS[name](lower, upper)
    return upper


def with_changes(original: Any, before: Any, after: Any) -> Any:
    """Return the original with the changes between its two readings applied; fields that the reader ignores stay."""
    if before == after:
        return original
    every = (original, before, after)
    if all(isinstance(each, Mapping) for each in every):
        kept = {name: part for name, part in original.items() if name in after or name not in before}
        return kept | {name: with_changes(original.get(name), before.get(name), part) for name, part in after.items()}
    if all(isinstance(each, list) for each in every) and len(original) == len(before) == len(after):
        return [with_changes(*parts) for parts in zip(*every, strict=True)]
    return after


# --- checking


def check_labels(path: str, meta: Mapping[str, Any]) -> None:
    """Check an object's labels and annotations; pods of a template with invalid ones could not be created.

    Raises:
        InvalidSpec: the text names the key or the value.
    """
    pods.check_labels(f"{path}.labels", _texts(f"{path}.labels", meta))
    pods.check_annotations(f"{path}.annotations", _texts(f"{path}.annotations", meta))


def _texts(path: str, meta: Mapping[str, Any]) -> dict[str, str]:
    pairs = meta.get(path.rpartition(".")[2]) or {}
    for key, value in pairs.items():
        if value is not None and not isinstance(value, str):
            raise InvalidSpec.of(f"{path}.{key}", value, "allowed: a text; quote it")
    return {key: value or "" for key, value in pairs.items()}


_NAMED = {"name!": str}
_CONTAINER_SHAPE = {
    "name": str,
    "image": str,
    "env": [_NAMED],
    "volumeMounts": [{**_NAMED, "mountPath!": str, "subPath": str}],
    "workingDir": str,
    "resources": {"requests": Mapping, "limits": Mapping},
}
POD_SHAPE: Shape = {
    "nodeSelector": Mapping,
    "volumes": [{**_NAMED, "persistentVolumeClaim": {"claimName": str}}],
    "containers!": [_CONTAINER_SHAPE],
    "initContainers": [_CONTAINER_SHAPE],
}
"""All parts of a pod that this package reads."""


def check_shape(path: str, value: Any, shape: Shape) -> None:
    """Check the types of an object's parts; null counts as absent.

    Args:
        path: the object's path; "" for a whole manifest.
        value: the object.
        shape: a type, a list with the shape of its items, or a map from names to shapes; `name!` is a part that is
            required, and not empty.

    Raises:
        InvalidSpec: a part is missing or of another type; the text names it by its path.
    """
    kind = _type_of(shape)
    is_of_kind = isinstance(value, kind)
    if not is_of_kind:
        quotes = "; quote it" if kind is str and isinstance(value, int | float) else ""
        raise InvalidSpec.of(path, value, f"allowed: {_WORDS[kind]}{quotes}")
    if isinstance(shape, list):
        for index, item in enumerate(value):
            check_shape(f"{path}[{index}]", item, shape[0])
    elif isinstance(shape, Mapping):
        for name, inner in shape.items():
            _check_part(f"{path}.{name}".strip(".!"), value.get(name.rstrip("!")), inner, is_required=name[-1] == "!")


def _check_part(path: str, value: Any, shape: Shape, *, is_required: bool) -> None:
    kind = _type_of(shape)
    if is_required and not (isinstance(value, kind) and value):
        raise InvalidSpec.of(path, value, f"required: {_WORDS[kind]} that is not empty")
    if value is not None:
        check_shape(path, value, shape)


def _type_of(shape: Shape) -> type:
    if isinstance(shape, type):
        return shape
    return list if isinstance(shape, list) else Mapping


def items(owner: Mapping[str, Any], name: str, path: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield path and item of a list; a missing list is empty."""
    yield from ((f"{path}.{name}[{index}]", item) for index, item in enumerate(owner.get(name) or []))


_WORDS: Mapping[type, str] = {Mapping: "a map", list: "a list", str: "a text", int: "a whole number"}
