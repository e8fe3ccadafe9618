"""Run kubectl with a cluster's kubeconfig, without the caller's environment."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cluster.shell import ClusterFailed, bare_environment, run, wait_until

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_NO_CONNECTION = "TLS handshake timeout"


@dataclass(frozen=True, kw_only=True)
class Kubectl:
    """kubectl as the user of a kubeconfig."""

    program: Path
    kubeconfig: Path

    def __call__(self, *words: str, stdin: str = "", timeout: float = 180, attempts: int = 6) -> str:
        """Run kubectl and return its output; repeat it while no connection is made, for then nothing was requested.

        Raises:
            ClusterFailed: kubectl exited with a code other than 0; the message has its output.
        """
        env = bare_environment(self.kubeconfig.parent, KUBECONFIG=str(self.kubeconfig))
        try:
            return run([self.program, *words], stdin=stdin, env=env, timeout=timeout)
        except ClusterFailed as error:
            if attempts == 1 or _NO_CONNECTION not in str(error):
                raise
            return self(*words, stdin=stdin, timeout=timeout, attempts=attempts - 1)

    def let_end(self, pod: str, *words: str, namespace: str) -> None:
        """Run a command in a pod that ends the pod's program; the command may fail because the container has ended.

        Raises:
            ClusterFailed: the command failed, and the pod still runs.
        """
        try:
            self("exec", pod, "--namespace", namespace, "--", *words)
        except ClusterFailed:
            wait_until(f"the end of {pod} or its answer", lambda: self._is_over(pod, namespace=namespace), timeout=180)

    def _is_over(self, pod: str, *, namespace: str) -> bool:
        """Return True if a container of the pod has ended, or the pod is gone."""
        found = self("get", "pod", pod, "--namespace", namespace, "--ignore-not-found", "--output", "json")
        statuses = json.loads(found)["status"].get("containerStatuses", ()) if found else ()
        return not found or any("terminated" in each["state"] for each in statuses)

    def apply(self, *objects: Mapping[str, Any]) -> None:
        """Apply these objects with server-side apply."""
        stdin = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
        self("apply", "--server-side", "--filename", "-", stdin=stdin)

    def get(self, kind: str, name: str, *, namespace: str = "default") -> dict[str, Any]:
        """Return one object."""
        found: dict[str, Any] = json.loads(self("get", kind, name, "--namespace", namespace, "--output", "json"))
        return found

    def list(self, kind: str, *, namespace: str = "default", selector: str = "") -> list[dict[str, Any]]:
        """Return the objects of a namespace that match the label selector."""
        words = ("get", kind, "--namespace", namespace, "--selector", selector, "--output", "json")
        found: list[dict[str, Any]] = json.loads(self(*words))["items"]
        return found
