"""Tests of the target: options override the environment, which overrides airflow.cfg; last, what is available."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from click.testing import CliRunner

from fakes import ScriptedBackend
from ptjob_provider.cli import main
from ptjob_provider.cli import target as targets
from ptjob_provider.cli.target import TargetOptions, find_target
from ptjob_provider.core.errors import InvalidSpec, JobNotFound
from rows import each_row

if TYPE_CHECKING:
    from pathlib import Path

KUBECONFIG = {
    "apiVersion": "v1",
    "kind": "Config",
    "current-context": "production",
    "contexts": [
        {"name": "production", "context": {"cluster": "c", "user": "u", "namespace": "ml"}},
        {"name": "staging", "context": {"cluster": "c", "user": "u"}},
    ],
}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an empty home directory."""
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def configured(home: Path, text: str) -> dict[str, str]:
    """Return the environment of a machine with this airflow.cfg."""
    (home / "airflow.cfg").write_text(text)
    return {"AIRFLOW_HOME": str(home)}


def with_kubeconfig(home: Path) -> Path:
    """Write the default kubeconfig."""
    path = home / ".kube" / "config"
    path.parent.mkdir(exist_ok=True)
    path.write_text(yaml.safe_dump(KUBECONFIG))
    return path


@each_row(
    ("options", "cfg", "environ", "backend"),
    [
        ({"backend": "local"}, "[ptjob]\nbackend = kubernetes\n", {"KUBECONFIG": "/k"}, "local"),
        ({"context": "staging"}, "", {"PTJOB_BACKEND": "local"}, "kubernetes"),
        ({"kubeconfig": "/k"}, "", {"AIRFLOW__PTJOB__BACKEND": "local"}, "kubernetes"),
        ({"root": "/jobs"}, "", {"PTJOB_BACKEND": "kubernetes"}, "local"),
        ({}, "", {"PTJOB_BACKEND": "LOCAL", "KUBECONFIG": "/k"}, "local"),
        ({}, "[ptjob]\nbackend = kubernetes\n", {"PTJOB_LOCAL_ROOT": "/c"}, "local"),
        ({}, "[ptjob]\nbackend = local\n", {"KUBECONFIG": "/k"}, "local"),
        ({}, "", {"KUBECONFIG": "/k"}, "kubernetes"),
        ({}, "", {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, "kubernetes"),
        ({}, "[ptjob]\nbackend = local\n", {"AIRFLOW__PTJOB__BACKEND": "kubernetes"}, "kubernetes"),
        ({}, "[ptjob]\nbackend = local\n", {"AIRFLOW__PTJOB__BACKEND": "", "KUBECONFIG": "/k"}, "kubernetes"),
        ({}, "", {}, "local"),
    ],
)
def test_the_back_end_is_the_requested_the_configured_or_the_one_that_is_there(
    home: Path, options: dict[str, str], cfg: str, environ: dict[str, str], backend: str
) -> None:
    """Users need not configure the location of their jobs twice."""
    assert find_target(TargetOptions(**options), {**configured(home, cfg), **environ}).backend == backend


@each_row(
    ("options", "environ", "message"),
    [
        ({"backend": "local", "context": "c"}, {}, "--context selects a cluster and --backend local for this machine"),
        (
            {"backend": "kubernetes", "root": "/jobs"},
            {},
            "--backend kubernetes selects a cluster and --root for this machine",
        ),
        ({}, {"PTJOB_BACKEND": "cloud"}, "PTJOB_BACKEND: 'cloud' is not allowed; allowed: kubernetes, local"),
    ],
)
def test_conflicting_targets_are_refused(
    home: Path, options: dict[str, str], environ: dict[str, str], message: str
) -> None:
    """If one were ignored, a command could delete jobs in the wrong place."""
    with pytest.raises(ValueError, match=re.escape(message)):
        find_target(TargetOptions(**options), {"AIRFLOW_HOME": str(home), **environ})
    with pytest.raises(ValueError, match=re.escape("[ptjob] backend: 'cloud' is not allowed")):
        find_target(TargetOptions(), configured(home, "[ptjob]\nbackend = cloud\n"))


@each_row(
    ("line", "shown"),
    [
        ("--root /nowhere list --root /none/two", "no jobs in namespace default of /none/two\n"),
        ("top job -n ml --root /none/one", "no jobs in namespace ml of /none/one\n"),
        ("data list --kubeconfig /none", "/none is not there"),
        ("list --context c --backend local", "--context selects a cluster and --backend local"),
        ("--backend local list --context c --backend kubernetes", "Error: ~/.kube"),
        ("render --name x --image i -n ml --backend local ls", "namespace: ml\n"),
    ],
)
@pytest.mark.usefixtures("home")
def test_options_of_the_target_behind_a_command_override_those_before_it(line: str, shown: str) -> None:
    """As in kubectl; this includes commands in a group, and those with a program after their flags."""
    result = CliRunner().invoke(main, line.split())

    assert shown in result.output


@each_row(
    ("options", "namespace"),
    [
        ({}, "ml"),
        ({"context": "staging"}, "default"),
        ({"namespace": "vision"}, "vision"),
        ({"namespace": ""}, "ml"),
        ({"backend": "local"}, "default"),
    ],
)
def test_the_namespace_is_the_contexts_as_for_kubectl(home: Path, options: dict[str, str], namespace: str) -> None:
    """`ptjob list` uses the namespace of `kubectl get pods`."""
    with_kubeconfig(home)

    assert find_target(TargetOptions(**options), {}).namespace == namespace


@each_row(
    ("options", "text"),
    [
        ({"root": "/jobs"}, "/jobs"),
        ({"context": "c"}, "the cluster of context c"),
        ({"kubeconfig": "/k"}, "the cluster"),
    ],
)
def test_a_target_says_where_it_is(options: dict[str, str], text: str) -> None:
    """An empty list names the place."""
    assert str(find_target(TargetOptions(**options), {})) == text  # type: ignore[arg-type]


@each_row(
    ("cfg", "expected"),
    [
        ("", (120, 900, timedelta(days=1))),
        ("usage_interval = 0\napi_error_timeout = 60\norphan_grace = 3600\n", (0, 60, timedelta(hours=1))),
    ],
)
def test_the_installation_configures_how_often_use_is_measured_and_how_long_is_waited(
    home: Path, cfg: str, expected: tuple[float, float, timedelta]
) -> None:
    """The defaults: use is measured every two minutes, API errors are tolerated for 15 minutes, orphans for a day."""
    options = TargetOptions(kubeconfig=str(with_kubeconfig(home)))
    target = find_target(options, configured(home, f"[ptjob]\n{cfg}"))
    opened: Any = target.open()

    limits = (target.settings.api_error_timeout(), target.settings.orphan_grace())
    assert (opened._config.usage_interval, *limits) == expected


@each_row(
    ("cfg", "given", "image", "probe"),
    [
        ("", None, "python:3.13-alpine", ""),
        ("image_prefix = mirror.example/hub\n", None, "mirror.example/hub/python:3.13-alpine", ""),
        ("image_prefix = mirror.example/\nprobe_image = own:1\n", None, *["mirror.example/own:1"] * 2),
        ("image_prefix = mirror.example\n", "given:1", "given:1", ""),
    ],
)
def test_claims_are_read_with_the_installations_image_behind_its_mirror(
    home: Path, cfg: str, given: str | None, image: str, probe: str
) -> None:
    """Without `probe_image`, outputs are inspected with the job's own image, which the cluster has pulled."""
    options = TargetOptions(kubeconfig=str(with_kubeconfig(home)))
    target = find_target(options, configured(home, f"[ptjob]\n{cfg}"))
    opened: Any = target.open()

    assert target.file_options(given, None).image == image
    assert opened._probe.image == probe


@each_row(
    ("cfg", "environ", "title"),
    [
        ("[ptjob]\nkind = Foo\n", {}, "[ptjob] kind"),
        ("[ptjob]\nkind = Foo\n", {"AIRFLOW__PTJOB__KIND": "Bar"}, "$AIRFLOW__PTJOB__KIND"),
        ("", {"AIRFLOW__PTJOB__KIND": "Bar", "PTJOB_KIND": "Foo"}, "$PTJOB_KIND"),
        ("[ptjob]\nkind = Foo\n", {"PTJOB_KIND": ""}, "[ptjob] kind"),
    ],
)
def test_an_option_is_named_where_it_is_set(home: Path, cfg: str, environ: dict[str, str], title: str) -> None:
    """In airflow.cfg or a variable; one that is not set is named as in airflow.cfg."""
    settings = find_target(TargetOptions(), {**configured(home, cfg), **environ}).settings

    with pytest.raises(InvalidSpec, match=rf"^{re.escape(title)}: "):
        settings.kind()
    assert settings.title("local_images") == "[ptjob] local_images"


@each_row("words", [["list"], ["doctor"], ["get", "x"], ["top", "node"], ["data", "ls", "pvc://a/"]])
@each_row("named", ["", "/none/config"])
def test_a_missing_kubeconfig_is_named_with_what_to_do(
    home: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], named: str
) -> None:
    """The message is ours and not a library's, whatever the command."""
    monkeypatch.setenv("KUBECONFIG", named)

    result = CliRunner().invoke(main, ["--backend", "kubernetes", *words])

    missing = named or "~/.kube/config"
    assert result.exit_code == 2
    assert result.output.startswith(f"Error: {missing} is not there, and this is no pod: name the cluster's kubeconfig")
    assert result.output.endswith("or say --backend local\n")


def test_a_kubeconfig_may_be_a_pipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Shells use one to keep credentials off the disk. It can be read once, so that its namespace has to be named."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    monkeypatch.setenv("KUBECONFIG", str(pipe))

    assert find_target(TargetOptions(backend="kubernetes"), {"KUBECONFIG": str(pipe)}).open() is not None
    named = find_target(TargetOptions(kubeconfig=str(pipe), namespace="ml"), {})
    assert (named.namespace, named.words_for("ml", "digits")) == ("ml", "-n ml digits")
    result = CliRunner().invoke(main, ["--kubeconfig", str(pipe), "list"])
    assert (result.exit_code, f"-n is missing: {pipe} is a pipe" in result.output) == (2, True)
    (tmp_path / "job.yaml").write_text("kind: PyTorchJob\nname: digits\nimage: digits:1\nnamespace: ml\n")
    result = CliRunner().invoke(main, ["--kubeconfig", str(pipe), "render", "-f", str(tmp_path / "job.yaml")])
    assert "namespace: ml" in result.output


def test_in_a_pod_a_kubeconfig_that_is_missing_is_said_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A notebook's variable may name a kubeconfig that never existed."""
    (tmp_path / "namespace").write_text("team")
    monkeypatch.setattr(targets, "_POD_NAMESPACE", tmp_path / "namespace")

    with pytest.raises(InvalidSpec, match=r"^/none/config is not there: name the cluster's kubeconfig"):
        find_target(TargetOptions(backend="kubernetes"), {"KUBECONFIG": "/none/config"}).open()


async def test_the_installations_kind_is_made_and_looked_for_first(home: Path) -> None:
    """A kind on the command line is the only one."""
    backend: Any = ScriptedBackend()
    place = find_target(TargetOptions(), configured(home, "[ptjob]\nkind = trainjob\n"))

    with pytest.raises(JobNotFound):
        await place.find(backend, "digits")
    with pytest.raises(JobNotFound):
        await replace(place, kind="PyTorchJob").find(backend, "digits")

    assert place.settings.installation().kind == "TrainJob"
    assert backend.kinds_read == ["TrainJob", "PyTorchJob", "PyTorchTrainingJob", "PyTorchJob"]


def test_a_rendered_job_is_of_the_installations_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    """No request for the cluster's kinds is made."""
    monkeypatch.setenv("PTJOB_KIND", "TrainJob")

    result = CliRunner().invoke(main, ["--root", "/nowhere", "render", "--name", "x", "--image", "i"])

    assert "kind: TrainJob\n" in result.stdout
