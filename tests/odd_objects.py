"""Strategies for jobs, pods and events with every value that their schemas on an API server admit.

The types are those of the CRDs of the three kinds and of core/v1: a field that is not required may be missing, integers
have 32 or 64 bits, an instant is any that `format: date-time` admits, and an annotation or a message is any text.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st

from ptjob_provider.core import identity
from ptjob_provider.core.diagnosis import Cause
from ptjob_provider.core.history import ContainerKind, WaitKind

if TYPE_CHECKING:
    from collections.abc import Iterable

NAME = "digits"
PODS = [f"{NAME}-{role}-{index}" for role in ("master", "worker") for index in range(2)]
PODS += [f"{NAME}-node-0-{index}-abcde" for index in range(2)] + [f"{NAME}-0badc-worker-0"]

int32 = st.integers(0, 4) | st.sampled_from([-(2**31), -1, 128, 137, 2**31 - 1])
int64 = int32 | st.sampled_from([-(2**63), 999_999_999_999, 2**63 - 1])
counts = st.integers(-1, 3)
words = st.text(st.characters(codec="utf-8"), max_size=20)
stamps = st.one_of(
    st.sampled_from(["2026-11-20T09:00:00Z", "2026-11-20T09:00:30Z", "2026-11-20T10:00:00Z", "2026-11-20T11:00:00Z"]),
    st.sampled_from(["0000-01-01T00:00:00Z", "0001-01-01T00:00:00Z", "1970-01-01T00:00:00Z", "9999-12-31T23:59:59Z"]),
    st.sampled_from(["2026-11-20t09:00:00z", "2026-11-20T09:00:00+99:99", "2026-11-20T09:00:00.123456789-07:00"]),
    st.sampled_from(["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59.999999-14:00"]),
    st.none(),
)
core_stamps = st.sampled_from(
    ["2026-11-20T09:00:00Z", "2026-11-20T10:00:00Z", "0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z", None]
)
created = st.sampled_from(["2026-11-20T08:00:00Z", "2026-11-20T10:30:00Z"])
json_values = st.recursive(
    st.none() | st.booleans() | int64 | st.floats() | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=6,
)
_TRACEBACK = 'Traceback (most recent call last):\n  File "train.py", line 3, in <module>\n    '
messages = st.one_of(
    words,
    json_values.map(json.dumps),
    st.sampled_from(["[" * 2048, '{"a":' * 700, '{"message":' + "[" * 2048, '{"return_value": ' + "9" * 5000 + "}"]),
    st.sampled_from(
        ['{"return_value": [1', '{"return_value": NaN}', '{"message": {"message": 3}}', '{"message": null}']
    ),
    st.sampled_from(
        [f"{_TRACEBACK}boom()\nValueError: no", f"{_TRACEBACK}boom()\nConnectionError: Gloo connectFullMesh"]
    ),
    st.sampled_from(
        ["Root Cause (first observed failure):\n  rank      : 1 (local_rank: 1)\n  exitcode  : 99999999999"]
    ),
    st.sampled_from(["CUDA out of memory. Tried to allocate 1.2.3 GiB. GPU 0 has a total capacity of ... GiB"]),
    st.sampled_from(
        [
            'pods "digits-worker-0" is forbidden: exceeded quota: q, requested: cpu=1,x, used: cpu=1, limited: cpu=zz',
            'pods "digits-worker-0" is forbidden: exceeded quota: q, requested: pods=1, used: pods=1, limited: pods=1',
            "Error pod digits-worker-0 container pytorch exitCode: 99999999999999999999 terminated message: "
            + "[" * 2048,
            "Deleted pod: digits-worker-0",
            "Created pod: digits-worker-0",
        ]
    ),
)


def some(required: dict[str, Any] | None = None, /, **optional: Any) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries(required or {}, optional=optional)


def few(each: st.SearchStrategy[Any]) -> st.SearchStrategy[list[Any]]:
    return st.lists(each, max_size=3)


def conditions(types: Iterable[str]) -> st.SearchStrategy[list[Any]]:
    one = some(
        {"type": st.sampled_from([*types]) | words, "status": st.sampled_from(["True", "False", "Unknown"])},
        reason=st.sampled_from(["SupervisorLost", "DeadlineExceeded"]) | words,
        message=messages,
        lastTransitionTime=stamps,
    )
    return few(one)


# --- pods and events

_quantities = st.sampled_from([1, "1", "500m", "1e3", "9223372036854775807", "16Gi"])
_names = st.sampled_from(["pytorch", "node", "worker", "init-pytorch", "code-sync", "sidecar"])
_resources = st.dictionaries(st.sampled_from(["cpu", "memory", "nvidia.com/gpu"]), _quantities, max_size=2)
_container = some(
    {"name": _names}, image=words, resources=some(limits=_resources, requests=_resources), restartPolicy=words
)
templates = some(
    metadata=some(labels=st.dictionaries(words, words, max_size=1)),
    spec=some(
        {"containers": few(_container)},
        initContainers=few(_container),
        restartPolicy=st.sampled_from(["Never", "Always"]),
        nodeName=words,
        priorityClassName=words,
    ),
)
_reasons = st.sampled_from(["OOMKilled", "Error", "StartError", "ContainerStatusUnknown", "CrashLoopBackOff"]) | words
_terminated = some(
    {"exitCode": int32},
    signal=int32,
    reason=_reasons,
    message=messages,
    startedAt=core_stamps,
    finishedAt=core_stamps,
    containerID=words,
)
_state = st.one_of(
    some(waiting=some(reason=_reasons, message=messages)),
    some(running=some(startedAt=core_stamps)),
    some({"terminated": _terminated}),
)
_status = some({"name": _names, "restartCount": int32}, state=_state, lastState=_state)
_labels = some(
    **{
        "training.kubeflow.org/job-name": st.just(NAME),
        "jobset.sigs.k8s.io/jobset-name": st.just(NAME),
        "batch.kubernetes.io/job-completion-index": words | st.just("0"),
        "tensorstack.dev/owner-name": st.just(NAME),
    }
)
pods = st.fixed_dictionaries(
    {
        "metadata": some(
            {"name": st.sampled_from(PODS), "uid": st.sampled_from("abc"), "creationTimestamp": created},
            labels=_labels,
            deletionTimestamp=core_stamps,
            deletionGracePeriodSeconds=int64,
        ),
        "spec": templates.map(lambda template: template.get("spec") or {"containers": []}),
        "status": some(
            phase=st.sampled_from(["Pending", "Running", "Succeeded", "Failed", "Unknown"]),
            reason=_reasons,
            message=messages,
            conditions=conditions(["PodScheduled", "DisruptionTarget"]),
            containerStatuses=few(_status),
            initContainerStatuses=few(_status),
        ),
    }
)
_EVENTS = ["SuccessfulCreatePod", "SuccessfulDeletePod", "Error", "FailedCreatePod", "FailedMount", "Pulling"]
events = some(
    {
        "metadata": some(uid=words, creationTimestamp=created),
        "involvedObject": some(kind=st.sampled_from(["Pod", "Workload"]), name=st.sampled_from(PODS), uid=words),
    },
    reason=st.sampled_from([*_EVENTS, "NotApplied"]),
    message=messages,
    lastTimestamp=core_stamps,
    eventTime=core_stamps,
    series=some(lastObservedTime=core_stamps, count=int32),
)

# --- annotations

_record = {
    **dict.fromkeys(("replica", "pod_uid", "key", "container", "reason", "message"), words),
    **dict.fromkeys(("run", "exit_code", "count", "earlier", "settled", "restart_count", "signal"), int64),
    **dict.fromkeys(("since", "started_at", "finished_at", "requested_at"), stamps),
    "kind": st.sampled_from([*ContainerKind, *WaitKind]).map(str),
}
_odd_record = some(**{name: each | json_values for name, each in _record.items()})
_history = {
    **dict.fromkeys(("terminations", "waiting", "held_up", "removals", "restart_counts"), few(_odd_record)),
    **dict.fromkeys(("notices", "revisions", "leaving", "operator_deleted"), few(words)),
    **dict.fromkeys(("queued_since", "first_running_at", "all_running_at"), stamps),
    "returned": messages,
    "queue": words,
    "restarts_reported": int64,
}
_diagnosis = {
    **dict.fromkeys(("summary", "resolution", "exception", "replica", "tail_of"), words),
    **dict.fromkeys(("collateral", "unstarted", "also_failed", "log_tail"), few(words)),
    "cause": st.sampled_from(Cause).map(str),
    "retryable": st.booleans(),
}


def _texts(fields: dict[str, Any]) -> st.SearchStrategy[str]:
    """Return texts that are, or nearly are, the JSON of an annotation of ours, which any account may have edited."""
    whole = some(fields) | some(**{name: each | json_values for name, each in fields.items()})
    return whole.map(json.dumps) | messages


annotations = some(
    **{
        identity.RECORD_ANNOTATION: _texts(_history),
        identity.DIAGNOSIS_ANNOTATION: _texts(_diagnosis),
        identity.USAGE_ANNOTATION: messages | st.just('{"digits-master-0": {"samples": "x", "peak_cpu": "y"}}'),
        identity.REPORT_ANNOTATION: messages,
        identity.OWNER_ANNOTATION: messages,
        identity.TENSORBOARD_ANNOTATION: messages,
        identity.EARLIER_ANNOTATION: messages | _texts({"attempt": int32}).map("[{}]".format),
        identity.REPORTED_ANNOTATION: _texts({"first_step": int32, "last_step": int32}),
        identity.RESUMED_ANNOTATION: messages,
    }
)

# --- jobs

_meta = some(
    {
        "name": st.just(NAME),
        "namespace": st.just("team"),
        "uid": st.just("u1"),
        "resourceVersion": st.just("7"),
        "creationTimestamp": created,
    },
    generation=int64,
    labels=st.dictionaries(st.sampled_from([identity.ATTEMPT_LABEL, "try_number"]), words | st.just("²"), max_size=2),
)
_deadlines = some(activeDeadlineSeconds=int64)
_replica = some(replicas=counts, restartPolicy=words, template=templates)
_pytorchjob = some(
    {
        "kind": st.just("PyTorchJob"),
        "metadata": _meta,
        "spec": some(
            {"pytorchReplicaSpecs": st.dictionaries(st.sampled_from(["Master", "Worker", "Other"]), _replica)},
            runPolicy=some(
                activeDeadlineSeconds=int64,
                schedulingPolicy=some(priorityClass=words),
                cleanPodPolicy=words,
                ttlSecondsAfterFinished=int32,
            ),
            cleanPodPolicy=words,
            activeDeadlineSeconds=int64,
        ),
    },
    status=some(
        conditions=conditions(["Created", "Running", "Succeeded", "Failed", "Suspended", "Restarting"]),
        startTime=stamps,
        completionTime=stamps,
        replicaStatuses=st.dictionaries(words, some(active=int32, failed=int32), max_size=2),
    ),
)
_trainjob = some(
    {
        "kind": st.just("TrainJob"),
        "metadata": _meta,
        "spec": some(
            {"runtimeRef": some({"name": words})},
            trainer=some(numNodes=counts, image=words),
            activeDeadlineSeconds=int64,
        ),
    },
    status=some(
        conditions=conditions(["Suspended", "Complete", "Failed"]),
        jobsStatus=few(
            some(dict.fromkeys(("ready", "succeeded", "failed", "active"), int32) | {"name": st.just("node") | words})
        ),
        trainerStatus=some(
            progressPercentage=int32,
            estimatedRemainingSeconds=int32,
            metrics=few(st.fixed_dictionaries({"name": words, "value": words | st.just("0.5")})),
            lastUpdatedTime=stamps,
        ),
    ),
)
_task = some(
    type=st.sampled_from(["master", "worker"]),
    restartCount=int32,
    replicas=few(
        some(
            name=st.sampled_from(PODS),
            uid=words,
            phase=words | st.just("Deleted"),
            containers=few(some(name=_names, exitCode=int32)),
        )
    ),
)
_pytorchtrainingjob = some(
    {
        "kind": st.just("PyTorchTrainingJob"),
        "metadata": _meta,
        "spec": some(
            replicaSpecs=few(
                some(
                    type=st.sampled_from(["master", "worker"]), replicas=counts, restartPolicy=words, template=templates
                )
            ),
            runPolicy=some(activeDeadlineSeconds=int64, cleanUpPolicy=words),
            scheduler=some(t9kScheduler=some(queue=words, priority=int32)),
        ),
    },
    status=some(
        phase=st.sampled_from(["Pending", "Running", "Succeeded", "Failed", "Paused"]),
        conditions=conditions(["Initialized", "Running", "Completed", "Failed", "ReplicaFailure"]),
        tasks=few(_task),
        backoffCount=int32,
    ),
)
jobs = st.one_of(_pytorchjob, _trainjob, _pytorchtrainingjob)


@st.composite
def _annotated(draw: st.DrawFn) -> dict[str, Any]:
    job = draw(jobs)
    return {**job, "metadata": {**job["metadata"], "annotations": draw(annotations)}}


annotated = _annotated()
