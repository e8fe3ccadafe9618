"""Reads the configuration section `[ptjob]` into one frozen value; no other module reads it."""

from __future__ import annotations

import contextlib
import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self

from airflow.sdk import conf

from ptjob_provider.core.errors import InvalidSpec
from ptjob_provider.core.options import Options
from ptjob_provider.provider_info import OPTIONS

if TYPE_CHECKING:
    from ptjob_provider.core.local import LocalConfig

SECTION = "ptjob"


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Settings that are needed to connect to jobs and to name them.

    Attributes:
        backend: one of `core.options.BACKENDS`.
        api_error_timeout: seconds for which requests about a job may be refused.
        local: how jobs run on this machine; None on a cluster.
    """

    backend: str
    api_error_timeout: float
    local: LocalConfig | None = None

    @classmethod
    def load(cls) -> Self:
        """Read the section as it is now.

        Raises:
            InvalidSpec: an option is invalid; the message names it.
        """
        backend = SECTION_OPTIONS.backend()
        timeout, local = SECTION_OPTIONS.api_error_timeout(), _local() if backend == "local" else None
        return cls(backend=backend, api_error_timeout=timeout, local=local)


def option(name: str) -> str:
    """Return an option's text, or its default."""
    return str(conf.get(SECTION, name, fallback=OPTIONS[name]["default"])).strip()


SECTION_OPTIONS = Options(text=option, title=lambda name: f"[{SECTION}] {name}")
"""The section's options that every adapter has; each is read when it is used."""


def max_log_records_per_second() -> float:
    """Return the maximum number of log records per second of one process, for all jobs together.

    Raises:
        InvalidSpec: it is not a number above 0.
    """
    text = option("max_log_records_per_second")
    with contextlib.suppress(ValueError):
        if 0 < (found := float(text)) < math.inf:
            return found
    raise InvalidSpec.of(f"[{SECTION}] max_log_records_per_second", text, "a number above 0")


def max_log_streams() -> int:
    """Return the maximum number of logs of a cluster's jobs that are followed over streams at once.

    Raises:
        InvalidSpec: it is not a whole number above 0.
    """
    text = option("max_log_streams")
    if text.isdecimal() and int(text) > 0:
        return int(text)
    raise InvalidSpec.of(f"[{SECTION}] max_log_streams", text, "a whole number above 0")


def _local() -> LocalConfig:
    home = Path(os.environ.get("AIRFLOW_HOME", "~/airflow")).expanduser()
    return SECTION_OPTIONS.local(default_root=home / "ptjob", environ=os.environ)
