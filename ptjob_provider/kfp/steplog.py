"""Writes rank 0's lines and notices about the job to the step's standard output, which Kubeflow Pipelines shows."""

from __future__ import annotations

import asyncio
import sys
import time
from typing import TYPE_CHECKING

from ptjob_provider.core.logs import StateFilter
from ptjob_provider.core.run.training_state import TrainingState
from ptjob_provider.core.training_progress import progress_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import TextIO

    from ptjob_provider.core.logs import LogLine

MASK = "***"
_SHORTEST_SECRET = 4
"""Minimum characters of a secret; masking shorter ones would remove letters from words."""

_INTERVAL = 60.0
"""Minimum seconds between two lines with the time left."""


class Masking:
    """Masks known secrets in texts; a secret that contains another one is replaced first."""

    def __init__(self, secrets: Iterable[str]) -> None:
        self._secrets: list[str] = []
        self.learn(secrets)

    def learn(self, secrets: Iterable[str]) -> None:
        """Mask these secrets as well from now on."""
        lines = {line for secret in secrets for line in (secret, *secret.splitlines())}
        long = {line for line in lines if len(line) >= _SHORTEST_SECRET}
        self._secrets = sorted(long.union(self._secrets), key=len, reverse=True)

    @property
    def reach(self) -> int:
        """Return how many characters at the end of a text may be the beginning of a secret."""
        return max((len(secret) - 1 for secret in self._secrets), default=0)

    def __call__(self, text: str) -> str:
        """Return the text with the secrets masked."""
        for secret in self._secrets:
            text = text.replace(secret, MASK)
        return text


class StepLog:
    """Sink (`rank0_log.Sink`) that prints lines, and notices after a dash; each is flushed at once.

    Args:
        mask: masks known secrets.
        stream: where to write. None: the current standard output.
        clock: seconds.

    Attributes:
        mask: the argument.
        state: what the follower knows about the training.
        when_unread: called when no process reads the output any more. Older versions of Argo signal only the process
            that reads it, Kubeflow's launcher, and not the step.
    """

    def __init__(
        self, mask: Masking, stream: TextIO | None = None, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.mask = mask
        self.state = TrainingState()
        self.when_unread: Callable[[], None] = lambda: None
        self._stream = stream or sys.stdout
        self._is_in_a_line = False
        self._held = ""
        self._states = StateFilter()
        self._seen = self.state.progress
        self._clock = clock
        self._told_at = clock()

    def line(self, line: LogLine) -> None:
        """Print one line, or one piece of a long one; few states of a line that overwrites itself."""
        for shown in self._states.take(line):
            if shown.notice:
                self.notice(shown.text)
            else:
                self._print_line(shown)

    def notice(self, text: str) -> None:
        """Print one notice about the job on a line of its own."""
        self._begin_line()
        self._print(f"── {self.mask(text)}", end="\n")

    def failure(self, text: str) -> None:
        """Print why the step fails, with a complete summary on the first line."""
        self._begin_line()
        self._print(self.mask(text), end="\n")

    async def room(self) -> None:
        """Let the event loop handle a termination signal between two lines; a slow reader blocks `print` itself."""
        self._tell_time_left()
        await asyncio.sleep(0)

    def _tell_time_left(self) -> None:
        """Print the time left after a line that says how far the training is, now and then; bars say it themselves."""
        before, self._seen = self._seen, self.state.progress
        if self._seen is before or self._seen.eta is None or self._seen.source == "bar":
            return
        if self._clock() >= self._told_at + _INTERVAL:
            self._told_at = self._clock()
            self.notice(progress_text(self._seen))

    def _print_line(self, line: LogLine) -> None:
        text = self.mask(self._held + line.text)
        end = max(len(text) - self.mask.reach, 0) if line.continues else len(text)
        self._held = text[end:]
        self._print(text[:end], end="" if line.continues else "\n")
        self._is_in_a_line = line.continues

    def _begin_line(self) -> None:
        for line in self._states.rest():
            self._print_line(line)
        if self._is_in_a_line:
            self._print(self._held, end="\n")
            self._held = ""
            self._is_in_a_line = False

    def _print(self, text: str, *, end: str) -> None:
        try:
            print(text, end=end, file=self._stream, flush=True)
        except BrokenPipeError:
            self.when_unread()
