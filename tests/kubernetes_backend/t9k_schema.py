"""The schema of T9k's kind, as its API reference lists the fields; a server refuses or drops all others.

Only the pods' template is left open: it is core/v1's, which the API server checks when the pods are created.
"""

from __future__ import annotations

from typing import Any

from kubernetes_backend.scripted_controller import ANYTHING

STRING, NUMBER, SWITCH = {"type": "string"}, {"type": "integer"}, {"type": "boolean"}


def _object(**fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": fields}


def _list(item: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": item}


def _one_of(*words: str) -> dict[str, Any]:
    return {"type": "string", "enum": list(words)}


_HELD = {"type": STRING, "skipInitContainer": SWITCH, "command": _list(STRING)}
"""Settings of a role while its job is debugged or resumed."""

SPEC = _object(
    replicaSpecs=_list(
        _object(
            type=STRING,
            replicas=NUMBER,
            restartPolicy=_one_of("Never", "OnFailure", "Always", "ExitCode"),
            scalingWeight=NUMBER,
            template=ANYTHING,
        )
    ),
    torchrunConfig=_object(
        enabled=SWITCH,
        maxRestarts=NUMBER,
        procPerNode=STRING,
        rdzvBackend=STRING,
        minNodes=NUMBER,
        extraOptions=_list(STRING),
    ),
    elastic=_object(enabled=SWITCH, minReplicas=NUMBER, maxReplicas=NUMBER, expectedReplicas=NUMBER),
    runMode=_object(
        debug=_object(enabled=SWITCH, replicaSpecs=_list(_object(**_HELD))),
        pause=_object(enabled=SWITCH, resumeSpecs=_list(_object(**_HELD, args=_list(STRING)))),
    ),
    runPolicy=_object(
        activeDeadlineSeconds=NUMBER, backoffLimit=NUMBER, cleanUpPolicy=_one_of("None", "All", "Unfinished")
    ),
    tensorboardSpec=_object(image=STRING, trainingLogFilesets=_list({"type": "string", "pattern": "^t9k://"})),
    scheduler=_object(
        t9kScheduler=_object(queue=STRING, priority={"type": "integer", "minimum": 0, "maximum": 100}),
    ),
)
