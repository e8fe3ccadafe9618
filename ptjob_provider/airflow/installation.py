"""Applies the installation's settings to every job: `[ptjob] job_template`, and Airflow's `pod_mutation_hook`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ptjob_provider.airflow.config import SECTION_OPTIONS
from ptjob_provider.core.errors import InvalidSpec
from ptjob_provider.core.kinds.layers import with_changes
from ptjob_provider.core.spec import Installation
from ptjob_provider.core.wire import to_wire

if TYPE_CHECKING:
    from collections.abc import Callable

    from ptjob_provider.core.identity import Manifest


def load_installation() -> Installation:
    """Read the current configuration; without these settings, no Kubernetes client is loaded.

    Raises:
        InvalidSpec: the job template is invalid.
    """
    return Installation(
        template=SECTION_OPTIONS.job_template(),
        change_pod=_pod_mutation(),
        sync_image=SECTION_OPTIONS.sync_image(),
        tensorboard_image=SECTION_OPTIONS.tensorboard_image(),
    )


def _pod_mutation() -> Callable[[Manifest], Manifest] | None:
    from airflow.settings import get_policy_plugin_manager  # noqa: PLC0415 - a task has loaded it, a DAG file has not

    return _mutated if get_policy_plugin_manager().hook.pod_mutation_hook.get_hookimpls() else None


def _mutated(pod: Manifest) -> Manifest:
    """Return the pod as the installation's `pod_mutation_hook` changes it.

    The hook gets a V1Pod. Fields unknown to that class are kept, because only the hook's changes are copied.

    Raises:
        InvalidSpec: the hook failed, or refused the pod.
    """
    from airflow.providers.cncf.kubernetes.pod_generator import PodGenerator  # noqa: PLC0415 - loads a client
    from airflow.settings import pod_mutation_hook  # noqa: PLC0415 - as above

    try:
        model = PodGenerator.deserialize_model_dict(pod)
        before = to_wire(model)
        pod_mutation_hook(model)  # type: ignore[no-untyped-call]
    except Exception as error:
        name = f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
        raise InvalidSpec(f"pod_mutation_hook failed on {name}: {type(error).__name__}: {error}") from error
    changed: Manifest = with_changes(pod, before, to_wire(model))
    return changed
