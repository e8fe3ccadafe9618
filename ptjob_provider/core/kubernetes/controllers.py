"""Check the controllers that create jobs' pods: which ones the kinds need, whether they run, their versions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ptjob_provider.core.errors import ClusterError
from ptjob_provider.core.site import Check

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ptjob_provider.core.identity import Manifest
    from ptjob_provider.core.kubernetes.client import Client

OPTIONAL = "docs/kubernetes-optional.yaml"


@dataclass(frozen=True, kw_only=True)
class Controller:
    """A controller program in a cluster.

    Attributes:
        name: its common name.
        selector: of its pods, in any namespace.
        without_it: the consequence if it does not run.
    """

    name: str
    selector: str
    without_it: str = "jobs get no pods"


TRAINING_OPERATOR = Controller(name="training-operator", selector="control-plane=kubeflow-training-operator")
OLD_OPERATOR = Controller(name="old PyTorch operator", selector="name=pytorch-operator")
TRAINER = Controller(
    name="Kubeflow Trainer",
    selector="app.kubernetes.io/name in (trainer,kubeflow-trainer),app.kubernetes.io/component=manager",
)
JOBSET = Controller(name="JobSet", selector="app.kubernetes.io/name=jobset", without_it="TrainJobs get no pods")
KUEUE = Controller(
    name="Kueue",
    selector="app.kubernetes.io/name=kueue,control-plane=controller-manager",
    without_it="jobs in a queue stay suspended",
)


async def look_at(client: Client, controller: Controller) -> Check:
    """Check whether it runs, as far as permitted."""
    try:
        return controller_check(controller, await client.items("/api/v1/pods", labelSelector=controller.selector))
    except ClusterError:
        advice = f"to see it takes `pods list` in the whole cluster: the ClusterRole of {OPTIONAL}"
        return Check(about=controller.name, is_good=None, said="may not be looked at", advice=advice)


def controller_check(controller: Controller, pods: Sequence[Manifest]) -> Check:
    """Check whether it runs, by its pods."""
    about = controller.name
    if not pods:
        said = f"no pod with the label {controller.selector} is seen"
        return Check(about=about, is_good=None, said=said, advice="if jobs get no status, ask who runs the cluster")
    ready = [pod for pod in pods if _is_ready(pod)]
    names = ", ".join(f"{pod['metadata']['namespace']}/{pod['metadata']['name']}" for pod in ready or pods)
    versions = ", ".join(dict.fromkeys(filter(None, map(_version, ready or pods))))
    version = f", version {versions}" if versions else ""
    if ready:
        return Check(about=about, is_good=True, said=f"{names} is ready{version}")
    advice = f"{controller.without_it} until it runs: kubectl describe and logs of it say why"
    return Check(about=about, is_good=False, said=f"{names} is not ready{version}", advice=advice)


def _is_ready(pod: Manifest) -> bool:
    conditions = pod["status"].get("conditions") or ()
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def _version(pod: Mapping[str, Manifest]) -> str:
    """Return the image tag of the first container; "" without a tag, such as a digest's."""
    containers = (pod.get("spec") or {}).get("containers") or [{}]
    name, _, _ = str(containers[0].get("image") or "").partition("@")
    _, _, tag = name.rpartition("/")[2].partition(":")
    return tag
