from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from core.odd_values import json_of
from ptjob_provider.core.errors import InvalidSpec
from ptjob_provider.core.manifest import MAX_BYTES, MAX_DEPTH, MAX_VALUES, dump_manifest, load_manifest
from recorded import DATA
from rows import each_row

if TYPE_CHECKING:
    from pathlib import Path

HEAD = "apiVersion: kubeflow.org/v1\nkind: PyTorchJob\n"
TEXTS = st.text(st.characters(codec="utf-8", exclude_categories=["Cs", "Cc"]), max_size=12)
CONTAINS_ITSELF: dict[str, Any] = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob"}
CONTAINS_ITSELF["spec"] = CONTAINS_ITSELF


def load(body: str) -> dict[str, Any]:
    return load_manifest(HEAD + body)


def test_a_file_its_text_and_its_map_are_the_same_manifest(tmp_path: Path) -> None:
    """A path object, a path as text, YAML text, JSON text and a map give equal values."""
    text = (DATA / "manifest-args-only.yaml").read_text()
    file = tmp_path / "job.yml"
    file.write_text(text)

    forms = [load_manifest(form) for form in (file, f" {file} ", text, dump_manifest(yaml.safe_load(text)))]

    assert all(form == yaml.safe_load(text) for form in forms)


def test_anchors_and_merge_keys_are_expanded_into_values_of_their_own() -> None:
    """A template that two roles share by an anchor becomes two values, and a merge key's own entries win."""
    roles = load_manifest(DATA / "manifest-anchors.yaml")["spec"]["pytorchReplicaSpecs"]

    assert (roles["Master"]["replicas"], roles["Worker"]["replicas"]) == (1, 3)
    assert roles["Master"]["template"] == roles["Worker"]["template"]
    assert roles["Master"]["template"] is not roles["Worker"]["template"]


@each_row(
    ("written", "read"),
    [
        ("2026-11-20", "2026-11-20"),
        ("12:30", "12:30"),
        ("=", "="),
        ("", None),
        ("yes", True),
        ("010", 8),
        ("0x1F", 31),
        ("1e3", 1000.0),
        ("None", "None"),
    ],
)
def test_scalars_are_read_as_kubernetes_reads_them(written: str, read: Any) -> None:
    """Timestamps, times and `=` stay strings; Python's usual loader makes dates, numbers and errors of them."""
    manifest = load(f"value: {written}")

    assert manifest["value"] == read
    assert type(manifest["value"]) is type(read)


@each_row("text", [f"---\n{HEAD}---\n", f"# a comment\n---\n---\n{HEAD}", f"{HEAD}...\n---\nnull\n"])
def test_empty_documents_beside_the_manifest_are_skipped(text: str) -> None:
    """As kubectl does; templates leave such documents behind."""
    assert load_manifest(text) == load("")


def test_tuples_in_a_map_become_lists() -> None:
    manifest = load_manifest({"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "args": ("a", ("b",))})

    assert manifest["args"] == ["a", ["b"]]


@each_row(
    ("source", "message"),
    [
        ("kind: Job\napiVersion: batch/v1", "manifest.kind: 'Job' is not allowed; allowed: PyTorchJob"),
        ("kind: PyTorchJob\napiVersion: kubeflow.org/v2", "manifest.apiVersion: 'kubeflow.org/v2'"),
        ("metadata: {}", "manifest.kind: None"),
        ("just a text", "a map with apiVersion"),
        ("", "the YAML document is empty"),
        ("~\n---\n", "the YAML document is empty"),
        (HEAD + "metadata: {name: a}\n---\n" + HEAD, "2 YAML documents (PyTorchJob a, PyTorchJob); exactly one must"),
        ("kind: Service\n---\njust a text\n---\n[]", "3 YAML documents (Service, no object, no object); exactly one"),
        (HEAD + "kind: PyTorchJob\n", "line 3: the key 'kind' is there twice"),
        (HEAD + "? [a]\n: b", "a key must be a text"),
        (HEAD + "8: b", "texts as keys; quote it"),
        (HEAD + "a: [", "line 3"),
        (HEAD + "a: !!python/object/apply:os.system [id]", "could not determine a constructor"),
        (HEAD + "a: !!timestamp 2026-99-99", "month must be in 1..12"),
        (HEAD + "a: !!float .inf", "manifest.a: inf is not allowed"),
        (HEAD + "a: &a [*a]", f"more than {MAX_VALUES} values"),
        (HEAD + "a: " + "[" * 70 + "]" * 70, f"more than {MAX_DEPTH} levels"),
        ("x" * (MAX_BYTES + 1), f"at most {MAX_BYTES} bytes"),
        (b"kind: PyTorchJob", "a map, a YAML text or a path"),
        ("no/such/file.yaml", "a file that can be read (No such file or directory)"),
        ({"kind": "PyTorchJob", "apiVersion": "kubeflow.org/v1", "spec": {1, 2}}, "manifest.spec: {1, 2}"),
        ({"kind": "PyTorchJob", "apiVersion": "kubeflow.org/v1", "a": [0] * MAX_VALUES}, f"more than {MAX_VALUES}"),
        (CONTAINS_ITSELF, "levels deep"),
    ],
)
def test_a_source_that_is_not_one_valid_manifest_is_refused(source: Any, message: str) -> None:
    """The error names the place and what is allowed, and nothing is built from the source."""
    with pytest.raises(InvalidSpec) as error:
        load_manifest(source)

    assert message in str(error.value)


def test_the_one_training_job_of_several_documents_is_taken_and_the_rest_is_named(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Public files have a ConfigMap, a Service or a runtime before or after the job."""
    beside = "kind: ConfigMap\nmetadata: {name: code}\n---\n", "---\nkind: Service\n---\n# the end\n"

    manifest = load_manifest(f"{beside[0]}{HEAD}metadata: {{name: train}}\n{beside[1]}")

    assert manifest == {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": {"name": "train"}}
    (said,) = caplog.messages
    assert "ConfigMap code, Service" in said
    assert "PyTorchJob train" in said


def test_a_file_that_is_not_text_is_refused(tmp_path: Path) -> None:
    """Bytes that are not UTF-8 are an error of the manifest, not of a codec."""
    file = tmp_path / "job.yaml"
    file.write_bytes(b"\xff\xfe\x00")

    with pytest.raises(InvalidSpec, match="not UTF-8 text"):
        load_manifest(file)


@pytest.mark.parametrize(
    "bomb", ["[{0}, {0}, {0}, {0}, {0}, {0}, {0}, {0}, {0}]", "{{<<: [{0}, {0}, {0}, {0}, {0}, {0}]}}"]
)
def test_a_document_that_explodes_is_refused_before_it_does(bomb: str) -> None:
    """Nine levels of nine aliases (some 10^8 values), and the same with merge keys, cost nothing."""
    levels = ["a0: &a0 {x: y}"] + [f"a{n}: &a{n} {bomb.format(f'*a{n - 1}')}" for n in range(1, 10)]

    with pytest.raises(InvalidSpec, match="once its anchors are expanded"):
        load("\n".join(levels))


def test_the_keys_of_an_anchor_are_checked_once_however_often_it_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the time to read a file grows with its square."""
    checked: list[Any] = []
    monkeypatch.setattr("ptjob_provider.core.manifest._check_keys", lambda node, _: checked.append(node))

    load(f"a: &a {{b: c}}\nd: [{', '.join(['*a'] * 100)}]\n")

    assert len(checked) == 2


@given(st.dictionaries(TEXTS, json_of(TEXTS), max_size=5))
def test_a_dumped_manifest_is_read_back_as_the_same_values(extra: dict[str, Any]) -> None:
    manifest = {**extra, "apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob"}

    text = dump_manifest(manifest)

    assert load_manifest(text) == manifest
    assert yaml.safe_load(text) == manifest


@each_row("text", ["yes", "y", "N", "1e3", "12:30", "0x1", "null", "~", "2026-11-20", "", " a", "a: b", "-"])
def test_a_text_that_could_be_mistaken_is_dumped_in_quotes(text: str) -> None:
    """Parsers of other YAML versions get a string too: to some `y` is true and `1e3` a number."""
    assert dump_manifest({"a": text}) == f'a: "{text}"\n'


def test_a_dump_has_no_anchors_and_keeps_long_texts_readable() -> None:
    shared = {"script": "set -e\npython train.py\n"}

    text = dump_manifest({"a": shared, "b": shared})

    assert text == "".join(f"{key}:\n  script: |\n    set -e\n    python train.py\n" for key in "ab")
