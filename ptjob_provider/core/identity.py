"""Who a job is: its reference, its owner, its attempt, and the name, labels and annotations that follow from them.

An object's name is derived, never drawn: the same attempt of the same task always has the same name, so that a create
can be repeated and a 409 proved to be ours. It stays within 49 characters: services add `-worker-NNN` and must stay
within 63 (training-operator #1101), and Arena refuses longer names.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Self

from ptjob_provider.core.errors import InvalidSpec
from ptjob_provider.core.versions import known_fields

if TYPE_CHECKING:
    from collections.abc import Mapping

Manifest = dict[str, Any]
"""A Kubernetes object as the wire has it: camelCase keys, JSON values."""

Reference = dict[str, str | bool]
"""A meta/v1 OwnerReference."""

PREFIX = "ptjob-provider"
"""Prefix of the labels and annotations that are ours."""

MANAGED_LABEL = f"{PREFIX}/managed"
ATTEMPT_LABEL = f"{PREFIX}/attempt"
OWNER_ANNOTATION = f"{PREFIX}/owner"
SPEC_HASH_ANNOTATION = f"{PREFIX}/spec-hash"
INTENT_ANNOTATION = f"{PREFIX}/intent"
OUTPUTS_ANNOTATION = f"{PREFIX}/outputs"
RECORD_ANNOTATION = f"{PREFIX}/record"
OVERDUE_ANNOTATION = f"{PREFIX}/overdue"
UNFOLLOWED_ANNOTATION = f"{PREFIX}/unfollowed-since"
"""RFC 3339; when the last try gave up following a job that runs on."""
REPORT_ANNOTATION = f"{PREFIX}/report"
DIAGNOSIS_ANNOTATION = f"{PREFIX}/diagnosis"
USAGE_ANNOTATION = f"{PREFIX}/usage"
TENSORBOARD_ANNOTATION = f"{PREFIX}/tensorboard"
TRY_ANNOTATION = f"{PREFIX}/try"
TRY_LABEL = f"{PREFIX}/try-of"

MAX_NAME = 49
_HASH_LENGTH = 12
"""48 bits: of 70,000 jobs of one stem two have the same name with a chance of one to 100,000; then one of them is the
next attempt."""

SHORTEST_NAME = _HASH_LENGTH + 2
"""One readable letter, a dash and the hash."""

_MAX_LABEL = 63
_DNS_1035 = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")


@dataclass(frozen=True, kw_only=True)
class JobRef:
    """Which object a job is. The uid decides: another object of the same name is somebody else's job."""

    kind: str
    namespace: str
    name: str
    uid: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"

    def to_dict(self) -> dict[str, str]:
        """Return JSON-safe fields for XCom, trigger arguments and records."""
        return asdict(self)

    @classmethod
    def from_dict(cls, fields: Mapping[str, str]) -> Self:
        """Rebuild what `to_dict` returned; a missing key raises TypeError."""
        return cls(**known_fields(cls, fields))

    @classmethod
    def of(cls, obj: Mapping[str, Any]) -> Self:
        """Take the reference from an object as the API server returned it."""
        meta = obj["metadata"]
        return cls(kind=obj["kind"], namespace=meta["namespace"], name=meta["name"], uid=meta["uid"])


@dataclass(frozen=True)
class Instance:
    """An installation of an orchestrator, as its jobs name it.

    Attributes:
        name: on its new jobs.
        aliases: on its other ones, if there are any: two processes may have made an id each at the same moment.
    """

    name: str
    aliases: frozenset[str] = frozenset()

    def has(self, name: str) -> bool:
        """Tell whether a job with this name is one of the installation's; no operator, which a text would have too."""
        return name == self.name or name in self.aliases

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, kw_only=True)
class Owner:
    """Who asked for a job: an installation of an orchestrator and its ids for the task instance or step.

    Attributes:
        instance: tells two installations apart that share a namespace.
        aliases: of the installation, see `Instance`.
        ids: for Airflow dag_id, task_id, run_id, map_index; part of the object's name.
        labels: more ids that are told on the object and its pods but do not name it, such as try_number.
        reference: to an object of the job's namespace whose end removes the job; None: nothing in the cluster owns it.
    """

    instance: str
    ids: Mapping[str, str]
    labels: Mapping[str, str]
    aliases: frozenset[str] = frozenset()
    reference: Reference | None = None


def object_name(stem: str, owner: Owner, attempt: int, *, longest: int = MAX_NAME) -> str:
    """Name one attempt: the readable stem, then a hash over instance, ids and attempt; at most 49 characters.

    Args:
        stem: the readable beginning.
        owner: whose it is.
        attempt: 1 for the first.
        longest: where a kind's pods need shorter names than that; at least SHORTEST_NAME.

    Raises:
        InvalidSpec: the stem cannot begin a DNS-1035 label (the webhook's rule for PyTorchJob).
    """
    identity = json.dumps([owner.instance, sorted(owner.ids.items()), attempt], separators=(",", ":"))
    digest = hashlib.sha256(identity.encode()).hexdigest()[:_HASH_LENGTH]
    readable = check_name(stem)[: min(longest, MAX_NAME) - _HASH_LENGTH - 1].rstrip("-")
    return f"{readable}-{digest}"


def stem_of(task: str) -> str:
    """Make a task's name the beginning of an object's name."""
    safe = re.sub(r"[^a-z0-9]+", "-", task.lower()).strip("-")
    return safe if safe[:1].isalpha() else f"job-{safe}".rstrip("-")


def check_name(name: str, *, field: str = "name", max_length: int = 63) -> str:
    """Return the name unchanged if it is a DNS-1035 label.

    Raises:
        InvalidSpec: it is not, or it is longer than max_length.
    """
    if len(name) > max_length or not _DNS_1035.fullmatch(name):
        rule = (
            f"lower-case letters, digits and '-', beginning with a letter, at most {max_length} characters (DNS-1035)"
        )
        raise InvalidSpec.of(field, name, rule)
    return name


def owner_labels(name: str, owner: Owner, attempt: int) -> dict[str, str]:
    """Return the labels of a job and its pods: ours, KubernetesPodOperator's, and those that people select by.

    `app` and `release` are what Arena looks for, on the job and on its pods; `pytorch_job_name` is what guides to the
    PyTorch operator select pods by, which no operator sets any more.
    """
    ids = {key: label_value(value) for key, value in {**owner.ids, **owner.labels}.items()}
    ours = {MANAGED_LABEL: "true", ATTEMPT_LABEL: str(attempt)}
    return {**ids, **ours, "app": "pytorchjob", "release": name, "pytorch_job_name": name}


def owner_selector(owner: Owner) -> dict[str, str]:
    """Return labels that all jobs of an owner carry, and their pods."""
    return {MANAGED_LABEL: "true", **{name: label_value(value) for name, value in owner.ids.items()}}


def owner_key(owner: Owner) -> str:
    """Return a label's value that tells an owner from all others."""
    identity = json.dumps([owner.instance, sorted(owner.ids.items())], separators=(",", ":"))
    return hashlib.sha256(identity.encode()).hexdigest()[:16]


def owner_annotation(owner: Owner, attempt: int) -> str:
    """Return the full ids as text, for `is_owned_by` to compare."""
    return json.dumps({"instance": owner.instance, "ids": dict(sorted(owner.ids.items())), "attempt": attempt})


def owner_in(obj: Mapping[str, Any]) -> Owner:
    """Return whom an object says that it was created for; nobody, if it does not say or cannot be understood."""
    meta = obj["metadata"]
    text = (meta.get("annotations") or {}).get(OWNER_ANNOTATION)
    try:
        claimed = json.loads(text) if text else {}
        ids = dict(claimed.get("ids") or {})
        instance = str(claimed.get("instance") or "")
    except (ValueError, TypeError, AttributeError):
        ids, instance = {}, ""
    tries = {key: value for key, value in (meta.get("labels") or {}).items() if key == "try_number"}
    return Owner(instance=instance, ids=ids, labels=tries)


def unfollowed_since(obj: Mapping[str, Any]) -> datetime | None:
    """Return when the last try gave up following a job that ran on; None if none did."""
    text = (obj["metadata"].get("annotations") or {}).get(UNFOLLOWED_ANNOTATION, "")
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def is_owned_by(obj: Mapping[str, Any], owner: Owner) -> bool:
    """Whether an object was created for this owner, in whichever attempt."""
    claimed = owner_in(obj)
    return Instance(owner.instance, owner.aliases).has(claimed.instance) and claimed.ids == dict(owner.ids)


def attempt_of(obj: Mapping[str, Any]) -> int:
    """Return the attempt that an object of ours was created for; 1 for an object that carries none."""
    label = (obj["metadata"].get("labels") or {}).get(ATTEMPT_LABEL, "1")
    return int(label) if label.isdecimal() else 1


def label_value(value: str) -> str:
    """Make any text a valid label value; a text that had to be changed ends in a hash of the whole.

    The rule is KubernetesPodOperator's, so that one selector finds its pods and ours.
    """
    safe = re.sub(r"^[^a-zA-Z0-9]*|[^a-zA-Z0-9_\-.]|[^a-zA-Z0-9]*$", "", value)
    if safe == value and len(safe) <= _MAX_LABEL:
        return safe
    digest = hashlib.md5(value.encode(), usedforsecurity=False).hexdigest()[:9]
    return f"{safe[: _MAX_LABEL - len(digest) - 1]}-{digest}".lstrip("-")


def spec_hash(manifest: Mapping[str, Any]) -> str:
    """Hash what was asked for; key order does not matter. Called before names, labels and attempt are put in."""
    text = json.dumps(manifest, sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
