"""Read the ids of an Airflow installation from its Variables: one Variable per id, and usually only one id.

The id is part of the Variable's key, so that all ids can be listed at once. If two workers each create an id at the
same moment, both ids belong to the installation from then on. The Variable's value, the origin, describes where the id
was created; it differs from the current place if the database was copied or the installation was moved.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ptjob_provider.core.identity import Instance

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

KEY_PREFIX = "ptjob_instance_"

_NO_ADDRESS = "an Airflow without [api] base_url"

DESCRIPTION = "Tells the training jobs of this Airflow from those of others (ptjob-provider). Only delete it in a copy."


def instance_of(keys: Iterable[str]) -> Instance | None:
    """Return the installation with the ids in these keys of Variables; None if no key has an id."""
    ids = sorted(key.removeprefix(KEY_PREFIX) for key in keys if key.startswith(KEY_PREFIX))
    return Instance(ids[0], frozenset(ids[1:])) if ids else None


def origin_of(base_url: str, execution_api_url: str, namespace: str) -> str:
    """Return the origin of an id that is created here: the installation's addresses, as its workers see them."""
    addresses = {
        "[api] base_url": base_url,
        "[core] execution_api_server_url": execution_api_url,
        "the pods' namespace": namespace,
    }
    return ", ".join(f"{name} {text}" for name, text in addresses.items() if text) or _NO_ADDRESS


def origin_mismatch(origins: Mapping[str, str], here: str) -> str:
    """Return why the ids may belong to another installation and what to do; "" if they were created here.

    Args:
        origins: the Variable's key → the recorded origin, for each id.
        here: the origin of an id that would be created here.
    """
    others = {key: origin for key, origin in origins.items() if origin != here}
    if not others:
        return ""
    renew = "; ".join(f"airflow variables delete {key}" for key in sorted(origins))
    keep = "; ".join(f"airflow variables set {key} '{here}'" for key in sorted(others))
    return (
        f"the id that tells this Airflow's jobs from others' was made elsewhere: {min(others.values())}; here is "
        f"{here}. If this database is a copy of another Airflow's, give it an id of its own before any of its tasks "
        f"run: {renew}. If this is the Airflow that has always had the id: {keep}. Where workers see different "
        "addresses, set [ptjob] instance"
    )
