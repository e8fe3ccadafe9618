"""Stand-in for Kubeflow's launcher. It follows the source of version 2.17.

    launcher_stand_in.py --executor_input JSON --component_spec JSON --store JSON -- COMMAND ...

See `backend/src/v2/component/launcher_v2.go` for output directories (`prepareOutputFolders`), defaults of inputs
(`addDefaultParams`), placeholders (`compileCmdAndArgs`, `getPlaceholders`), input artifacts (`downloadArtifacts`,
`fetchNonDefaultBuckets`) and outputs (`getExecutorOutputFile`, `uploadOutputArtifacts`, `mergeRuntimeArtifacts`);
`backend/src/v2/objectstore/config.go` for supported addresses; `object_store.go` in the same directory for folders
(`DownloadBlob`, `UploadBlob`). The command's output is a pipe, and signals are not handled. There is no metadata store
and no artifact store: --store maps artifact addresses to their text (for a folder: paths to texts), and the last line
of the log has what would be uploaded to both stores: PUBLISHED and one JSON value.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from typing import Any

PUBLISHED = "published: "
PLACES = {"gs://": "/gcs/", "minio://": "/minio/", "s3://": "/s3/"}
"""Supported URI schemes, and the directories that their stores are mounted at."""


class Refused(Exception):
    """The component's command cannot be started."""


def main() -> int:
    """Run the component's command; return 1 on any failure."""
    given = dict(zip(*[iter(sys.argv[1 : sys.argv.index("--")])] * 2, strict=True))
    executor_input, component = json.loads(given["--executor_input"]), json.loads(given["--component_spec"])
    outputs = executor_input["outputs"]
    artifacts = {name: each["artifacts"][0] for name, each in outputs["artifacts"].items()}
    try:
        words = compiled(sys.argv[sys.argv.index("--") + 1 :], with_defaults(executor_input, component))
        download(executor_input["inputs"].get("artifacts", {}), json.loads(given["--store"]))
    except Refused as refused:
        return failed(refused)
    for place in [each["outputFile"] for each in outputs["parameters"].values()] + [
        local_path(each["uri"]) for each in artifacts.values()
    ]:
        os.makedirs(os.path.dirname(place), exist_ok=True)  # noqa: PTH103, PTH120 - without importing pathlib
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as command:
        assert command.stdout is not None
        while data := os.read(command.stdout.fileno(), 65536):
            os.write(1, data)
    if command.returncode:
        return failed(f"exit status {command.returncode}")
    sys.stdout.write(f"{PUBLISHED}{json.dumps(published(outputs['outputFile'], artifacts))}\n")
    return 0


def failed(why: object) -> int:
    """Print why the command failed or was not started, and return the exit code."""
    sys.stdout.write(f"launcher: failed to execute component: {why}\n")
    return 1


def with_defaults(executor_input: dict[str, Any], component: dict[str, Any]) -> dict[str, Any]:
    """Return the input with the component's defaults for missing parameters."""
    known = component.get("inputDefinitions", {}).get("parameters", {})
    defaults = {name: each["defaultValue"] for name, each in known.items() if "defaultValue" in each}
    inputs = executor_input["inputs"]
    return {**executor_input, "inputs": {**inputs, "parameterValues": {**defaults, **inputs["parameterValues"]}}}


def compiled(words: list[str], executor_input: dict[str, Any]) -> list[str]:
    """Return the command with all placeholders replaced: first the whole input, then the placeholders inside it.

    A value inside the input is therefore part of JSON text, which a quotation mark in the value breaks. In the first
    word only the whole input is replaced, as in the launcher.
    """
    first, *others = [word.replace("{{$}}", in_go(executor_input)) for word in words]
    for placeholder, text in placeholders(executor_input).items():
        others = [word.replace(placeholder, text) for word in others]
    return [first, *others]


def placeholders(executor_input: dict[str, Any]) -> dict[str, str]:
    """Return the text of every placeholder except the one for the whole input; Kubeflow's map has no order."""
    inputs, outputs, found = executor_input["inputs"], executor_input["outputs"], {}
    for which, lists in (("inputs", inputs.get("artifacts", {})), ("outputs", outputs["artifacts"])):
        for name, each in lists.items():
            uri = each["artifacts"][0]["uri"]
            found[f"{{{{$.{which}.artifacts['{name}'].uri}}}}"] = uri
            if local_path(uri):
                found[f"{{{{$.{which}.artifacts['{name}'].path}}}}"] = local_path(uri)
    for name, value in inputs["parameterValues"].items():
        if value is None:
            raise Refused("failed to get placeholders: unknown PipelineSpec Value type *structpb.Value_NullValue")
        found[f"{{{{$.inputs.parameters['{name}']}}}}"] = (
            value if isinstance(value, str) else in_go(value, in_html=True)
        )
    for name, each in outputs["parameters"].items():
        found[f"{{{{$.outputs.parameters['{name}'].output_file}}}}"] = each["outputFile"]
    return found


def in_go(value: Any, *, in_html: bool = False) -> str:
    """Return a value as Go encodes it: whole numbers without a fraction; `in_html` escapes lists and maps for HTML."""
    text = json.dumps(_whole(value), ensure_ascii=False, separators=(",", ":"))
    if in_html and isinstance(value, list | dict):
        for sign in "<>&":
            text = text.replace(sign, f"\\u{ord(sign):04x}")
    return text


def _whole(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _whole(part) for name, part in value.items()}
    if isinstance(value, list):
        return [_whole(part) for part in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def download(artifacts: dict[str, Any], store: dict[str, Any]) -> None:
    """Write the input artifacts to the paths that the command reads: a string as a file, a dictionary as a directory.

    Raises:
        Refused: The launcher does not support the address of an artifact.
    """
    for name, each in artifacts.items():
        uri = each["artifacts"][0]["uri"]
        if not uri.startswith((*PLACES, "oci://")):
            why = f'parse bucket config failed: unsupported Cloud bucket: "{uri}"'
            where = f'failed to parse bucketConfig for output artifact "{name}" with uri "{uri}"'
            raise Refused(f"failed to fetch non default buckets: {where}: {why}")
    for each in artifacts.values():
        uri = each["artifacts"][0]["uri"]
        content = store.get(uri, {})
        for name, text in content.items() if isinstance(content, dict) else [("", content)]:
            path = os.path.join(local_path(uri), name) if name else local_path(uri)  # noqa: PTH118 - as above
            os.makedirs(os.path.dirname(path), exist_ok=True)  # noqa: PTH103, PTH120 - as above
            with open(path, "w") as file:  # noqa: PTH123 - as above
                file.write(text)


def published(output_file: str, artifacts: dict[str, Any]) -> dict[str, Any]:
    """Return the output parameters, and each artifact with its metadata and any content that a store would receive."""
    with open(output_file) as file:  # noqa: PTH123 - as above
        content = json.load(file)
    found = {}
    for name, asked in artifacts.items():
        artifact = {**asked, **content["artifacts"].get(name, {"artifacts": [{}]})["artifacts"][0]}
        found[name] = {"uri": artifact["uri"], "metadata": artifact.get("metadata", {}), **_stored(artifact["uri"])}
    return {"parameters": content.get("parameterValues", {}), "artifacts": found}


def _stored(uri: str) -> dict[str, Any]:
    """Return the content that a store would have: text and digest, or the texts of a directory by path."""
    path = local_path(uri)
    if path and os.path.isdir(path):  # noqa: PTH112 - as above
        files = [os.path.join(place, name) for place, _, names in os.walk(path) for name in names]  # noqa: PTH118
        return {"content": {os.path.relpath(file, path): _text(file) for file in files}}
    if not path or not os.path.isfile(path):  # noqa: PTH113 - as above
        return {"content": None}
    with open(path, "rb") as file:  # noqa: PTH123 - as above
        data = file.read()
    try:
        content = data.decode()
    except UnicodeDecodeError:
        content = None
    return {"content": content, "sha256": hashlib.sha256(data).hexdigest()}


def _text(path: str) -> str:
    with open(path) as file:  # noqa: PTH123 - as above
        return file.read()


def local_path(uri: str) -> str:
    """Return the path of an artifact in the container, or "" if no store has its address."""
    for scheme, place in PLACES.items():
        if uri.startswith(scheme):
            return f"{place}{uri.removeprefix(scheme)}"
    return ""


if __name__ == "__main__":
    sys.exit(main())
