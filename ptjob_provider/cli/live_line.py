"""Show how far a training is on one line at the bottom of the terminal, below its log."""

from __future__ import annotations

import asyncio
import os
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console
from rich.control import Control
from rich.segment import ControlType
from rich.text import Text

from ptjob_provider.cli.output import printable
from ptjob_provider.core.logs import last_state
from ptjob_provider.core.training_progress import LinePattern, ProgressReader, progress_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ptjob_provider.core.logs import LogLine

_INTERVAL = 0.1
"""Seconds between two drawings: a log may have thousands of lines a second."""


class LiveLine:
    """The line at the bottom of stderr: the training's progress, else the begun line of its log, such as a bar.

    Nothing is drawn where stderr is no terminal, or one that cannot erase a line.

    Args:
        pattern: the user's pattern for lines of progress; None: those that are built in.
        wanted: whether to draw it.

    Attributes:
        is_shown: whether the line is drawn.
    """

    def __init__(self, pattern: LinePattern | None = None, *, wanted: bool = True) -> None:
        self.is_shown = wanted and sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
        self._console = Console(stderr=True, highlight=False, markup=False, emoji=False)
        self._reader = ProgressReader(pattern)
        self._begun = ""
        self._is_drawn = False
        self._drawing: asyncio.TimerHandle | None = None

    def take(self, line: LogLine) -> None:
        """Read the next line of the log."""
        if self.is_shown:
            self._reader.feed(line)
            self._begun = last_state(line.text) if line.continues else ""

    @contextmanager
    def above(self) -> Iterator[None]:
        """Remove the line while something is printed, and draw it again soon."""
        self._erase()
        yield
        if self.is_shown and self._drawing is None:
            self._drawing = asyncio.get_running_loop().call_later(_INTERVAL, self._draw)

    def close(self) -> None:
        """Remove the line for good."""
        self.is_shown = False
        if self._drawing is not None:
            self._drawing.cancel()
        self._erase()

    def _draw(self) -> None:
        self._drawing = None
        self._erase()
        text = progress_text(self._reader.progress) or self._begun
        if text:
            self._console.print(Text(printable(text), "bold"), end="\r", no_wrap=True, overflow="ellipsis")
            self._is_drawn = True

    def _erase(self) -> None:
        if self._is_drawn:
            self._console.control(Control((ControlType.ERASE_IN_LINE, 2)))
            self._is_drawn = False
