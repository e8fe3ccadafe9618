"""Write the pages of the site's reference from the code; `docs_site.py` adds them to the site.

Modules that import Airflow or kfp are not imported but parsed, so neither has to be installed.
"""

from __future__ import annotations

import ast
import inspect
import json
import re
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ptjob_provider.cli import SECTIONS, main
from ptjob_provider.core import status
from ptjob_provider.core.diagnosis import Diagnosis
from ptjob_provider.core.diagnosis.causes import CAUSES, Cause
from ptjob_provider.core.history import PodHistory, peak_usage
from ptjob_provider.core.identity import JobRef
from ptjob_provider.core.outputs import contract, result
from ptjob_provider.core.run.submit import Submission
from ptjob_provider.core.spec import JOB_FIELDS, TrainingJob
from ptjob_provider.provider_info import OPTIONS, get_provider_info

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

ROOT = Path(__file__).parent.parent
AIRFLOW = ROOT / "ptjob_provider" / "airflow"
KFP = ROOT / "ptjob_provider" / "kfp"
Definition = ast.ClassDef | ast.FunctionDef

VARIES = {
    Cause.PYTHON_EXCEPTION,
    Cause.EXIT_CODE,
    Cause.GPU_OUT_OF_MEMORY,
    Cause.CRASH_LOOP,
    Cause.EVICTED,
    Cause.IMAGE,
    Cause.MOUNT,
    Cause.CODE,
    Cause.QUOTA,
}
"""Causes of which the failure itself may decide whether a retry may help."""

BECAUSE = {
    Cause.PYTHON_EXCEPTION: (
        "no for the errors of code, image and settings that docs/explanation/failures.md lists, else yes"
    ),
    Cause.EXIT_CODE: "no when the program prints its usage, or its last lines are on the same list; else yes",
    Cause.PROGRAM_MISSING: "the image does not change between two tries",
    Cause.OUT_OF_MEMORY: "the same batch needs the same memory against the same limit",
    Cause.GPU_OUT_OF_MEMORY: "the same batch needs the same memory; yes when another process held most of the GPU",
    Cause.SHARED_MEMORY: "it is as small the next time",
    Cause.DISK_FULL: "a retry may meet another node's disk; a claim is full until somebody frees it",
    Cause.CRASHED: "a segmentation fault or an abort may be a race, a node's driver or its hardware",
    Cause.CRASH_LOOP: "as for the failure that recurs",
    Cause.BACKOFF_LIMIT: "the cause was not observed",
    Cause.KILLED: "SIGKILL comes from outside: a person, a node's memory killer, a lost parent",
    Cause.TERMINATED: "SIGTERM, too, comes from outside: a drained node, a stopped machine",
    Cause.EVICTED: "another node, or a better moment; no when the pod exceeds a limit of its own",
    Cause.PREEMPTED: "a pod of higher priority took the place",
    Cause.NODE_LOST: "another node",
    Cause.CONNECTION_LOST: "no replica shows a cause: a network, or a node",
    Cause.SUPERVISOR_LOST: "something outside the job ended the process that ran the replicas",
    Cause.CANNOT_START: "the runtime failed on this node, not the program",
    Cause.IMAGE: "no when the registry reports it missing or forbidden, else yes",
    Cause.CONFIG: "a secret or config map that the job names does not exist",
    Cause.MOUNT: "no when the object to mount does not exist, else yes",
    Cause.CODE: "no when an address, a name or a credential is wrong, yes for a server or a folder",
    Cause.INIT: "an init container waits for a name or a server, or gave up waiting",
    Cause.START_TIMEOUT: "the cluster was slow",
    Cause.UNSCHEDULABLE: "the cluster may have room later",
    Cause.QUOTA: "no when it is smaller than the job, else yes: it may have room later",
    Cause.FORBIDDEN: "the namespace's rules do not change between two tries",
    Cause.QUEUED: "the queue may move later",
    Cause.SIDECAR: "the sidecar will not end the next time either",
    Cause.DEADLINE: "the job's own limit, which its author set; the next try has the same limit",
    Cause.TIMED_OUT: "the limit of the task or command that waits; a job that hangs has often lost a peer",
    Cause.DELETED: "somebody deleted it on purpose; creating it again would undo that",
    Cause.OUTPUTS: "the program wrote elsewhere, or nothing",
    Cause.NO_PROGRESS: "as many attempts in a row as `no_progress_limit` allows reached no new step",
    Cause.UNKNOWN: "nothing points to the program",
}
"""Why a retry may help after each cause, or why not."""


@dataclass(frozen=True, kw_only=True)
class Documented:
    """A parsed docstring: its paragraphs, and the entries of its sections by name."""

    text: str
    sections: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    @classmethod
    def of(cls, docstring: str | None) -> Documented:
        """Parse a docstring in Google style."""
        prose, *rest = re.split(
            r"^(Args|Attributes|Returns|Raises):\n", inspect.cleandoc(docstring or ""), flags=re.MULTILINE
        )
        sections = {name: dict(_entries(body)) for name, body in zip(rest[::2], rest[1::2], strict=True)}
        return cls(text=prose.strip(), sections=sections)


def _entries(body: str) -> Iterator[tuple[str, str]]:
    """Yield name and text of each entry of a section."""
    for entry in re.split(r"\n(?=    \S)", body.strip("\n")):
        name, _, text = entry.strip().partition(":")
        yield name, " ".join(text.split())


def pages() -> dict[str, str]:
    """Return each page's text by the page's path on the site, without the suffix."""
    return {
        "reference/fields": fields(),
        "reference/operators": operators(),
        "reference/component": component(),
        "reference/cli": command_line(),
        "reference/options": options(),
        "reference/result": results(),
        "reference/causes": causes(),
    }


def fields() -> str:
    """Return the page on the fields of a job."""
    texts = attribute_texts(TrainingJob)
    types = argument_types(definition(AIRFLOW / "operators.py", "PyTorchJobOperator"))
    lines = [
        "# Fields of a job",
        "",
        "Every field is an argument of `PyTorchJobOperator` and of `pytorchjob_op`, and a ",
    ]
    lines[-1] += (
        "flag of `ptjob submit`, `ptjob run` and `ptjob render`: `working_dir` is `--working-dir`. A field that "
    )
    lines[-1] += (
        "is None leaves the manifest as it is. In Airflow every field is a template. A value that is not allowed "
    )
    lines[-1] += (
        "is an import error of the DAG file; what a template, a file or another task decides is checked when the "
    )
    lines[-1] += "task runs, and is not retried."
    for name, text in texts.items():
        lines += ["", f"## {name}", "", f"Type: `{types.get(name, 'Any')}`", "", paragraphs(text)]
    names = literal(AIRFLOW / "pod_operator.py", "ALIASES")
    rows = [(f"`{alias}`", f"[{name}](#{name})" if name in texts else f"`{name}`") for alias, name in names.items()]
    lines += ["", "## Names of KubernetesPodOperator", "", "`PyTorchJobOperator` accepts these names, too.", ""]
    return "\n".join([*lines, *table(("KubernetesPodOperator", "here"), rows)]) + "\n"


def operators() -> str:
    """Return the page on the classes of the Airflow provider."""
    info = get_provider_info()
    lines = ["# Operators, sensors and triggers of Airflow", ""]
    lines += ["The [fields of a job](fields.md) are arguments of `PyTorchJobOperator` beside those listed here. "]
    lines[-1] += "`PyTorchJobOperator`, `PyTorchJobSensor`, `PyTorchJobTrigger`, `PyTorchJobHook`, `OutputVolume` and "
    lines[-1] += (
        "[`JobResult`](result.md#in-python) can be imported from `ptjob_provider.airflow`, too. All are public "
    )
    lines[-1] += "since 0.1.0: docs/how-to/releases.md says what that means."
    lines[-1] = paragraphs(lines[-1])
    for group in ("operators", "sensors", "triggers", "hooks"):
        for module in info[group][0]["python-modules"]:
            for node in public_classes(source_of(module)):
                lines += ["", f"## {node.name}", "", f"`from {module} import {node.name}`", "", *described(node)]
    decorator = definition(AIRFLOW / "decorators.py", "PyTorchJobDecoratedOperator")
    lines += ["", "## @task.pytorch_job", "", "`from airflow.sdk import task`", "", *described(decorator)]
    volume = definition(AIRFLOW / "handover.py", "OutputVolume")
    lines += ["", "## OutputVolume", "", "`from ptjob_provider.airflow.handover import OutputVolume`", ""]
    return "\n".join([*lines, *described(volume)]) + "\n"


def component() -> str:
    """Return the page on the component of Kubeflow Pipelines."""
    node = definition(KFP / "component.py", "pytorchjob_op")
    outcome = Documented.of(ast.get_docstring(definition(KFP / "launcher.py", "pytorchjob")))
    lines = [
        "# The component of Kubeflow Pipelines",
        "",
        "`from ptjob_provider.kfp.component import pytorchjob_op`",
        "",
    ]
    lines += ["The [fields of a job](fields.md) are arguments beside those listed here.", "", *described(node)]
    lines += ["", "## Outputs", "", *definitions("output", outcome.sections["Returns"])]
    return "\n".join(lines) + "\n"


def command_line() -> str:
    """Return the page on the commands of `ptjob` and their options."""
    context = click.Context(main, info_name="ptjob")
    lines = ["# Commands of ptjob", "", paragraphs(inspect.cleandoc(main.help or "")), ""]
    lines += ["These options stand before the command, or after it.", "", *option_table(main, context)]
    for heading, commands in SECTIONS.items():
        for name in commands:
            lines += command(main.get_command(context, name), context, name, heading)
    return "\n".join(lines) + "\n"


def command(entry: click.Command | None, above: click.Context, name: str, heading: str) -> list[str]:
    """Return the lines on a command, and on its subcommands."""
    if entry is None:
        return []
    context = click.Context(entry, info_name=name, parent=above)
    usage = " ".join(entry.collect_usage_pieces(context))
    summary = inspect.cleandoc(entry.help or "").replace("\b\n", "")
    prose, *examples = re.split(r"\n(?=ptjob )", summary, maxsplit=1)
    lines = ["", f"## {context.command_path}", "", paragraphs(prose.strip()), "", "```text"]
    lines += [f"{context.command_path} {usage}", *("".join(examples).splitlines()), "```", ""]
    lines += option_table(entry, context)
    if isinstance(entry, click.Group):
        for below in entry.list_commands(context):
            lines += command(entry.get_command(context, below), context, below, heading)
    return lines


def option_table(entry: click.Command, context: click.Context) -> list[str]:
    """Return a table of a command's options; flags of the job are only named, since they have a page of their own."""
    own = [each for each in entry.params if isinstance(each, click.Option) and not each.hidden]
    flags = [each for each in own if getattr(each, "section", "")]
    records = [record for each in own if each not in flags and (record := each.get_help_record(context))]
    lines = table(("option", "meaning"), [(f"`{names}`", text) for names, text in records])
    if not flags:
        return lines
    lines += ["", "Flags of the job; [Fields of a job](fields.md) says what each means.", ""]
    sections = {heading: [flag for flag in flags if flag.section == heading] for heading in _order(flags)}  # type: ignore[attr-defined]
    names = {heading: " ".join(f"`{max(flag.opts, key=len)}`" for flag in group) for heading, group in sections.items()}
    return lines + table(("about", "flags"), list(names.items()))


def _order(flags: Iterable[Any]) -> list[str]:
    return list(dict.fromkeys(flag.section for flag in flags))


def options() -> str:
    """Return the page on the options of `[ptjob]`."""
    lines = ["# Options of the section [ptjob]", ""]
    lines += [
        "Set them in `airflow.cfg` or as `AIRFLOW__PTJOB__NAME`. `ptjob` and a pipeline's step read `PTJOB_NAME`, too."
    ]
    for name, option in OPTIONS.items():
        default, example = option["default"], option["example"]
        lines += ["", f"## {name}", "", paragraphs(str(option["description"]).replace("``", "`")), ""]
        lines += [f"- Type: {option['type']}. Default: {f'`{default}`' if default else 'empty'}"]
        lines += [f"- Example: `{example}`"] if example else []
        lines += ["- Sensitive: Airflow masks its value."] if option.get("sensitive") else []
    return "\n".join(lines) + "\n"


def results() -> str:
    """Return the page on the result, with an example that is created by the code."""
    lines = ["# The result", "", "One JSON value: `return_value` of a task of Airflow, the output `result` of a "]
    lines[-1] += "pipeline's step, `ptjob get -o json`. A value that does not exist is null."
    lines += [
        "",
        "```json",
        json.dumps(example_result(), indent=2, ensure_ascii=False),
        "```",
        "",
        "## Fields",
        "",
    ]
    lines += definitions("field", attribute_texts(result.JobResult))
    lines += ["", "## In Python", "", "`from ptjob_provider.airflow import JobResult`", "", "```python"]
    lines += [inspect.cleandoc(str(result.JobResult.__doc__)).partition("\n\n")[2], "```"]
    lines += ["", "## `usage.replicas`", "", "Peaks of each replica, where somebody measures.", ""]
    lines += definitions("field", Documented.of(peak_usage.PeakUsage.__doc__).sections["Attributes"])
    lines += ["", "## `model` and `tfevents`", ""]
    shown = ("bytes", "sha256", "last_step", "scalars", "curves")
    facts = Documented.of(contract.OutputFacts.__doc__).sections["Attributes"]
    lines += definitions("field", {name: facts[name] for name in shown})
    lines += ["", "## `diagnosis`", "", "Of a job that did not succeed. [Causes](causes.md) lists the values of "]
    lines[-1] += "`cause`."
    return (
        "\n".join([*lines, "", *definitions("field", Documented.of(Diagnosis.__doc__).sections["Attributes"])]) + "\n"
    )


def example_result() -> dict[str, Any]:
    """Return the result of a successful job."""
    start = datetime(2026, 1, 1, 2, 0, tzinfo=UTC)
    end = start.replace(minute=30)
    model, logs = (
        contract.ResolvedOutput(uri=f"pvc://models/{path}", claim="models", path=path, container_path=f"/mnt/{path}")
        for path in ("2026-01-01/digits.pt", "2026-01-01/logs")
    )
    model_file = contract.OutputFacts(exists=True, bytes=152_061, sha256="9f86d081884c7d65…")
    events = contract.OutputFacts(exists=True, last_step=12, scalars={"held_out/accuracy": 0.97, "loss": 0.08})
    rank0 = "digits-3f0c5c2d9b1e-master-0"
    submission = Submission(
        ref=JobRef(kind="PyTorchJob", namespace="training", name="digits-3f0c5c2d9b1e", uid="7d1f…"),
        attempt=1,
        adopted=False,
        spec_changed=False,
        ranks={rank0: 0},
        gpus_of={rank0: 2},
        outputs=contract.ResolvedOutputs(model=model, tfevents=logs),
        first_started_at=start.isoformat(),
    )
    return result.build_result(
        submission,
        status=status.JobStatus(phase=status.JobPhase.SUCCEEDED, created_at=start, started_at=start, finished_at=end),
        history=PodHistory(first_running_at=start + timedelta(seconds=12)),
        report=contract.OutputReport(model=model_file, tfevents=events),
        diagnosis=None,
        now=end,
        used={rank0: peak_usage.PeakUsage(peak_cpu=1.9, peak_memory=812_646_400, samples=14)},
    )


def causes() -> str:
    """Return the page on causes of failure, each with its advice and whether a retry may help."""
    rows = [
        (
            f"`{cause}`",
            info.advice,
            "it depends" if cause in VARIES else "yes" if info.retryable else "no",
            BECAUSE[cause],
        )
        for cause, info in CAUSES.items()
    ]
    lines = ["# Causes of failure", "", "`diagnosis.cause` is one of these stable words. The advice ends the first "]
    lines[-1] += (
        "line of the error. [Failures and retries](../explanation/failures.md) has the list that decides where "
    )
    lines[-1] += "a retry depends on the failure; [XComs and diagnosis of a task](airflow.md#a-failure-for-programs) "
    lines[-1] += "adds the causes of a task that failed without a failed job."
    return "\n".join([*lines, "", *table(("cause", "advice", "retry", "because"), rows)]) + "\n"


def described(node: Definition) -> list[str]:
    """Return the lines on a class or a function: its text and its arguments with their types."""
    documented = Documented.of(ast.get_docstring(node))
    lines = [paragraphs(documented.text), ""]
    types = argument_types(node)
    entries = documented.sections.get("Args") or documented.sections.get("Attributes") or {}
    entries = {name: text for name, text in entries.items() if name not in JOB_FIELDS or "workers" not in entries}
    rows = [(f"`{name}`", f"`{types[name]}`" if name in types else "", text) for name, text in entries.items()]
    return lines + (table(("argument", "type", "meaning"), rows) if rows else [])


def definitions(head: str, entries: Mapping[str, str]) -> list[str]:
    """Return a table of names and texts."""
    return table((head, "meaning"), [(f"`{name}`", text) for name, text in entries.items()])


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines of a table."""
    if not rows:
        return []
    cells = [[" ".join(paragraphs(cell).split()) for cell in row] for row in rows]
    return [f"| {' | '.join(head)} |", "|" + "---|" * len(head), *(f"| {' | '.join(row)} |" for row in cells)]


def paragraphs(text: str) -> str:
    """Return a docstring's text for a page, with links in place of the names of files in docs/."""
    return re.sub(r"(?<![\w/`])docs/([\w/-]+\.md)", lambda named: f"[{title(named[1])}](../{named[1]})", text)


def title(page: str) -> str:
    """Return the heading of a page in docs/."""
    return (ROOT / "docs" / page).read_text().partition("\n")[0].removeprefix("# ")


def attribute_texts(owner: type) -> dict[str, str]:
    """Return the text below each attribute of a class, in the order of the source."""
    (body,) = ast.parse(inspect.getsource(owner)).body
    assert isinstance(body, ast.ClassDef)  # noqa: S101 - it is a class's source
    pairs = zip(body.body, body.body[1:], strict=False)
    return {
        node.target.id: inspect.cleandoc(str(after.value.value))
        for node, after in pairs
        if isinstance(node, ast.AnnAssign)
        and isinstance(node.target, ast.Name)
        and isinstance(after, ast.Expr)
        and isinstance(after.value, ast.Constant)
    }


def argument_types(node: Definition) -> dict[str, str]:
    """Return the types of the arguments of a function, or of a class's constructor."""
    functions = [
        each for each in ast.walk(node) if isinstance(each, ast.FunctionDef) and each.name in {"__init__", node.name}
    ]
    arguments = [arg for each in functions[:1] for arg in (*each.args.args, *each.args.kwonlyargs)]
    return {arg.arg: ast.unparse(arg.annotation) for arg in arguments if arg.annotation}


def public_classes(file: Path) -> list[ast.ClassDef]:
    """Return the classes of a file that users import, without those that are only base classes of others in it."""
    classes = [node for node in ast.parse(file.read_text()).body if isinstance(node, ast.ClassDef)]
    bases = {base.id for node in classes for base in node.bases if isinstance(base, ast.Name)}
    return [node for node in classes if not node.name.startswith("_") and node.name not in bases]


def definition(file: Path, name: str) -> Definition:
    """Return the definition of a class or a function in a file."""
    body = ast.parse(file.read_text()).body
    return next(each for each in body if isinstance(each, ast.ClassDef | ast.FunctionDef) and each.name == name)


def literal(file: Path, name: str) -> Any:
    """Return the value of a constant in a file."""
    for node in ast.parse(file.read_text()).body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id == name:
            return ast.literal_eval(node.value)
    raise LookupError(name)


def source_of(module: str) -> Path:
    """Return the file of a module of this package."""
    return ROOT / f"{module.replace('.', '/')}.py"
