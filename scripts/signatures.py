"""Write the fields of a job into whatever takes them as arguments: parameters and docstrings; `--check` only compares.

Names, order and texts come from the fields of `TrainingJob`: of a text the first sentence, and the one about None. The
types are those that each adapter accepts for a field's type, see `ACCEPTED`. The source has them written out because
Airflow and kfp read signatures, and editors show them.
"""

from __future__ import annotations

import ast
import re
import sys
import textwrap
from dataclasses import Field, dataclass, fields
from typing import TYPE_CHECKING, Any

from reference import AIRFLOW, KFP, attribute_texts, definition

from ptjob_provider.core.manifest import KINDS
from ptjob_provider.core.spec import TrainingJob
from ptjob_provider.core.spec.parsers import words_of

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

OPERATOR, COMPONENT, LAUNCHER = range(3)
"""Columns of `ACCEPTED`."""

_ANY = ("Any", "Any", "dict")
_PARTS = ("Mapping[str, Any]", "Map", "dict")
_SECONDS = ("float | timedelta | str", "Seconds", "str")
_OBJECTS = ("Sequence[Any]", "Items", "list")
ACCEPTED: Mapping[str, tuple[str, str, str]] = {
    "str": ("str", "Text", "str"),
    "int": ("int | str", "Number", "str"),
    "int | str": ("int | str", "Number", "str"),
    "bool": ("bool | str", "Switch", "str"),
    "tuple[str, ...]": ("Sequence[str]", "Items", "list"),
    "tuple[EnvVar, ...]": ("Mapping[str, Any] | Sequence[Any]", "Map | Sequence[Any]", "dict"),
    "tuple[Mapping[str, Any], ...]": _OBJECTS,
    "tuple[VolumeMount | PodVolume, ...]": _OBJECTS,
    "Mapping[str, str]": ("Mapping[str, str]", "Map", "dict"),
    **dict.fromkeys(("Mapping[str, Any]", "Resources", "Manifest"), _ANY),
    **dict.fromkeys(("ElasticPolicy", "RoleFields"), _PARTS),
    "TensorBoard": ("Mapping[str, Any] | bool | str", "Map | bool", "dict"),
    "CodeSource": ("Mapping[str, Any] | str | Path", "Map | Text | PipelineArtifactChannel", "dict"),
}
"""Type of a field → what the operator, the component and the component's function in the pod accept."""

OF_FIELD: Mapping[str, tuple[str, str, str]] = {
    "cpu": ("str | float", "Number", "str"),
    "shared_memory": ("str | bool", "Switch", "str"),
    "image_pull_secrets": _OBJECTS,
    "manifest": ("Mapping[str, Any] | str | os.PathLike[str]", "Map | str | os.PathLike[str]", "dict"),
}
"""Fields that accept other types than those of their own type."""


@dataclass(frozen=True, kw_only=True)
class Target:
    """A function that takes the fields.

    Attributes:
        file: its file.
        name: the class or function with the docstring.
        column: the column of `ACCEPTED`.
        texts: texts that differ there.
    """

    file: Path
    name: str
    column: int
    texts: Mapping[str, str]


TARGETS = (
    Target(
        file=AIRFLOW / "operators.py",
        name="PyTorchJobOperator",
        column=OPERATOR,
        texts={
            "name": "Readable beginning of the job's name. None: the manifest's name, else the task id.",
            "namespace": "Namespace of the job. None: the manifest's namespace, else the connection's, else the "
            "namespace of Airflow's pod, else `default`.",
        },
    ),
    Target(
        file=KFP / "component.py",
        name="pytorchjob_op",
        column=COMPONENT,
        texts={
            "name": "Readable beginning of the job's name. None: the manifest's name, else the task's name.",
            "namespace": "Namespace of the job. None: the step's own; in another one the job has no owner, see "
            "docs/how-to/kubeflow-pipelines.md.",
        },
    ),
    Target(
        file=KFP / "launcher.py",
        name="pytorchjob",
        column=LAUNCHER,
        texts={
            "name": "Readable beginning of the job's name. None: the manifest's name, else the task's name.",
            "namespace": "Namespace of the job. None: the step's own.",
            "env": 'Environment of the training program: name → text, number, `{"secret": NAME, "key": KEY}` or '
            '`{"config_map": NAME, "key": KEY}`. None: no further variables.',
            "code": "Code to fetch into <working_dir>/code: git or rsync, branch, revision, submodules, depth, secret, "
            "image. None: the image has the code.",
            "pod_template": "Template of every pod, which all other inputs override: a pod template, a pod or a "
            "PodTemplate, as a map. None: no template.",
            "tensorboard": "Run a TensorBoard beside the job, as long as the job's object exists: logdir, image, "
            "service_type; {} for that of its `tfevents`. None: no TensorBoard.",
            "manifest": "The user's own job of one of these kinds, as a map. None: the job is built from the inputs.",
        },
    ),
)


def written(target: Target) -> str:
    """Return the file's text with all fields of a job at the beginning of the parameters and of `Args`."""
    return _documented(_with_parameters(target.file.read_text(), target), target)


def _with_parameters(text: str, target: Target) -> str:
    node: Any = next(each for each in ast.parse(text).body if getattr(each, "name", "") == target.name)
    if isinstance(node, ast.ClassDef):
        node = next(each for each in node.body if getattr(each, "name", "") == "__init__")
    declared = {each.name: each for each in fields(TrainingJob)}
    known = [each for each in node.args.kwonlyargs if each.arg in declared]
    indent = " " * known[0].col_offset
    lines, first = text.splitlines(keepends=True), known[0].lineno - 1
    removed = {each.lineno - 1 for each in known}
    parameters = [f"{indent}{name}: {_parameter(each, target.column)},\n" for name, each in declared.items()]
    kept = [(number, line) for number, line in enumerate(lines) if number not in removed]
    before = [line for number, line in kept if number < first]
    return "".join([*before, *parameters, *(line for number, line in kept if number > first)])


def _parameter(field: Field[Any], column: int) -> str:
    """Return the type and the default of the field's parameter."""
    own = str(field.type).removesuffix(" | None")
    words = tuple(KINDS) if field.name == "kind" else words_of(field)
    accepted = _SECONDS if "_seconds" in field.name else OF_FIELD.get(field.name) or ACCEPTED[own]
    type_ = accepted[column]
    if column == LAUNCHER:
        return f"Optional[{type_}] = None"
    if column == OPERATOR and words:
        type_ = f"Literal[{', '.join(map(_quoted, words))}]"
    type_ = type_ if type_ == "Any" else f"{type_} | None"
    is_narrower = words or own in {"ElasticPolicy", "RoleFields", "TensorBoard", "CodeSource"}
    # The field's own default, None, is written as the field: in an editor it leads on to the declaration.
    return f"{type_} = TrainingJob.{field.name}" if column == OPERATOR and not is_narrower else f"{type_} = None"


def _quoted(word: str) -> str:
    return f'"{word}"'


def _documented(text: str, target: Target) -> str:
    docstring = ast.get_docstring(definition(target.file, target.name), clean=False) or ""
    head, _, body = docstring.partition("    Args:\n")
    entries, mark, rest = body.partition("\n\n")
    texts = {**attribute_texts(TrainingJob), **target.texts}
    own = [entry for entry in re.split(r"\n(?= {8}\S)", entries.rstrip()) if entry.split(":")[0].strip() not in texts]
    lines = [*(_entry(field, description, target.column) for field, description in texts.items()), *own]
    end = f"{mark}{rest}" if mark else body.removeprefix(entries.rstrip())
    return text.replace(docstring, "\n".join([f"{head}    Args:", *lines]) + end)


def _entry(field: str, text: str, column: int) -> str:
    sentences = re.split(r"(?<=\.)\s+(?=[A-Z`])", " ".join(text.split()))
    about_none = [each for each in sentences[1:] if each.startswith("None:")]
    short = " ".join([sentences[0], *about_none])
    if column == LAUNCHER:
        short = re.sub("[,;] also a timedelta", "", short)  # the function in the pod takes seconds
    return textwrap.fill(
        f"{field}: {short}", 120, initial_indent=" " * 8, subsequent_indent=" " * 12, break_on_hyphens=False
    )


def main() -> int:
    """Write the arguments, or with `--check` print where they differ; return the exit code."""
    outdated = [target for target in TARGETS if written(target) != target.file.read_text()]
    if "--check" in sys.argv:
        for target in outdated:
            print(f"{target.file}: {target.name} differs; run scripts/signatures.py")
        return len(outdated)
    for target in outdated:
        target.file.write_text(written(target))
    return 0


if __name__ == "__main__":
    sys.exit(main())
