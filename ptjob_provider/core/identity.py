"""Identify jobs: by reference, owner and attempt, and by the name, labels and annotations derived from these.

Object names are not random: the same attempt of the same task always has the same name. A create request can therefore
be repeated, and after a 409 the existing object can be compared with the owner. Names have at most 49 characters:
Services add `-worker-NNN` and may have 63 (training-operator #1101), and Arena refuses longer names.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Self

from ptjob_provider.core.errors import InvalidSpec
from ptjob_provider.core.versions import Record, read_object

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

Manifest = dict[str, Any]
"""A Kubernetes object as the API server has it: camelCase keys, JSON values."""

Reference = dict[str, str | bool]
"""A meta/v1 OwnerReference."""

PREFIX = "ptjob-provider"
"""Prefix of this package's labels and annotations."""

MANAGED_LABEL = f"{PREFIX}/managed"
ATTEMPT_LABEL = f"{PREFIX}/attempt"
OWNER_ANNOTATION = f"{PREFIX}/owner"
SPEC_HASH_ANNOTATION = f"{PREFIX}/spec-hash"
INTENT_ANNOTATION = f"{PREFIX}/intent"
ADOPTED_ANNOTATION = f"{PREFIX}/adopted-by"
"""Random id of the newest try that has adopted the job; none before the first adoption."""
FIRST_ANNOTATION = f"{PREFIX}/first-started-at"
"""RFC 3339 creation time of the first attempt since the last clear, on later attempts."""
PREEMPTIONS_ANNOTATION = f"{PREFIX}/preemptions"
"""Ends of earlier attempts that the platform caused, on later attempts: {ended: [{node, cause, seconds_lost}]}."""
OUTPUTS_ANNOTATION = f"{PREFIX}/outputs"
RECORD_ANNOTATION = f"{PREFIX}/record"
OVERDUE_ANNOTATION = f"{PREFIX}/overdue"
UNFOLLOWED_ANNOTATION = f"{PREFIX}/unfollowed-since"
"""RFC 3339 time at which the last try gave up following a job that still runs."""
LEAVE_RUNNING_ANNOTATION = f"{PREFIX}/leave-running"
REPORT_ANNOTATION = f"{PREFIX}/report"
DIAGNOSIS_ANNOTATION = f"{PREFIX}/diagnosis"
REPORTED_ANNOTATION = f"{PREFIX}/reported-steps"
"""Steps that the training of a failed job has reported: {first_step, last_step, rate, in_order}."""
RESUMED_ANNOTATION = f"{PREFIX}/resumed"
"""Sentence about where a later attempt went on."""
CHECKPOINT_ANNOTATION = f"{PREFIX}/checkpoint-step"
"""Step of the checkpoint that a later attempt was given."""
EARLIER_ANNOTATION = f"{PREFIX}/earlier-attempts"
"""Summaries of the task's earlier attempts, on later ones."""
USAGE_ANNOTATION = f"{PREFIX}/usage"
TENSORBOARD_ANNOTATION = f"{PREFIX}/tensorboard"
TRY_ANNOTATION = f"{PREFIX}/try"
CODE_ANNOTATION = f"{PREFIX}/code"
STEPS_ANNOTATION = f"{PREFIX}/steps"
"""Replicated jobs of a TrainJob that train, as its runtime has them: {name: number of pods}; absent: `node` alone."""
TRY_LABEL = f"{PREFIX}/try-of"

OPEN_LABELS = {"app", "release", "submitted_by", "submission"}
"""Labels that only people and Arena select by: a user's own value stays."""

AIRFLOW_IDS = {"dag_id", "task_id", "run_id"}
"""Ids of an owner that is a task of Airflow; the orphan search takes only jobs of such owners."""

MAX_NAME = 49
_HASH_LENGTH = 12
"""48 bits: among 70,000 jobs of one stem, the probability that two have the same name is 1 in 100,000. In that case,
the later job is refused, and its retry has another name."""

SHORTEST_NAME = _HASH_LENGTH + 2
"""Minimum length of a name: one readable letter, a dash and the hash."""

_MAX_LABEL = 63
_DNS_1035 = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")


@dataclass(frozen=True, kw_only=True)
class JobRef(Record):
    """Reference to one job object; an object of the same name with another uid is another job."""

    kind: str
    namespace: str
    name: str
    uid: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"

    @classmethod
    def of(cls, obj: Mapping[str, Any]) -> Self:
        """Build the reference to an object."""
        meta = obj["metadata"]
        return cls(kind=obj["kind"], namespace=meta["namespace"], name=meta["name"], uid=meta["uid"])


@dataclass(frozen=True)
class Instance:
    """An installation of an orchestrator, by the names that its jobs have for it.

    Attributes:
        name: the name on its new jobs.
        aliases: other names on its jobs; two processes may each have created an id at the same moment.
    """

    name: str
    aliases: frozenset[str] = frozenset()

    def has(self, name: str) -> bool:
        """Return whether a job with this installation name belongs to the installation."""
        return name == self.name or name in self.aliases

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, kw_only=True)
class Owner:
    """Owner of a job: an installation of an orchestrator and its ids for the task instance or step.

    Attributes:
        instance: name of the installation; distinguishes installations that share a namespace.
        aliases: other names of the installation, see `Instance`.
        ids: ids of the task instance or step, for Airflow dag_id, task_id, run_id, map_index; the hash in the object's
            name depends on them.
        labels: further ids on the object and its pods, such as try_number; the name does not depend on them.
        reference: owner reference to an object in the job's namespace, whose deletion deletes the job; None for no
            owner.
    """

    instance: str
    ids: Mapping[str, str]
    labels: Mapping[str, str]
    aliases: frozenset[str] = frozenset()
    reference: Reference | None = None


SUBDOMAIN = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
_MAX_SUBDOMAIN = 253


def is_object_name(text: str) -> bool:
    """Return whether the text is a DNS-1123 subdomain: a valid name of most objects, such as Secrets and claims."""
    return len(text) <= _MAX_SUBDOMAIN and re.fullmatch(SUBDOMAIN, text) is not None


def object_name(stem: str, owner: Owner, attempt: int, *, longest: int = MAX_NAME) -> str:
    """Return the object name of one attempt: a readable stem, then a hash of instance, ids and attempt.

    The name has at most MAX_NAME characters.

    Args:
        stem: the readable beginning.
        owner: the job's owner.
        attempt: the number of the attempt, from 1.
        longest: maximum length, for kinds whose pods need shorter names; at least SHORTEST_NAME.

    Raises:
        InvalidSpec: the stem is not a DNS-1035 label, which the webhook requires for PyTorchJobs.
    """
    identity = json.dumps([owner.instance, sorted(owner.ids.items()), attempt], separators=(",", ":"))
    return _with_hash(check_name(stem), identity, min(longest, MAX_NAME))


def _with_hash(name: str, text: str, longest: int) -> str:
    """Return the beginning of a name, with a hash of the text behind it."""
    digest = hashlib.sha256(text.encode()).hexdigest()[:_HASH_LENGTH]
    return f"{name[: longest - _HASH_LENGTH - 1].rstrip('-')}-{digest}"


def stem_of(task: str) -> str:
    """Return a valid stem for object names, derived from a task's name; one above MAX_NAME ends in a hash instead."""
    safe = re.sub(r"[^a-z0-9]+", "-", task.lower()).strip("-")
    stem = safe if safe[:1].isalpha() else f"job-{safe}".rstrip("-")
    return stem if len(stem) <= MAX_NAME else _with_hash(stem, task, MAX_NAME)


def check_name(name: str, *, field: str = "name", max_length: int = 63) -> str:
    """Check that the name is a DNS-1035 label, and return it unchanged.

    Raises:
        InvalidSpec: it is no DNS-1035 label, or longer than max_length.
    """
    if len(name) > max_length or not _DNS_1035.fullmatch(name):
        rule = (
            "allowed: lower-case letters, digits and '-', beginning with a letter, a letter or digit at the end, "
            f"at most {max_length} characters (DNS-1035)"
        )
        raise InvalidSpec.of(field, name, rule)
    return name


def owner_labels(name: str, owner: Owner, attempt: int) -> dict[str, str]:
    """Return the labels of a job and its pods: this package's, KubernetesPodOperator's, and those of common selectors.

    Arena selects jobs and pods by `app` and `release`. Guides to the PyTorch operator select pods by
    `pytorch_job_name`, which current operators do not set any more.
    """
    ids = {key: label_value(value) for key, value in {**owner.ids, **owner.labels}.items()}
    own = {MANAGED_LABEL: "true", ATTEMPT_LABEL: str(attempt)}
    return {**ids, **own, "app": "pytorchjob", "release": name, "pytorch_job_name": name}


def with_owner_labels(
    given: Mapping[str, Any], ours: Mapping[str, str], *, field_of: Callable[[str], str]
) -> dict[str, Any]:
    """Return a user's labels with those of the owner, of which only OPEN_LABELS give way to the user's.

    Args:
        given: the user's labels.
        ours: the owner's labels, see `owner_labels`.
        field_of: returns the field of a label, for messages.

    Raises:
        InvalidSpec: the user gives another value of a label by which jobs and pods are found.
    """
    for key, value in given.items():
        if key.startswith(f"{PREFIX}/"):
            raise InvalidSpec.of(field_of(key), value, f"leave it out: {PREFIX}/… are this package's own labels")
        if key not in OPEN_LABELS and value != ours.get(key, value):
            rule = f"allowed: {ours[key]!r}, or leave it out; the job and its pods are found by this label"
            raise InvalidSpec.of(field_of(key), value, rule)
    return {**given, **{key: value for key, value in ours.items() if key not in OPEN_LABELS or key not in given}}


def labels_of_rendered(meta: Mapping[str, Any]) -> dict[str, Any]:
    """Return the labels that this package gave a manifest with this metadata; {} if it did not render the manifest.

    Such a file comes from `ptjob render` or a cluster. These labels are another job's, and no user wrote them.
    """
    obj = {"metadata": meta}
    if not annotation_of(obj, OWNER_ANNOTATION):
        return {}
    counted = (meta.get("labels") or {}).get("max_tries")
    return {**owner_labels(str(meta.get("name")), owner_in(obj), attempt_of(obj)), "max_tries": counted}


def owner_selector(owner: Owner) -> dict[str, str]:
    """Return the labels that select all jobs and pods of an owner."""
    return {MANAGED_LABEL: "true", **{name: label_value(value) for name, value in owner.ids.items()}}


def owner_key(owner: Owner) -> str:
    """Return a label value unique to the owner."""
    identity = json.dumps([owner.instance, sorted(owner.ids.items())], separators=(",", ":"))
    return hashlib.sha256(identity.encode()).hexdigest()[:16]


def owner_annotation(owner: Owner, attempt: int) -> str:
    """Return the value of the owner annotation, with the full ids that `is_owned_by` compares."""
    return json.dumps({"instance": owner.instance, "ids": dict(sorted(owner.ids.items())), "attempt": attempt})


def annotation_of(obj: Mapping[str, Any], name: str) -> str:
    """Return an object's annotation; "" if the object does not have it."""
    return str((obj["metadata"].get("annotations") or {}).get(name) or "")


def owner_in(obj: Mapping[str, Any]) -> Owner:
    """Return the owner that an object's annotation names; an owner without ids if there is none or it is unreadable."""
    claimed = read_object(annotation_of(obj, OWNER_ANNOTATION))
    ids = claimed["ids"] if isinstance(claimed.get("ids"), dict) else {}
    tries = {key: value for key, value in (obj["metadata"].get("labels") or {}).items() if key == "try_number"}
    return Owner(instance=str(claimed.get("instance") or ""), ids={**ids}, labels=tries)


def unfollowed_since(obj: Mapping[str, Any]) -> datetime | None:
    """Return the time at which the last try gave up following a job; None if no try did."""
    try:
        instant = datetime.fromisoformat(annotation_of(obj, UNFOLLOWED_ANNOTATION))
    except ValueError:
        return None
    return instant if instant.tzinfo else instant.replace(tzinfo=UTC)


def is_owned_by(obj: Mapping[str, Any], owner: Owner) -> bool:
    """Return whether an object was created for any attempt of this owner."""
    claimed = owner_in(obj)
    return Instance(owner.instance, owner.aliases).has(claimed.instance) and claimed.ids == dict(owner.ids)


def attempt_of(obj: Mapping[str, Any]) -> int:
    """Return the number of the attempt in an object's labels; 1 if there is none."""
    label = (obj["metadata"].get("labels") or {}).get(ATTEMPT_LABEL, "1")
    return int(label) if label.isdecimal() else 1


def label_value(value: str) -> str:
    """Convert any text to a valid label value; a value that differs from the text ends in a hash of the text.

    The rule is KubernetesPodOperator's, so that one selector finds the pods of both.
    """
    safe = re.sub(r"^[^a-zA-Z0-9]*|[^a-zA-Z0-9_\-.]|[^a-zA-Z0-9]*$", "", value)
    if safe == value and len(safe) <= _MAX_LABEL:
        return safe
    digest = hashlib.md5(value.encode(), usedforsecurity=False).hexdigest()[:9]
    return f"{safe[: _MAX_LABEL - len(digest) - 1]}-{digest}".lstrip("-")


def spec_hash(manifest: Mapping[str, Any]) -> str:
    """Return a hash of a specification, independent of the order of keys; it has no names, labels and attempt yet."""
    text = json.dumps(manifest, sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
