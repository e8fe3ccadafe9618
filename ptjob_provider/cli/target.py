"""Selects the back-end and namespace of a command from its options, variables, airflow.cfg and kubeconfig.

Importing this module loads neither a back-end nor YAML, so that `ptjob --help` responds at once.
"""

from __future__ import annotations

import configparser
import os
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ptjob_provider.core.errors import InvalidSpec, in_ptjob, one_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ptjob_provider.core.backend import Backend
    from ptjob_provider.core.identity import Manifest
    from ptjob_provider.core.inspector import FileOptions, Inspector
    from ptjob_provider.core.kubernetes import ClusterConfig
    from ptjob_provider.core.local.config import LocalConfig
    from ptjob_provider.core.run.options import Options

BACKENDS = ("kubernetes", "local")

_PREFIXES = ("PTJOB_", "AIRFLOW__PTJOB__")
"""Prefixes of environment variables for options of `[ptjob]`: those of a KFP step, and Airflow's."""

_USUAL = Path("~/.kube/config")
_WITHOUT_KUBECONFIG = "name the cluster's kubeconfig, --kubeconfig PATH or $KUBECONFIG, or say --backend local"

_POD_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


@dataclass(frozen=True, kw_only=True)
class Target:
    """One back-end and namespace, with the settings of the installation.

    Attributes:
        backend: one of BACKENDS.
        requested_namespace: value of `-n`; None: the kubeconfig's or the pod's, else `default`.
        root: local: the jobs' directory.
        kubeconfigs: kubernetes: the files, of which the first with a value counts; (): this pod's service account.
        context: kubernetes: the kubeconfig's context; None: its current one.
        kind: the kind of jobs; None: any.
        is_everywhere: whether all namespaces are listed.
        options: the options of `[ptjob]` that are set.
        variables: the names of the variables that set options, by option.
    """

    backend: str
    requested_namespace: str | None
    root: Path
    kubeconfigs: tuple[Path, ...]
    context: str | None
    kind: str | None = None
    is_everywhere: bool = False
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    variables: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        if self.backend == "local":
            return str(self.root)
        return f"the cluster of context {self.context}" if self.context else "the cluster"

    @property
    def where(self) -> str:
        """Description of the target for people."""
        return f"in {'any namespace' if self.is_everywhere else f'namespace {self.namespace}'} of {self}"

    @property
    def namespace(self) -> str:
        """The namespace by kubectl's rule."""
        if self.requested_namespace or self.backend == "local":
            return self.requested_namespace or "default"
        if not self.kubeconfigs and _POD_NAMESPACE.is_file():
            return _POD_NAMESPACE.read_text().strip()
        namespace = context_namespace(self.kubeconfigs, self.context)
        if not namespace and self._pipe:
            raise InvalidSpec(f"-n is missing: {self._pipe} is a pipe, which is read once, for its server")
        return namespace or "default"

    @property
    def _pipe(self) -> Path | None:
        return next((path for path in self.kubeconfigs if path.is_fifo()), None)

    def words_for(self, namespace: str, name: str) -> str:
        """Return the words that name a job to the next command: its name, after `-n` where that is needed."""
        usual = "" if self._pipe else replace(self, requested_namespace=None).namespace
        return name if namespace == usual else f"-n {namespace} {name}"

    @property
    def settings(self) -> Options:
        """The installation's options, each of which is parsed when it is read."""
        from ptjob_provider.core.run.options import Options
        from ptjob_provider.provider_info import OPTIONS

        return Options(
            text=lambda name: self.options.get(name, OPTIONS[name]["default"]).strip(),
            title=lambda name: f"${self.variables[name]}" if name in self.variables else in_ptjob(name),
        )

    def open(self) -> Backend:
        """Return the back-end.

        Raises:
            InvalidSpec: an option is invalid; the message names it.
        """
        if self.backend == "local":
            from ptjob_provider.core.local.backend import LocalBackend

            return LocalBackend(self._local)
        from ptjob_provider.core.kubernetes import KubernetesBackend

        return KubernetesBackend(self._cluster, probe=self.settings.probe())

    def inspector(self) -> Inspector:
        """Return the inspector of the target.

        Raises:
            InvalidSpec: an option is invalid; the message names it.
        """
        if self.backend == "local":
            from ptjob_provider.core.local.inspector import LocalInspector

            return LocalInspector(self._local)
        from ptjob_provider.core.kubernetes import ClusterInspector

        return ClusterInspector(self._cluster)

    def file_options(self, image: str | None, user: int | None) -> FileOptions:
        """Return the options for access to files on claims inside the cluster."""
        from ptjob_provider.core.inspector import FileOptions

        probe = self.settings.probe()
        return FileOptions(image=image or probe.files_image, user=user, timeout=probe.timeout, title=probe.title)

    async def find(self, backend: Backend, name: str) -> Manifest:
        """Return the job of this name, of the kind on the command line, else of the first kind with such a job.

        Raises:
            ClusterError: there is none, or it cannot be read.
            InvalidSpec: the kind is unknown.
        """
        from ptjob_provider.core.run.lookup import find_job

        return await find_job(backend, self.namespace, name, kind=self.kind, preferred=self.settings.kind())

    async def jobs(self, backend: Backend, selector: Mapping[str, str]) -> Sequence[Manifest]:
        """Return the jobs with these labels, of the namespace or of all.

        Raises:
            ClusterError: they cannot be listed.
        """
        from ptjob_provider.core.run.lookup import list_jobs

        return await list_jobs(backend, "" if self.is_everywhere else self.namespace, selector, kind=self.kind)

    @property
    def _local(self) -> LocalConfig:
        return replace(self.settings.local(default_root=self.root, environ=os.environ), root=self.root)

    @property
    def _cluster(self) -> ClusterConfig:
        from ptjob_provider.core.kubernetes import ClusterConfig

        paths = ":".join(str(path) for path in self.kubeconfigs)
        is_pod = _POD_NAMESPACE.is_file()
        in_cluster = not paths and is_pod
        # `exists`, because a kubeconfig may be a shell's pipe, which is no regular file.
        if not in_cluster and not any(path.exists() for path in self.kubeconfigs):
            missing = f"{paths or _USUAL} is not there" + ("" if is_pod else ", and this is no pod")
            raise InvalidSpec(f"{missing}: {_WITHOUT_KUBECONFIG}")
        return ClusterConfig(
            in_cluster=in_cluster,
            kube_config_path=paths or None,
            context=self.context,
            usage_interval=self.settings.usage_interval(),
        )


@dataclass(frozen=True, kw_only=True)
class TargetOptions:
    """Options of the command line about the target; None if not given."""

    backend: str | None = None
    namespace: str | None = None
    root: str | None = None
    kubeconfig: str | None = None
    context: str | None = None
    kind: str | None = None
    all_namespaces: bool = False


def find_target(given: TargetOptions, environ: Mapping[str, str]) -> Target:
    """Return the target: from the command line, else variables, else Airflow's configuration, else what is reachable.

    Raises:
        InvalidSpec: both a cluster and this machine are requested, or an unknown back-end is named.
    """
    configured = airflow_section(environ)
    variables = {
        name.removeprefix(prefix).lower(): name
        for prefix in reversed(_PREFIXES)
        for name, value in environ.items()
        if name.startswith(prefix) and (value or prefix != _PREFIXES[0])  # Airflow lets an empty variable count
    }
    of_variables = {option: environ[name] for option, name in variables.items()}
    options = {**configured, **of_variables}
    root = given.root or options.get("local_root")
    kubeconfigs = _kubeconfigs(given, environ)
    reachable = "kubernetes" if kubeconfigs or "KUBERNETES_SERVICE_HOST" in environ else "local"
    return Target(
        backend=(
            _requested_backend(given)
            or _named_backend(of_variables, f"${variables.get('backend')}")
            or _named_backend({**configured, **of_variables}, "[ptjob] backend")
            or reachable
        ),
        requested_namespace=given.namespace,
        root=Path(root or airflow_home(environ) / "ptjob").expanduser(),
        kubeconfigs=kubeconfigs,
        context=given.context,
        kind=given.kind,
        is_everywhere=given.all_namespaces,
        options=options,
        variables=variables,
    )


def airflow_home(environ: Mapping[str, str]) -> Path:
    """Return Airflow's home directory by Airflow's rule."""
    return Path(environ.get("AIRFLOW_HOME") or "~/airflow").expanduser()


def airflow_section(environ: Mapping[str, str]) -> Mapping[str, str]:
    """Return `[ptjob]` of airflow.cfg, without loading Airflow."""
    parser = configparser.ConfigParser(interpolation=None, strict=False)
    try:
        parser.read(environ.get("AIRFLOW_CONFIG") or airflow_home(environ) / "airflow.cfg")
        return dict(parser["ptjob"]) if parser.has_section("ptjob") else {}
    except (OSError, UnicodeError, configparser.Error):
        return {}


def _requested_backend(given: TargetOptions) -> str | None:
    """Return the back-end selected by any option of the command line, which overrides every variable."""
    local = {"--root": given.root, "--backend local": given.backend == "local"}
    is_cluster = given.backend == "kubernetes"
    cluster = {"--context": given.context, "--kubeconfig": given.kubeconfig, "--backend kubernetes": is_cluster}
    for_local, for_cluster = (next((flag for flag, value in flags.items() if value), "") for flags in (local, cluster))
    if for_local and for_cluster:
        raise InvalidSpec(f"{for_cluster} selects a cluster and {for_local} for this machine: leave one of them out")
    if given.backend:
        return given.backend
    return "local" if for_local else "kubernetes" if for_cluster else None


def _named_backend(options: Mapping[str, str], title: str) -> str | None:
    """Return the back-end that options name; a directory of local jobs names one, too."""
    backend = options.get("backend", "").lower()
    if backend and backend not in BACKENDS:
        raise InvalidSpec.of(title, backend, one_of(BACKENDS))
    return backend or ("local" if options.get("local_root") else None)


def _kubeconfigs(given: TargetOptions, environ: Mapping[str, str]) -> tuple[Path, ...]:
    """Return the kubeconfig files by kubectl's rule; empty if there are none."""
    named = given.kubeconfig or environ.get("KUBECONFIG")
    if named:
        return tuple(Path(path).expanduser() for path in named.split(":") if path)
    usual = _USUAL.expanduser()
    return (usual,) if usual.is_file() else ()


def context_namespace(paths: Sequence[Path], context: str | None) -> str:
    """Return the namespace of the context, by default of the current one; "" if it names none.

    If several files have a value, the first one's counts; missing files are ignored.

    Raises:
        InvalidSpec: a file is not YAML.
    """
    configs = [_read_yaml(path) for path in paths if path.is_file()]
    wanted = context or next((each["current-context"] for each in configs if each.get("current-context")), None)
    named = (entry for each in configs for entry in _contexts(each) if entry.get("name") == wanted)
    return str((next(named, {}).get("context") or {}).get("namespace") or "")


def _contexts(config: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the valid contexts; the back-end reports invalid ones when it connects."""
    listed = config.get("contexts")
    return [each for each in listed if isinstance(each, dict)] if isinstance(listed, list) else []


def _read_yaml(path: Path) -> dict[str, Any]:
    import yaml

    try:
        config = yaml.safe_load(path.read_text())
    except (OSError, UnicodeError, yaml.YAMLError) as error:
        why = (error.strerror or "it cannot be read") if isinstance(error, OSError) else "it is not YAML"
        raise InvalidSpec(f"{path}: not a kubeconfig: {why}") from None
    return config if isinstance(config, dict) else {}
