"""What this Airflow installation does to every job: `[ptjob] job_template`, and the `pod_mutation_hook` of Airflow."""

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
    """Read what is configured now; where nothing is, no Kubernetes client is loaded.

    Raises:
        InvalidSpec: the job template cannot be understood.
    """
    return Installation(
        template=SECTION_OPTIONS.job_template(),
        change_pod=_pod_mutation(),
        sync_image=SECTION_OPTIONS.sync_image(),
        tensorboard_image=SECTION_OPTIONS.tensorboard_image(),
    )


def _pod_mutation() -> Callable[[Manifest], Manifest] | None:
    from airflow.settings import get_policy_plugin_manager  # noqa: PLC0415 - what a task has loaded, a DAG file has not

    return _mutated if get_policy_plugin_manager().hook.pod_mutation_hook.get_hookimpls() else None


def _mutated(pod: Manifest) -> Manifest:
    """Return the pod as the installation's `pod_mutation_hook` leaves it.

    The hook gets a V1Pod. What that class does not know yet is not lost: only what the hook changed is taken over.

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
