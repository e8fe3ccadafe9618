"""Read the configuration section `[ptjob]` and this installation's name; no other module reads them.

The installation's id is a Variable, read and written over Airflow's API; this module never opens the database.
"""

from __future__ import annotations

import contextlib
import math
import os
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

from ptjob_provider.airflow import compat
from ptjob_provider.airflow.compat import conf
from ptjob_provider.core.errors import InvalidSpec, PTJobError
from ptjob_provider.core.identity import Instance
from ptjob_provider.core.installation_id import DESCRIPTION, KEY_PREFIX, instance_of, origin_mismatch, origin_of
from ptjob_provider.core.run.options import Options
from ptjob_provider.core.spec.parsers import integer
from ptjob_provider.core.wire import to_wire
from ptjob_provider.provider_info import OPTIONS

if TYPE_CHECKING:
    from collections.abc import Callable

    from ptjob_provider.core.identity import Manifest
    from ptjob_provider.core.local.config import LocalConfig
    from ptjob_provider.core.spec import Installation

SECTION = "ptjob"


def option(name: str) -> str:
    """Return an option's text, or its default."""
    return str(conf.get(SECTION, name, fallback=OPTIONS[name]["default"])).strip()


SECTION_OPTIONS = Options(text=option, title=lambda name: f"[{SECTION}] {name}")
"""The section's options that all adapters share; each is read when it is used."""


def max_log_records_per_second() -> float:
    """Return the maximum number of log records per second of one process, for all jobs together.

    Raises:
        InvalidSpec: the option is not a number above 0.
    """
    text = option("max_log_records_per_second")
    with contextlib.suppress(ValueError):
        if 0 < (number := float(text)) < math.inf:
            return number
    raise InvalidSpec.of(f"[{SECTION}] max_log_records_per_second", text, "a number above 0")


def max_log_streams() -> int:
    """Return the maximum number of jobs on a cluster whose log has a stream of its own.

    Raises:
        InvalidSpec: the option is not a whole number above 0.
    """
    return integer(1)(f"[{SECTION}] max_log_streams", option("max_log_streams"))


def training_tab() -> bool:
    """Return whether the Training page is a tab of every task; anything but a yes is a no."""
    return option("training_tab").lower() in {"true", "t", "1"}


def local_config() -> LocalConfig | None:
    """Return how jobs run on this machine; None if they run on a cluster.

    Raises:
        InvalidSpec: an option is invalid; the message names it.
    """
    if SECTION_OPTIONS.backend() != "local":
        return None
    home = Path(os.environ.get("AIRFLOW_HOME", "~/airflow")).expanduser()
    return SECTION_OPTIONS.local(default_root=home / "ptjob", environ=os.environ)


_POD_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


class InstanceUnknown(PTJobError):
    """Airflow did not store the id that identifies its jobs; a retry may find it."""

    retryable = True


class ForeignInstance(PTJobError):
    """The id that identifies this Airflow's jobs seems to come from another installation."""


def read() -> Instance:
    """Return this installation, in a task; create its id if there is none.

    Raises:
        InstanceUnknown: the id was created, but is missing.
        AirflowRuntimeError: Airflow's API did not respond.
    """
    if (instance := known()) is not None:
        return instance
    key = f"{KEY_PREFIX}{uuid4().hex[:16]}"
    compat.add_variable(KEY_PREFIX, key, _here(), DESCRIPTION)
    if (instance := known()) is None:
        raise InstanceUnknown(f"the Airflow Variable {key} was set, but is missing; check what deletes Variables")
    return instance


def known() -> Instance | None:
    """Return this installation, in a task; None if it has no id yet, and so no jobs.

    Raises:
        AirflowRuntimeError: Airflow's API did not respond.
    """
    if name := option("instance"):
        return Instance(name)
    return instance_of(compat.variable_keys(KEY_PREFIX))


async def read_in_trigger() -> Instance | None:
    """Return this installation, in a triggerer; None if Airflow did not respond in time, or there is no id."""
    from ptjob_provider.airflow import supervisor  # noqa: PLC0415 - loads what a DAG file does not need

    if name := option("instance"):
        return Instance(name)
    return instance_of(await supervisor.variables_from_trigger(KEY_PREFIX) or ())


def foreign_origin() -> str:
    """Return why this installation's id may come from another one, and what to do; "" if there is no sign of it."""
    if option("instance"):
        return ""
    keys = compat.variable_keys(KEY_PREFIX)
    return origin_mismatch({key: compat.variable(key) or "" for key in keys}, _here())


def _here() -> str:
    """Return a description of this worker."""
    base_url = conf.get("api", "base_url", fallback="") or ""
    execution_api_url = conf.get("core", "execution_api_server_url", fallback="") or ""
    namespace = _POD_NAMESPACE.read_text().strip() if _POD_NAMESPACE.is_file() else ""
    return origin_of(base_url, execution_api_url, namespace)


def load_installation() -> Installation:
    """Return the current settings for every job; only calling a `pod_mutation_hook` loads a Kubernetes client.

    Raises:
        InvalidSpec: the job template is invalid.
    """
    return SECTION_OPTIONS.installation(change_pod=_pod_mutation())


def _pod_mutation() -> Callable[[Manifest], Manifest] | None:
    return _mutated if compat.policies().hook.pod_mutation_hook.get_hookimpls() else None


def _mutated(pod: Manifest) -> Manifest:
    """Return the pod as the installation's `pod_mutation_hook` changes it.

    The hook gets a V1Pod. Fields unknown to that class are kept, because only the hook's changes are copied.

    Raises:
        InvalidSpec: the hook failed, or refused the pod.
    """
    from airflow.providers.cncf.kubernetes.pod_generator import PodGenerator  # noqa: PLC0415 - loads a client
    from airflow.settings import pod_mutation_hook  # noqa: PLC0415 - as above

    from ptjob_provider.core.kinds.pod_template import with_changes  # noqa: PLC0415 - as above

    try:
        model = PodGenerator.deserialize_model_dict(pod)
        before = to_wire(model)
        pod_mutation_hook(model)  # type: ignore[no-untyped-call]
    except Exception as error:
        name = f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
        raise InvalidSpec(f"pod_mutation_hook failed on {name}: {type(error).__name__}: {error}") from error
    changed: Manifest = with_changes(pod, before, to_wire(model))
    return changed
