"""Run many schedules, several at a time, in one namespace of a cluster."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

import yaml

from cluster import trainer
from cluster.shell import Progress
from cluster.sync_image import SYNC
from cluster.tenants import namespace_in, service_account
from cluster_world import PATIENCE, Tenant, config_of
from preempted.judgement import problems, sentences
from preempted.program import CLAIM, ONE_TRY
from preempted.schedule import Schedule
from preempted.trial import Kubelet, Place, Trial, Witness
from ptjob_provider.core.kubernetes import KubernetesBackend
from ptjob_provider.core.kubernetes.probe import ProbeOptions
from rbac import rules_of_kinds

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

    from cluster.boot import Cluster
    from preempted.trial import Evidence

AT_A_TIME = 5


@contextlib.asynccontextmanager
async def place(cluster: Cluster) -> AsyncIterator[Place]:
    """Yield a new namespace with the claim and the runtime; it is deleted afterwards."""
    await asyncio.to_thread(trainer.install, cluster)
    probe = await asyncio.to_thread(SYNC.ensure, cluster, Progress())
    with namespace_in(cluster) as namespace:
        Tenant(cluster, namespace).claim(CLAIM)
        trainer.apply_runtimes(cluster.kubectl, _fails_at_once(cluster, namespace))
        volume = cluster.volume(CLAIM, namespace=namespace)
        kubeconfig = service_account(cluster, namespace, rules_of_kinds())
        account = KubernetesBackend(config_of(kubeconfig), probe=ProbeOptions(image=probe, timeout=PATIENCE))
        administrator = KubernetesBackend(config_of(cluster.layout.kubeconfig))
        async with Witness(administrator, namespace).watching() as witness:
            yield Place(cluster=cluster, namespace=namespace, backend=account, volume=volume, witness=witness)


def _fails_at_once(cluster: Cluster, namespace: str) -> dict[str, object]:
    """Return Trainer's runtime for PyTorch as one of the namespace, in which no pod is replaced."""
    runtime = yaml.safe_load((trainer.runtimes() / "torch_distributed.yaml").read_text())
    for step in runtime["spec"]["template"]["spec"]["replicatedJobs"]:
        step["template"]["spec"]["backoffLimit"] = 0
    meta = {**runtime["metadata"], "name": ONE_TRY, "namespace": namespace}
    return {**runtime, "kind": "TrainingRuntime", "metadata": meta}


async def tried(cluster: Cluster, seeds: Iterable[int]) -> AsyncIterator[Evidence]:
    """Yield the evidence of each schedule as it ends; those that stop the kubelet come last, in groups."""
    schedules = [Schedule.draw(seed) for seed in seeds]
    turn = asyncio.Semaphore(AT_A_TIME)

    async def one(schedule: Schedule) -> Evidence:
        async with turn:
            return await Trial(schedule, where, None).run()

    async with place(cluster) as where:
        tasks = [asyncio.create_task(one(each)) for each in schedules if not each.stops_kubelet]
        try:
            for done in asyncio.as_completed(tasks):
                yield await done
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        last = [each for each in schedules if each.stops_kubelet]
        for group in (last[begin : begin + AT_A_TIME] for begin in range(0, len(last), AT_A_TIME)):
            kubelet = Kubelet(cluster, where.namespace, trials=len(group))
            for evidence in await asyncio.gather(*(Trial(each, where, kubelet).run() for each in group)):
                yield evidence


def line(evidence: Evidence) -> str:
    """Return a line about a schedule; of one that failed, also what is wrong and what was seen."""
    found = problems(evidence)
    came = f"{', '.join(evidence.outcomes)}; {sentences(evidence)} of {evidence.outcomes.count('attempt')} sentences"
    head = f"{evidence.schedule.seed:>7} {evidence.seconds:5.0f} s  {evidence.schedule}: {came}"
    if not found:
        return f"{head}, good"
    seen = [f"  {each}" for each in evidence.notices]
    seen += [f"  {each}" for each in evidence.record if each.what in {"start", "end"}]
    return "\n".join([f"{head}, FAILED", *(f"    {each}" for each in found), *seen])
