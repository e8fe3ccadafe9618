"""Add the sync container that fetches a job's code before its training starts, and keep its credentials secret.

The names are Arena's, so that `arena logs` finds the container. It is configured by git-sync's variables, and may
therefore be git-sync; `sync_code`'s additional variables do not affect that. Values of credentials are moved from the
job to a Secret that the job owns.
"""

from __future__ import annotations

import posixpath
from typing import TYPE_CHECKING, Any

from ptjob_provider import __version__
from ptjob_provider.core.errors import InvalidSpec
from ptjob_provider.core.identity import MANAGED_LABEL
from ptjob_provider.core.in_pod.sync_code import CONTAINER as SYNC_CONTAINER
from ptjob_provider.core.in_pod.sync_code import REPORT, RSYNC_SOURCE, refusal, repository_name
from ptjob_provider.core.kinds.merge import named_over
from ptjob_provider.core.kinds.pod_template import find_container, map_container
from ptjob_provider.core.spec.code import is_credential, is_sync_variable

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ptjob_provider.core.identity import Manifest
    from ptjob_provider.core.spec.code import CodeSource

SYNC_IMAGE = f"ghcr.io/ptjob-provider/sync:{__version__}"
DEFAULT_WORKING_DIR = "/root"
"""Arena's parent of the code's folder if the job has no working directory."""

_VOLUME = "code-sync"
_ROOT = "/ptjob-code"
_SECRET_VOLUME = "code-secret"  # noqa: S105 - a volume's name
_SECRET_PATH = "/etc/git-secret"  # noqa: S105 - a path
_TERMINATION_LOG = "/dev/termination-log"
_RESOURCES = {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"cpu": "1", "memory": "512Mi"}}
_EVERYBODY_READS = 0o444
_OURS = ("GIT_SYNC_REPO", "GIT_SYNC_ROOT", "GIT_SYNC_ONE_TIME", RSYNC_SOURCE, REPORT)
_PLACES = ("GIT_SYNC_DEST", "GITSYNC_LINK")


def with_prefix(prefix: str, image: str) -> str:
    """Return the image's name with the address of a mirror; "" for none."""
    return f"{prefix.rstrip('/')}/{image}" if prefix else image


def with_code(template: Manifest, code: CodeSource, *, image: str, container: str) -> Manifest:
    """Return the template with a sync container, and with the code mounted into the training container.

    The training container starts in its working directory, with the code in `code/<repository>` below it. Its variables
    for the sync container are moved to that container.

    Args:
        template: of one role.
        code: the source.
        image: the sync image, unless the code names one.
        container: name of the training container.

    Raises:
        InvalidSpec: a variable for the sync container has a value that is not allowed.
    """
    found = find_container(template, container)
    variables = [each for each in found.get("env") or [] if is_sync_variable(each["name"])]
    for each in variables:
        if allowed := refusal(each["name"], str(each.get("value") or "")):
            raise InvalidSpec.of(f"env[{each['name']}]", each["value"], allowed)
    pod = template["spec"]
    sync = _container(code, variables, image=image, user=_user(pod, found, is_known=not code.image))
    volumes: list[Manifest] = [{"name": _VOLUME, "emptyDir": {}}]
    if code.secret and code.is_over_ssh:
        source = {"secretName": code.secret, "defaultMode": _EVERYBODY_READS}
        volumes.append({"name": _SECRET_VOLUME, "secret": source})
    inits = [sync, *(each for each in pod.get("initContainers") or [] if each.get("name") != SYNC_CONTAINER)]
    grown = {**pod, "initContainers": inits, "volumes": named_over(pod.get("volumes") or [], volumes)}
    return map_container({**template, "spec": grown}, container, _beside_code)


def _beside_code(found: Manifest) -> Manifest:
    working_dir = found.get("workingDir") or DEFAULT_WORKING_DIR
    place = {"name": _VOLUME, "mountPath": posixpath.join(working_dir, "code")}
    mounts = named_over(found.get("volumeMounts") or [], [place], key="mountPath")
    own = [each for each in found.get("env") or [] if not is_sync_variable(each["name"])]
    env = {"env": own} if own else {}
    kept = {name: part for name, part in found.items() if name != "env"}
    return {**kept, **env, "workingDir": working_dir, "volumeMounts": mounts}


def _container(code: CodeSource, variables: list[Manifest], *, image: str, user: Manifest) -> Manifest:
    mounts = [{"name": _VOLUME, "mountPath": _ROOT}]
    if code.secret and code.is_over_ssh:
        mounts.append({"name": _SECRET_VOLUME, "mountPath": _SECRET_PATH})
    by_hand = {"command": ["rsync", "-rlpt", "--", code.rsync, f"{_ROOT}/"]} if code.rsync and code.image else {}
    return {
        "name": SYNC_CONTAINER,
        "image": code.image or image,
        "imagePullPolicy": "IfNotPresent",
        **by_hand,
        "env": _environment(code, variables),
        "resources": _RESOURCES,
        "securityContext": user,
        "volumeMounts": mounts,
    }


# --- environment


def _environment(code: CodeSource, variables: list[Manifest]) -> list[Manifest]:
    """Return its variables: the defaults, then the user's variables for it, then those of `code`."""
    is_placed = any(each["name"] in _PLACES for each in variables)
    source = {RSYNC_SOURCE: code.source} if code.rsync else {"GIT_SYNC_REPO": code.source}
    place = {} if is_placed or code.rsync else {"GIT_SYNC_DEST": repository_name(code.source)}
    said = {
        "GIT_SYNC_BRANCH": code.branch,
        "GIT_SYNC_REV": code.revision,
        "GIT_SYNC_SUBMODULES": code.submodules,
        "GIT_SYNC_DEPTH": code.depth,
    }
    ours = {
        **source,
        "GIT_SYNC_ROOT": _ROOT,
        "GIT_SYNC_ONE_TIME": "true",
        REPORT: _TERMINATION_LOG,
        **place,
        **{name: str(value) for name, value in said.items() if value is not None},
    }
    decided = {*_OURS, *(name for name, value in said.items() if value is not None)}
    theirs = [each for each in variables if each["name"] not in decided]
    first = [{"name": name, "value": value} for name, value in ours.items()]
    return named_over(named_over(first, _credentials(code)), theirs)


def _credentials(code: CodeSource) -> list[Manifest]:
    if code.secret is None:
        return []
    if code.is_over_ssh:
        told = {"GIT_SYNC_SSH": "true", "GIT_SSH_KEY_FILE": f"{_SECRET_PATH}/ssh-privatekey"}
        told["GIT_SSH_KNOWN_HOSTS_FILE"] = f"{_SECRET_PATH}/known_hosts"
        return [{"name": name, "value": value} for name, value in told.items()]
    name, password = {"name": code.secret}, "RSYNC_PASSWORD" if code.rsync else "GIT_SYNC_PASSWORD"
    found = [{"name": password, "valueFrom": {"secretKeyRef": {**name, "key": "password"}}}]
    if code.git:
        user = {"secretKeyRef": {**name, "key": "username", "optional": True}}
        found.insert(0, {"name": "GIT_SYNC_USERNAME", "valueFrom": user})
    return found


# --- security context


def _user(pod: Mapping[str, Any], container: Mapping[str, Any], *, is_known: bool) -> Manifest:
    """Return its security context: the training's user, who then owns the code, else the image's own.

    For a non-root user, it passes PodSecurity `restricted`. The user and the writable folders of a foreign image are
    unknown.
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
        template: of one role.
        secret: the Secret's name.
        prefix: of the Secret's keys, which distinguishes the roles.
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
        {**each, "env": [taken(one) for one in each.get("env") or []]} if each.get("name") == SYNC_CONTAINER else each
        for each in pod.get("initContainers") or []
    ]
    return ({**template, "spec": {**pod, "initContainers": inits}} if values else template), values


def hidden(
    templates: Mapping[str, Manifest], *, secret: str, namespace: str
) -> tuple[dict[str, Manifest], Manifest | None]:
    """Return the templates, by role, without credentials, and the Secret that has them; None if there are none."""
    found: dict[str, Manifest] = {}
    values: dict[str, str] = {}
    for role, template in templates.items():
        found[role], taken = credentials_taken_out(template, secret, role)
        values |= taken
    return found, secret_of(secret, values, namespace=namespace)


def secret_name(job: str, intent: str = "") -> str:
    """Return the name of a job's Secret; the intent makes it unguessable."""
    return f"{job}-code-{intent}" if intent else f"{job}-code"


def with_secret_named(manifest: Manifest, secret: Manifest, name: str) -> tuple[Manifest, Manifest]:
    """Return the job and its Secret, renamed to this name."""
    old, keys = secret["metadata"]["name"], secret["stringData"].keys()

    def renamed(part: Any) -> Any:
        if isinstance(part, list):
            return [renamed(each) for each in part]
        if not isinstance(part, dict):
            return part
        if part.get("name") == old and part.get("key") in keys:
            return {**part, "name": name}
        return {key: renamed(each) for key, each in part.items()}

    return renamed(manifest), {**secret, "metadata": {**secret["metadata"], "name": name}}


def secret_of(name: str, values: Mapping[str, str], *, namespace: str) -> Manifest | None:
    """Return the Secret with these values, without its owner; None if there are none."""
    if not values:
        return None
    meta = {"name": name, "namespace": namespace, "labels": {MANAGED_LABEL: "true"}}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": meta, "type": "Opaque", "stringData": dict(values)}


def variables_of(keys: Iterable[str]) -> list[str]:
    """Return the variables of a Secret's keys, each once."""
    return sorted({key.partition(".")[2] for key in keys})
