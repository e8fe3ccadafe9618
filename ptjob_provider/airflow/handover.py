"""`OutputVolume`: mount a job's output in a KubernetesPodOperator's pod, for known or templated addresses.

    model = OutputVolume.of_task(train, "model")
    evaluate = KubernetesPodOperator(
        task_id="evaluate",
        volumes=[model.volume],
        volume_mounts=[model.mount],
        arguments=["--model_path", model.path],
    )
    train >> evaluate

Importing this module loads no Kubernetes client; reading `volume` or `mount` does.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from ptjob_provider.core.outputs.location import MountedOutput, volume_name

if TYPE_CHECKING:
    from kubernetes.client import V1Volume, V1VolumeMount

_TEMPLATE = re.compile(r"{{|{%")


class OutputVolume:
    """The claim of one output, mounted read-only, for a pod in the namespace of the job that wrote it.

    If the address is a template, the claim's name and the output's path are templates, too. KubernetesPodOperator
    renders the claim's name in a volume, but not the path of a mount. Therefore the whole claim is mounted, at a fixed
    path.

    Args:
        uri: `pvc://claim/path`, or a template that renders to it, such as `{{ dag_run.conf["model"] }}`.
        name: the volume's name; two outputs of one pod need different names.

    Raises:
        InvalidSpec: the address is neither a template nor of the form `pvc://claim/path`.
    """

    def __init__(self, uri: str, *, name: str = "output") -> None:
        volume = volume_name(name)
        if _TEMPLATE.search(uri):
            self._output = MountedOutput(volume=volume, claim=_part(uri, 0), path=_part(uri, 2))
        else:
            self._output = MountedOutput.of(uri, volume=volume)

    @classmethod
    def of_task(cls, task: Any, output: str = "model") -> OutputVolume:
        """Return the output of the job that a task has waited for; it is looked up when the pod's task runs.

        Args:
            task: a PyTorchJobOperator or PyTorchJobSensor, or a task id. For one instance of a mapped task, write the
                template yourself: `OutputVolume("{{ ti.xcom_pull('train', map_indexes=0)[…] }}")`.
            output: `model` or `tfevents`.
        """
        task_id = str(getattr(task, "task_id", task))
        uri = f"{{{{ ti.xcom_pull(task_ids='{task_id}')['{output}']['uri'] }}}}"
        return cls(uri, name=volume_name(task_id, output))

    @property
    def volume(self) -> V1Volume:
        """The value for `volumes`; a new object each time, because the operator modifies it."""
        # Only DAG files with a pod task pay for the client's models, which that operator loads anyway.
        from kubernetes.client import V1PersistentVolumeClaimVolumeSource, V1Volume  # noqa: PLC0415

        claim = V1PersistentVolumeClaimVolumeSource(claim_name=self._output.claim)
        return V1Volume(name=self._output.volume, persistent_volume_claim=claim)

    @property
    def mount(self) -> V1VolumeMount:
        """The value for `volume_mounts`; a new object each time."""
        from kubernetes.client import V1VolumeMount  # noqa: PLC0415 - as above

        return V1VolumeMount(name=self._output.volume, mount_path=self._output.mount_path, read_only=True)

    @property
    def short(self) -> str:
        """The volume for `volumes` of a PyTorchJobOperator."""
        return self._output.short

    @property
    def path(self) -> str:
        """The output's path in the pod, for arguments or variables."""
        return self._output.container_path


def _part(uri: str, index: int) -> str:
    """Return a template that renders to the claim (index 0) or the path (index 2) of a templated address."""
    return f"{{% set uri %}}{uri}{{% endset %}}{{{{ uri.removeprefix('pvc://').partition('/')[{index}] }}}}"
