"""Two trainings that fail on purpose, to show how a notifier selects its recipient.

One has an error in its program: its author is notified. The other is killed from outside, as by a node that runs out of
memory: the team that runs the cluster is notified. The notifier uses the XCom `diagnosis`, which a task pushes before
it fails; docs/reference/airflow.md lists the causes.

To adapt it: let `send` call the hook of your chat, mail or pager, and keep the table of causes.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from airflow.sdk import DAG, BaseNotifier, Param

from ptjob_provider.airflow.operators import PyTorchJobOperator

if TYPE_CHECKING:
    from collections.abc import Sequence

IMAGE = "digits"
OF_THE_PLATFORM = {
    *("node_lost", "evicted", "preempted", "killed", "terminated", "supervisor_lost", "cannot_start"),
    *("unschedulable", "quota", "forbidden", "queued", "start_timeout", "mount", "connection_lost"),
    *("cluster_unavailable", "cluster_error", "permission_denied", "trigger_failed", "ledger_unavailable"),
}
"""Causes that no change of the program fixes; the author is notified of all others, such as `out_of_memory`, `code`."""


class TellWhoCanHelp(BaseNotifier):
    """Notifies the author of a training or the platform's team about a failure.

    Args:
        author: the person who changes the training.
        platform: the team that runs the cluster; also notified if a task failed without a diagnosis.
    """

    template_fields: Sequence[str] = ("author", "platform")

    def __init__(self, *, author: str, platform: str) -> None:
        super().__init__()
        self.author = author
        self.platform = platform

    def notify(self, context: Any) -> None:
        """Send one line to the author or to the platform's team."""
        ti = context["ti"]
        why = ti.xcom_pull(key="diagnosis", map_indexes=ti.map_index)
        if why is None:  # the worker was killed, or the deferral ended without an event
            self.send(self.platform, f"{ti.task_id} failed and could not say why: {context.get('exception')}")
            return
        to = self.platform if why["cause"] in OF_THE_PLATFORM else self.author
        again = "a retry may help" if why["retryable"] else "a retry cannot help"
        self.send(to, f"{ti.task_id} failed ({why['cause']}, {again}): {why['message']}. {why['advice']}")

    def send(self, to: str, text: str) -> None:
        """Print the text; replace this by your chat's hook."""
        print(f"to {to}: {text}")


with DAG(
    "digits_notified",
    schedule=None,
    doc_md=__doc__,
    params={"image": Param(IMAGE, type="string"), "author": Param("ann@example.org", type="string")},
    default_args={
        "image": "{{ params.image }}",
        "on_failure_callback": TellWhoCanHelp(author="{{ params.author }}", platform="platform@example.org"),
    },
) as dag:
    PyTorchJobOperator(
        task_id="mistaken",
        name="digits-mistaken",
        command=["python", "-c", "print(sum(lables))"],
    )
    PyTorchJobOperator(
        task_id="killed",
        name="digits-killed",
        command=["python", "-c", "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"],
    )

if __name__ == "__main__":
    sys.exit(dag.test().state != "success")
