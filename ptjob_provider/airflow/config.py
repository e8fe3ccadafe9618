"""The configuration section `[ptjob]` as one frozen value; the only place that reads it."""

from __future__ import annotations

import contextlib
import json
import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import yaml
from airflow.sdk import conf

from ptjob_provider.core.errors import InvalidSpec, one_of
from ptjob_provider.core.spec import job_template as read_template
from ptjob_provider.provider_info import OPTIONS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ptjob_provider.core.kubernetes.probe_pod import ProbeOptions
    from ptjob_provider.core.local import ImageStandIn, LocalConfig
    from ptjob_provider.core.spec import TrainingJob

SECTION = "ptjob"
BACKENDS = ("kubernetes", "local")


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What is needed to reach jobs and to name them.

    Attributes:
        backend: one of BACKENDS.
        instance: tells this installation from others that share a namespace.
        local: how jobs run on this machine; None on a cluster.
    """

    backend: str
    instance: str
    local: LocalConfig | None = None

    @classmethod
    def load(cls) -> Self:
        """Read the section as it is now.

        Raises:
            InvalidSpec: an option cannot be understood; the text names it.
        """
        backend = option("backend").lower()
        if backend not in BACKENDS:
            raise InvalidSpec.of(f"[{SECTION}] backend", backend, one_of(BACKENDS))
        instance = option("instance") or conf.get("api", "base_url", fallback="") or "airflow"
        return cls(backend=backend, instance=instance, local=_local() if backend == "local" else None)


def option(name: str) -> str:
    """Return an option's text, or its default."""
    return str(conf.get(SECTION, name, fallback=OPTIONS[name]["default"])).strip()


def job_template() -> TrainingJob | None:
    """Return what is put under every job; None if nothing is.

    Raises:
        InvalidSpec: it cannot be read, or has a field that only one job can have.
    """
    return (
        read_template(_document("job_template"), field=f"[{SECTION}] job_template") if option("job_template") else None
    )


def probe_options() -> ProbeOptions:
    """Return how outputs are looked at inside a cluster."""
    from ptjob_provider.core.kubernetes.probe_pod import ProbeOptions  # noqa: PLC0415 - only where jobs run there

    try:
        timeout = float(option("probe_timeout"))
    except ValueError:
        raise InvalidSpec.of(f"[{SECTION}] probe_timeout", option("probe_timeout"), "seconds") from None
    return ProbeOptions(image=option("probe_image"), image_prefix=option("image_prefix"), timeout=timeout)


def max_log_records_per_second() -> float:
    """Return the ceiling of log records of one process, all jobs together.

    Raises:
        InvalidSpec: it is no number above 0.
    """
    text = option("max_log_records_per_second")
    with contextlib.suppress(ValueError):
        if 0 < (found := float(text)) < math.inf:
            return found
    raise InvalidSpec.of(f"[{SECTION}] max_log_records_per_second", text, "a number above 0")


def max_log_streams() -> int:
    """Return how many logs of a cluster's jobs are followed over a stream of their own at once.

    Raises:
        InvalidSpec: it is no whole number above 0.
    """
    text = option("max_log_streams")
    if text.isdecimal() and int(text) > 0:
        return int(text)
    raise InvalidSpec.of(f"[{SECTION}] max_log_streams", text, "a whole number above 0")


def _local() -> LocalConfig:
    from ptjob_provider.core.local import LocalConfig, base_environment  # noqa: PLC0415 - only where jobs run locally

    return LocalConfig(
        root=Path(option("local_root") or _airflow_home() / "ptjob"),
        claims=_path("local_claims"),
        images={image: _stand_in(image, value) for image, value in _document("local_images").items()},
        python=option("local_python") or None,
        gpus=_gpus(option("local_gpus")),
        secrets=_tables("local_secrets"),
        config_maps=_tables("local_config_maps"),
        environment=base_environment(os.environ),
    )


def _airflow_home() -> Path:
    return Path(os.environ.get("AIRFLOW_HOME", "~/airflow")).expanduser()


def _path(name: str) -> Path | None:
    text = option(name)
    return Path(text).expanduser() if text else None


def _gpus(text: str) -> Any:
    return int(text) if text.isdecimal() else text


def _stand_in(image: str, value: Any) -> ImageStandIn:
    from ptjob_provider.core.local import ImageStandIn  # noqa: PLC0415 - as above

    fields = {"context": value} if isinstance(value, str) else value
    if not isinstance(fields, dict) or "context" not in fields or not set(fields) <= {"context", "python"}:
        raise InvalidSpec.of(
            f"[{SECTION}] local_images", {image: value}, "a directory, or a map with context and python"
        )
    return ImageStandIn(context=Path(fields["context"]).expanduser(), python=fields.get("python"))


def _tables(name: str) -> dict[str, dict[str, str]]:
    tables = _document(name)
    for table, entries in tables.items():
        if not isinstance(entries, dict):
            raise InvalidSpec(f"[{SECTION}] {name}: {table} has to be a map of key to value")
    return {table: {key: str(value) for key, value in entries.items()} for table, entries in tables.items()}


def _document(name: str) -> Mapping[str, Any]:
    """Read JSON, or a JSON or YAML file. Its values may be secret: no error repeats them."""
    text = option(name) or "{}"
    try:
        found = json.loads(text) if text.startswith("{") else yaml.safe_load(Path(text).expanduser().read_text())
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise InvalidSpec(
            f"[{SECTION}] {name}: {type(error).__name__}; give JSON, or the path of a JSON or YAML file"
        ) from None
    if not isinstance(found, dict):
        raise InvalidSpec(f"[{SECTION}] {name}: a map is needed")
    return found
