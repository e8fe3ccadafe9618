"""Airflow adapter: operator, trigger, sensor, hook and links. It maps arguments; `core` makes the decisions.

The names in `__all__` can be imported from here; each module is loaded when a name of it is used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ptjob_provider.airflow.decorators import pytorch_job_task
    from ptjob_provider.airflow.handover import OutputVolume
    from ptjob_provider.airflow.hooks import PyTorchJobHook
    from ptjob_provider.airflow.operators import PyTorchJobOperator
    from ptjob_provider.airflow.sensors import PyTorchJobSensor
    from ptjob_provider.airflow.triggers import PyTorchJobTrigger
    from ptjob_provider.core.outputs.result import JobResult

__all__ = [
    "JobResult",
    "OutputVolume",
    "PyTorchJobHook",
    "PyTorchJobOperator",
    "PyTorchJobSensor",
    "PyTorchJobTrigger",
    "pytorch_job_task",
]

_MODULES = {
    "JobResult": "ptjob_provider.core.outputs.result",
    "OutputVolume": "ptjob_provider.airflow.handover",
    "PyTorchJobHook": "ptjob_provider.airflow.hooks",
    "PyTorchJobOperator": "ptjob_provider.airflow.operators",
    "PyTorchJobSensor": "ptjob_provider.airflow.sensors",
    "PyTorchJobTrigger": "ptjob_provider.airflow.triggers",
    "pytorch_job_task": "ptjob_provider.airflow.decorators",
}


def __getattr__(name: str) -> Any:
    """Load a public name's module when the name is used."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)
