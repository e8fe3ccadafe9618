"""A root directory of local jobs, and `ptjob` commands on it."""

from __future__ import annotations

import asyncio
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from click.testing import CliRunner, Result

from at_terminal import AtTerminal
from ptjob_provider.cli import main
from ptjob_provider.core.identity import JobRef, Owner
from ptjob_provider.core.kinds import PYTORCHJOB
from ptjob_provider.core.local.backend import LocalBackend
from ptjob_provider.core.local.config import LocalConfig
from ptjob_provider.core.spec import TrainingJob

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

PROGRAM = "from ptjob_provider.cli import main; main()"
IDS = {"dag_id": "digits", "task_id": "train", "run_id": "scheduled__2026-11-20", "map_index": "-1"}


@dataclass(frozen=True, kw_only=True)
class Machine:
    """A root directory of local jobs and the command line for it."""

    root: Path

    @property
    def backend(self) -> LocalBackend:
        return LocalBackend(LocalConfig(root=self.root))

    def submit(self, name: str, program: str, **fields: object) -> str:
        """Start a job with two replicas and return its name."""
        return asyncio.run(self._submit(name, program, fields)).name

    def wait_for_line(self, name: str, text: str) -> None:
        """Wait until both replicas of the job have written the text."""
        for rank in ("0", "1"):
            while text not in self.ptjob("logs", name, "-i", rank).stdout:
                time.sleep(0.05)

    def finish(self, name: str) -> None:
        """Wait until the job has ended."""
        asyncio.run(self._finish(name))

    def ptjob(self, *arguments: str) -> Result:
        """Run a `ptjob` command in this process."""
        return CliRunner().invoke(main, ["--root", str(self.root), *arguments])

    def command(self, *words: str) -> list[str]:
        """Return the command line to run `ptjob` in a separate process."""
        return [sys.executable, "-c", PROGRAM, "--root", str(self.root), *words]

    def at_terminal(self, *words: str, env: Mapping[str, str] | None = None) -> str:
        """Run `ptjob` in a pseudo-terminal and return its output."""
        terminal = AtTerminal(self.command(*words), env)
        terminal.end()
        return terminal.sent.decode()

    async def _submit(self, name: str, program: str, fields: dict[str, object]) -> JobRef:
        command = ["python", "-c", program]
        job = TrainingJob.parse(name=name, image="none", command=command, workers=2, **fields)
        owner = Owner(instance="test", ids=IDS, labels={"try_number": "2"})
        return await self.backend.submit(PYTORCHJOB.render(job, owner=owner, attempt=1, exact_name=True).manifest)

    async def _finish(self, name: str) -> None:
        (ref,) = [JobRef.of(job) for job in await self.backend.list(PYTORCHJOB.KIND, "default", {"release": name})]
        async for seen in self.backend.watch(ref):
            if seen.job is None or PYTORCHJOB.read_status(seen.job).phase.is_terminal:
                return

    def clear(self) -> None:
        asyncio.run(self._clear())

    async def _clear(self) -> None:
        for job in await self.backend.list(PYTORCHJOB.KIND, "default", {}):
            await self.backend.delete(JobRef.of(job))
