"""Measure how soon a training goes on after its pod was evicted: `python -m benchmarks.recovery`.

Side by side on the test cluster and in one real Airflow: ours, KubernetesPodOperator with `retries`, Kubeflow's SDK in
a loop, and what restarts within the job. Each job has one pod, which ends at SIGTERM. In each round, every contender
starts a job; once all of them have run for a while, the pods are evicted one after the other.

Seconds count from the watch event in which the evicted pod's container has ended, to the watch event of the next job
(a pod, where there is no job or it stays), and to the file that the next pod's program makes.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import postgresql
from benchmarks import meter
from benchmarks.apiserver import reached
from benchmarks.contestants import PEERS, peer_version
from benchmarks.overhead import Nowhere
from benchmarks.polling import until
from benchmarks.report import number, table
from cluster import trainer, training_image
from cluster.boot import Cluster
from cluster.images import INIT_IMAGE
from cluster.layout import Layout
from cluster.shell import Progress
from cluster.tenants import namespace_in
from cluster_world import Tenant, config_of
from demo.stack import Stack, StackConfig
from installed import ROOT
from kubernetes_backend.endings import evict
from ptjob_provider.core.identity import Owner
from ptjob_provider.core.kinds import PYTORCHJOB
from ptjob_provider.core.kubernetes import KubernetesBackend
from ptjob_provider.core.run.submit import ensure_submitted
from ptjob_provider.core.spec import TrainingJob
from task_run import TaskRun

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from benchmarks.apiserver import ApiServer

DAGS = Path(__file__).parent / "recovery_dags"
PAGE = ROOT / "docs" / "explanation" / "benchmarks.md"
BEGIN, END = "<!-- measured by `make bench-recovery` -->\n", "<!-- end of what `make bench-recovery` measured -->\n"
PODS, JOBS = "/api/v1/namespaces/{}/pods", "/apis/kubeflow.org/v1/namespaces/{}/pytorchjobs"
HELD = "benchmarks.example.com/held"
SETTLED = 10.0
"""Seconds before the first eviction: a trigger younger than 7 s waits for Airflow's supervisor of workers."""

PATIENCE = 480.0
TITLE = "## From an eviction to the next job"
HEADER = ("", "evictions", "not gone on", "job failed p50", "p99", "new job p50", "p99", "new step p50", "p99", "aim")
METHOD = """\
Seconds since the end of the evicted pod's container, as a watch shows it: until its job had failed, where the job is
replaced; until the next job was there (a pod, where there is no job or it stays); and until the next pod's program
made a file. With 100 evictions or fewer, p99 is the longest. `make bench-recovery` starts a job of each
contender, all of one pod, and evicts the pods one after the other through the Eviction API. One real Airflow with its
default settings runs the operators, deferred; KubernetesPodOperator has `retries=2`. The SDK's loop waits with
`wait_for_job_conditions` as it is, which asks every 15 s, and creates the job again. The programs end at SIGTERM.
A pod whose job is to be replaced keeps a finalizer until the job has failed, because a busy training-operator may
miss a pod that is gone at once."""
SCRIPT = """
cd /state
if [ -e {name}.began ]; then
  [ -z "$PTJOB_CHECKPOINT_DIR" ] || [ -n "$PTJOB_RESUME_FROM" ] || exit 9
  touch {name}.step
  until [ -e {turn}.over ]; do sleep 1; done
  exit 0
fi
mkdir {name}.checkpoints; echo weights > {name}.checkpoints/step-100.state
touch {name}.began
trap 'exit 143' TERM
sleep 36000 & wait
"""


@dataclass(frozen=True, kw_only=True)
class Contender:
    """One way to go on.

    Attributes:
        key: beginning of its jobs' names; for Airflow, the name of its DAG.
        name: for people.
        made: what is made anew, by its path.
        aim: seconds from the pod's end to the new job, p99.
        fields: further fields of its job, if it is not Airflow's.
    """

    key: str
    name: str
    made: str = PODS
    aim: str = "–"
    fields: Mapping[str, Any] = field(default_factory=dict)


OURS = Contender(key="ours", name="PyTorchJobOperator, `max_preemptions`", made=JOBS, aim="≤ 15")
LOOK = Contender(key="ours-look", name="the same, with a look for checkpoints", made=JOBS, aim="≤ 30")
PODS_1S = Contender(key="pod-1s", name="KubernetesPodOperator, `retry_delay` of 1 s")
PODS_5MIN = Contender(key="pod-5min", name="KubernetesPodOperator, default `retry_delay`")
LOOP = Contender(key="loop", name="kubeflow SDK in a loop", made=JOBS)
AIRFLOW = (OURS, LOOK, PODS_1S, PODS_5MIN)
IN_PLACE = (
    Contender(key="on-failure", name="PyTorchJob in place, OnFailure", fields={"restart_policy": "OnFailure"}),
    Contender(key="exit-code", name="PyTorchJob in place, ExitCode", fields={"restart_policy": "ExitCode"}),
    Contender(key="train-job", name="TrainJob in place", fields={"kind": "TrainJob"}),
)
EVERYBODY = (*AIRFLOW, LOOP, *IN_PLACE)


@dataclass
class Seen:
    """When a watch has first shown what, by path: creations as (name, uid, time); ends by uid."""

    made: dict[str, list[tuple[str, str, float]]] = field(default_factory=lambda: {PODS: [], JOBS: []})
    ended: dict[str, float] = field(default_factory=dict)

    def note(self, path: str, kind: str, found: dict[str, Any]) -> None:
        """Note an event."""
        meta, status, now = found["metadata"], found.get("status") or {}, time.time()
        if meta["uid"] not in [uid for _, uid, _ in self.made[path]]:
            self.made[path].append((meta["name"], meta["uid"], now))
        states = [each["state"] for each in status.get("containerStatuses") or ()]
        has_failed = any((one["type"], one["status"]) == ("Failed", "True") for one in status.get("conditions") or ())
        if kind == "DELETED" or has_failed or (states and all("terminated" in state for state in states)):
            self.ended.setdefault(meta["uid"], now)

    def of(self, path: str, name: str) -> list[tuple[str, str, float]]:
        """Return what was made for a job of this name, oldest first."""
        return [each for each in self.made[path] if f"{each[0]}-".startswith(f"{name}-")]


@dataclass(frozen=True, kw_only=True)
class Recovery:
    """Seconds from the evicted pod's end until its job had failed, if it is replaced; to the next job; to its step."""

    failed: float
    job: float
    step: float


@dataclass(kw_only=True)
class Bench:
    """The scene of all contenders, and what was measured: by a contender's key; None for a job that did not go on."""

    cluster: Cluster
    namespace: str
    server: ApiServer
    stack: Stack
    loop: asyncio.subprocess.Process
    state: Path
    tell: Callable[[str], None]
    seen: Seen = field(default_factory=Seen)
    delayed: list[asyncio.Task[Recovery | None]] = field(default_factory=list)
    recoveries: dict[str, list[Recovery | None]] = field(default_factory=lambda: {each.key: [] for each in EVERYBODY})
    load: list[float] = field(default_factory=list)

    async def watch(self, path: str) -> None:
        """Note every event, for ever."""
        while True:
            url = f"{self.server.url}{path.format(self.namespace)}?watch=true&timeoutSeconds=100"
            async with self.server.session.get(url) as response:
                rest = b""
                async for chunk in response.content.iter_any():
                    *lines, rest = (rest + chunk).split(b"\n")
                    for event in map(json.loads, lines):
                        self.seen.note(path, event["type"], event["object"])

    async def start(self, contender: Contender, name: str, turn: int) -> TaskRun | None:
        """Start a contender's job; return its task, if it has one."""
        script = SCRIPT.format(name=name, turn=turn)
        if contender in AIRFLOW:
            conf = {"name": name, "script": script}
            run_id = await asyncio.to_thread(self.stack.api.trigger, contender.key, conf)
            return TaskRun(self.stack, contender.key, run_id)
        job = TrainingJob.parse(
            name=name,
            namespace=self.namespace,
            image=INIT_IMAGE,
            command=["sh", "-c", script],
            volumes=["state:/state"],
            cpu="10m",
            memory="32Mi",
            **contender.fields,
        )
        owner = Owner(instance="benchmark", ids={"run_id": name}, labels={})
        if contender is LOOP and self.loop.stdin is not None:
            spec = PYTORCHJOB.render(job, owner=owner, attempt=1).manifest["spec"]
            self.loop.stdin.write(json.dumps({"name": name, "spec": spec}).encode() + b"\n")
            return None
        backend = KubernetesBackend(config_of(self.cluster.layout.kubeconfig))
        await ensure_submitted(backend, job, owner=owner, store=Nowhere())
        return None

    async def evicted(self, contender: Contender, name: str) -> Recovery | None:
        """Evict a job's pod; return how the training went on, or None if it did not.

        training-operator may miss the end of a pod that is gone at once, and makes another one. So that every job that
        is to fail does fail, its pod keeps a finalizer until then.
        """
        pod, uid, _ = self.seen.of(PODS, name)[-1]
        jobs, before = [each for _, each, _ in self.seen.of(JOBS, name)], len(self.seen.of(contender.made, name))
        path = f"{PODS.format(self.namespace)}/{pod}"
        is_replaced, step = contender.made == JOBS, self.state / f"{name}.step"
        self.load.append(os.getloadavg()[0])
        if is_replaced:
            await self.server.patch(path, {"metadata": {"finalizers": [HELD]}})
        try:
            await asyncio.to_thread(evict, self.cluster.kubectl, self.namespace, pod)
            if is_replaced:
                await _until(f"the failure of {name}", lambda: jobs[0] in self.seen.ended)
        finally:  # a pod that is held holds its namespace
            if is_replaced:
                await self.server.patch(path, {"metadata": {"finalizers": None}})

        def is_decided() -> bool:
            return step.exists() or not (is_replaced or self.seen.ended.keys().isdisjoint(jobs))

        with contextlib.suppress(TimeoutError):
            await _until(f"a step of {name}", is_decided)
        if not step.exists():
            return None
        ended, made = self.seen.ended[uid], self.seen.of(contender.made, name)[before][2]
        failed = self.seen.ended[jobs[0]] - ended if is_replaced else math.nan
        return Recovery(failed=failed, job=made - ended, step=step.stat().st_mtime - ended)

    async def take_turn(self, turn: int, contenders: Sequence[Contender]) -> None:
        """Start a job of each contender, evict them all one after the other, and let the jobs end."""
        names = {each.key: f"{each.key}-{turn}" for each in contenders}
        runs = [await self.start(each, names[each.key], turn) for each in contenders]
        for name in names.values():
            await _until(f"{name} to begin", (self.state / f"{name}.began").exists)
        for run in filter(None, runs):
            await asyncio.to_thread(run.wait_for_line, f"trigger {run.dag_id}/")
        await asyncio.sleep(SETTLED)
        for each in contenders:
            if each is PODS_5MIN:
                self.delayed.append(asyncio.create_task(self.evicted(each, names[each.key])))
            else:
                self.recoveries[each.key].append(await self.evicted(each, names[each.key]))
                self.tell(f"{names[each.key]}: {self.recoveries[each.key][-1]}")
        (self.state / f"{turn}.over").touch()


async def _until(what: str, holds: Callable[[], bool]) -> None:
    async def asked() -> bool:
        return holds()

    await until(what, asked, patience=PATIENCE, every=0.05)


async def measured(cluster: Cluster, namespace: str, stack: Stack, count: int, tell: Callable[[str], None]) -> str:
    """Measure so many evictions of each contender, of the default delay half as many; return the page's section."""
    state = cluster.volume("state", namespace=namespace)
    command = (str(PEERS), "-m", "benchmarks.contenders.kubeflow_loop", str(cluster.layout.kubeconfig), namespace)
    loop = await asyncio.create_subprocess_exec(*command, cwd=ROOT, stdin=subprocess.PIPE)
    async with reached(cluster.layout.kubeconfig) as server:
        bench = Bench(
            cluster=cluster, namespace=namespace, server=server, stack=stack, loop=loop, state=state, tell=tell
        )
        watches = [asyncio.create_task(bench.watch(path)) for path in (PODS, JOBS)]
        try:
            for turn in range(count):
                stack.check_alive()
                await bench.take_turn(turn, [each for each in EVERYBODY if each is not PODS_5MIN or 2 * turn < count])
            tell("the last tasks with the default delay")
            bench.recoveries[PODS_5MIN.key] += await asyncio.gather(*bench.delayed)
        finally:
            for watch in watches:
                watch.cancel()
            with contextlib.suppress(ProcessLookupError):
                loop.kill()
            await loop.wait()
    return section(bench.recoveries, bench.load)


def section(recoveries: Mapping[str, Sequence[Recovery | None]], load: Sequence[float]) -> str:
    """Return the page's section."""
    rows = []
    for each in EVERYBODY:
        all_ = recoveries[each.key]
        seen = [recovery for recovery in all_ if recovery is not None]
        columns = ([getattr(one, what) for one in seen] for what in ("failed", "job", "step"))
        figures = [number(meter.percentile(values, percent)) for values in columns for percent in (50, 99)]
        rows.append([each.name, str(len(all_)), str(all_.count(None)), *figures, each.aim])
    setup = (
        f"Measured by `make bench-recovery` on {datetime.now(UTC):%Y-%m-%d}: {meter.machine()},"
        f" load average {min(load):.1f} to {max(load):.1f}"
        f" meanwhile; {meter.versions('apache-airflow', 'apache-airflow-providers-cncf-kubernetes')}, {peer_version()}."
    )
    return f"{TITLE}\n\n{setup}\n\n{table(HEADER, rows)}\n\n{METHOD}\n"


def kept(page: str) -> str:
    """Return the part of the page that `make bench-recovery` has written, with what marks it."""
    _, begin, rest = page.partition(BEGIN)
    return f"\n{begin}{rest.partition(END)[0]}{END}" if begin else ""


def main() -> None:
    """Measure, and print the section."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.recovery", description=__doc__)
    parser.add_argument("--count", type=int, default=10, help="evictions of each contender")
    parser.add_argument("--write", action="store_true", help=f"write {PAGE.relative_to(ROOT)}")
    arguments = parser.parse_args()
    cluster, tell = Cluster.of(Layout.of(os.environ)), Progress()
    with contextlib.ExitStack() as held:
        held.enter_context(cluster.borrowed(tell))
        trainer.install(cluster)
        image = training_image.DIGITS.ensure(cluster, tell)
        namespace = held.enter_context(namespace_in(cluster))
        Tenant(cluster, namespace).claim("state")
        address = held.enter_context(postgresql.database(tell))
        root = Path(held.enter_context(tempfile.TemporaryDirectory(prefix="ptjob-recovery-")))
        extra = {"kube_config": cluster.layout.kubeconfig.read_text(), "namespace": namespace}
        settings = {
            "AIRFLOW__PTJOB__BACKEND": "kubernetes",
            "AIRFLOW__PTJOB__PROBE_IMAGE": image,
            "AIRFLOW__CORE__DAGBAG_IMPORT_TIMEOUT": "300",  # on a busy machine
            "AIRFLOW__DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "600",
            "AIRFLOW_CONN_KUBERNETES_DEFAULT": json.dumps({"conn_type": "kubernetes", "extra": extra}),
        }
        config = StackConfig(home=root, dags=DAGS, database_url=address, settings=settings, paused_at_creation=False)
        tell("starting Airflow")
        stack = held.enter_context(Stack(config))
        for each in AIRFLOW:
            stack.api.wait_for_dag(each.key)
        text = asyncio.run(measured(cluster, namespace, stack, arguments.count, tell))
    sys.stdout.write(text)
    if arguments.write:
        before, _, after = PAGE.read_text().partition(BEGIN)
        PAGE.write_text(f"{before.rstrip()}\n\n{BEGIN}{text}{END}{after.partition(END)[2]}")


if __name__ == "__main__":
    main()
