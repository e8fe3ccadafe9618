"""Check an operator's arguments when its DAG is parsed, except values from templates and other tasks."""

from __future__ import annotations

import inspect
import os
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

from ptjob_provider.airflow.config import SECTION_OPTIONS
from ptjob_provider.core.errors import InvalidSpec, nearest
from ptjob_provider.core.outputs.contract import check_places
from ptjob_provider.core.spec import TrainingJob
from ptjob_provider.core.spec.limits import LIMITS
from ptjob_provider.core.spec.on_finish import OnFinishAction
from ptjob_provider.core.spec.parsers import boolean, parse_each, text, word
from ptjob_provider.core.wire import to_wire

if TYPE_CHECKING:
    from collections.abc import Collection

    from airflow.sdk import BaseOperator

    from ptjob_provider.core.spec.parsers import Reader
    from ptjob_provider.core.training_progress import LinePattern


def switch(field: str, value: Any) -> bool:
    """Parse True or False; refuse texts: this argument is not a template field, and the text "False" is true."""
    if not isinstance(value, bool):
        raise InvalidSpec.of(field, value, "True or False, without quotes")
    return value


def pattern(field: str, value: Any) -> LinePattern:
    """Parse a pattern of lines with progress; most DAG files have none, and need not load its module."""
    from ptjob_provider.core.training_progress import line_pattern  # noqa: PLC0415

    return line_pattern(field, value)


READERS: Mapping[str, Reader[Any]] = {
    **dict.fromkeys(("kubernetes_conn_id", "config_file", "cluster_context", "data_version", "git_revision"), text),
    **dict.fromkeys(("job_name", "namespace"), text),
    **dict.fromkeys(("deferrable", "wait_for_completion", "exact_name", "keep_running_pods"), switch),
    **LIMITS,
    "in_cluster": boolean,
    "progress": pattern,
    "on_finish_action": word(*OnFinishAction),
}
"""Parsers of arguments that are not fields of the job, also of the sensor; None is allowed for each."""

FILES = ("manifest", "pod_template")
"""Fields that may be the path of a file; no other text is treated as a path."""

_TEXTS = {"command": list | tuple, "args": list | tuple, "env": dict}
"""Fields whose items may be any text: a template in an item does not prevent the check of the field."""


def check_names(operator: type, given: Mapping[str, Any]) -> None:
    """Check that the operator has all given arguments.

    Raises:
        TypeError: an argument is unknown; the message has its value and the closest name.
    """
    known = _arguments(operator)
    for name, value in given.items():
        if name not in known and not name.startswith("_"):
            close = nearest(name, known)
            advice = f"; did you mean {close}?" if close else ": its documentation lists all"
            raise TypeError(str(InvalidSpec.of(name, value, f"{operator.__name__} has no such argument{advice}")))


@cache
def _arguments(operator: type) -> tuple[str, ...]:
    names = [name for each in operator.mro() for name in inspect.signature(each.__init__).parameters]  # type: ignore[misc]
    return tuple(dict.fromkeys(names))


def is_checked_later(task: BaseOperator) -> bool:
    """Return whether a task is an instance of a mapped task: it is created at run time, where errors are retried."""
    return getattr(task, "_BaseOperator__from_mapped", False)


def check_arguments(task: BaseOperator, values: Mapping[str, Any]) -> None:
    """Check the arguments that have a parser, except values from templates and other tasks.

    Raises:
        InvalidSpec: an argument is invalid.
    """
    marks = _marks(task)
    for name, value in values.items():
        if value is not None and name in READERS and not _is_open(value, marks):
            READERS[name](name, value)


def check_fields(task: BaseOperator, values: Mapping[str, Any]) -> TrainingJob | None:
    """Check each field of a job whose value is known, and their combination if all are known.

    Returns:
        The job; None if a part of it comes from a template, a file or another task.

    Raises:
        InvalidSpec: a field is invalid, or fields exclude each other.
    """
    marks, wire = _marks(task), to_wire(dict(values))
    known = {name: value for name, value in wire.items() if value is None or _is_known(name, value, marks)}
    check_places(known)
    if known.keys() == wire.keys():
        job = TrainingJob.parse(**known)
        _check_kind(job.given, open_names=())
        return job
    open_fields = {name: value for name, value in wire.items() if name not in known}
    _check_kind(parse_each(TrainingJob, known) | open_fields, open_names=open_fields)
    return None


def _check_kind(given: Mapping[str, Any], *, open_names: Collection[str]) -> None:
    """Check that the job's kind supports its fields, if the task or `[ptjob]` names a kind.

    Raises:
        InvalidSpec: the kind does not support a field.
    """
    if "kind" in open_names or ("kind" not in given and "manifest" in open_names):
        return
    requested = given.get("kind") or given.get("manifest", {}).get("kind")
    kind = requested or _kind_in_settings()
    if kind is None:
        return
    from ptjob_provider.core import kinds  # noqa: PLC0415 - most DAG files name no kind, and need not load it

    try:
        kinds.named(kind).check_fields(given, but=open_names)
    except InvalidSpec as error:
        raise (error if requested else InvalidSpec(f"{error}; the kind is that of [ptjob] kind")) from None


def _kind_in_settings() -> str | None:
    """Return the kind in `[ptjob]`; None if there is none, or if it is invalid, which the tasks report."""
    try:
        return SECTION_OPTIONS.kind()
    except InvalidSpec:
        return None


def _is_known(name: str, value: Any, marks: tuple[str, ...]) -> bool:
    if name in FILES and (isinstance(value, os.PathLike) or (isinstance(value, str) and "\n" not in value)):
        return False
    return not _is_open(value, () if isinstance(value, _TEXTS.get(name, ())) else marks)


def _is_open(value: Any, marks: tuple[str, ...]) -> bool:
    """Return whether a value contains a template or a reference to another task's result."""
    if isinstance(value, str):
        return any(mark in value for mark in marks)
    if isinstance(value, Mapping):
        return any(_is_open(item, marks) for item in value.values())
    if isinstance(value, list | tuple | set):
        return any(_is_open(item, marks) for item in value)
    return hasattr(type(value), "iter_references")  # such as an XComArg


def _marks(task: BaseOperator) -> tuple[str, ...]:
    """Return the strings that begin a template in the task's DAG."""
    settings = (task.dag.jinja_environment_kwargs or {}) if task.has_dag() else {}  # type: ignore[no-untyped-call]
    defaults = {"variable_start_string": "{{", "block_start_string": "{%", "comment_start_string": "{#"}
    return tuple(settings.get(name, default) for name, default in defaults.items())
