"""Wait with KubernetesPodTrigger, as a deferred KubernetesPodOperator and SparkKubernetesOperator do."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml
from airflow.providers.cncf.kubernetes.triggers.pod import KubernetesPodTrigger

from benchmarks.contender import Assignment, Ears, serve
from benchmarks.contenders import airflow_process


async def triggers(assignment: Assignment, ears: Ears) -> None:
    """Run a trigger for each pod, with the operator's defaults."""
    access = yaml.safe_load(await asyncio.to_thread(Path(assignment.kubeconfig).read_text))
    names = enumerate(assignment.names)
    await asyncio.gather(*(_trigger(number, name, access, assignment, ears) for number, name in names))


async def _trigger(number: int, name: str, access: dict[str, Any], assignment: Assignment, ears: Ears) -> None:
    await airflow_process.be_a_trigger(number)
    trigger = KubernetesPodTrigger(
        pod_name=name,
        pod_namespace=assignment.namespace,
        trigger_start_time=datetime.now(UTC),
        base_container_name=assignment.options["container"],
        config_dict=access,
        in_cluster=False,
        logging_interval=assignment.options.get("logging_interval"),
    )
    async for event in trigger.run():
        if event.payload["status"] == "success":
            ears.ended(name)
        break


def main() -> None:
    """Serve as a contender with these triggers."""
    airflow_process.log_as_a_triggerer_does()
    serve(triggers)
