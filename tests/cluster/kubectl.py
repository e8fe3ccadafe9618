"""kubectl, with a cluster's kubeconfig and nothing of the caller's environment."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cluster.shell import ClusterFailed, bare_environment, run, wait_until

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class Kubectl:
    """Calls kubectl as the user of a kubeconfig."""

    program: Path
    kubeconfig: Path

    def __call__(self, *words: str, stdin: str = "", timeout: float = 60) -> str:
        """Return what kubectl printed.

        Raises:
            ClusterFailed: it ended with another code than 0; with what it said.
        """
        env = bare_environment(self.kubeconfig.parent, KUBECONFIG=str(self.kubeconfig))
        return run([self.program, *words], stdin=stdin, env=env, timeout=timeout)

    def let_end(self, pod: str, *words: str, namespace: str) -> None:
        """Run in a pod what makes its program end; a container that is over takes the command's answer with it.

        Raises:
            ClusterFailed: it was not done, and the pod goes on.
        """
        try:
            self("exec", pod, "--namespace", namespace, "--", *words)
        except ClusterFailed:
            wait_until(f"the end of {pod} or its answer", lambda: self._is_over(pod, namespace=namespace), timeout=30)

    def _is_over(self, pod: str, *, namespace: str) -> bool:
        """Whether a container of the pod has ended, or the pod is gone."""
        found = self("get", "pod", pod, "--namespace", namespace, "--ignore-not-found", "--output", "json")
        statuses = json.loads(found)["status"].get("containerStatuses", ()) if found else ()
        return not found or any("terminated" in each["state"] for each in statuses)

    def apply(self, *objects: Mapping[str, Any]) -> None:
        """Have these objects in the cluster, as they are."""
        stdin = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
        self("apply", "--server-side", "--filename", "-", stdin=stdin)

    def get(self, kind: str, name: str, *, namespace: str = "default") -> dict[str, Any]:
        """Return one object as the API server has it."""
        found: dict[str, Any] = json.loads(self("get", kind, name, "--namespace", namespace, "--output", "json"))
        return found

    def list(self, kind: str, *, namespace: str = "default", selector: str = "") -> list[dict[str, Any]]:
        """Return the objects of a namespace that carry the labels."""
        words = ("get", kind, "--namespace", namespace, "--selector", selector, "--output", "json")
        found: list[dict[str, Any]] = json.loads(self(*words))["items"]
        return found
