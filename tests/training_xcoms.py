"""XComs of trainings as tasks push them, for tests of the Training page: by the form of the XCom `progress`."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from typing import Any

NOW = datetime.now(UTC).replace(microsecond=0)
STARTED = NOW - timedelta(minutes=20)
JOB = {"kind": "PyTorchJob", "namespace": "team-vision", "name": "train-digits-3f0c5c2d9b1e", "uid": "u-1"}
DIGEST = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
HOSTILE = '<img src=x onerror="document.title=1"><script>document.title=2</script>&amp;{{7*7}}'


def at(minutes: float) -> str:
    """Return the instant this many minutes after the start, in RFC 3339."""
    return (STARTED + timedelta(minutes=minutes)).isoformat()


def curve(points: int, *tags: str) -> dict[str, Any]:
    """Return a curve over the steps; its first tag falls like a loss."""
    steps = [50 * (number + 1) for number in range(points)]
    times = [STARTED.timestamp() + 1200 * (number + 1) / points for number in range(points)]

    def value(tag: int, number: int) -> float:
        noise = 0.06 * math.sin(number * (2.3 + tag)) * math.exp(-number / points)
        falls = 2.3 * math.exp(-3 * number / points) + 0.08 + noise
        return round(falls if tag == 0 else 1 - falls / (2.6 + tag), 5)

    metrics = {tag: [value(place, number) for number in range(points)] for place, tag in enumerate(tags)}
    return {"step": steps, "at": times, "metrics": metrics}


def replica(name: str, rank: int, **fields: Any) -> dict[str, Any]:
    """Return a replica that runs since the start."""
    usual = {"phase": "Running", "node": f"gpu-node-{rank // 2 + 1}", "started": at(0.2 * rank), "ended": ""}
    ends = {"exit_code": None, "reason": "", "restarts": 0, "failed_first": False}
    return {"name": name, "rank": rank, **usual, **ends, **fields}


def progress(**fields: Any) -> dict[str, Any]:
    """Return the XCom of a training that runs, with these fields instead."""
    drawn = curve(90, "loss", "accuracy", "learning_rate")
    metrics = {tag: values[-1] for tag, values in drawn["metrics"].items()}
    replicas = [replica("master-0", 0), *(replica(f"worker-{rank - 1}", rank) for rank in range(1, 4))]
    usual = {
        "uid": JOB["uid"],
        "cursor": None,
        "attempt": 1,
        "phase": "Running",
        "waits": "",
        "step": 4500,
        "total": 12000,
        "epoch": 3.0,
        "epochs": 8,
        "rate": 3.86,
        "eta": 1943.0,
        "metrics": metrics,
        "at": NOW.isoformat(),
        "source": "bar",
        "first_step": 50,
        "in_order": True,
        "resumed": "",
        "curve": drawn,
        "replicas": replicas,
        "replicas_left_out": 0,
        "attempts": [],
    }
    return {**usual, **fields}


def job_xcoms() -> dict[str, Any]:
    """Return the XComs that a task pushes before it waits."""
    return {"job_name": JOB["name"], "job_namespace": JOB["namespace"], "job_uid": JOB["uid"]}


MESSAGE = "train-digits-3f0c5c2d9b1e-worker-1 (rank 2) ran out of memory (OOMKilled, exit code 137)"
ADVICE = "Raise the memory limit or use less (batch size, data loader workers); a retry would fail the same way"
WHY = {"cause": "out_of_memory", "replica": f"{JOB['name']}-worker-1", "advice": ADVICE, "message": MESSAGE}

RESULT: dict[str, Any] = {
    "job": JOB,
    "attempt": 1,
    "phase": "Succeeded",
    "start": at(0),
    "end": at(19),
    "queue_seconds": 4.0,
    "run_seconds": 1136.0,
    "restarts": 0,
    "gpu_seconds": 4544.0,
    "gpu_seconds_lost": 0.0,
    "usage": None,
    "rank0": f"{JOB['name']}-master-0",
    "git_revision": "4b825dc642cb6eb9a060e54bf8d69288fbee4904",
    "code_revision": None,
    "model": {"uri": "pvc://models/digits/model.pt", "bytes": 45_123_456, "sha256": DIGEST, "in_doubt": ""},
    "tfevents": {
        "uri": "pvc://models/digits/events",
        "last_step": 12000,
        "in_doubt": "",
        "scalars": {"loss": 0.0812, "accuracy": 0.981},
    },
    "tensorboard_url": None,
    "diagnosis": None,
    "failed_replicas": [],
}

LIVE = {**job_xcoms(), "tensorboard_url": "http://tensorboard.example.com:6006/", "progress": progress()}

_ENDS = [
    replica("master-0", 0, phase="Failed", ended=at(14.1), exit_code=1, reason="Error"),
    replica("worker-0", 1, phase="Failed", ended=at(14.1), exit_code=1, reason="Error", restarts=2),
    replica("worker-1", 2, phase="Failed", ended=at(13.9), exit_code=137, reason="OOMKilled", failed_first=True),
    replica("worker-2", 3, phase="Failed", ended=at(14.2), exit_code=1, reason="Error"),
]
FAILED = {
    **job_xcoms(),
    "progress": progress(phase="Failed", replicas=_ENDS, at=at(14), eta=None),
    "diagnosis": {**WHY, "retryable": False, "attempt": 1},
    "usage": {
        "queue_seconds": 4.0,
        "run_seconds": 850.0,
        "restarts": 2,
        "gpu_seconds": 3400.0,
        "gpu_seconds_lost": 200.0,
    },
}

EARLIER = {
    "attempt": 1,
    "job": f"{JOB['namespace']}/train-digits-0c5c2d9b1e3f",
    "uid": "u-0",
    "outcome": "Failed",
    "started": at(-60),
    "ended": at(-9),
    "cause": "node_lost",
    "first_step": 50,
    "last_step": 2950,
    "message": "train-digits-0c5c2d9b1e3f-worker-0 (rank 1) was lost with its node gpu-node-7",
    "advice": "A retry resumes from the newest checkpoint",
}
RESUMED = "attempt 2 resumed at step 2,950 of 12,000; no step repeated"
RETRIED = {**LIVE, "progress": progress(attempt=2, first_step=3000, attempts=[EARLIER], resumed=RESUMED)}

OLD = {**job_xcoms(), "model_uri": "pvc://models/digits/model.pt", "metric_loss": 0.0812, "return_value": RESULT}

HOSTILE_ONE = {
    "job_name": HOSTILE,
    "job_namespace": HOSTILE,
    "tensorboard_url": "javascript:alert(1)",
    "diagnosis": {**WHY, "retryable": True, "attempt": 1, "message": HOSTILE, "advice": HOSTILE, "cause": HOSTILE},
    "progress": progress(
        waits=HOSTILE,
        metrics={HOSTILE: 0.5},
        curve=curve(20, HOSTILE, "loss"),
        replicas=[replica(HOSTILE, 0, node=HOSTILE, phase=HOSTILE, reason=HOSTILE)],
        attempts=[{**EARLIER, "message": HOSTILE, "job": HOSTILE, "advice": HOSTILE, "resumed": HOSTILE}],
        resumed=HOSTILE,
    ),
    "return_value": {**RESULT, "model": {"uri": HOSTILE, "bytes": 1, "sha256": HOSTILE}, "return_value": HOSTILE},
}

ODD: dict[str, Any] = {
    **job_xcoms(),
    "progress": {**progress(), "curve": {"step": "x", "metrics": {"loss": "NaN"}}, "replicas": {"a": 1}, "eta": "NaN"},
    "return_value": "a text",
    "diagnosis": [1],
}
"""Values of other types than promised."""

FULL = {**job_xcoms(), "progress": progress(curve=curve(92, *(f"metric_{number:02}" for number in range(16))))}
"""A curve of nearly 16 KiB."""
