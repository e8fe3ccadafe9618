"""Runs the benchmark's sections on one cluster, each in its own namespaces."""

from __future__ import annotations

from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from benchmarks import crowds, live_logs, many_pods, real_jobs, waiting
from benchmarks.apiserver import reached
from benchmarks.contestants import EVERYBODY, TRIGGER
from benchmarks.process import ROOT, Kind
from benchmarks.rates import counting
from benchmarks.results import OUR_LOG, THEIR_LOGGER, Results
from benchmarks.stress import stress
from benchmarks.waiting import Plan
from cluster import binaries
from cluster.tenants import namespace_in

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence
    from pathlib import Path

    from benchmarks.apiserver import ApiServer
    from benchmarks.contestants import Contestant
    from benchmarks.process import Contender
    from benchmarks.waiting import Crowd, User
    from cluster.boot import Cluster

SECTIONS = ("waiting", "logs", "following", "rates", "stress")
LINES = 80_000
"""Lines of the log that each writer transfers: 9 MB in the kubelet's file, which is not rotated at this size."""

FOLLOWED = 20
TALKERS = 4
TALK = 2_500
"""Lines per second of each printing job; all of them together exceed the limit of Airflow's logger."""

FOLLOWERS = (
    TRIGGER,
    replace(TRIGGER, kind=Kind(name="KubernetesPodTrigger, logging_interval=10", module="pod_trigger"), account="pods"),
)


@dataclass(kw_only=True)
class Run:
    """One run.

    Attributes:
        sizes: numbers of waiting jobs, in ascending order.
        quick: whether measurements are short.
        tell: receives progress messages.
    """

    cluster: Cluster
    sizes: Sequence[int]
    quick: bool
    scratch: Path
    tell: Callable[[str], None]
    results: Results = field(default_factory=Results)

    async def through(self, sections: Sequence[str]) -> Results:
        """Measure these sections.

        Contenders whose requests per hour are counted run at the same time as the others: they use next to no CPU.
        """
        async with reached(self.cluster.layout.kubeconfig) as server, AsyncExitStack() as stack:
            if {"rates", "stress"} & set(sections):
                few = await stack.enter_async_context(self._crowd(server, "jobs", min(100, self.sizes[-1])))
                many = await stack.enter_async_context(self._crowd(server, "jobs", self.sizes[-1]))
                if "rates" in sections:
                    await self._counted(few, many, sections)
                else:
                    await self._beside(server, sections)
                if "stress" in sections:
                    await self._stress(many)
            else:
                await self._beside(server, sections)
        return self.results

    async def _counted(self, few: Crowd, many: Crowd, sections: Sequence[str]) -> None:
        async with self._user(few) as user, self._user(many) as another:
            self.tell(f"two that wait beside all others, for {len(few.objects)} and {len(many.objects)} jobs")
            async with counting(TRIGGER.kind, [(few, user), (many, another)], self.scratch) as count:
                await self._beside(few.server, sections)
                self.results.rates += await count.end(at_least=60.0 if self.quick else 600.0)

    async def _beside(self, server: ApiServer, sections: Sequence[str]) -> None:
        if "waiting" in sections:
            for size in self.sizes:
                await self._wait(server, size, "jobs")
                await self._wait(server, size, "pods")
        if "logs" in sections:
            await self._logs(server)
        if "following" in sections:
            await self._following(server)

    # --- sections

    async def _wait(self, server: ApiServer, size: int, waits_for: str) -> None:
        contestants = [each for each in EVERYBODY if each.waits_for == waits_for and each.takes_part(size)]
        if not contestants:
            return
        async with AsyncExitStack() as stack:
            crowd = await stack.enter_async_context(self._crowd(server, waits_for, size))
            user = await stack.enter_async_context(self._user(crowd, "referee"))
            reference = await stack.enter_async_context(waiting.referee(crowd, user, self.scratch))
            for each in contestants:
                self.tell(f"{size} {waits_for}: {each.kind.name}")
                self.results.waited.append(await self._waited(each, crowd, reference))

    async def _waited(self, contestant: Contestant, crowd: Crowd, reference: Contender) -> waiting.Waited:
        async with self._user(crowd, contestant.account) as user:
            return await waiting.measure(
                contestant.kind,
                crowd,
                user,
                self._plan(len(crowd.objects), has_endings="idle" not in contestant.account),
                reference=reference,
                scratch=self.scratch,
                kubectl=self._kubectl,
                container=many_pods.CONTAINER,
            )

    async def _logs(self, server: ApiServer) -> None:
        async with self._crowd(server, "jobs", 0) as crowd, self._user(crowd) as user:
            [submission] = await real_jobs.start(server, crowd.namespace, [real_jobs.all_at_once(LINES)])
            await real_jobs.has_printed(server, crowd.namespace, submission.rank0)
            orders = {
                THEIR_LOGGER: lambda log: live_logs.bare_logger(LINES, log),
                OUR_LOG: lambda log: live_logs.our_trigger(submission, user, log),
                "KubernetesPodTrigger, logging_interval=1": lambda log: live_logs.pod_trigger(
                    submission, user, log, logging_interval=1
                ),
            }
            for number, (writer, order) in enumerate(orders.items()):
                self.tell(f"{LINES} lines: {writer}")
                folder = self.scratch / f"log-{number}"
                self.results.written.append(
                    await live_logs.through_triggerer(writer, order("log"), LINES, folder),
                )
            self.tell(f"{LINES} lines: kubectl logs")
            self.results.written.append(await live_logs.through_kubectl(self._kubectl, submission, user, LINES))

    async def _following(self, server: ApiServer) -> None:
        async with self._crowd(server, "jobs", 0) as crowd:
            talking = await real_jobs.start(server, crowd.namespace, [real_jobs.steadily(1)] * FOLLOWED)
            for each in FOLLOWERS:
                self.tell(f"following {FOLLOWED} logs: {each.kind.name}")
                async with self._user(crowd, each.account) as user:
                    followed = await live_logs.following(
                        each.kind, server, talking, user, seconds=20.0 if self.quick else 60.0, scratch=self.scratch
                    )
                    self.results.followed.append(followed)

    async def _stress(self, crowd: Crowd) -> None:
        async with self._user(crowd, "stress") as user:
            talking = await real_jobs.start(crowd.server, crowd.namespace, [real_jobs.steadily(TALK)] * TALKERS)
            plan = self._plan(len(crowd.objects))
            for name, settings in {"Airflow's defaults": "", "settings of scale.md": _documented_settings()}.items():
                self.tell(f"{len(crowd.objects)} jobs wait, {TALKERS} print, a tenth ends: {name}")
                scratch = self.scratch / f"stress-{len(self.results.stressed)}"
                self.results.stressed[name] = await stress(crowd, talking, user, plan, scratch, settings=settings)

    # --- shared parts

    def _plan(self, size: int, *, has_endings: bool = True) -> Plan:
        seconds = 10.0 if size >= 1000 else 5.0
        endings = min(1000, max(1, size // 10 if size > 1000 else size))
        if not has_endings:
            return Plan(quiet=seconds, busy=0.0, endings=0, ending=0.0)
        return Plan(quiet=seconds, busy=seconds, endings=endings, ending=min(seconds, float(size)))

    @asynccontextmanager
    async def _crowd(self, server: ApiServer, waits_for: str, size: int) -> AsyncIterator[Crowd]:
        with namespace_in(self.cluster) as namespace:
            if size:
                self.tell(f"making {size} {waits_for}")
            create = crowds.jobs if waits_for == "jobs" else crowds.pods
            yield await create(server, namespace, size)

    @asynccontextmanager
    async def _user(self, crowd: Crowd, account: str = TRIGGER.account) -> AsyncIterator[User]:
        async with crowds.user_of(self.cluster, crowd.server, crowd.namespace, account) as user:
            yield user

    @property
    def _kubectl(self) -> str:
        return str(self.cluster.programs.folder(binaries.KUBERNETES) / "kubectl")


def _documented_settings() -> str:
    """Return the lines for `airflow_local_settings.py` that docs/explanation/scale.md has."""
    _, _, rest = (ROOT / "docs" / "explanation" / "scale.md").read_text().partition("```python\n")
    return rest.partition("```")[0]
