"""Bring a job's code into its pods before its training starts: fetched by a sync container, or from a Secret.

The sync container has the name that Arena gives it, so that `arena logs` finds it. It is configured by git-sync's
variables, so that its image may be git-sync, which ignores the variables that only `sync_code` has. Credentials are
moved from the job's object to a Secret that the job owns.

A folder's archive is in that Secret, too, or in several if it is large. So is the program that unpacks the archive into
the working directory of every pod: in an init container with the training's image or, for a TrainJob, in front of the
training's command. An archive that is too large for Secrets is on a claim that the job mounts; the program is still in
the Secret.
"""

from __future__ import annotations

import inspect
import json
import posixpath
import re
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from ptjob_provider import __version__
from ptjob_provider.core.errors import InvalidSpec
from ptjob_provider.core.identity import CODE_ANNOTATION, MANAGED_LABEL
from ptjob_provider.core.in_pod import unpack_code
from ptjob_provider.core.in_pod.sync_code import CONTAINER as SYNC_CONTAINER
from ptjob_provider.core.in_pod.sync_code import REPORT, RSYNC_SOURCE, refusal, repository_name
from ptjob_provider.core.kinds.pod_template import find_container, map_container, named_over
from ptjob_provider.core.outputs.contract import normal_path
from ptjob_provider.core.spec.code import MAX_TRAVELS, PackedCode, is_credential, is_sync_variable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from ptjob_provider.core.identity import Manifest
    from ptjob_provider.core.spec.code import CodeSource

SYNC_IMAGE = f"ghcr.io/ptjob-provider/sync:{__version__}"
DEFAULT_WORKING_DIR = "/root"
"""Parent of the code's folder, as in Arena, if the job has no working directory."""

FOLDER = "/ptjob-code"
"""Folder into which a folder is unpacked if the job has no working directory."""

_FOLDER_VOLUME = "code-folder"
_ARCHIVE_VOLUME = "code-archive"
_ARCHIVE_PATH = "/etc/ptjob-code"
_ON_CLAIM_PATH = "/mnt/ptjob-code"
_PIECE = 1_000_000
"""Maximum characters of an archive in one Secret: a Secret holds 1 MiB, and the first one has the program, too."""
_MAX_IN_SECRETS = (MAX_TRAVELS + 2) // 3 * 4
"""Maximum characters, in base64, of an archive in Secrets."""

ON_CLAIM = ".ptjob/code"
"""Folder on a claim for archives that are too large for Secrets."""

_VERIFIED = (
    "import hashlib,sys;_,__file__,digest,*words=sys.argv;text=open(__file__,'rb').read();"
    "sys.argv=[__file__,*words];hashlib.sha256(text).hexdigest()==digest or sys.exit("
    f"'{unpack_code.FAILED}somebody else has created the Secret of the job, and the program in it was not run');"
    "exec(compile(text,__file__,'exec'))"
)
"""Program that runs a program of the job's Secret if it has this digest.

The job names its Secret before the Secret exists, because the job owns it: whoever may create Secrets can be faster."""

_PYTHON = re.compile(r"(?:/\S*/)?python[\d.]*")

_VOLUME = "code-sync"
_ROOT = "/ptjob-code"
_SECRET_VOLUME = "code-secret"  # noqa: S105 - a volume's name
_SECRET_PATH = "/etc/git-secret"  # noqa: S105 - a path
_TERMINATION_LOG = "/dev/termination-log"
_RESOURCES = {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"cpu": "1", "memory": "512Mi"}}
_EVERYBODY_READS = 0o444
_FIXED = ("GIT_SYNC_REPO", "GIT_SYNC_ROOT", "GIT_SYNC_ONE_TIME", RSYNC_SOURCE, REPORT)
_FOLDER_NAMES = ("GIT_SYNC_DEST", "GITSYNC_LINK")


def with_prefix(prefix: str, image: str) -> str:
    """Return the image's name with a mirror's address in front; unchanged without a prefix, or if it is "" for none."""
    return f"{prefix.rstrip('/')}/{image}" if prefix and image else image


def with_code(template: Manifest, code: CodeSource, *, image: str, container: str) -> Manifest:
    """Return the template with a sync container, and with the code mounted into the training container.

    The training container starts in its working directory, with the code in `code/<repository>` below it. Variables
    that configure the sync container are moved from the training container to the sync container.

    Args:
        template: one role's pod template.
        code: source of the code.
        image: the sync image, unless `code` names one.
        container: name of the training container.

    Raises:
        InvalidSpec: a variable that configures the sync container has an invalid value.
    """
    training = find_container(template, container)
    variables = [each for each in training.get("env") or [] if is_sync_variable(each["name"])]
    for each in variables:
        if allowed := refusal(each["name"], str(each.get("value") or "")):
            raise InvalidSpec.of(f"env[{each['name']}]", each["value"], allowed)
    pod = template["spec"]
    sync = _container(code, variables, image=image, user=_user(pod, training, is_known=not code.image))
    volumes: list[Manifest] = [{"name": _VOLUME, "emptyDir": {}}]
    if code.secret and code.is_over_ssh:
        source = {"secretName": code.secret, "defaultMode": _EVERYBODY_READS}
        volumes.append({"name": _SECRET_VOLUME, "secret": source})
    inits = [sync, *(each for each in pod.get("initContainers") or [] if each.get("name") != SYNC_CONTAINER)]
    spec = {**pod, "initContainers": inits, "volumes": named_over(pod.get("volumes") or [], volumes)}
    return map_container({**template, "spec": spec}, container, _with_code_mounted)


def _with_code_mounted(training: Manifest) -> Manifest:
    working_dir = training.get("workingDir") or DEFAULT_WORKING_DIR
    mount = {"name": _VOLUME, "mountPath": posixpath.join(working_dir, "code")}
    mounts = _mounts_with(training, mount)
    own = [each for each in training.get("env") or [] if not is_sync_variable(each["name"])]
    env = {"env": own} if own else {}
    kept = {name: part for name, part in training.items() if name != "env"}
    return {**kept, **env, "workingDir": working_dir, "volumeMounts": mounts}


def _mounts_with(container: Manifest, mount: Manifest) -> list[Manifest]:
    """Return the container's mounts and that of the code; a volume of the user's is never replaced by it."""
    mounts, path = container.get("volumeMounts") or [], normal_path(mount["mountPath"])
    if any(normal_path(each["mountPath"]) == path and each["name"] != mount["name"] for each in mounts):
        raise InvalidSpec.at("working_dir", f"a volume is mounted at {path}, where the code goes; choose another one")
    return named_over(mounts, [mount], key="mountPath")


def _container(code: CodeSource, variables: list[Manifest], *, image: str, user: Manifest) -> Manifest:
    mounts = [{"name": _VOLUME, "mountPath": _ROOT}]
    if code.secret and code.is_over_ssh:
        mounts.append({"name": _SECRET_VOLUME, "mountPath": _SECRET_PATH})
    command = {"command": ["rsync", "-rlpt", "--", code.rsync, f"{_ROOT}/"]} if code.rsync and code.image else {}
    return {
        "name": SYNC_CONTAINER,
        "image": code.image or image,
        "imagePullPolicy": "IfNotPresent",
        **command,
        "env": _environment(code, variables),
        "resources": _RESOURCES,
        "securityContext": user,
        "volumeMounts": mounts,
    }


# --- a folder


def with_folder(template: Manifest, code: CodeSource, *, container: str, in_command: bool = False) -> Manifest:
    """Return the template with the folder unpacked in every pod; the training container starts in the folder.

    The Secret with the archive has no name yet: `with_archive_from` sets it.

    Args:
        template: one role's pod template.
        code: the packed folder.
        container: name of the training container.
        in_command: unpack in front of the container's command, which is then required, not in an init container.

    Raises:
        InvalidSpec: the folder is not packed, a volume has a reserved name, or there is no command.
    """
    if not isinstance(code, PackedCode):
        raise InvalidSpec.of(
            "code", code.folder, "allowed: an address; a folder can only travel from the machine that has it"
        )
    pod, training = template["spec"], find_container(template, container)
    command = training.get("command") or []
    if in_command and not command:
        raise InvalidSpec.of("command", None, "give a command; a TrainJob unpacks the folder of `code` in front of it")
    if taken := {each["name"] for each in pod.get("volumes") or []} & {_FOLDER_VOLUME, _ARCHIVE_VOLUME}:
        raise InvalidSpec.of(
            "volumes", min(taken), "allowed: another name; the volumes of the folder of `code` are called so"
        )
    folder = training.get("workingDir") or FOLDER
    python = command[0] if command and _PYTHON.fullmatch(command[0]) else "python"
    program = sha256(archive_of(code)[unpack_code.PROGRAM].encode()).hexdigest()
    unpack = [python, "-I", "-c", _VERIFIED, f"{_ARCHIVE_PATH}/{unpack_code.PROGRAM}", program, code.digest, folder]
    target, source = (
        {"name": _FOLDER_VOLUME, "mountPath": folder},
        {"name": _ARCHIVE_VOLUME, "mountPath": _ARCHIVE_PATH},
    )
    volumes = [
        {"name": _FOLDER_VOLUME, "emptyDir": {}},
        {"name": _ARCHIVE_VOLUME, "secret": {"secretName": _ARCHIVE_VOLUME}},
    ]
    spec = {**pod, "volumes": named_over(pod.get("volumes") or [], volumes)}
    if not in_command:
        init = _unpacking(training, unpack, [target, source], user=_user(pod, training, is_known=False))
        spec["initContainers"] = [init, *(pod.get("initContainers") or [])]

    def started(container: Manifest) -> Manifest:
        mounts = [*_mounts_with(container, target), *([source] if in_command else [])]
        start = {"command": [*unpack, *command]} if in_command else {"workingDir": folder}
        return {**container, **start, "volumeMounts": mounts}

    return map_container({**template, "spec": spec}, container, started)


def _unpacking(training: Mapping[str, Any], command: list[str], mounts: list[Manifest], *, user: Manifest) -> Manifest:
    same = {name: training[name] for name in ("image", "imagePullPolicy") if training.get(name)}
    rest = {"command": command, "resources": _RESOURCES, "securityContext": user, "volumeMounts": mounts}
    return {"name": unpack_code.CONTAINER, **same, **rest}


def with_archive_from(template: Manifest, secret: str) -> Manifest:
    """Return the template that takes the folder's archive from this Secret."""
    pod = template["spec"]
    volumes = [_from_secret(each, secret) if each["name"] == _ARCHIVE_VOLUME else each for each in pod["volumes"]]
    return {**template, "spec": {**pod, "volumes": volumes}}


def _from_secret(volume: Manifest, name: str) -> Manifest:
    return {**volume, "secret": {**volume["secret"], "secretName": name}}


def archive_of(code: CodeSource | None) -> dict[str, str]:
    """Return the Secret's content for a packed folder: archive and program; empty for any other code."""
    if not isinstance(code, PackedCode):
        return {}
    archive = {unpack_code.ARCHIVE: code.archive} if code.archive else {}
    return {**archive, unpack_code.PROGRAM: inspect.getsource(unpack_code)}


def annotation(code: CodeSource | None) -> dict[str, str]:
    """Return the job's annotation with the folder's revision; empty for any other code."""
    return {CODE_ANNOTATION: json.dumps(code.code_revision)} if isinstance(code, PackedCode) else {}


def left_out(code: CodeSource | None) -> tuple[str, ...]:
    """Return a sentence for each part of the folder that was not packed."""
    return tuple(f"code: left out {each}" for each in code.left_out) if isinstance(code, PackedCode) else ()


# --- environment


def _environment(code: CodeSource, variables: list[Manifest]) -> list[Manifest]:
    """Return the sync container's variables.

    Settings in `code` override the user's variables, which override defaults and the variables with credentials.
    """
    is_placed = any(each["name"] in _FOLDER_NAMES for each in variables)
    source = {RSYNC_SOURCE: code.source} if code.rsync else {"GIT_SYNC_REPO": code.source}
    place = {} if is_placed or code.rsync else {"GIT_SYNC_DEST": repository_name(code.source)}
    chosen = {
        "GIT_SYNC_BRANCH": code.branch,
        "GIT_SYNC_REV": code.revision,
        "GIT_SYNC_SUBMODULES": code.submodules,
        "GIT_SYNC_DEPTH": code.depth,
    }
    defaults = {
        **source,
        "GIT_SYNC_ROOT": _ROOT,
        "GIT_SYNC_ONE_TIME": "true",
        REPORT: _TERMINATION_LOG,
        **place,
        **{name: str(value) for name, value in chosen.items() if value is not None},
    }
    fixed = {*_FIXED, *(name for name, value in chosen.items() if value is not None)}
    users = [each for each in variables if each["name"] not in fixed]
    lowest = [{"name": name, "value": value} for name, value in defaults.items()]
    return named_over(named_over(lowest, _credentials(code)), users)


def _credentials(code: CodeSource) -> list[Manifest]:
    if code.secret is None:
        return []
    if code.is_over_ssh:
        settings = {"GIT_SYNC_SSH": "true", "GIT_SSH_KEY_FILE": f"{_SECRET_PATH}/ssh-privatekey"}
        settings["GIT_SSH_KNOWN_HOSTS_FILE"] = f"{_SECRET_PATH}/known_hosts"
        return [{"name": name, "value": value} for name, value in settings.items()]
    name, password = {"name": code.secret}, "RSYNC_PASSWORD" if code.rsync else "GIT_SYNC_PASSWORD"
    variables = [{"name": password, "valueFrom": {"secretKeyRef": {**name, "key": "password"}}}]
    if code.git:
        user = {"secretKeyRef": {**name, "key": "username", "optional": True}}
        variables.insert(0, {"name": "GIT_SYNC_USERNAME", "valueFrom": user})
    return variables


# --- security context


def _user(pod: Mapping[str, Any], container: Mapping[str, Any], *, is_known: bool) -> Manifest:
    """Return the security context of the container that brings the code.

    The container runs as the training's user, who then owns the code, else as its image's user. With a non-root user it
    passes PodSecurity `restricted`. `is_known` is False for an image whose user and writable folders are unknown.
    """
    contexts = {**(pod.get("securityContext") or {}), **(container.get("securityContext") or {})}
    named = {name: contexts[name] for name in ("runAsUser", "runAsGroup") if contexts.get(name) is not None}
    restricted = {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    known = {"readOnlyRootFilesystem": True, "runAsNonRoot": named.get("runAsUser") != 0} if is_known else {}
    return {**restricted, **known, **named}


# --- credentials


def credentials_taken_out(template: Manifest, secret: str, prefix: str) -> tuple[Manifest, dict[str, str]]:
    """Return the template with references to a Secret in place of credentials, and the Secret's content.

    Args:
        template: one role's pod template.
        secret: the Secret's name.
        prefix: prefix of the Secret's keys, to keep roles apart.
    """
    values: dict[str, str] = {}

    def taken(variable: Manifest) -> Manifest:
        if "value" not in variable or not is_credential(variable["name"]):
            return variable
        key = f"{prefix}.{variable['name']}"
        values[key] = str(variable["value"])
        return {"name": variable["name"], "valueFrom": {"secretKeyRef": {"name": secret, "key": key}}}

    pod = template["spec"]
    inits = [
        {**each, "env": [taken(item) for item in each.get("env") or []]} if each.get("name") == SYNC_CONTAINER else each
        for each in pod.get("initContainers") or []
    ]
    return ({**template, "spec": {**pod, "initContainers": inits}} if values else template), values


def hidden(
    templates: Mapping[str, Manifest], code: CodeSource | None, *, secret: str, namespace: str
) -> tuple[dict[str, Manifest], Manifest | None]:
    """Return the templates by role without credentials, and the Secret with those and the folder; None if empty."""
    sealed: dict[str, Manifest] = {}
    values = archive_of(code)
    for role, template in templates.items():
        named = with_archive_from(template, secret) if values else template
        sealed[role], taken = credentials_taken_out(named, secret, role)
        values |= taken
    return sealed, secret_of(secret, values, namespace=namespace)


def secret_name(job: str, intent: str = "") -> str:
    """Return the name of a job's Secret; an intent makes the name unguessable before the job exists."""
    return f"{job}-code-{intent}" if intent else f"{job}-code"


def with_secret_named(manifest: Manifest, secret: Manifest, name: str) -> tuple[Manifest, Manifest]:
    """Return the job and its Secret with a new name for the Secret, also in the job's variables and volumes."""
    old, keys = secret["metadata"]["name"], secret["stringData"].keys()

    def renamed(part: Manifest) -> Manifest | None:
        if part.get("name") == old and part.get("key") in keys:
            return {**part, "name": name}
        is_folder = unpack_code.PROGRAM in keys and _is_archive(part, old)
        return _from_secret(part, name) if is_folder else None

    return _with_each(manifest, renamed), {**secret, "metadata": {**secret["metadata"], "name": name}}


def in_pieces(secret: Manifest) -> list[Manifest]:
    """Return the Secrets to create for a job's Secret: several if the folder's archive is too large for one.

    The first keeps the name. An archive that is too large for Secrets is in none of them: it is on a claim.
    """
    archive = secret["stringData"].get(unpack_code.ARCHIVE, "")
    if len(archive) <= _PIECE:
        return [secret]
    if len(archive) > _MAX_IN_SECRETS:
        kept = {key: value for key, value in secret["stringData"].items() if key != unpack_code.ARCHIVE}
        return [{**secret, "stringData": kept}]
    first, *rest = (archive[at : at + _PIECE] for at in range(0, len(archive), _PIECE))
    name = secret["metadata"]["name"]
    pieces = [
        {
            **secret,
            "immutable": True,
            "metadata": {**secret["metadata"], "name": f"{name}-{number}"},
            "stringData": {f"{unpack_code.ARCHIVE}.{number:03}": piece},
        }
        for number, piece in enumerate(rest, 1)
    ]
    return [{**secret, "stringData": {**secret["stringData"], unpack_code.ARCHIVE: first}}, *pieces]


def with_pieces(manifest: Manifest, secrets: list[Manifest]) -> Manifest:
    """Return the job with its folder's archive mounted from all of these Secrets."""
    names = [each["metadata"]["name"] for each in secrets]
    volume = {"name": _ARCHIVE_VOLUME, "projected": {"sources": [{"secret": {"name": name}} for name in names]}}
    joined: Manifest = _with_each(manifest, lambda part: volume if _is_archive(part, names[0]) else None)
    return joined if len(names) > 1 else manifest


def writable_claims(manifest: Manifest) -> list[str]:
    """Return the claims that every pod with the folder can write to, in the order of the first pod's volumes.

    A container that unpacks the folder itself, as a TrainJob's, must mount the whole claim: it mounts each only once.
    """
    claims: list[list[str]] = []

    def collect(part: Manifest) -> None:
        if _has_archive(part):
            written = {mount["name"] for each in part["containers"] for mount in _written_by(each)}
            sources = (each.get("persistentVolumeClaim") for each in part["volumes"] if each["name"] in written)
            claims.append([source["claimName"] for source in sources if source and not source.get("readOnly")])

    _with_each(manifest, collect)
    first, *others = claims or [[]]
    return [claim for claim in first if all(claim in each for each in others)]


def _written_by(container: Manifest) -> list[Manifest]:
    mounts = container.get("volumeMounts") or []
    return [each for each in mounts if not each.get("readOnly") and not (_unpacks(container) and each.get("subPath"))]


def with_archive_on(manifest: Manifest, claim: str, digest: str) -> Manifest:
    """Return the job that unpacks its folder from `DIGEST.tar.gz` in the folder `ON_CLAIM` of one of its claims.

    The folder is mounted read-only into the init container. A container of a TrainJob's patch mounts each volume once
    (`listMapKey` of `volumeMounts` in Trainer's CRD), and a pod with two volumes of one claim never starts
    (kubernetes/kubernetes#82526): there it is where the claim is mounted anyway.
    """
    folder = _ON_CLAIM_PATH

    def mounted(container: Manifest, volume: str) -> Manifest:
        nonlocal folder
        mounts = container.get("volumeMounts") or []
        if not _unpacks(container):
            return container
        if paths := [each["mountPath"] for each in mounts if each["name"] == volume and not each.get("subPath")]:
            folder = f"{paths[0]}/{ON_CLAIM}"
            return container
        mount = {"name": volume, "mountPath": folder, "subPath": ON_CLAIM, "readOnly": True}
        return {**container, "volumeMounts": [*mounts, mount]}

    def with_mount(part: Manifest) -> Manifest | None:
        if not _has_archive(part):
            return None
        sources = ((each["name"], each.get("persistentVolumeClaim") or {}) for each in part["volumes"])
        name = next(name for name, source in sources if source.get("claimName") == claim)
        groups = [key for key in ("initContainers", "containers") if key in part]
        return {**part, **{key: [mounted(each, name) for each in part[key]] for key in groups}}

    def with_path(part: Manifest) -> Manifest | None:
        command = part.get("command") or ()
        if digest not in command:
            return None
        return {**part, "command": [f"{folder}/{word}.tar.gz" if word == digest else word for word in command]}

    whole: Manifest = _with_each(_with_each(manifest, with_mount), with_path)
    return whole


def _unpacks(container: Manifest) -> bool:
    return any(each["name"] == _ARCHIVE_VOLUME for each in container.get("volumeMounts") or ())


def _has_archive(part: Manifest) -> bool:
    volumes = part.get("volumes") or []
    return any(isinstance(each, dict) and each.get("name") == _ARCHIVE_VOLUME for each in volumes)


def _is_archive(part: Manifest, secret: str) -> bool:
    return part.get("name") == _ARCHIVE_VOLUME and (part.get("secret") or {}).get("secretName") == secret


def _with_each(part: Any, change: Callable[[Manifest], Manifest | None]) -> Any:
    """Return an object with `change` applied to its maps, at any depth; where it returns None, deeper maps follow."""
    if isinstance(part, list):
        return [_with_each(each, change) for each in part]
    if not isinstance(part, dict):
        return part
    return change(part) or {key: _with_each(each, change) for key, each in part.items()}


def secret_of(name: str, values: Mapping[str, str], *, namespace: str) -> Manifest | None:
    """Return the Secret with these values, without an owner reference; None without values."""
    if not values:
        return None
    meta = {"name": name, "namespace": namespace, "labels": {MANAGED_LABEL: "true"}}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": meta, "type": "Opaque", "stringData": dict(values)}


def variables_of(keys: Iterable[str]) -> list[str]:
    """Return the names of the variables in a Secret's keys, each once."""
    return sorted({key.partition(".")[2] for key in keys})
