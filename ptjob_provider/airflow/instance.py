"""Reads the name of this Airflow installation: `[ptjob] instance`, else an id stored in its database.

The id is a Variable, read and written over Airflow's API; nothing here opens the database.
"""

from __future__ import annotations

from pathlib import Path
from uuid import uuid4

from airflow.sdk import Variable, conf

from ptjob_provider.airflow import asking
from ptjob_provider.airflow.config import option
from ptjob_provider.core.errors import PTJobError
from ptjob_provider.core.identity import Instance
from ptjob_provider.core.installation_id import DESCRIPTION, KEY_PREFIX, instance_of, origin_mismatch, origin_of

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
    if (found := known()) is not None:
        return found
    key = f"{KEY_PREFIX}{uuid4().hex[:16]}"
    Variable.set(key, _here(), description=DESCRIPTION)
    if (found := known()) is None:
        raise InstanceUnknown(f"the Airflow Variable {key} was set and is not there; see who deletes Variables")
    return found


def known() -> Instance | None:
    """Return this installation, in a task; None if it has no id yet, and so no jobs.

    Raises:
        AirflowRuntimeError: Airflow's API did not respond.
    """
    if name := option("instance"):
        return Instance(name)
    return instance_of(Variable.keys(prefix=KEY_PREFIX))


async def read_in_trigger() -> Instance | None:
    """Return this installation, in a triggerer; None if Airflow did not respond in time, or there is no id."""
    if name := option("instance"):
        return Instance(name)
    return instance_of(await asking.variables_from_trigger(KEY_PREFIX) or ())


def foreign_origin() -> str:
    """Return why this installation's id may come from another one, and what to do; "" if there is no sign of it."""
    if option("instance"):
        return ""
    keys = list(Variable.keys(prefix=KEY_PREFIX))
    return origin_mismatch({key: str(Variable.get(key, default="")) for key in keys}, _here())


def _here() -> str:
    """Return a description of this worker."""
    base_url = conf.get("api", "base_url", fallback="") or ""
    execution_api_url = conf.get("core", "execution_api_server_url", fallback="") or ""
    namespace = _POD_NAMESPACE.read_text().strip() if _POD_NAMESPACE.is_file() else ""
    return origin_of(base_url, execution_api_url, namespace)
