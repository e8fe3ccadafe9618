"""Names in `batch.tensorstack.dev/v1beta1`, and the job fields with a place in it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

KIND = "PyTorchTrainingJob"
API_VERSION = "batch.tensorstack.dev/v1beta1"
PLURAL = "pytorchtrainingjobs"
OPERATOR = "T9k's job controller"

CONTAINER = "python"
"""Name of the training container; without a container of this name, the first one trains."""

TYPES: Mapping[str, str] = {"master": "master", "worker": "worker"}
"""Our roles as replica types; the words are free, and the very first replica is the master."""

CLEAN_UP = {"Running": "Unfinished", "All": "All", "None": "None"}
"""Our policy → theirs."""


def replica_specs(job: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """Return the roles of a job, rank 0's first."""
    found: Sequence[Mapping[str, Any]] = job["spec"].get("replicaSpecs") or ()
    return found


def trainer_of(template: Mapping[str, Any]) -> str:
    """Return the name of the training container."""
    names = [str(each.get("name") or "") for each in template["spec"]["containers"]]
    return CONTAINER if CONTAINER in names else names[0]


def count(replica: Mapping[str, Any]) -> int:
    """Return the number of pods of a role; the default is one."""
    number = replica.get("replicas")
    return 1 if number is None else int(number)
