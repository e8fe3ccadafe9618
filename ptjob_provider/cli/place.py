"""Where the commands look: which back-end and namespace, and whose jobs are ours. Options and airflow.cfg → `Place`.

Nothing here loads a back-end, nor YAML: `ptjob --help` answers at once.
"""

from __future__ import annotations

import configparser
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ptjob_provider.core.backend import Backend

BACKENDS = ("kubernetes", "local")

_POD_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


@dataclass(frozen=True, kw_only=True)
class Place:
    """One back-end and namespace.

    Attributes:
        backend: one of BACKENDS.
        asked_namespace: what `-n` says; None: the kubeconfig's or the pod's, else `default`.
        instance: the Airflow installation whose jobs are ours.
        root: local: where the jobs live.
        claims: local: where the claims lie; None: in the root.
        kubeconfigs: kubernetes: the files, the first one counts; none: the service account of the pod that this is.
        context: kubernetes: of the kubeconfig; None: its current one.
    """

    backend: str
    asked_namespace: str | None
    instance: str
    root: Path
    claims: Path | None
    kubeconfigs: tuple[Path, ...]
    context: str | None

    def __str__(self) -> str:
        if self.backend == "local":
            return str(self.root)
        return f"the cluster of context {self.context}" if self.context else "the cluster"

    @property
    def namespace(self) -> str:
        """The namespace to look in, by kubectl's rule."""
        if self.asked_namespace or self.backend == "local":
            return self.asked_namespace or "default"
        if not self.kubeconfigs and _POD_NAMESPACE.is_file():
            return _POD_NAMESPACE.read_text().strip()
        from ptjob_provider.cli.kubeconfig import context_namespace  # noqa: PLC0415 - loads YAML

        return context_namespace(self.kubeconfigs, self.context) or "default"

    def open(self) -> Backend:
        """Return the back-end."""
        if self.backend == "local":
            from ptjob_provider.core.local import LocalBackend, LocalConfig  # noqa: PLC0415 - takes its time

            return LocalBackend(LocalConfig(root=self.root, claims=self.claims))
        from ptjob_provider.core.kubernetes import ClusterConfig, KubernetesBackend  # noqa: PLC0415 - takes half a second

        paths = ":".join(str(path) for path in self.kubeconfigs)
        in_cluster = not paths and _POD_NAMESPACE.is_file()
        return KubernetesBackend(
            ClusterConfig(in_cluster=in_cluster, kube_config_path=paths or None, context=self.context)
        )


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What the command line and the environment say; None where they say nothing."""

    backend: str | None
    namespace: str | None
    root: str | None
    claims: str | None
    kubeconfig: str | None
    context: str | None


def find_place(asked: Asked, environ: Mapping[str, str]) -> Place:
    """Return where to look: as asked, else as Airflow is configured, else wherever there is something to reach."""
    configured = airflow_section(environ)
    root = asked.root or configured.get("local_root") or airflow_home(environ) / "ptjob"
    claims = asked.claims or configured.get("local_claims")
    kubeconfigs = _kubeconfigs(asked, environ)
    return Place(
        backend=_backend(asked, configured, has_cluster=bool(kubeconfigs) or _is_pod(environ)),
        asked_namespace=asked.namespace,
        instance=configured.get("instance") or airflow_section(environ, "api").get("base_url") or "airflow",
        root=Path(root).expanduser(),
        claims=Path(claims).expanduser() if claims else None,
        kubeconfigs=kubeconfigs,
        context=asked.context,
    )


def airflow_home(environ: Mapping[str, str]) -> Path:
    """Return Airflow's home directory by Airflow's rule."""
    return Path(environ.get("AIRFLOW_HOME") or "~/airflow").expanduser()


def airflow_section(environ: Mapping[str, str], section: str = "ptjob") -> Mapping[str, str]:
    """Return a section as Airflow would read it from its variables and its airflow.cfg, without loading Airflow."""
    parser = configparser.ConfigParser(interpolation=None, strict=False)
    try:
        parser.read(environ.get("AIRFLOW_CONFIG") or airflow_home(environ) / "airflow.cfg")
        filed = dict(parser[section]) if parser.has_section(section) else {}
    except (OSError, UnicodeError, configparser.Error):
        filed = {}
    prefix = f"AIRFLOW__{section.upper()}__"
    variables = {name.removeprefix(prefix).lower(): value for name, value in environ.items() if name.startswith(prefix)}
    return filed | variables


def _backend(asked: Asked, configured: Mapping[str, str], *, has_cluster: bool) -> str:
    if asked.backend:
        return asked.backend
    if asked.root or asked.claims:
        return "local"
    if asked.kubeconfig or asked.context:
        return "kubernetes"
    if (backend := configured.get("backend", "").lower()) in BACKENDS:
        return backend
    if configured.get("local_root"):
        return "local"
    return "kubernetes" if has_cluster else "local"


def _kubeconfigs(asked: Asked, environ: Mapping[str, str]) -> tuple[Path, ...]:
    """Return the kubeconfig files by kubectl's rule; none if there are none."""
    named = asked.kubeconfig or environ.get("KUBECONFIG")
    if named:
        return tuple(Path(path).expanduser() for path in named.split(":") if path)
    usual = Path("~/.kube/config").expanduser()
    return (usual,) if usual.is_file() else ()


def _is_pod(environ: Mapping[str, str]) -> bool:
    return "KUBERNETES_SERVICE_HOST" in environ
