"""Arena's flags and commands that do not exist here, each with its replacement, as in docs/from-arena.md."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

_REGISTERED = "registering a model is the next task's work: the result tells its address and digest"
_NOTHING_INSTALLED = "nothing is installed in the cluster for `ptjob`, and no helm is run"
_AGAIN = "again and again: `watch ptjob top node`; shared cards count as their plug-in's resource"

FLAGS: Mapping[str, str] = {
    "--config-file": (
        "a ConfigMap that you make: `--volumes '{name: conf, configMap: {name: NAME}}' "
        "--volume-mounts '{name: conf, mountPath: /etc/conf}'`"
    ),
    **dict.fromkeys(("--model-name", "--model-source"), _REGISTERED),
    **dict.fromkeys(("--arena-namespace", "--helm-binary", "--pprof", "--trace"), _NOTHING_INSTALLED),
    "--gpus": "`ptjob top job NAME` tells CPU, memory, network and disk of each replica",
    **dict.fromkeys(("--details", "--refresh", "--gpu-mode", "--metric"), _AGAIN),
}

COMMANDS: Mapping[str, str] = {"attach": "`kubectl exec -it NAME-master-0 -- sh` is the same"}
