"""Read the name of this Airflow installation: `[ptjob] instance`, else an id that its database keeps.

It is reached as any Variable is, over Airflow's own API; nothing here opens the database.
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
    """Airflow did not keep the id that tells its jobs from others'; a retry may find it."""

    retryable = True


class ForeignInstance(PTJobError):
    """The id that tells this Airflow's jobs from others' was made by another one, it seems."""


def read() -> Instance:
    """Return this installation, in a task; one that has no id yet is given one.

    Raises:
        InstanceUnknown: its id was made and is not there.
        AirflowRuntimeError: Airflow's API did not answer.
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
        AirflowRuntimeError: Airflow's API did not answer.
    """
    if name := option("instance"):
        return Instance(name)
    return instance_of(Variable.keys(prefix=KEY_PREFIX))


async def read_in_trigger() -> Instance | None:
    """Return this installation, in a triggerer; None if Airflow did not answer in time, or there is no id."""
    if name := option("instance"):
        return Instance(name)
    return instance_of(await asking.variables_from_trigger(KEY_PREFIX) or ())


def foreign_origin() -> str:
    """Return why this installation's id may be another one's, and what to do; "" if nothing speaks for that."""
    if option("instance"):
        return ""
    keys = list(Variable.keys(prefix=KEY_PREFIX))
    return origin_mismatch({key: str(Variable.get(key, default="")) for key in keys}, _here())


def _here() -> str:
    """Return where this worker is."""
    base_url = conf.get("api", "base_url", fallback="") or ""
    execution_api_url = conf.get("core", "execution_api_server_url", fallback="") or ""
    namespace = _POD_NAMESPACE.read_text().strip() if _POD_NAMESPACE.is_file() else ""
    return origin_of(base_url, execution_api_url, namespace)
