"""Reads the environment variables that say where the step and its job run. No other module reads them.

Kubeflow Pipelines sets the name and uid of the step's pod (`KFP_POD_NAME`, `KFP_POD_UID`) and, if the step has retries,
the number of the current one (`KFP_RETRY_INDEX`). An installation configures all its jobs by `PTJOB_*` variables of the
step's image, or of the process that runs a pipeline on one machine: the options of Airflow's section `[ptjob]`, in
capitals.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from ptjob_provider.core.kubernetes import ClusterConfig
from ptjob_provider.core.kubernetes.config import SERVICE_ACCOUNT
from ptjob_provider.core.run.api_errors import TIMEOUT
from ptjob_provider.core.run.options import Options
from ptjob_provider.core.spec import Installation
from ptjob_provider.provider_info import OPTIONS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ptjob_provider.core.backend import Backend
    from ptjob_provider.core.identity import JobRef
    from ptjob_provider.core.kubernetes import OwnPod
    from ptjob_provider.core.local.config import LocalConfig

INSTANCE = "kubeflow-pipelines"
"""Default name of the installation; distinguishes its jobs from those of other orchestrators in the namespace."""

_DEFAULT_ROOT = "~/ptjob"


@dataclass(frozen=True, kw_only=True)
class StepEnvironment:
    """The environment of a step.

    Attributes:
        backend: runs the job.
        namespace: default namespace of jobs: the step's own. None: `default`.
        instance: this installation's name, part of the name of every job.
        retry: number of this retry among those that the pipeline's author has configured, 0 for the first try; None if
            the author has configured none.
        installation: the installation's settings for every job.
        api_error_timeout: seconds for which requests about a job may be refused.
        pod: the step's pod; None on one machine.
        cluster: how to reach the cluster; None on one machine.
        local: how jobs run on this machine; None on a cluster.
    """

    backend: Backend
    namespace: str | None
    instance: str
    retry: int | None
    installation: Installation = field(default_factory=Installation)
    api_error_timeout: float = TIMEOUT
    pod: OwnPod | None = None
    cluster: ClusterConfig | None = None
    local: LocalConfig | None = None

    async def try_number(self) -> int | None:
        """Return the number of this try, 0 for the first one; None if the step is never retried.

        Argo may be configured to repeat steps whose author has requested no retries; then only the pod has the number.

        Raises:
            ClusterError: the pod cannot be read.
        """
        known = [self.retry, await self.pod.try_number() if self.pod else None]
        return max((number for number in known if number is not None), default=None)

    @property
    def secrets(self) -> tuple[str, ...]:
        """The secrets to mask in logs: the values that this machine may pass to jobs."""
        tables = self.local.secrets.values() if self.local else ()
        return tuple(value for table in tables for value in table.values())

    async def secrets_of(self, ref: JobRef) -> Sequence[str]:
        """Return the values that the programs of a job get from Secrets; none on one machine.

        Raises:
            ClusterError: reading them is forbidden.
        """
        if self.cluster is None:
            return ()
        from ptjob_provider.core.kubernetes import secret_values  # noqa: PLC0415 - only where jobs run on a cluster

        return await secret_values(self.cluster, await self.backend.get(ref.kind, ref.namespace, ref.name))


def read_environment(environ: Mapping[str, str], *, service_account: Path = SERVICE_ACCOUNT) -> StepEnvironment:
    """Return the environment of this step.

    Args:
        environ: environment of this process.
        service_account: directory with a pod's namespace and token.

    Raises:
        InvalidSpec: an option is invalid; the message names it.
    """
    options, local = _options(environ), local_config(environ)
    file = service_account / "namespace"
    namespace = file.read_text().strip() if local is None and file.is_file() else None
    cluster = ClusterConfig(in_cluster=namespace is not None, usage_interval=options.usage_interval())
    retry = environ.get("KFP_RETRY_INDEX", "")
    return StepEnvironment(
        backend=_backend(options, cluster, local),
        namespace=namespace,
        instance=options.text("instance") or INSTANCE,
        retry=(int(retry) if retry.isdecimal() else 1) if retry else None,
        installation=options.installation(),
        api_error_timeout=options.api_error_timeout(),
        pod=_pod(environ, namespace, cluster),
        cluster=None if local else cluster,
        local=local,
    )


def local_config(environ: Mapping[str, str]) -> LocalConfig | None:
    """Return how jobs run on this machine; None if they run on a cluster.

    Raises:
        InvalidSpec: an option is invalid; the message names it.
    """
    options = _options(environ)
    if options.backend() != "local":
        return None
    return options.local(default_root=Path(_DEFAULT_ROOT).expanduser(), environ=environ)


def _options(environ: Mapping[str, str]) -> Options:
    def variable(name: str) -> str:
        return f"PTJOB_{name.upper()}"

    return Options(
        text=lambda name: environ.get(variable(name), OPTIONS[name]["default"]).strip(),
        title=variable,
    )


def _pod(environ: Mapping[str, str], namespace: str | None, cluster: ClusterConfig) -> OwnPod | None:
    name, uid = environ.get("KFP_POD_NAME"), environ.get("KFP_POD_UID")
    if not (namespace and name and uid):
        return None
    from ptjob_provider.core.kubernetes import OwnPod  # noqa: PLC0415 - only where jobs run on a cluster

    return OwnPod(config=cluster, namespace=namespace, name=name, uid=uid)


def _backend(options: Options, cluster: ClusterConfig, local: LocalConfig | None) -> Backend:
    if local is not None:
        from ptjob_provider.core.local.backend import LocalBackend  # noqa: PLC0415 - only where jobs run locally

        return LocalBackend(local)
    from ptjob_provider.core.kubernetes import KubernetesBackend  # noqa: PLC0415 - only where jobs run on a cluster

    return KubernetesBackend(cluster, probe=options.probe())
