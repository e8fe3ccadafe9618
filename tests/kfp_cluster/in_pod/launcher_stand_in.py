"""Stands in for Kubeflow's launcher. What it does with a component's command was read in the source of version 2.17.

    launcher_stand_in.py --executor_input JSON -- COMMAND ...

It makes the folders of the outputs, puts the executor input in the place of `{{$}}`, starts the command with a pipe on
its output, and handles no signal. There is neither a metadata store nor an artifact store: what it would bring there is
the last line of the log, PUBLISHED and one JSON value.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

PUBLISHED = "published: "
SCHEMES = ("gs://", "minio://", "s3://")


def main() -> int:
    """Run the component's command; 1 if it failed, however it did."""
    executor_input, command = sys.argv[2], sys.argv[4:]
    outputs = json.loads(executor_input)["outputs"]
    artifacts = {name: each["artifacts"][0] for name, each in outputs["artifacts"].items()}
    for place in [each["outputFile"] for each in outputs["parameters"].values()] + list(
        map(local_path, artifacts.values())
    ):
        os.makedirs(os.path.dirname(place), exist_ok=True)  # noqa: PTH103, PTH120 - loads less
    words = [word.replace("{{$}}", executor_input) for word in command]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as component:
        assert component.stdout is not None
        while data := os.read(component.stdout.fileno(), 65536):
            os.write(1, data)
    if component.returncode:
        sys.stdout.write(f"launcher: failed to execute component: exit status {component.returncode}\n")
        return 1
    sys.stdout.write(f"{PUBLISHED}{json.dumps(published(outputs['outputFile'], artifacts))}\n")
    return 0


def published(output_file: str, artifacts: dict[str, Any]) -> dict[str, Any]:
    """Return the output parameters, and each artifact with its metadata and, if a store takes it, its content."""
    with open(output_file) as file:  # noqa: PTH123 - as above
        told = json.load(file)
    found = {}
    for name, asked in artifacts.items():
        artifact = {**asked, **told["artifacts"].get(name, {"artifacts": [{}]})["artifacts"][0]}
        path = local_path(artifact)
        content = open(path).read() if path and os.path.isfile(path) else None  # noqa: PTH113, PTH123, SIM115 - as above
        found[name] = {"uri": artifact["uri"], "metadata": artifact.get("metadata", {}), "content": content}
    return {"parameters": told["parameterValues"], "artifacts": found}


def local_path(artifact: dict[str, Any]) -> str:
    """Return where a container sees an artifact that a store takes; "" for any other."""
    for scheme in SCHEMES:
        if artifact["uri"].startswith(scheme):
            return f"/{scheme.removesuffix('://')}/{artifact['uri'].removeprefix(scheme)}"
    return ""


if __name__ == "__main__":
    sys.exit(main())
