"""Test of a pod that a person deletes, for a watch that misses snapshots; reduced from a recorded one."""

from __future__ import annotations

from ends import FAILED, MASTER, RANKS, WORKER
from pods import RUNNING, container, ended, event, look, pod, stamp
from ptjob_provider.core.diagnosis import diagnose
from ptjob_provider.core.history import PodHistory

MADE = [event("SuccessfulCreatePod", f"Created pod: {name}", name="digits") for name in RANKS]
SWEPT = event("SuccessfulDeletePod", f"Deleted pod: {MASTER}", name="digits")


def test_the_deleted_pod_is_named_where_the_last_look_sees_another_replica_killed() -> None:
    """The kubelet's last update sets the grace period to 0: the master seems to have ended when its deletion began."""
    master, worker = {"uid": "m", "name": MASTER}, {"uid": "w", "name": WORKER}
    leaving = {"deletionTimestamp": stamp(15), "deletionGracePeriodSeconds": 2}
    over = {"deletionTimestamp": stamp(15), "deletionGracePeriodSeconds": 0}
    killed = container(ended(137, end=15))

    record = look(PodHistory(), pod(container(RUNNING), **master), pod(container(RUNNING), **worker), events=MADE)
    record = look(record, pod(container(RUNNING), **master), pod(container(RUNNING), **worker, **leaving), events=MADE)
    record = look(record, pod(killed, phase="Failed", **master, **over), at=16, events=[*MADE, SWEPT])

    found = diagnose(record, FAILED, ranks=RANKS)
    assert found.summary == f"{WORKER} (rank 1) was stopped: its pod was deleted, and not by the job's operator"
    assert found.collateral == (MASTER,)
