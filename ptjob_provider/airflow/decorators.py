"""`@task.pytorch_job`: run the body of a function as a distributed PyTorch training job.

    @task.pytorch_job(image="pytorch/pytorch:2.8.0", workers=2, gpus=1)
    def train(rate: float, data: str) -> float: ...

The function runs on every rank. Its source is sent with the job, together with the parts of its file that it uses
(`core.code.function`). Arguments are sent as JSON, and rebuilt according to type hints (`core.code.arguments`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow.sdk.bases.decorator import DecoratedOperator, task_decorator_factory

from ptjob_provider.airflow.config import SECTION_OPTIONS
from ptjob_provider.airflow.operators import PyTorchJobOperator
from ptjob_provider.core.code.arguments import check_hints
from ptjob_provider.core.code.function import from_function
from ptjob_provider.core.code.program import check_no_command, job_command
from ptjob_provider.core.spec import CodeSource

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from airflow.sdk.bases.decorator import TaskDecorator

    from ptjob_provider.airflow.task_session import JobExecution
    from ptjob_provider.core.spec import TrainingJob

JOB = "job"
"""XCom key of the job's result: the return value of `PyTorchJobOperator`."""

_COMMANDS = ("command", "args", "cmds", "arguments")
_MAPPED = "_airflow_mapped_validation_only"


class PyTorchJobDecoratedOperator(DecoratedOperator, PyTorchJobOperator):
    """Runs a function as a training job; rank 0's return value is the task's.

    It takes every argument of `PyTorchJobOperator` except the command. With `nproc_per_node`, torchrun starts the
    processes. With `code="."`, the function can import modules beside the DAG file.

    Args:
        modules: pure Python packages and modules of this machine that the function imports; their sources are sent
            with the job. Default: none.

    Raises:
        InvalidSpec: the function cannot run outside of its file, or an argument cannot be sent; the message names the
            variable.
    """

    custom_operator_name = "@task.pytorch_job"
    template_fields: Sequence[str] = (
        *DecoratedOperator.template_fields,
        *(name for name in PyTorchJobOperator.template_fields if name not in _COMMANDS),
    )
    shallow_copy_attrs: Sequence[str] = ("python_callable",)

    def __init__(self, *, modules: Sequence[str] = (), **kwargs: Any) -> None:
        check_no_command(kwargs, _COMMANDS, title="@task.pytorch_job")
        super().__init__(**kwargs)
        self._source = from_function(self.python_callable, modules=modules, has_folder=CodeSource.is_folder(self.code))
        if not kwargs.get(_MAPPED):
            check_hints(self.python_callable, [*self.op_args], self.op_kwargs)

    def execute_complete(self, context: Any, event: Mapping[str, Any] | None = None) -> Any:
        """Return rank 0's return value after a deferral; without a deferral, `execute` returns it."""
        return self._handle_output(super().execute_complete(context, event))

    def _handle_output(self, return_value: Any) -> Any:
        return super()._handle_output(return_value.get("return_value"))

    def _tell(self, execution: JobExecution, result: dict[str, Any], context: Any) -> dict[str, Any]:
        reported = super()._tell(execution, result, context)
        context["ti"].xcom_push(key=JOB, value=reported)
        return reported

    def _job(self, namespace: str | None = None) -> TrainingJob:
        if self._source.notice:
            self.log.warning("%s", self._source.notice)
        fields = {name: getattr(self, name) for name in ("nproc_per_node", "kind")}
        fields["kind"] = fields["kind"] or SECTION_OPTIONS.kind()
        self.command = job_command(self._source, self.python_callable, [*self.op_args], self.op_kwargs, fields=fields)
        return super()._job(namespace)


def pytorch_job_task(
    python_callable: Callable[..., Any] | None = None, *, multiple_outputs: bool | None = None, **kwargs: Any
) -> TaskDecorator:
    """Return a task that runs the function as a training job, or a decorator that creates such a task.

    Args:
        python_callable: the function. None: return the decorator.
        multiple_outputs: push every key of a returned map as an XCom, too. None: only if the return type is a map.
        kwargs: arguments of `PyTorchJobDecoratedOperator`.
    """
    return task_decorator_factory(
        python_callable=python_callable,
        multiple_outputs=multiple_outputs,
        decorated_operator_class=PyTorchJobDecoratedOperator,
        **kwargs,
    )
