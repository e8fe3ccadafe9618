"""Tests of flags and fields: each field of a job has a flag, and the flag makes the operator's job."""

from __future__ import annotations

import json
import re
from dataclasses import fields
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from click.testing import CliRunner, Result

from ptjob_provider.cli import main
from ptjob_provider.cli.arena import arena_fields, program, without_type
from ptjob_provider.cli.fields import ELSEWHERE, Flag, flags, job_fields, over_file
from ptjob_provider.cli.following import owner_of_call
from ptjob_provider.cli.help_text import COMMON, described
from ptjob_provider.core import kinds
from ptjob_provider.core.identity import TENSORBOARD_ANNOTATION
from ptjob_provider.core.spec import JOB_FIELDS, ElasticPolicy, RoleFields, TensorBoard, TrainingJob
from ptjob_provider.core.spec.code import CodeSource
from rows import each_row
from same_fields import FIELDS, arguments

if TYPE_CHECKING:
    from pathlib import Path

FILE = "name: digits\nimage: i\n"
"""A map of fields, to which lines can be added."""
MANIFEST = """apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata: {name: digits}
spec: {pytorchReplicaSpecs: {Master: {replicas: 1, template: {spec: {containers: [%s]}}}}}
"""
"""A manifest, to which the container is added."""
BY_PATH = {flag.path: flag for flag in flags()}


def render(*words: str) -> Result:
    """Print the manifest of a command line."""
    return CliRunner().invoke(main, ["--root", "/nowhere", "render", "-o", "json", *words])


def written(flag: Flag, value: Any) -> list[str]:
    """Return the words with which users give a flag this value."""
    name = flag.names[-1]
    if flag.shape == "switch":
        return [name if value else name.replace("--", "--no-", 1)]
    if flag.shape == "pairs":
        pairs = [f"{key}={item}" if isinstance(item, str) else json.dumps({key: item}) for key, item in value.items()]
        return [word for pair in pairs for word in (name, pair)]
    if flag.shape == "list":
        return [word for item in value for word in (name, _text(item))]
    return [name, _text(value)]


def command_line(given: dict[str, Any], folder: Path) -> list[str]:
    """Return the command line for these arguments of the operator."""
    words = []
    for field, value in given.items():
        if field == "manifest":
            (folder / "job.yaml").write_text(json.dumps(value))
            words += ["-f", str(folder / "job.yaml")]
        elif field == "namespace":
            words += ["-n", value]
        else:
            words += written(BY_PATH[field,], value)
    return words


def test_every_field_has_a_flag() -> None:
    """New fields, too, and those of a role or of an elastic job."""
    whole = {path[0] for path in BY_PATH if len(path) == 1}
    parts = {path for path in BY_PATH if len(path) == 2}

    assert whole | set(ELSEWHERE) == set(JOB_FIELDS)
    assert parts == {
        *((role, each.name) for role in ("master", "worker") for each in fields(RoleFields)),
        *(("code", each.name) for each in fields(CodeSource)),
        *(("tensorboard", each.name) for each in fields(TensorBoard)),
        *(("elastic_policy", each.name) for each in fields(ElasticPolicy)),
    }


@each_row(
    ("words", "asked"),
    [
        (("--tensorboard",), {"image": "", "path": "tb"}),
        (("--tensorboard", "--logdir", "/data/logs"), {"image": "", "path": "logs"}),
        (("--logdir=/data", "--tensorboard-image=tb:1"), {"image": "tb:1", "path": ""}),
        (("--no-tensorboard", "--logdir", "/data"), None),
        ((), None),
    ],
)
def test_a_tensorboard_is_requested_as_in_arena(words: tuple[str, ...], asked: dict[str, str] | None) -> None:
    """By the switch, by its folder or by its image; the switch alone uses the tfevents."""
    job = ("--name", "a", "--image", "i", "--data", "c:/data", "--tfevents", "/data/tb")

    annotations = json.loads(render(*job, *words).stdout)["metadata"]["annotations"]

    if asked is None:
        assert TENSORBOARD_ANNOTATION not in annotations
    else:
        assert asked.items() <= json.loads(annotations[TENSORBOARD_ANNOTATION]).items()


def test_no_two_flags_have_the_same_name() -> None:
    """Otherwise only the last flag of that name would take effect."""
    names = [name for flag in flags() for name in flag.names]

    assert len(names) == len(set(names))


@each_row("field", FIELDS)
def test_a_flag_makes_the_operators_job(field: str, tmp_path: Path) -> None:
    """Each field by itself, with those that it needs: a DAG and a command line make the same job."""
    given = arguments(field)

    result = render(*command_line(given, tmp_path))

    job = TrainingJob.parse(**given).in_namespace("default")
    expected = (
        kinds.named(job.kind or kinds.DEFAULT.KIND)
        .render(job, owner=owner_of_call("rendered"), attempt=1, exact_name=True)
        .manifest
    )
    assert json.loads(result.stdout) == expected


@each_row("flag", [flag for flag in flags() if flag.section])
def test_a_flag_of_a_part_sets_the_field_of_the_part(flag: Flag) -> None:
    """`--worker-cpu 2` is `worker={"cpu": "2"}`."""
    values = {"pairs": ("K=V",), "switch": True, "list": ("{a: b}",), "text": "2"}

    found = job_fields({flag.parameter: values[flag.shape]})

    assert found == {
        flag.path[0]: {
            flag.path[1]: {"pairs": {"K": "V"}, "list": [{"a": "b"}]}.get(flag.shape, found[flag.path[0]][flag.path[1]])
        }
    }


def test_a_part_of_a_field_wins_over_the_whole() -> None:
    """The part is more specific, so it wins."""
    given = {"worker": "{cpu: 1, memory: 2Gi}", "worker__cpu": "4"}

    assert job_fields(given) == {"worker": {"cpu": "4", "memory": "2Gi"}}


def test_help_is_short_and_a_longer_one_has_every_flag_with_its_words_and_default() -> None:
    """The short help fits two screens and begins with the job; both have a command's own options."""
    short, long = (CliRunner().invoke(main, ["run", word]).stdout for word in ("--help", "--help-all"))

    assert short.count("\n") < 75
    assert re.findall(r"(?m)^[A-Z][^:]*:$", short) == [
        *("The program:", "Its size:", "Data and outputs:", "How it ends:", "Where it runs:", "Options:")
    ]
    assert all(flag.names[-1] in long for flag in flags())
    assert set(COMMON) <= {path[0] for path in BY_PATH if len(path) == 1}
    assert all("--restart-policy [Never|OnFailure|ExitCode|Always]" in text for text in (short, long))
    assert "[default: 1, or as many as an elastic job can use]" in " ".join(long.split())


def test_each_flag_says_what_it_does_in_one_sentence() -> None:
    """It is the first sentence of the field's documentation, so that it is written once."""
    texts = {flag.names[-1]: described(flag) for flag in flags()}

    assert all(texts.values())
    assert texts["--worker-cpu"] == "Cores per pod (4, 0.5, 500m), as request and as limit."
    assert texts["--cpu"] == texts["--worker-cpu"] + "  [default: the namespace's default, else unlimited]"
    assert texts["--name"] == "Name of the job, used unchanged.  [default: the manifest's]"


@each_row(
    ("text", "words"),
    [
        (f"{FILE}args: [--at, 12:30]\n---\n", ()),
        (MANIFEST % "{name: pytorch, image: i, args: [--at, 12:30]}" + "---\n", ()),
        (FILE, ("--args", "[--at, 12:30]")),
    ],
)
def test_yaml_is_read_alike_wherever_it_stands(text: str, words: tuple[str, ...]) -> None:
    """In a map of fields, in a manifest and in a flag, `12:30` is a text, and an empty document is skipped."""
    result = CliRunner().invoke(main, ["render", "-o", "json", "-f", "-", *words], input=text)

    template = json.loads(result.output)["spec"]["pytorchReplicaSpecs"]["Master"]["template"]
    assert template["spec"]["containers"][0]["args"] == ["--at", "12:30"]


def test_a_job_template_is_read_as_a_manifest_is(tmp_path: Path) -> None:
    (tmp_path / "template.yaml").write_text("labels: {team: a}\nlabels: {team: b}")
    message = "$PTJOB_JOB_TEMPLATE: line 2: the key 'labels' is there twice"
    environment = {"PTJOB_JOB_TEMPLATE": str(tmp_path / "template.yaml")}

    result = CliRunner(env=environment).invoke(main, ["--root", "/nowhere", "render", "--name", "x", "--image", "i"])

    assert (result.exit_code, message in result.stderr) == (2, True), result.output


@each_row(
    ("words", "shell", "command"),
    [
        ([], None, None),
        (["python train.py --epochs 3"], None, ["sh", "-c", "python train.py --epochs 3"]),
        (["python", "train.py", "--name", "a b"], None, ["python", "train.py", "--name", "a b"]),
        (["python train.py"], "bash", ["bash", "-c", "python train.py"]),
        (["python", "train.py", "a b"], "bash", ["bash", "-c", "python train.py 'a b'"]),
    ],
)
def test_the_words_after_the_flags_are_the_program(
    words: list[str], shell: str | None, command: list[str] | None
) -> None:
    """One word that a shell would split is a shell's command line, as in Arena; several words are used as they are."""
    assert program(words, shell) == command


@each_row(
    ("words", "images"),
    [
        (["--worker-image", "w", "--workers", "2"], ["w", "w"]),
        (["--worker-image", "w", "--worker-cpu", "2", "--workers", "2"], ["w", "w"]),
        (["--worker-image", "w", "--image", "i", "--workers", "2"], ["i", "w"]),
        (["--worker-image", "w", "--master-image", "m", "--workers", "2"], ["m", "w"]),
    ],
)
def test_the_workers_image_is_that_of_all_pods_where_no_other_is_said(words: list[str], images: list[str]) -> None:
    """One of Arena's guides relies on this."""
    manifest = json.loads(render("--name", "digits", *words, "python", "train.py").stdout)

    roles = manifest["spec"]["pytorchReplicaSpecs"].values()
    assert [role["template"]["spec"]["containers"][0]["image"] for role in roles] == images


def test_arenas_type_of_training_may_stand_before_everything() -> None:
    """`arena submit pytorch …` is `ptjob submit pytorch …`; `test_wrong_inputs` has another type."""
    assert without_type(["pytorch", "--name", "x"]) == ["--name", "x"]
    assert without_type(["pytorchjob"]) == []
    assert without_type(["--name", "x", "pytorch"]) == ["--name", "x", "pytorch"]


def test_arenas_flags_that_are_no_field_become_fields() -> None:
    """Devices become limits, folders of nodes become volumes, and `hostIPC` and `hostPID` go to the pod template."""
    given = {
        "devices": ("amd.com/gpu=2",),
        "rdma": True,
        "data_dirs": ("/raid", "/mnt:/data"),
        "host_ipc": True,
        "host_pid": True,
    }

    assert arena_fields({}) == {}
    assert arena_fields(given) == {
        "container_resources": {"limits": {"amd.com/gpu": "2", "rdma/hca": "1"}},
        "container_security_context": {"capabilities": {"add": ["IPC_LOCK"]}},
        "volumes": [
            {"name": "host-0", "hostPath": {"path": "/raid"}},
            {"name": "host-1", "hostPath": {"path": "/mnt"}},
        ],
        "volume_mounts": [{"name": "host-0", "mountPath": "/raid"}, {"name": "host-1", "mountPath": "/data"}],
        "pod_template": {"spec": {"hostIPC": True, "hostPID": True}},
    }


GIT = "https://git.example/a/b.git"


@each_row(
    ("file", "flags", "both"),
    [
        ({"labels": {"env": "prod", "a": "b"}}, {"labels": {"env": "dev"}}, {"labels": {"env": "dev", "a": "b"}}),
        (
            {"worker": {"env": {"A": {"secret": "s", "key": "k"}, "B": 2}, "args": ["a"]}},
            {"worker": {"env": {"A": {"config_map": "m", "key": "k"}}, "args": ["b"]}},
            {"worker": {"env": {"A": {"config_map": "m", "key": "k"}, "B": 2}, "args": ["b"]}},
        ),
        (
            {"env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}]},
            {"env": {"B": "3"}},
            {"env": [{"name": "A", "value": "1"}, {"name": "B", "value": "3"}]},
        ),
        (
            {"container_resources": {"limits": {"rdma/hca": "1"}}},
            {"container_resources": {"requests": {"cpu": "1"}, "limits": {"cpu": "2"}}},
            {"container_resources": {"requests": {"cpu": "1"}, "limits": {"cpu": "2", "rdma/hca": "1"}}},
        ),
        ({"env": ""}, {"env": {"A": "1"}}, {"env": {"A": "1"}}),
        (
            {"env_from": [{"secret": "a"}]},
            {"env_from": [{"secret": "b"}, {"secret": "a"}]},
            {"env_from": [{"secret": "a"}, {"secret": "b"}]},
        ),
        ({"code": GIT}, {"code": {"revision": "1"}}, {"code": {"git": GIT, "revision": "1"}}),
        ({"code": {"git": GIT, "secret": "s"}}, {"code": {"git": "g@h:b"}}, {"code": {"git": "g@h:b", "secret": "s"}}),
        ({"code": {"git": GIT, "secret": "s"}}, {"code": {"folder": "."}}, {"code": {"folder": "."}}),
        ({"tensorboard": {"logdir": "/a"}}, {"tensorboard": False}, {"tensorboard": False}),
        (
            {"volumes": ["a:/a", "b:/b", {"name": "c", "emptyDir": {}}]},
            {"volumes": ["d:/b", {"name": "c", "hostPath": {}}]},
            {"volumes": ["a:/a", "d:/b", {"name": "c", "hostPath": {}}]},
        ),
        (
            {"volume_mounts": [{"name": "c", "mountPath": "/c"}, {"name": "d", "mountPath": "/d"}]},
            {"volumes": ["e:/c"], "volume_mounts": [{"name": "f", "mountPath": "/d/"}]},
            {"volumes": ["e:/c"], "volume_mounts": [{"name": "f", "mountPath": "/d/"}]},
        ),
        (
            {"pod_template": "spec: {hostPID: true}"},
            {"pod_template": {"spec": {"hostIPC": True}}},
            {"pod_template": {"metadata": {}, "spec": {"hostPID": True, "hostIPC": True}}},
        ),
    ],
)
def test_flags_are_merged_into_a_file_of_fields(
    file: dict[str, Any], flags: dict[str, Any], both: dict[str, Any]
) -> None:
    """Maps by key, also those of a role; lists are joined, and an upper volume takes a lower one's path or name."""
    assert over_file(file, flags) == both


@each_row(
    ("field", "words"),
    [
        ({"env": {"A": "1", "B": "2"}}, ("--env", "B=3", "--env", "C=4")),
        ({"worker": {"image": "w", "cpu": "2"}}, ("--worker-cpu", "4")),
        ({"args": ["a", "b"]}, ("--args", "[c]")),
        ({"tolerations": [{"key": "a", "operator": "Exists"}]}, ("--toleration", "b", "--toleration", "a")),
        ({"env_from": [{"secret": "a"}]}, ("--env-from", "{secret: b}")),
        ({"init_containers": [{"name": "a", "image": "i"}]}, ("--init-container", "{name: a, image: j}")),
        ({"container_resources": {"limits": {"rdma/hca": 1}}}, ("--device", "amd.com/gpu=2")),
    ],
)
def test_flags_do_the_same_to_a_file_of_fields_and_to_its_manifest(
    field: dict[str, Any], words: tuple[str, ...], tmp_path: Path
) -> None:
    """Who turns a file of fields into a manifest keeps the flags."""
    fields, manifest = tmp_path / "fields.yaml", tmp_path / "manifest.yaml"
    fields.write_text(json.dumps({"name": "x", "image": "i", "workers": 2, **field}))
    manifest.write_text(render("-f", str(fields)).stdout)

    over_fields, over_manifest = (
        json.loads(render("-f", str(file), *words).stdout)["spec"]["pytorchReplicaSpecs"] for file in (fields, manifest)
    )

    assert over_fields == over_manifest


@each_row(
    ("text", "expected"),
    [
        ("all", {"operator": "Exists"}),
        ("gpu", {"key": "gpu", "operator": "Exists"}),
        ("gpu=a100:NoSchedule", {"key": "gpu", "operator": "Equal", "value": "a100", "effect": "NoSchedule"}),
        ("gpu:NoExecute,Exists", {"key": "gpu", "operator": "Exists", "effect": "NoExecute"}),
        ("{key: gpu, tolerationSeconds: 60}", {"key": "gpu", "tolerationSeconds": 60}),
    ],
)
def test_a_toleration_is_arenas_short_form_or_kubernetes_own(text: str, expected: dict[str, Any]) -> None:
    """A key alone, which Arena silently drops, tolerates any value of it."""
    assert job_fields({"tolerations": (text,)}) == {"tolerations": [expected]}


def test_code_is_an_address_with_parts_or_arenas_three_flags() -> None:
    """Each way makes the operator's `code`."""
    assert job_fields({"code": "https://git.example/a/b.git", "code__branch": "main"}) == {
        "code": {"git": "https://git.example/a/b.git", "branch": "main"}
    }
    assert job_fields({"code": "{rsync: 'host::a/b'}"}) == {"code": {"rsync": "host::a/b"}}
    assert arena_fields({"sync_mode": "git", "sync_source": "https://git.example/a/b.git", "sync_image": "i"}) == {
        "code": {"git": "https://git.example/a/b.git", "image": "i"}
    }


def test_credentials_for_code_are_not_rendered() -> None:
    """The output is safe to share; a message says that credentials are not shown."""
    code = ("--sync-mode", "git", "--sync-source", "https://git.example/a/b.git", "--env", "GIT_SYNC_PASSWORD=hunter2")

    result = render("--name", "x", "--image", "i", *code, "true")

    assert result.exit_code == 0, result.output
    assert "hunter2" not in result.output
    assert "credentials are not shown" in result.stderr


def test_lists_in_yaml_are_several_items() -> None:
    assert job_fields({"env_from": ("[{secret: a}, {secret: b}]", "{config_map: c}")}) == {
        "env_from": [{"secret": "a"}, {"secret": "b"}, {"config_map": "c"}]
    }


@each_row(
    ("texts", "env"),
    [
        (("A=1", "A=2"), {"A": "2"}),
        (("A=1", "[{name: A, value: x}]"), [{"name": "A", "value": "x"}]),
        (("[{name: A, value: x}]", "{A: 3}"), [{"name": "A", "value": "3"}]),
        (
            ("{A: {secret: hub, key: token}}", "[{name: B, value: x}]"),
            [
                {"name": "A", "valueFrom": {"secretKeyRef": {"name": "hub", "key": "token"}}},
                {"name": "B", "value": "x"},
            ],
        ),
    ],
)
def test_a_later_variable_wins_in_whatever_form_it_is_written(texts: tuple[str, ...], env: Any) -> None:
    assert job_fields({"env": texts}) == {"env": env}


def _text(value: Any) -> str:
    if isinstance(value, timedelta):
        return f"{value.total_seconds():.0f}s"
    return value if isinstance(value, str) else json.dumps(value)
