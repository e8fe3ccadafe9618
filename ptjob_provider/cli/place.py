"""Finds the back-end, the namespace and the own installation for a command: options and airflow.cfg → `Place`.

Nothing here loads a back-end or YAML, so `ptjob --help` responds at once.
"""

from __future__ import annotations

import configparser
import os
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import timedelta

    from ptjob_provider.core.backend import Backend
    from ptjob_provider.core.identity import Manifest
    from ptjob_provider.core.inspector import FileOptions, Inspector
    from ptjob_provider.core.kubernetes import ClusterConfig
    from ptjob_provider.core.local import LocalConfig
    from ptjob_provider.core.run.options import Options
    from ptjob_provider.core.spec import Installation

BACKENDS = ("kubernetes", "local")

_FILES_IMAGE = "python:3.13-alpine"

_PREFIXES = ("PTJOB_", "AIRFLOW__PTJOB__")
"""Prefixes of variables with options: a step's, and Airflow's."""

_USUAL = Path("~/.kube/config")
_WITHOUT_KUBECONFIG = "name the cluster's kubeconfig, --kubeconfig PATH or $KUBECONFIG, or say --backend local"

_POD_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


@dataclass(frozen=True, kw_only=True)
class Place:
    """One back-end and namespace.

    Attributes:
        backend: one of BACKENDS.
        asked_namespace: value of `-n`; None: the kubeconfig's or the pod's, else `default`.
        instance: the name of the own Airflow installation, "" if none is configured.
        root: local: the jobs' directory.
        claims: local: the claims' directory; None: in the root.
        kubeconfigs: kubernetes: the files, the first one counts; none: the service account of this pod.
        context: kubernetes: the kubeconfig's context; None: its current one.
    """

    backend: str
    asked_namespace: str | None
    instance: str
    root: Path
    claims: Path | None
    kubeconfigs: tuple[Path, ...]
    context: str | None
    is_everywhere: bool = False
    kind: str | None = None
    options: Mapping[str, str] = field(default_factory=dict, repr=False)

    def __str__(self) -> str:
        if self.backend == "local":
            return str(self.root)
        return f"the cluster of context {self.context}" if self.context else "the cluster"

    @property
    def looked_in(self) -> str:
        """The namespace to list, "" for all."""
        return "" if self.is_everywhere else self.namespace

    @property
    def where(self) -> str:
        """Description of the place for people."""
        return f"in {'any namespace' if self.is_everywhere else f'namespace {self.namespace}'} of {self}"

    @property
    def namespace(self) -> str:
        """The namespace by kubectl's rule."""
        if self.asked_namespace or self.backend == "local":
            return self.asked_namespace or "default"
        if not self.kubeconfigs and _POD_NAMESPACE.is_file():
            return _POD_NAMESPACE.read_text().strip()
        from ptjob_provider.cli.kubeconfig import context_namespace  # noqa: PLC0415 - loads YAML

        return context_namespace(self.kubeconfigs, self.context) or "default"

    def open(self) -> Backend:
        """Return the back-end, for existing jobs.

        Raises:
            InvalidSpec: an option is invalid; the message names it.
        """
        if self.backend == "local":
            from ptjob_provider.core.local import LocalBackend, LocalConfig  # noqa: PLC0415 - takes its time

            return LocalBackend(LocalConfig(root=self.root, claims=self.claims))
        from ptjob_provider.core.kubernetes import KubernetesBackend  # noqa: PLC0415 - takes half a second

        return KubernetesBackend(self._cluster)

    def launching(self) -> Backend:
        """Return the back-end for new jobs, with the installation's options.

        Raises:
            InvalidSpec: an option is invalid; the message names it.
        """
        if self.backend == "local":
            from ptjob_provider.core.local import LocalBackend  # noqa: PLC0415 - takes its time

            return LocalBackend(self._local)
        from ptjob_provider.core.kubernetes import KubernetesBackend  # noqa: PLC0415 - takes half a second

        return KubernetesBackend(self._cluster, probe=self._read_options().probe())

    def site(self) -> Inspector:
        """Return the inspector of the place.

        Raises:
            InvalidSpec: an option is invalid; the message names it.
        """
        if self.backend == "local":
            from ptjob_provider.core.local.inspector import LocalInspector  # noqa: PLC0415 - takes its time

            return LocalInspector(self._local)
        from ptjob_provider.core.kubernetes import ClusterInspector  # noqa: PLC0415 - takes half a second

        return ClusterInspector(self._cluster)

    def file_options(self, image: str | None, user: int | None) -> FileOptions:
        """Return the options for access to files on claims inside the cluster."""
        from ptjob_provider.core.inspector import FileOptions  # noqa: PLC0415 - only for files

        options = self._read_options()
        chosen = image or f"{options.text('image_prefix')}{options.text('probe_image') or _FILES_IMAGE}"
        return FileOptions(image=chosen, user=user, timeout=options.probe().timeout)

    def installation(self) -> Installation:
        """Return the installation's settings for every job.

        Raises:
            InvalidSpec: a setting cannot be read.
        """
        from ptjob_provider.core.spec import Installation  # noqa: PLC0415 - loads YAML

        options = self._read_options()
        return Installation(
            template=options.job_template(),
            sync_image=options.sync_image(),
            tensorboard_image=options.tensorboard_image(),
            kind=options.kind(),
        )

    @property
    def preferred_kind(self) -> str | None:
        """Kind of new jobs that name none, and to look for first; None if any kind will do."""
        return self._read_options().kind()

    async def find(self, backend: Backend, name: str) -> Manifest:
        """Return the job of this name, of the kind that the command line names or of the first that has one.

        Raises:
            ClusterError: there is none, or it cannot be read.
            InvalidSpec: the kind is unknown.
        """
        from ptjob_provider.core.run.lookup import find_job  # noqa: PLC0415 - takes its time

        return await find_job(backend, self.namespace, name, kind=self.kind, preferred=self.preferred_kind)

    @property
    def api_error_timeout(self) -> float:
        """Seconds for which requests about a job may be refused."""
        return self._read_options().api_error_timeout()

    @property
    def orphan_grace(self) -> timedelta:
        """Return how long the orphan search spares a job that could no longer be followed."""
        return self._read_options().orphan_grace()

    @property
    def _local(self) -> LocalConfig:
        config = self._read_options().local(default_root=self.root, environ=os.environ)
        return replace(config, root=self.root, claims=self.claims)

    @property
    def _cluster(self) -> ClusterConfig:
        from ptjob_provider.core.errors import InvalidSpec  # noqa: PLC0415 - only for requests
        from ptjob_provider.core.kubernetes import ClusterConfig  # noqa: PLC0415 - as above

        paths = ":".join(str(path) for path in self.kubeconfigs)
        is_pod = _POD_NAMESPACE.is_file()
        in_cluster = not paths and is_pod
        if not in_cluster and not any(path.exists() for path in self.kubeconfigs):  # may be a shell's pipe
            missing = f"{paths or _USUAL} is not there" + ("" if is_pod else ", and this is no pod")
            raise InvalidSpec(f"{missing}: {_WITHOUT_KUBECONFIG}")
        return ClusterConfig(
            in_cluster=in_cluster,
            kube_config_path=paths or None,
            context=self.context,
            usage_interval=self._read_options().usage_interval(),
        )

    def _read_options(self) -> Options:
        from ptjob_provider.core.run.options import Options  # noqa: PLC0415 - loads YAML
        from ptjob_provider.provider_info import OPTIONS  # noqa: PLC0415 - as above

        return Options(
            text=lambda name: self.options.get(name, OPTIONS[name]["default"]).strip(),
            title=lambda name: f"[ptjob] {name}",
        )


@dataclass(frozen=True, kw_only=True)
class Asked:
    """Place options of the command line; None if not given."""

    backend: str | None
    namespace: str | None
    root: str | None
    claims: str | None
    kubeconfig: str | None
    context: str | None


def find_place(asked: Asked, environ: Mapping[str, str]) -> Place:
    """Return the place: from the command line, else variables, else Airflow's configuration, else what can be reached.

    Raises:
        ValueError: both a cluster and this machine are requested, or a variable names an unknown back-end.
    """
    configured, variables = airflow_section(environ), _variables(environ)
    root = _first(asked.root, variables.get("local_root"), configured.get("local_root"))
    claims = _first(asked.claims, variables.get("local_claims"), configured.get("local_claims"))
    kubeconfigs = _kubeconfigs(asked, environ)
    return Place(
        backend=(
            _asked_backend(asked)
            or _backend_of_variables(environ)
            or _configured_backend(configured, has_cluster=bool(kubeconfigs) or _is_pod(environ))
        ),
        asked_namespace=asked.namespace,
        instance=configured.get("instance") or "",
        root=Path(root or airflow_home(environ) / "ptjob").expanduser(),
        claims=Path(claims).expanduser() if claims else None,
        kubeconfigs=kubeconfigs,
        context=asked.context,
        options={**configured, **variables},
    )


def _first(*texts: str | None) -> str | None:
    return next((text for text in texts if text), None)


def _variables(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the options in `PTJOB_*` variables, as for pipelines' steps."""
    return {name.removeprefix("PTJOB_").lower(): value for name, value in environ.items() if name.startswith("PTJOB_")}


def airflow_home(environ: Mapping[str, str]) -> Path:
    """Return Airflow's home directory by Airflow's rule."""
    return Path(environ.get("AIRFLOW_HOME") or "~/airflow").expanduser()


def airflow_section(environ: Mapping[str, str], section: str = "ptjob") -> Mapping[str, str]:
    """Return a section as Airflow reads it from its variables and its airflow.cfg, without loading Airflow."""
    parser = configparser.ConfigParser(interpolation=None, strict=False)
    try:
        parser.read(environ.get("AIRFLOW_CONFIG") or airflow_home(environ) / "airflow.cfg")
        filed = dict(parser[section]) if parser.has_section(section) else {}
    except (OSError, UnicodeError, configparser.Error):
        filed = {}
    prefix = f"AIRFLOW__{section.upper()}__"
    variables = {name.removeprefix(prefix).lower(): value for name, value in environ.items() if name.startswith(prefix)}
    return filed | variables


def here(environ: Mapping[str, str]) -> str:
    """Return the worker description of the Airflow configured here."""
    from ptjob_provider.core.installation_id import origin_of  # noqa: PLC0415 - only for this description

    base_url = airflow_section(environ, "api").get("base_url", "")
    execution_api_url = airflow_section(environ, "core").get("execution_api_server_url", "")
    return origin_of(
        base_url, execution_api_url, _POD_NAMESPACE.read_text().strip() if _POD_NAMESPACE.is_file() else ""
    )


def _asked_backend(asked: Asked) -> str | None:
    """Return the back-end selected by any option of the command line, which overrides every variable."""
    here = {"--root": asked.root, "--claims": asked.claims, "--backend local": asked.backend == "local"}
    is_cluster = asked.backend == "kubernetes"
    there = {"--context": asked.context, "--kubeconfig": asked.kubeconfig, "--backend kubernetes": is_cluster}
    ours, theirs = _said(here), _said(there)
    if ours and theirs:
        raise ValueError(f"{theirs} asks for a cluster and {ours} for this machine: leave one of them out")
    if asked.backend:
        return asked.backend
    return "local" if ours else "kubernetes" if theirs else None


def _said(flags: Mapping[str, object]) -> str:
    return next((flag for flag, value in flags.items() if value), "")


def _backend_of_variables(environ: Mapping[str, str]) -> str | None:
    for name in (f"{prefix}BACKEND" for prefix in _PREFIXES):
        if value := environ.get(name, "").lower():
            if value not in BACKENDS:
                raise ValueError(f"${name}: {value!r} is not allowed; allowed: {', '.join(BACKENDS)}")
            return value
    is_local = any(environ.get(f"{prefix}LOCAL_{what}") for prefix in _PREFIXES for what in ("ROOT", "CLAIMS"))
    return "local" if is_local else None


def _configured_backend(configured: Mapping[str, str], *, has_cluster: bool) -> str:
    if (backend := configured.get("backend", "").lower()) in BACKENDS:
        return backend
    if configured.get("local_root"):
        return "local"
    return "kubernetes" if has_cluster else "local"


def _kubeconfigs(asked: Asked, environ: Mapping[str, str]) -> tuple[Path, ...]:
    """Return the kubeconfig files by kubectl's rule; empty if there are none."""
    named = asked.kubeconfig or environ.get("KUBECONFIG")
    if named:
        return tuple(Path(path).expanduser() for path in named.split(":") if path)
    usual = _USUAL.expanduser()
    return (usual,) if usual.is_file() else ()


def _is_pod(environ: Mapping[str, str]) -> bool:
    return "KUBERNETES_SERVICE_HOST" in environ
