"""Resolve a job's declared outputs, and verify them by the report of an inspection.

The functions are pure: `pvc://` addresses and container paths are resolved as text, and a back-end inspects the outputs
with `probe_outputs`. A declared output is valid if it exists, is not empty and was written since the task's first
attempt after the last clear.
"""

from __future__ import annotations

import json
import posixpath
import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Self

from ptjob_provider.core.errors import InvalidSpec
from ptjob_provider.core.identity import OUTPUTS_ANNOTATION, JobRef, annotation_of, is_object_name
from ptjob_provider.core.status import since_1970
from ptjob_provider.core.versions import MALFORMED, Record, known_fields

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

SCHEME = "pvc://"
_MAX_REPORT = 64 * 1024

_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_OTHER_SCHEME = re.compile(r"[a-zA-Z][-+.\w]*:/")
_TASK = {"model": "save the model to $PTJOB_MODEL_PATH", "tfevents": "write events to $PTJOB_TFEVENTS_DIR"}
_ROOT_RULE = "allowed: pvc://claim/path, where the path has no '..'"
_ADDRESS_RULE = f"{_ROOT_RULE} and names something below the claim's root"


@dataclass(frozen=True, kw_only=True)
class PvcAddress:
    """A path on a claim. The path is relative, without empty, `.` or `..` parts; "" is the claim's root, if allowed."""

    claim: str
    path: str

    @classmethod
    def parse(cls, text: str, *, field: str = "address", or_root: bool = False) -> Self:
        """Parse `pvc://claim/path`; with `or_root`, the path may be empty.

        Raises:
            InvalidSpec: the claim is missing or its name invalid, or the path is missing or contains `..`.
        """
        claim, _, path = text.removeprefix(SCHEME).partition("/")
        if not text.startswith(SCHEME) or not is_object_name(claim):
            raise InvalidSpec.of(field, text, _ROOT_RULE if or_root else _ADDRESS_RULE)
        return cls(claim=claim, path=_inner_path(path, field=field, value=text, or_root=or_root))

    @property
    def uri(self) -> str:
        """Return the address as text."""
        return f"{SCHEME}{self.claim}/{self.path}"


@dataclass(frozen=True, kw_only=True)
class Mount:
    """A claim, or its directory `sub_path`, mounted into a container.

    A mount of another volume has the claim "": it hides the files of a claim that are mounted below its path.
    """

    claim: str
    mount_path: str
    sub_path: str = ""
    read_only: bool = False

    def __str__(self) -> str:
        source = f"{SCHEME}{self.claim}/{_clean(self.sub_path)}".rstrip("/")
        return f"{self.mount_path} ({source}{', read-only' if self.read_only else ''})"


@dataclass(frozen=True, kw_only=True)
class ResolvedOutput(Record):
    """One declared output: `path` is inside the claim, `container_path` is where the training program writes it."""

    uri: str
    claim: str
    path: str
    container_path: str


@dataclass(frozen=True, kw_only=True)
class ResolvedOutputs(Record):
    """A job's declared outputs; None for an output that is not declared. Checkpoints are not verified."""

    model: ResolvedOutput | None = None
    tfevents: ResolvedOutput | None = None
    checkpoints: ResolvedOutput | None = None

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Self:
        """Rebuild the outputs from `to_dict`'s result; an absent output is not declared."""
        known = known_fields(cls, fields)
        return cls(**{name: value and ResolvedOutput.from_dict(value) for name, value in known.items()})

    @classmethod
    def of(cls, job: Mapping[str, Any]) -> Self:
        """Return the outputs that a job's object declares.

        Raises:
            InvalidSpec: somebody has changed the annotation.
        """
        try:
            return cls.from_dict(json.loads(annotation_of(job, OUTPUTS_ANNOTATION) or "{}"))
        except MALFORMED as error:
            changed = f"{JobRef.of(job)}: somebody has changed its annotation {OUTPUTS_ANNOTATION}"
            raise InvalidSpec(f"{changed}, so its outputs are unknown; delete the job") from error

    @property
    def verified(self) -> dict[str, ResolvedOutput]:
        """Return the outputs that are inspected, by name."""
        return {name: output for name, output in (("model", self.model), ("tfevents", self.tfevents)) if output}


@dataclass(frozen=True, kw_only=True)
class OutputFacts(Record):
    """Facts about one output, as in the report of `probe_outputs`.

    Attributes:
        exists: True if there is something to inspect.
        is_dir: True if it is a directory.
        files: number of files: the file itself, or the files below a directory; of tfevents only event files.
        bytes: their total size.
        sha256: SHA-256 of a model's file or, for a directory, of `sha256sum`'s output for its files, by name; "" if
            unreadable.
        modified_at: the latest modification of those files, in seconds since 1970; 0 without files.
        last_step: the greatest step of a scalar; None without scalars.
        scalars: the last value of each tag; NaN, Infinity and -Infinity are texts that `float()` reads.
        curves: points of each scalar as [step, value], in order of steps; only on request.
        problem: what prevented the inspection, or a part of it; "" if nothing did.
        is_stale: all files are older than the task's first attempt.
        in_doubt: files were written around the start of that attempt, by a clock that could not be compared.
        remarks: what people should know of a valid output, as clauses that name the files.
    """

    exists: bool
    is_dir: bool = False
    files: int = 0
    bytes: int = 0
    sha256: str = ""
    modified_at: float = 0.0
    last_step: int | None = None
    scalars: Mapping[str, float | str] = field(default_factory=dict)
    curves: Mapping[str, Sequence[Sequence[float | str]]] = field(default_factory=dict)
    problem: str = ""
    is_stale: bool = False
    in_doubt: bool = False
    remarks: Sequence[str] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class OutputReport(Record):
    """Facts about the declared outputs; None for an output that was not inspected.

    Attributes:
        model: facts about the model.
        tfevents: facts about the events.
        clock: seconds since 1970 on the inspecting machine when it read the storage's clock; None if it did not.
    """

    model: OutputFacts | None = None
    tfevents: OutputFacts | None = None
    clock: float | None = None

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Self:
        """Parse the report of `probe_outputs`, or rebuild the report from `to_dict`'s result."""
        known = known_fields(cls, fields)
        facts = {name: OutputFacts.from_dict(known[name]) for name in ("model", "tfevents") if known.get(name)}
        return cls(**facts, clock=known.get("clock"))

    def lacks(self, outputs: ResolvedOutputs) -> tuple[str, ...]:
        """Return the names of the declared outputs about which nothing is reported."""
        return tuple(name for name in outputs.verified if getattr(self, name) is None)


def report_text(report: OutputReport) -> str:
    """Return the report for an annotation: without curves, and without scalars if there are many hundreds."""
    if report.tfevents is not None:
        report = replace(report, tfevents=replace(report.tfevents, curves={}))
    text = json.dumps(report.to_dict(), separators=(",", ":"))
    if len(text) <= _MAX_REPORT or report.tfevents is None:
        return text
    return json.dumps(replace(report, tfevents=replace(report.tfevents, scalars={})).to_dict())


def read_report(text: str, outputs: ResolvedOutputs) -> OutputReport | None:
    """Parse the text that `report_text` wrote; None if the text is invalid or lacks a declared output."""
    try:
        report = OutputReport.from_dict(json.loads(text))
    except MALFORMED:
        return None
    return None if report.lacks(outputs) else report


_ADVICE = {
    "missing": "{task}, or correct {field}= (--{field})",
    "empty": "{task}, and see whether the claim is full",
    "stale": "{task}: the files there are older than the job",
}


@dataclass(frozen=True, kw_only=True)
class OutputProblem:
    """Defect of an output that fails its job, with its resolution."""

    summary: str
    resolution: str


def mount_for(address: PvcAddress, mounts: Sequence[Mount]) -> Mount | None:
    """Return the mount through which the program can write the address, else a read-only one, else None.

    A mount that another mount hides at that path does not count.
    """
    visible = [mount for mount in mounts if _shows(mount, address, mounts)]
    visible.sort(key=lambda mount: (mount.read_only, -len(_clean(mount.sub_path))))
    return visible[0] if visible else None


def resolve(
    text: str, *, field: str, mounts: Sequence[Mount], working_dir: str | None, reads: bool = False
) -> ResolvedOutput:
    """Resolve a declared output in a claim and in the container.

    Args:
        text: `pvc://claim/path`, or the path as the program sees it, absolute or relative to working_dir.
        field: the field's name for errors.
        mounts: mounts of rank 0's training container.
        working_dir: that container's working directory; None if only the image defines it.
        reads: the output is only read, so that a claim's root and a read-only claim are allowed.

    Raises:
        InvalidSpec: the output is on no claim that the container mounts, or on a read-only one.
    """
    if text.startswith(SCHEME):
        address = PvcAddress.parse(text, field=field, or_root=reads)
        mount = _usable(mount_for(address, mounts), text, field=field, mounts=mounts, reads=reads)
        container_path = _path_in_container(mount, address)
    else:
        container_path = _absolute(text, field=field, working_dir=working_dir)
        mount = _usable(mount_at(container_path, mounts), text, field=field, mounts=mounts, reads=reads)
        address = _address_at(mount, container_path, field=field, or_root=reads)
    return ResolvedOutput(uri=address.uri, claim=address.claim, path=address.path, container_path=container_path)


def check_places(fields: Mapping[str, Any]) -> None:
    """Check a job's declared outputs as far as that is possible without knowing what the container mounts.

    Raises:
        InvalidSpec: a declared output is neither an address nor a path.
    """
    for name in ("model", "tfevents", "checkpoints"):
        text = fields.get(name)
        text = text.strip() if isinstance(text, str) else ""
        if text.startswith(SCHEME):
            PvcAddress.parse(text, field=name)
        elif text:
            _absolute(text, field=name, working_dir="/")


def problems(report: OutputReport, outputs: ResolvedOutputs) -> tuple[OutputProblem, ...]:
    """Return the defects of the declared outputs; empty if all are valid. The report lacks none of them."""
    defects = (_problem(*declared) for declared in _declared(report, outputs))
    return tuple(problem for problem in defects if problem)


def notes(report: OutputReport, outputs: ResolvedOutputs) -> tuple[str, ...]:
    """Return remarks on outputs that do not fail the job: no scalars, unreadable parts, files that may be another's."""
    return tuple(note for declared in _declared(report, outputs) for note in _notes(*declared))


def _inner_path(path: str, *, field: str, value: str, or_root: bool) -> str:
    parts = [part for part in path.split("/") if part not in {"", "."}]
    if not (parts or or_root) or ".." in parts or _CONTROL.search(path):
        raise InvalidSpec.of(field, value, _ROOT_RULE if or_root else _ADDRESS_RULE)
    return "/".join(parts)


def _clean(path: str) -> str:
    return "/".join(part for part in path.split("/") if part not in {"", "."})


def _absolute(text: str, *, field: str, working_dir: str | None) -> str:
    if not text or _CONTROL.search(text) or _OTHER_SCHEME.match(text):
        raise InvalidSpec.of(field, text, "allowed: pvc://claim/path, or a path as the training code sees it")
    if not text.startswith("/") and not (working_dir or "").startswith("/"):
        raise InvalidSpec.of(
            field, text, "a relative path needs an absolute working_dir; set that, or write pvc://claim/path"
        )
    return normal_path(posixpath.join(working_dir or "", text))


def normal_path(path: str) -> str:
    """Return an absolute path in its shortest form."""
    return "/" + posixpath.normpath(path).lstrip("/")


def _below(path: str, directory: str) -> str | None:
    """Return the path relative to the directory; None if it is outside."""
    if path == directory or directory in {"", "/"}:
        return path.removeprefix(directory).lstrip("/")
    return path.removeprefix(f"{directory}/") if path.startswith(f"{directory}/") else None


def mount_at(container_path: str, mounts: Sequence[Mount]) -> Mount | None:
    """Return the innermost of the mounts that hold the path; None if none does."""
    holding = [mount for mount in mounts if _below(container_path, normal_path(mount.mount_path)) is not None]
    return max(holding, key=lambda mount: len(normal_path(mount.mount_path)), default=None)


def _address_at(mount: Mount, container_path: str, *, field: str, or_root: bool) -> PvcAddress:
    inside = _below(container_path, normal_path(mount.mount_path)) or ""
    path = _inner_path(posixpath.join(mount.sub_path, inside), field=field, value=container_path, or_root=or_root)
    return PvcAddress(claim=mount.claim, path=path)


def _path_in_container(mount: Mount, address: PvcAddress) -> str:
    inside = _below(address.path, _clean(mount.sub_path)) or ""
    return normal_path(posixpath.join(mount.mount_path, inside))


def _shows(mount: Mount, address: PvcAddress, mounts: Sequence[Mount]) -> bool:
    if mount.claim != address.claim or _below(address.path, _clean(mount.sub_path)) is None:
        return False
    return mount_at(_path_in_container(mount, address), mounts) == mount


def _usable(mount: Mount | None, text: str, *, field: str, mounts: Sequence[Mount], reads: bool) -> Mount:
    if mount is None or not mount.claim:
        why = "it is on none of the claims that the container mounts"
    elif mount.read_only and not reads:
        why = "it is mounted read-only"
    else:
        return mount
    claims = ", ".join(str(mount) for mount in mounts if mount.claim) or "(it mounts none)"
    raise InvalidSpec.of(field, text, f"{why}; allowed: below {claims}")


def _declared(report: OutputReport, outputs: ResolvedOutputs) -> Iterator[tuple[str, ResolvedOutput, OutputFacts]]:
    for name, output in outputs.verified.items():
        yield name, output, getattr(report, name)


def _problem(name: str, output: ResolvedOutput, facts: OutputFacts) -> OutputProblem | None:
    shortcoming = _shortcoming(name, facts)
    if shortcoming is None:
        return None
    cause, details = shortcoming
    obstacle = f" ({facts.problem})" if facts.exists and facts.problem else ""
    return OutputProblem(
        summary=f"{name} {output.uri} ({output.container_path} in the container) is {cause}: {details}{obstacle}",
        resolution=_ADVICE[cause].format(task=_TASK[name], field=name),
    )


def _shortcoming(name: str, facts: OutputFacts) -> tuple[str, str] | None:
    if not facts.exists:
        return "missing", facts.problem or "nothing is there"
    if name == "tfevents" and not facts.files:
        return "missing", "no event file is there"
    if not facts.bytes:
        return "empty", f"0 bytes in {facts.files} files" if facts.is_dir else "0 bytes"
    if facts.is_stale:
        modified_at = since_1970(facts.modified_at)
        when = f"{modified_at:%Y-%m-%dT%H:%M:%SZ}" if modified_at else f"{facts.modified_at:.0f} s after 1970"
        return "stale", f"last modified {when}, before the job's first attempt"
    return None


def _notes(name: str, output: ResolvedOutput, facts: OutputFacts) -> Iterator[str]:
    for remark in (*([facts.problem] if facts.problem else []), *facts.remarks):
        yield f"{name} {output.uri}: {remark}"
    if name == "tfevents" and not facts.scalars:
        yield f"{name} {output.uri} has no scalars: there are no last values to report or to decide by"
