"""Map a container's spec to a local process: arguments, environment, working directory. Pure.

A directory of the pod (`root`) replaces the container's file system: working directories are created in it, and files
of the image's replacement and mounts are linked into it, so that relative paths resolve as in the container.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from ptjob_provider.core.local.environment import expand, injected, resolve
from ptjob_provider.core.local.image import ImageFacts, arguments, with_interpreter
from ptjob_provider.core.local.paths import Binding, PathMap, normal
from ptjob_provider.core.local.processes import MARK

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from ptjob_provider.core.identity import Manifest
    from ptjob_provider.core.local.environment import Place
    from ptjob_provider.core.local.setup import Setup

DEVICES = "CUDA_VISIBLE_DEVICES"
_TERMINATION_LOG = "/dev/termination-log"


@dataclass(frozen=True, kw_only=True)
class Launch:
    """Parameters of a container's process.

    Attributes:
        pod: its pod's name.
        container: its name.
        image: its image, for its status.
        argv: the command line.
        env: its whole environment; never written anywhere.
        working_dir: its working directory.
        mark: identifies its processes.
        waiting_reason: reason before it is started.
        logs_as_message: the end of its log is its termination message.
        told: the file that replaces its `terminationMessagePath` in variables and arguments.
    """

    pod: str
    container: str
    image: str
    argv: Sequence[str]
    env: Mapping[str, str]
    working_dir: str
    mark: str
    waiting_reason: str = "ContainerCreating"
    logs_as_message: bool = True
    told: str = ""


@dataclass(frozen=True, kw_only=True)
class PodPlan:
    """Common parameters of a pod's containers.

    Attributes:
        job: with defaults.
        pod: its object.
        place: its position in the job.
        setup: of this machine.
        directory: the pod's own.
        devices: the numbers of its devices.
    """

    job: Manifest
    pod: Manifest
    place: Place
    setup: Setup
    directory: Path
    devices: tuple[int, ...] = ()

    @property
    def root(self) -> Path:
        """Return the directory that replaces the containers' file system."""
        return self.directory / "root"

    @property
    def programs(self) -> Path:
        """Return the directory with links to the interpreter, for commands inside a shell's text."""
        return self.directory / "bin"


def launch(plan: PodPlan, container: Mapping[str, Any], mounts: Sequence[Binding], *, is_init: bool = False) -> Launch:
    """Plan one container.

    Args:
        plan: of its pod.
        container: of the pod's spec.
        mounts: local paths of its mounts.
        is_init: it is an init container; the operator injects nothing there.

    Raises:
        InvalidSpec: it refers to a value that does not exist on this machine.
    """
    image = plan.setup.image(container["image"])
    appended = (
        container if is_init else {**container, "env": [*(container.get("env") or ()), *injected(plan.job, plan.place)]}
    )
    variables = resolve(appended, stores=plan.setup.stores, fields=pod_fields(plan.pod), field=container["name"])
    message = container.get("terminationMessagePath") or _TERMINATION_LOG
    told = str(plan.directory / f"{container['name']}.termination-log")
    paths = PathMap(
        [*image_bindings(image, plan.root), *mounts, Binding(container_path=normal(message), host_path=told)]
    )
    argv = [paths.text(expand(word, variables)) for word in arguments(container, image)]
    return Launch(
        pod=plan.pod["metadata"]["name"],
        container=container["name"],
        image=container["image"],
        argv=with_interpreter(argv, image.python),
        env=_environment(plan, image, variables, paths, container["name"]),
        working_dir=working_directory(container, image, paths, plan.root),
        mark=mark(plan, container["name"]),
        logs_as_message=container.get("terminationMessagePolicy") != "File",
        told=told,
    )


def mark(plan: PodPlan, container: str) -> str:
    """Return the mark of all processes of one container, wherever they move."""
    return f"{plan.job['metadata']['uid']}/{plan.pod['metadata']['uid']}/{container}/"


def pod_fields(pod: Manifest) -> dict[str, str]:
    """Return the values for `fieldRef`."""
    meta = pod["metadata"]
    names = ("name", "namespace", "uid")
    plain = {f"metadata.{name}": str(meta[name]) for name in names}
    told = {
        f"metadata.{kind}['{key}']": value
        for kind in ("labels", "annotations")
        for key, value in (meta.get(kind) or {}).items()
    }
    return {**plain, **told, "status.podIP": "127.0.0.1", "status.hostIP": "127.0.0.1"}


def image_bindings(image: ImageFacts, root: Path) -> list[Binding]:
    """Return the local paths of the image's own files and directories, linked below the root."""
    places = [*image.directories, *image.files]
    return [Binding(container_path=normal(place), host_path=f"{root}{normal(place)}") for place in places]


def working_directory(container: Mapping[str, Any], image: ImageFacts, paths: PathMap, root: Path) -> str:
    """Return the working directory: `workingDir`, else the image's WORKDIR, else its root."""
    wanted = normal(container.get("workingDir") or image.working_dir or "/")
    return paths.path(wanted) or str(root / PurePosixPath(wanted).relative_to("/"))


def _environment(
    plan: PodPlan, image: ImageFacts, variables: Mapping[str, str], paths: PathMap, container: str
) -> dict[str, str]:
    inherited = {**plan.setup.environment, "HOSTNAME": plan.pod["metadata"]["name"]}
    told = {name: paths.text(value) for name, value in {**image.env, **variables}.items()}
    both = {**inherited, **told}
    programs = f"{plan.programs}/{container}:{both.get('PATH', '')}"
    devices = ",".join(str(device) for device in plan.devices)
    return {**both, "PATH": programs, DEVICES: devices, MARK: mark(plan, container)}
