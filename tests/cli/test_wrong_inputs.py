"""Test of wrong command lines: the message names the field, the value and what is allowed, without Python's terms.

Each row is a line that fails: with 2 if the line is wrong, with 1 or 3 if the state of the machine is.
"""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING

from click.testing import CliRunner

from ptjob_provider.cli import main

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

SPAN = "a span such as 90s"
CORES = "cores such as 4, 0.5 or 500m"
NAME = "lower-case letters, digits and '-'"
WORDS = r"Traceback|NoneType|None is not|\b[A-Z]\w*(?:Error|Exception)\b|Errno|timedelta|<class|<bound|object at 0x"
"""Terms that only programmers understand."""

MANIFEST = (
    "{apiVersion: kubeflow.org/v1, kind: PyTorchJob, metadata: {name: x, namespace: %s}, spec: "
    "{pytorchReplicaSpecs: {Master: {replicas: 1, template: {spec: {containers: [{name: pytorch, image: i}]}}}}}}"
)
"""A manifest of a namespace."""

FILES = {
    "text": "hello",
    "empty": "",
    "broken": "a: [b",
    "pod": "{apiVersion: v1, kind: Pod, metadata: {name: x}}",
    "twice": "apiVersion: kubeflow.org/v1\nkind: PyTorchJob\nkind: PyTorchJob",
    "two": "{name: y}\n---\n{name: x}",
    "volume": "{name: x, image: i, volumes: 'm:/m'}",
    "both": "{name: x, image: i, spec: 1}",
    "switched": "{name: x, image: i, on: y}",
    "clock": "{name: x, image: i, active_deadline_seconds: 1:30}",
    "misspelt": "{name: x, image: i, workrs: 2}",
    "wrong": "{name: x, image: i, workers: none}",
    "kind": "{name: x, image: i, kind: Pod}",
    "elsewhere": MANIFEST % "Bad_NS",
    "other": MANIFEST % "other",
}

LINES: tuple[tuple[str, int, str, str, str], ...] = (
    # the line, its exit code, and what the message has to name: the field, the value, what is allowed
    ("lsit", 2, "command", "lsit", "list"),
    ("list --nope", 2, "option", "--nope", ""),
    ("get", 2, "NAME", "", ""),
    ("--backend cloud list", 2, "--backend", "cloud", "'kubernetes', 'local'"),
    ("--kubeconfig /none list", 2, "--kubeconfig PATH", "/none is not there", ""),
    ("--kubeconfig /dev/null list", 2, "kubeconfig", "/dev/null", "a YAML map of `clusters`, `contexts`"),
    ("--kubeconfig / list", 2, "configuration", "/: Is a directory", ""),
    ("list --kubeconfig FILES/broken", 2, "kubeconfig", "FILES/broken", "YAML"),
    ("-n Bad_NS list", 2, "--namespace", "Bad_NS", "at most 63 lower-case"),
    ("list -o xml", 2, "--output", "xml", "'json', 'yaml', 'name', 'wide'"),
    ("list -l x", 2, "--label", "x", "KEY=VALUE"),
    ("list -l 'a b=c'", 2, "--label", "a b", "a name such as team"),
    ("list --kind TFJob", 2, "--kind", "TFJob", "'pytorchjob', 'trainjob'"),
    ("get Bad_Name", 2, "name", "Bad_Name", NAME),
    ("logs x -t two", 2, "--tail", "two", "not a valid integer"),
    ("logs x --since yesterday", 2, "--since", "yesterday", SPAN),
    ("logs x --since-time noon", 2, "--since-time", "noon", "an instant such as"),
    ("logs x --all -i 1", 2, "--replica", "--all", "exclude each other"),
    ("prune --since 99999999999d", 2, "--since", "99999999999d", SPAN),
    ("run --max-preemptions 101", 2, "--max-preemptions", "101", "0<=x<=100"),
    ("data ls /var", 2, "", "/var", "pvc://CLAIM/PATH"),
    ("data ls pvc://Nope/", 2, "pvc://Nope/: ", "'Nope'", "lower-case letters, digits, '-' and '.'"),
    ("data ls pvc://none", 3, "claim", "none", "ptjob data list"),
    ("follow x --adopt --timeout 0", 2, "--timeout", "'0'", f"{SPAN}, 10m, 2h or 1d12h, above 0"),
    ("run --queue-timeout 30000d", 2, "--queue-timeout", "30000d", SPAN),
    ("data cp a b", 2, "SOURCE TARGET", "a b", "pvc://CLAIM/PATH"),
    ("data cp /none pvc://x/y", 2, "SOURCE", "/none", ""),
    ("data create Bad_Name", 2, "claim", "Bad_Name", "lower-case letters"),
    ("tensorboard none", 3, "default has no job none", "none", "ptjob tensorboard pvc://CLAIM/PATH"),
    ("render", 2, "--name", "missing", "required"),
    ("render --name x", 2, "--image", "missing", "required"),
    ("JOB --workers ' '", 2, "--workers", "' '", "leave the flag out"),
    ("JOB --worker-image None", 2, "--worker-image", "'None'", "leave the flag out"),
    ("JOB --shell '' a", 2, "--shell", "''", "leave the flag out"),
    ("run --progress '(' --image i -- python t.py", 2, "--progress", "'('", "a regular expression of RE2"),
    ("JOB --name Bad_Name", 2, "--name", "Bad_Name", NAME),
    (f"JOB --name {'a' * 60}", 2, "Error: --name: ", "'aaa", "at most 54 characters"),
    ("JOB --workers 0", 2, "--workers", "0", "a whole number, at least 1"),
    ("JOB --memory 16GB", 2, "--memory", "16GB", "did you mean 16Gi?"),
    ("JOB --env TOKEN", 2, "--env", "", "KEY=VALUE"),
    ("JOB --env 1A=x", 2, "--env", "1A", "a name of letters"),
    ("JOB --env '{A: true}'", 2, "--env (A)", "this value", "quote true and false"),
    ("JOB --env '{A: '", 2, "--env", "", "YAML"),
    ("JOB --env '{A: 1, A: 2}'", 2, "--env", "'A'", "twice"),
    ("JOB --affinity '{a: &a [*a]}'", 2, "--affinity", "more than 50000 values", "anchors"),
    ("JOB -d foo", 2, "-d", "foo", "claim:/path"),
    ("JOB --restart-policy Sometimes", 2, "--restart-policy", "Sometimes", "'Never', 'OnFailure'"),
    ("JOB --running-timeout 99999999999", 2, "--running-timeout", "99999999999", f"at most 2147483647, or {SPAN}"),
    ("JOB --model s3://b/x", 2, "--model", "s3://b/x", "pvc://claim/path"),
    ("JOB --container-resources '{limts: {cpu: 1}}'", 2, "--container-resources", "limts", "limits"),
    ("JOB --code nowhere", 2, "--code", "nowhere", "an address such as"),
    ("JOB --code . --sync-mode git --sync-source g@h:b", 2, "--code", "['folder', 'git']", "one of git, rsync"),
    ("render -f FILES/volume --data a:/a", 2, "--data", "m:/m", "a list"),
    ("JOB --sync-mode git", 2, "--sync-source", "missing", "the address of the code"),
    ("JOB --sync-source https://git.example/a.git", 2, "--sync-mode", "missing", "git or rsync"),
    ("JOB --device gpu", 2, "--device", "gpu", "allowed: NAME=N such as nvidia.com/gpu=1"),
    ("JOB --init-container '{image: x}'", 2, "--init-container", "name", "missing"),
    ("JOB --queue --gpus=1", 2, "--queue", "--gpus=1", "allowed"),
    ("JOB --pod-template /none.yaml", 2, "--pod-template", "/none.yaml", "a file that can be read"),
    ("JOB --active-deadline-seconds 2x", 2, "Error: --active-deadline-seconds", "2x", "or a span such as 90s, 10m"),
    ("JOB --tensorboard", 2, "Error: --tensorboard", "set `tfevents` or `logdir`", "the folder that it shows"),
    ("JOB --worker-cpu z", 2, "Error: --worker-cpu", "z", CORES),
    ("JOB --workers 5 --elastic-max-replicas 3", 2, "--workers", "5", "`max_replicas`"),
    ("JOB --container-resources '{limits: {cpu: q}}'", 2, "--container-resources (limits.cpu)", "q", CORES),
    ("JOB --command '[\"a\"]' b", 2, "--command", "['a']", "leave it out: the program comes after the flags"),
    ("JOB 'python train.py' --epochs", 2, "command", "python train.py", "one line for a shell and no words after it"),
    ("JOB --data-dir data", 2, "--data-dir", "data", "/path/on/the/node"),
    ("JOB --toleration :NoSchedule", 2, "--toleration", ":NoSchedule", "KEY=VALUE:EFFECT"),
    ("JOB --kind TrainJob --retry 3", 2, "Error: --retry: ", "", ""),
    ("JOB --kind TrainJob --worker-cpu 1", 2, "Error: --worker-cpu: a TrainJob", "", " has no place for it"),
    ("JOB --elastic-max-replicas 2 --master-cpu 1", 2, "Error: --master-cpu: leave it out", "", "all pods of an"),
    ("render -f FILES/wrong --gpus 1", 2, "Error: workers: ", "none", "a whole number"),
    ("render -f FILES/kind", 2, "Error: kind: ", "Pod", "PyTorchJob"),
    ("submit tfjob --name x", 2, "submit", "tfjob", "pytorch"),
    ("render -f FILES/wrong -f FILES/kind", 2, "--filename", "2 files", "one manifest or map of fields"),
    ("render -f nofile", 2, "--filename", "nofile", "the path of a manifest"),
    ("render -f FILES/text", 2, "--filename", "FILES/text is not a map", "a map of fields"),
    ("render -f FILES/empty", 2, "--filename", "empty", "the path of a manifest"),
    ("render -f FILES/broken", 2, "--filename FILES/broken", "line 1", "not one sound YAML document"),
    ("render -f FILES/pod", 2, "manifest.kind", "Pod", "PyTorchJob"),
    ("render -f FILES/twice", 2, "--filename FILES/twice", "line 3", "'kind' is there twice"),
    ("render -f FILES/two", 2, "--filename FILES/two", "2 YAML documents", "PyTorchTrainingJob"),
    ("render -f FILES/both", 2, "--filename", "FILES/both has spec, but no apiVersion", "a map of fields"),
    ("render -f FILES/switched", 2, "--filename FILES/switched", "True", "texts as keys; quote it"),
    ("render -f FILES/clock", 2, "active_deadline_seconds", "1:30", "a whole number"),
    ("render -f FILES/misspelt", 2, "workrs", "no such field", "workers"),
    ("submit -f FILES/other -n team", 2, "--namespace", "team", "-n other"),
    ("render -f FILES/elsewhere", 2, "manifest.metadata.namespace", "Bad_NS", "at most 63"),
)


def complaint(root: Path, line: str, code: int, named: tuple[str, ...]) -> str:
    """Return what is wrong with the message for a line; "" if nothing is."""
    words = shlex.split(line.replace("JOB", "render --name x --image i").replace("FILES", str(root)))
    place = [] if {"--backend", "--kubeconfig", "--root"} & set(words) else ["--root", str(root / "jobs")]
    result = CliRunner().invoke(main, [*place, *words])
    shown = f"{line}\n  exit code {result.exit_code}, wanted {code}\n  {result.output.strip().splitlines()[-1:]}"
    if not isinstance(result.exception, SystemExit) or result.exit_code != code:
        return f"{shown}\n  {result.exception!r}"
    if missing := [text for text in named if text.replace("FILES", str(root)) not in result.stderr]:
        return f"{shown}\n  does not name {missing}"
    found = re.search(WORDS, result.stderr)
    return f"{shown}\n  says {found[0]!r}" if found else ""


def test_each_wrong_line_is_answered_with_the_field_the_value_and_what_is_allowed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No message has a programming language's terms."""
    monkeypatch.setenv("HOME", str(tmp_path))
    for name, content in FILES.items():
        (tmp_path / name).write_text(content)

    wrong = [text for line, code, *named in LINES if (text := complaint(tmp_path, line, code, tuple(named)))]

    assert not wrong, f"{len(wrong)} of {len(LINES)} lines\n" + "\n".join(wrong)
