"""Accept KubernetesPodOperator's arguments that apply to a training job: to migrate, change only the class."""

from __future__ import annotations

import hashlib
import re
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

from airflow.sdk import BaseOperator

from ptjob_provider.airflow.arguments import check_names
from ptjob_provider.core.errors import InvalidSpec
from ptjob_provider.core.spec import parsers, pods
from ptjob_provider.core.wire import to_wire

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ptjob_provider.core.spec import TrainingJob


def with_secrets(job: TrainingJob, secrets: Sequence[Any], configmaps: Sequence[str]) -> TrainingJob:
    """Return the job with these secrets and config maps added.

    Args:
        job: the requested job.
        secrets: `airflow.providers.cncf.kubernetes.secret.Secret` objects.
        configmaps: names.

    Raises:
        InvalidSpec: a secret is not such an object, or the name of a config map is invalid.
    """
    for index, name in enumerate(configmaps):
        job = _with_source(job, f"configmaps[{index}]", {"config_map": name})
    for index, secret in enumerate(secrets):
        job = _with_secret(job, f"secrets[{index}]", secret)
    return job


def _with_secret(job: TrainingJob, field: str, secret: Any) -> TrainingJob:
    if not all(hasattr(secret, part) for part in ("deploy_type", "deploy_target", "secret", "key", "items")):
        raise InvalidSpec.of(field, secret, "a Secret of airflow.providers.cncf.kubernetes.secret")
    if secret.deploy_type == "volume":
        return _with_volume(job, field, secret)
    if secret.key is None:
        return _with_source(job, field, {"secret": secret.secret})
    variable = {secret.deploy_target: {"secret": secret.secret, "key": secret.key}}
    return replace(job, env=pods.merged(job.env, pods.environment(field, variable)))


def _with_source(job: TrainingJob, field: str, source: dict[str, Any]) -> TrainingJob:
    return replace(job, env_from=(*(job.env_from or ()), parsers.env_source(field, source)))


def _with_volume(job: TrainingJob, field: str, secret: Any) -> TrainingJob:
    """Mount the secret as a volume whose name is the same in every try: another name would count as a changed job."""
    digest = hashlib.sha256(f"{secret.secret}:{secret.deploy_target}".encode()).hexdigest()[:8]
    items = {"items": to_wire(list(secret.items))} if secret.items else {}
    volume = {"name": f"secret-{digest}", "secret": {"secretName": secret.secret, **items}}
    mount = {"name": volume["name"], "mountPath": secret.deploy_target, "readOnly": True}
    return replace(
        job,
        volumes=(*(job.volumes or ()), pods.volume(field, volume)),
        volume_mounts=(*(job.volume_mounts or ()), pods.volume_mount(field, mount)),
    )


ALIASES = {
    "cmds": "command",
    "arguments": "args",
    "env_vars": "env",
    "schedulername": "scheduler_name",
    "hostnetwork": "host_network",
    "termination_grace_period": "termination_grace_period_seconds",
    "pod_template_file": "pod_template",
    "pod_template_dict": "pod_template",
    "full_pod_spec": "pod_template",
    "startup_timeout_seconds": "start_timeout",
    "schedule_timeout_seconds": "queue_timeout",
}
"""KubernetesPodOperator's name → our name with the same meaning."""

_POD = "put it into `pod_template`, a pod in Kubernetes' words"
_LOG = "rank 0's log is always in the task's log; other replicas' are read with `ptjob logs -i`"
_ADOPTED = "a retry always adopts the job that still runs"
_REPORTED = "a failure always includes the states and events of the pods"
_WATCHED = "jobs are watched, not polled; leave it out"
_CALLBACKS = "use Airflow's callbacks, such as `on_success_callback`"

NOT_FIELDS: Mapping[str, tuple[Any, str]] = {
    **dict.fromkeys(("ports", "runtime_class_name", "automount_service_account_token"), (None, _POD)),
    **dict.fromkeys(("host_aliases", "dnspolicy", "dns_config", "hostname", "subdomain"), (None, _POD)),
    "termination_message_policy": ("File", _POD),
    **dict.fromkeys(("container_logs", "init_container_logs", "logging_interval"), (None, _LOG)),
    **dict.fromkeys(("container_name_log_prefix_enabled", "log_formatter"), (None, _LOG)),
    "get_logs": (True, _LOG),
    "log_pod_spec_on_failure": (None, "a pod's spec is not logged; `ptjob get -o yaml` shows the job"),
    **dict.fromkeys(("log_events_on_failure", "log_events_on_startup"), (True, _REPORTED)),
    **dict.fromkeys(("poll_interval", "startup_check_interval_seconds"), (None, _WATCHED)),
    "base_container_status_polling_interval": (None, _WATCHED),
    **dict.fromkeys(("reattach_on_restart", "durable"), (True, _ADOPTED)),
    "random_name_suffix": (True, "a job's name is the same for every retry; `exact_name=True` leaves its hash out"),
    "base_container_name": ("pytorch", "the training container is called so; the operator looks for no other"),
    "on_kill_action": ("delete_pod", "a user's kill deletes the job, a drained worker's retry adopts it"),
    "xcom_sidecar_container_security_context": (None, "results come without a sidecar; leave it out"),
    "is_delete_operator_pod": (None, "use `on_finish_action`"),
    "skip_on_exit_code": (None, "use a branch on the result, or `retry_policy`"),
    "pod_runtime_info_envs": (None, "the operator tells every pod its rank; put other variables into `env`"),
    **dict.fromkeys(("callbacks", "progress_callback"), (None, _CALLBACKS)),
    "trigger_kwargs": (None, "the trigger takes what the operator knows; leave it out"),
}
"""KubernetesPodOperator's name → the only allowed value beside None, and why, or what to use instead.

The allowed value requests what always happens; None: no value is allowed. None as an argument is the default of most.
"""


class PodOperatorNames(BaseOperator):
    """Base class of an operator that accepts KubernetesPodOperator's names, also in `default_args` and `partial`.

    Args:
        cmds: alias of a field of the job or of a limit, like all names in ALIASES.
        secrets: `airflow.providers.cncf.kubernetes.secret.Secret` objects: variables, or files in a volume.
        configmaps: names of config maps whose keys become environment variables.
        get_logs: accepted only with the value of what always happens, like others in NOT_FIELDS.

    Raises:
        InvalidSpec: an argument does not apply to a training job; the message names its replacement.
    """

    def __init__(
        self,
        *,
        cmds: Sequence[str] | None = None,
        arguments: Sequence[str] | None = None,
        env_vars: Mapping[str, Any] | Sequence[Any] | None = None,
        schedulername: str | None = None,
        hostnetwork: bool | None = None,
        termination_grace_period: int | None = None,
        pod_template_file: str | None = None,
        pod_template_dict: Mapping[str, Any] | None = None,
        full_pod_spec: Any = None,
        startup_timeout_seconds: float | None = None,
        schedule_timeout_seconds: float | None = None,
        secrets: Sequence[Any] | None = None,
        configmaps: Sequence[str] | None = None,
        get_logs: Literal[True] | None = None,
        reattach_on_restart: Literal[True] | None = None,
        durable: Literal[True] | None = None,
        log_events_on_failure: Literal[True] | None = None,
        log_events_on_startup: Literal[True] | None = None,
        random_name_suffix: Literal[True] | None = None,
        base_container_name: Literal["pytorch"] | None = None,
        on_kill_action: Literal["delete_pod"] | None = None,
        termination_message_policy: Literal["File"] | None = None,
        **kwargs: Any,
    ) -> None:
        given = {**kwargs, **locals()}
        for name in NOT_FIELDS.keys() & given.keys():
            (allowed, why), value = NOT_FIELDS[name], given[name]
            kwargs.pop(name, None)
            if value is not None and value != allowed:
                rule = (
                    "a training job has no such argument:" if allowed is None else f"allowed: {allowed!r}, or left out;"
                )
                raise InvalidSpec.of(name, value, f"{rule} {why}")
        check_names(type(self), kwargs)
        super().__init__(**kwargs)
        self.secrets = secrets
        self.configmaps = configmaps
        self._by_alias = {alias: given[alias] for alias in ALIASES if given[alias] is not None}

    @contextmanager
    def errors_as_given(self) -> Iterator[None]:
        """Name a field in an error by the alias under which it was given."""
        try:
            yield
        except InvalidSpec as error:
            field = re.split(r"\W", error.field, maxsplit=1)[0]
            alias = next((alias for alias in self._by_alias if ALIASES[alias] == field), field)
            raise error.renamed(alias + error.field.removeprefix(field)) from None

    def given(self, name: str, value: Any) -> Any:
        """Return the value of an argument that may be given under its name or an alias.

        Raises:
            InvalidSpec: it was given under more than one name.
        """
        given = {alias: each for alias, each in self._by_alias.items() if ALIASES[alias] == name}
        if value is not None:
            given[name] = value
        if len(given) > 1:
            raise InvalidSpec(f"{' and '.join(given)} mean the same; give one of them")
        return next(iter(given.values()), None)
