"""Read a user's manifest (a file, its text or a map) as kubectl reads it, and reject dangerous input.

YAML is read as Kubernetes reads it, not as PyYAML does: an instant stays a text, and so does `12:30`. Anchors and merge
keys are supported, but documents that they make far larger than any real job are rejected. `kinds` validates the
manifests of each kind.
"""

from __future__ import annotations

import itertools
import logging
import math
import re
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from ptjob_provider.core.errors import InvalidSpec
from ptjob_provider.core.outgoing import INT64, MAX_DEPTH, check_texts

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ptjob_provider.core.identity import Manifest

logger = logging.getLogger(__name__)

FIELD = "manifest"
KINDS = {
    "PyTorchJob": "kubeflow.org/v1",
    "TrainJob": "trainer.kubeflow.org/v1alpha1",
    "PyTorchTrainingJob": "batch.tensorstack.dev/v1beta1",
}
"""Kinds that can be submitted, with their apiVersion."""

MAX_BYTES = 512 * 1024
"""Maximum bytes of a manifest: with its status, the object must stay below etcd's 1.5 MB. Real manifests have a
hundredth of this."""
MAX_VALUES = 50_000
"""Maximum number of values after anchors are expanded."""

_LINE = 100_000
"""Line width for PyYAML, large enough to fold no text: folded texts are hard to copy."""
_UNMISTAKABLE = re.compile(
    r"(?!(?:[yn]|yes|no|on|off|true|false|null)$)[A-Za-z/](?:[-A-Za-z0-9_./ ]|:(?=\S))*", re.IGNORECASE
)
_FILE_SUFFIXES = (".yaml", ".yml", ".json")


def load_manifest(source: Mapping[str, Any] | str | PathLike[str]) -> Manifest:
    """Return the manifest as plain JSON values, none of them shared; the source is not modified.

    Args:
        source: a map, a path object or a text. A text is a path if it is one line that ends in .yaml, .yml or .json;
            else it is the manifest itself. Of several YAML documents, the only training job is the manifest.

    Raises:
        InvalidSpec: there is no such file; the text has no training job, or several; the manifest has a duplicate key,
            is too large or too deep, has a value that JSON cannot represent, or its kind is not in `KINDS`.
    """
    manifest = load_object(source, field=FIELD)
    _check_kind(manifest)
    return manifest


def load_object(source: object, *, field: str) -> Manifest:
    """Return an object of any kind, read like a manifest; errors begin with the field's name."""
    loaded = source if isinstance(source, Mapping) else _parse(_text(source, field), field)
    plain = _plain(loaded, field, itertools.count())
    check_texts(field, plain)
    if not isinstance(plain, dict):
        raise InvalidSpec.of(
            field, source, "allowed: a map with apiVersion, kind, metadata and spec (or the path of a .yaml file)"
        )
    return plain


def load_yaml(text: str, *, field: str) -> Any:
    """Return the value of the text's only document or training job, read like a manifest; empty documents are skipped.

    Raises:
        InvalidSpec: as `load_manifest`; the text begins with the field's name.
    """
    return _plain(_parse(text, field), field, itertools.count())


def dump_manifest(manifest: Mapping[str, Any]) -> str:
    """Return the manifest as YAML, with its order of keys; kubectl and `load_manifest` read the same values from it."""
    text: str = yaml.dump(dict(manifest), Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=_LINE)
    return text


def _check_kind(manifest: Manifest) -> None:
    kind, version = manifest.get("kind"), manifest.get("apiVersion")
    if not isinstance(kind, str) or kind not in KINDS:
        raise InvalidSpec.of(f"{FIELD}.kind", kind, "allowed: " + ", ".join(KINDS))
    if version != KINDS[kind]:
        raise InvalidSpec.of(f"{FIELD}.apiVersion", version, f"allowed: {KINDS[kind]}")


def _text(source: object, field: str) -> str:
    if isinstance(source, PathLike):
        return _read(Path(source), field)
    if not isinstance(source, str):
        raise InvalidSpec.of(field, source, "allowed: a map, a YAML text or a path")
    line = source.strip()
    return _read(Path(line), field) if line.endswith(_FILE_SUFFIXES) and "\n" not in line else source


def _read(path: Path, field: str) -> str:
    try:
        with path.open("rb") as file:
            return file.read(MAX_BYTES + 1).decode()
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or "not UTF-8 text"
        raise InvalidSpec.of(field, str(path), f"allowed: a file that can be read ({why})") from error


def _parse(text: str, field: str) -> Any:
    try:
        if len(text.encode()) > MAX_BYTES:
            raise InvalidSpec.at(field, f"allowed: at most {MAX_BYTES} bytes")
        loader = _Loader(text, field)
        nodes = list(_documents(loader))
        if not nodes:
            raise InvalidSpec.at(field, "the YAML document is empty")
        for node in nodes:
            _check_size(node, field)
        return _the_job([loader.construct_document(node) for node in nodes], field)
    except (yaml.YAMLError, ValueError) as error:
        if isinstance(error, InvalidSpec):
            raise
        raise InvalidSpec.at(field, f"not one sound YAML document; {_problem(error)}") from error


def _the_job(documents: list[Any], field: str) -> Any:
    """Return the only document, or the only training job of several; a log line names the others."""
    if len(documents) == 1:
        return documents[0]
    titles = [_title(each) for each in documents]
    jobs = [index for index, title in enumerate(titles) if title.partition(" ")[0] in KINDS]
    if len(jobs) != 1:
        rule = f"exactly one must be a training job: {', '.join(KINDS)}"
        raise InvalidSpec.at(field, f"{len(documents)} YAML documents ({', '.join(titles)}); {rule}")
    job = titles.pop(jobs[0])
    logger.warning("%s: only %s is taken; create with kubectl what it needs of %s", field, job, ", ".join(titles))
    return documents[jobs[0]]


def _title(document: Any) -> str:
    """Return kind and name of an object."""
    kind, meta = (document.get("kind"), document.get("metadata")) if isinstance(document, dict) else ("no object", None)
    name = meta.get("name") if isinstance(meta, dict) else None
    return f"{kind or 'no kind'} {name or ''}".rstrip()


def _documents(loader: _Loader) -> Iterator[yaml.Node]:
    """Yield the documents that are not empty."""
    while loader.check_node():
        node = loader.get_node()
        if node is not None and node.tag != _NULL:
            yield node


def _problem(error: Exception) -> str:
    """Return the line and the message of a YAML error, without the quoted text."""
    mark = getattr(error, "problem_mark", None)
    words = [getattr(error, name, None) for name in ("context", "problem")]
    text = ", ".join(word for word in words if word) or " ".join(str(error).split())
    return f"line {mark.line + 1}: {text}" if mark else text


class _Loader(yaml.SafeLoader):
    """Safe loader with Kubernetes' rules for scalars; rejects duplicate keys and documents that are too deep."""

    def __init__(self, text: str, field: str) -> None:
        super().__init__(text)
        self._field = field
        self._depth = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise InvalidSpec.at(self._field, f"more than {MAX_DEPTH} levels deep")
        node: yaml.Node | None = super().compose_node(parent, index)
        self._depth -= 1
        return node

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        node = super().compose_mapping_node(anchor)
        _check_keys(node, self._field)
        return node


_NULL = "tag:yaml.org,2002:null"
_SCALARS = {
    _NULL: (r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    "tag:yaml.org,2002:bool": (
        r"yes|Yes|YES|no|No|NO|true|True|TRUE|false|False|FALSE|on|On|ON|off|Off|OFF",
        list("yYnNtTfFoO"),
    ),
    "tag:yaml.org,2002:int": (r"[-+]?(?:0b[01_]+|0[0-7_]+|0|[1-9][0-9_]*|0x[0-9a-fA-F_]+)", list("-+0123456789")),
    "tag:yaml.org,2002:float": (
        r"[-+]?(?:[0-9][0-9_]*\.[0-9_]*(?:[eE][-+]?[0-9]+)?|[0-9][0-9_]*[eE][-+]?[0-9]+|\.[0-9][0-9_]*(?:[eE][-+]?[0-9]+)?)",
        list("-+.0123456789"),
    ),
    "tag:yaml.org,2002:merge": (r"<<", ["<"]),
}
_Loader.yaml_implicit_resolvers = {}
for _tag, (_pattern, _first) in _SCALARS.items():
    _Loader.add_implicit_resolver(_tag, re.compile(f"(?:{_pattern})$"), _first)
_Loader.yaml_constructors = {  # JSON has no bytes
    tag: each for tag, each in yaml.SafeLoader.yaml_constructors.items() if tag != "tag:yaml.org,2002:binary"
}


def _check_keys(node: yaml.MappingNode, field: str) -> None:
    keys: set[str] = set()
    for key, _ in node.value:
        if not isinstance(key, yaml.ScalarNode):
            raise InvalidSpec.at(field, f"line {key.start_mark.line + 1}: a key must be a text")
        if key.value in keys and key.tag != "tag:yaml.org,2002:merge":
            raise InvalidSpec.at(field, f"line {key.start_mark.line + 1}: the key {key.value!r} is there twice")
        keys.add(key.value)


def _check_size(root: yaml.Node, field: str) -> None:
    """Check the number of values that the document would have with all aliases expanded, without expanding them."""
    sizes: dict[int, int] = {}

    def size(node: yaml.Node) -> int:
        if id(node) not in sizes:
            sizes[id(node)] = MAX_VALUES + 1  # for a node that contains itself
            sizes[id(node)] = 1 + sum(size(child) for child in _children(node))
        return sizes[id(node)]

    if size(root) > MAX_VALUES:
        raise InvalidSpec.at(field, f"more than {MAX_VALUES} values once its anchors are expanded")


def _children(node: yaml.Node) -> list[yaml.Node]:
    if isinstance(node, yaml.MappingNode):
        return [child for pair in node.value for child in pair]
    return list(node.value) if isinstance(node, yaml.SequenceNode) else []


def _plain(value: Any, path: str, count: Iterator[int], depth: int = 0) -> Any:
    """Return a copy of the value that JSON can represent; `count` counts the values of the whole manifest."""
    if next(count) >= MAX_VALUES:
        raise InvalidSpec.at(path, f"more than {MAX_VALUES} values")
    if depth > MAX_DEPTH:
        raise InvalidSpec.at(path, f"more than {MAX_DEPTH} levels deep")
    if isinstance(value, Mapping):
        return {_key(key, path): _plain(item, f"{path}.{key}", count, depth + 1) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item, f"{path}[{index}]", count, depth + 1) for index, item in enumerate(value)]
    is_number = math.isfinite(value) if isinstance(value, float) else isinstance(value, int) and -INT64 <= value < INT64
    if value is None or isinstance(value, str) or is_number:
        return value
    allowed = "allowed: a text, a whole number of 64 bits, a finite number, true, false, null, a list or a map"
    raise InvalidSpec.of(path, value, allowed)


def _key(key: object, path: str) -> str:
    if not isinstance(key, str):
        raise InvalidSpec.of(path, key, "allowed: texts as keys; quote it")
    return key


class _Dumper(yaml.SafeDumper):
    """Dumper that writes no anchors, texts of several lines as blocks, and quotes around texts that may be misread."""

    def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002 - the signature is PyYAML's
        return True


def _represent_text(dumper: _Dumper, text: str) -> yaml.ScalarNode:
    node: yaml.ScalarNode = dumper.represent_scalar("tag:yaml.org,2002:str", text, style=_style(text))
    return node


def _style(text: str) -> str | None:
    if "\n" in text:
        return "|"
    if _UNMISTAKABLE.fullmatch(text):
        return None
    return "'" if '"' in text else '"'


_Dumper.add_representer(str, _represent_text)
