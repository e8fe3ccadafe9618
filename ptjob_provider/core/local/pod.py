"""One pod on this machine: its directories, its containers in order, and its wire object."""

from __future__ import annotations

import os
import shutil
import uuid
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ptjob_provider.core.local import container as restarts
from ptjob_provider.core.local import volumes
from ptjob_provider.core.local.container import Container
from ptjob_provider.core.local.launch import PodPlan, launch
from ptjob_provider.core.local.operator import INDEX_LABEL, ROLE_LABEL, instant
from ptjob_provider.core.local.volumes import VolumePlaces

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ptjob_provider.core.identity import Manifest
    from ptjob_provider.core.local.config import Setup
    from ptjob_provider.core.local.launch import Place
    from ptjob_provider.core.local.store import JobFiles
    from ptjob_provider.core.local.volumes import Binding

_LABELS = "training.kubeflow.org"
_SCRIPTS = {"python": "", "python3": "", "torchrun": "-m torch.distributed.run "}


class Pod:
    """A pod from its creation to its removal."""

    def __init__(
        self,
        job: Manifest,
        place: Place,
        *,
        setup: Setup,
        files: JobFiles,
        incarnation: int,
    ) -> None:
        self.object = pod_object(job, place)
        self.name: str = self.object["metadata"]["name"]
        self.uid: str = self.object["metadata"]["uid"]
        self._plan = PodPlan(
            job=job, pod=self.object, place=place, setup=setup, directory=files.pod_directory(self.name)
        )
        self._policy = restarts.pod_policy(job["spec"]["pytorchReplicaSpecs"][place.role]["restartPolicy"])
        self._logs = files.logs_of(self.name) / f"{incarnation}_{self.uid}"
        self._init: list[Container] = []
        self._main: list[Container] = []
        self.devices: tuple[int, ...] = ()
        self.is_placed = False
        self.problem = ""

    @property
    def containers(self) -> Sequence[Container]:
        """Return all its containers, in starting order."""
        return [*self._init, *self._main]

    @property
    def is_going(self) -> bool:
        """Return whether it is being removed."""
        return bool(self.object["metadata"].get("deletionTimestamp"))

    @property
    def is_over(self) -> bool:
        """Return whether nothing of it runs or will run again."""
        return self.phase in ("Succeeded", "Failed") or (self.is_going and all(c.pid is None for c in self.containers))

    @property
    def phase(self) -> str:
        """Return the pod's phase, derived from its containers."""
        if not self.is_placed:
            return "Pending"
        if any(container.has_ended and container.exit_code != 0 for container in self._init):
            return "Failed"
        if not all(container.has_ended for container in self._init):
            return "Pending"
        if all(container.has_ended for container in self._main):
            return "Failed" if any(container.exit_code != 0 for container in self._main) else "Succeeded"
        return "Running" if any(container.has_started for container in self._main) else "Pending"

    def place(self, devices: tuple[int, ...]) -> None:
        """Assign its devices, create its directories and plan its containers; `advance` starts them.

        Raises:
            InvalidSpec: a volume or a value does not exist.
        """
        self.devices = devices
        self.is_placed = True
        spec, plan = self.object["spec"], replace(self._plan, devices=devices)
        shutil.rmtree(plan.directory, ignore_errors=True)
        memory = volumes.memory_of(self.uid) if volumes.needs_memory(spec) else None
        if memory:
            memory.mkdir(mode=0o700)
        places = VolumePlaces(claims=Path(plan.setup.claims), pod=plan.directory, memory=memory)
        plan.root.mkdir(parents=True)
        volumes.prepare(self.object, places, plan.setup.stores)
        self._init = [self._container(plan, spec, places, c, is_init=True) for c in spec.get("initContainers") or ()]
        self._main = [self._container(plan, spec, places, c) for c in spec["containers"]]

    def advance(self) -> bool:
        """Start due containers, init containers one by one, then the others; return whether any was started."""
        due = [container for container in self._next() if container.is_due]
        for container in due:
            container.start()
        return bool(due)

    def remove(self) -> None:
        """Begin its removal: send its processes SIGTERM and start nothing any more."""
        if not self.is_going:
            self.object["metadata"]["deletionTimestamp"] = _now()
            for container in self.containers:
                container.terminate()

    def forget(self) -> None:
        """Delete its memory and its directory; its logs and claims stay."""
        for directory in (self._plan.directory, volumes.memory_of(self.uid)):
            shutil.rmtree(directory, ignore_errors=True)

    def wire(self) -> Manifest:
        """Return its object with its status."""
        status: dict[str, Any] = {"phase": self.phase, "conditions": self._conditions()}
        if self.is_placed:
            status |= {
                "startTime": self.object["metadata"]["creationTimestamp"],
                "podIP": "127.0.0.1",
                "hostIP": "127.0.0.1",
            }
        if self._init:
            status["initContainerStatuses"] = [container.wire() for container in self._init]
        if self._main:
            status["containerStatuses"] = [container.wire() for container in self._main]
        return {**self.object, "metadata": dict(self.object["metadata"]), "status": status}

    def _next(self) -> Sequence[Container]:
        if self.is_going or not self.is_placed:
            return ()
        for container in self._init:
            if not container.has_ended:
                return (container,)
            if container.exit_code != 0:
                return ()
        return self._main

    def _conditions(self) -> list[dict[str, str]]:
        if self.is_placed:
            return [{"type": "PodScheduled", "status": "True"}]
        if not self.problem:
            return []
        return [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": self.problem}]

    def _container(
        self,
        plan: PodPlan,
        spec: Mapping[str, Any],
        places: VolumePlaces,
        container: Mapping[str, Any],
        *,
        is_init: bool = False,
    ) -> Container:
        mounts = volumes.bindings(spec, container, places)
        planned = launch(plan, container, mounts, is_init=is_init)
        if spec.get("initContainers") and not is_init:
            planned = replace(planned, waiting_reason="PodInitializing")
        _make_places(plan, container, mounts, planned.working_dir)
        policy = "OnFailure" if is_init and self._policy == "Always" else self._policy
        return Container(
            planned,
            logs=self._logs / container["name"],
            policy=policy,
            backoff=plan.setup.restart_backoff,
        )


def pod_object(job: Manifest, place: Place) -> Manifest:
    """Return the pod as created by the operator and stored by the API server."""
    meta, role = job["metadata"], place.role.lower()
    template = job["spec"]["pytorchReplicaSpecs"][place.role]["template"]
    told = template.get("metadata") or {}
    owner = {
        "apiVersion": job["apiVersion"],
        "kind": job["kind"],
        "name": meta["name"],
        "uid": meta["uid"],
        "controller": True,
    }
    labels = {
        **(told.get("labels") or {}),
        f"{_LABELS}/operator-name": "pytorchjob-controller",
        f"{_LABELS}/job-name": meta["name"],
        ROLE_LABEL: role,
        INDEX_LABEL: str(place.index),
    }
    if place.role == "Master" or (place.index == 0 and "Master" not in job["spec"]["pytorchReplicaSpecs"]):
        labels[f"{_LABELS}/job-role"] = "master"
    metadata = {
        "name": f"{meta['name']}-{role}-{place.index}",
        "namespace": meta["namespace"],
        "uid": str(uuid.uuid4()),
        "creationTimestamp": _now(),
        "labels": labels,
        "annotations": dict(told.get("annotations") or {}),
        "ownerReferences": [{**owner, "blockOwnerDeletion": True}],
    }
    spec = {**template["spec"], "nodeName": os.uname().nodename}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def _make_places(plan: PodPlan, container: Mapping[str, Any], mounts: Sequence[Binding], working_dir: str) -> None:
    image = plan.setup.image(container["image"])
    for mount in mounts:
        if not Path(mount.host_path).is_file():
            Path(mount.host_path).mkdir(parents=True, exist_ok=True)
    links = {**image.files, **{mount.container_path: mount.host_path for mount in mounts}}
    for directory in (working_dir, *(f"{plan.root}{place}" for place in image.directories)):
        Path(directory).mkdir(parents=True, exist_ok=True)  # real directories: what is written there stays in the pod
    for place in sorted(links):
        _link(plan.root, plan.root / place.lstrip("/"), Path(links[place]))
    _write_scripts(plan.programs / container["name"], image.python)


def _link(root: Path, place: Path, target: Path) -> None:
    if any(parent.is_symlink() for parent in place.parents if parent != root and parent.is_relative_to(root)):
        return  # it lies inside something that is linked already
    if target.is_dir() and place.is_dir() and not place.is_symlink():
        for child in target.iterdir():
            _link(root, place / child.name, child)
        return
    place.parent.mkdir(parents=True, exist_ok=True)
    if not place.exists():
        place.symlink_to(target)


def _write_scripts(directory: Path, python: str) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    for name, options in _SCRIPTS.items():
        script = directory / name
        script.write_text(f'#!/bin/sh\nexec "{python}" {options}"$@"\n')
        script.chmod(0o755)


def _now() -> str:
    return instant(datetime.now(UTC))
