"""Tests of every file of dags/: each is parsed with the installed wheel, and run to its end as a user would."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from installed import ROOT

if TYPE_CHECKING:
    from pathlib import Path

    from installed import Installed

DAGS = {
    "digits": ["evaluate", "report", "train"],
    "digits_champion": ["serve"],
    "digits_failing": ["train"],
    "digits_handover": ["in_job", "in_pod", "train"],
    "digits_local_evaluation": ["evaluate", "train"],
    "digits_notified": ["killed", "mistaken"],
    "digits_retraining": ["claim", "evaluate", "promote", "publish", "train"],
    "digits_rollback": ["publish", "rollback"],
    "digits_sweep": ["best", "train"],
    "digits_yaml": ["report", "train"],
    "ptjob_maintenance": ["stop_orphans"],
}
WITH_PODS = "digits_handover"
"""Imports KubernetesPodOperator, which loads its client. It runs on a cluster only: `tests/airflow_cluster`."""

PARSE = """
import importlib, json, pathlib, sys
folder, last = sys.argv[1:]
names = sorted((path.stem for path in pathlib.Path(folder).glob("*.py")), key=lambda name: (name == last, name))
sys.path.insert(0, folder)
tasks, heavy = {}, {}
for name in names:
    dag = importlib.import_module(name).dag
    tasks[dag.dag_id] = sorted(dag.task_ids)
    heavy[name] = sorted({"torch", "sklearn", "kubernetes", "kfp"} & set(sys.modules))
print(json.dumps({"tasks": tasks, "heavy": {name: loaded for name, loaded in heavy.items() if loaded}}))
"""


@dataclass(frozen=True, kw_only=True)
class Airflow:
    """An Airflow without running components, and copies of the DAG folder and of the image's build context."""

    installed: Installed
    folder: Path

    @property
    def claim(self) -> Path:
        """The directory of the claim `digits`."""
        return self.folder / "jobs" / "claims" / "default" / "digits"

    @property
    def settings(self) -> dict[str, str]:
        """Settings that make this Airflow run jobs on this machine; no DAG file contains them."""
        return {
            "AIRFLOW_HOME": str(self.folder / "home"),
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "AIRFLOW__CORE__DAGS_FOLDER": str(self.folder / "dags"),
            "AIRFLOW__PTJOB__BACKEND": "local",
            "AIRFLOW__PTJOB__LOCAL_ROOT": str(self.folder / "jobs"),
            "AIRFLOW__PTJOB__LOCAL_IMAGES": json.dumps({"digits": str(self.folder / "digits")}),
        }

    def run(self, name: str) -> subprocess.CompletedProcess[str]:
        """Run one DAG file as a script, from outside the DAG folder, until its run has ended."""
        return self.python(self.folder / "dags" / f"{name}.py")

    def program(self, name: str, *arguments: str | Path) -> None:
        """Run a program of the image, which must succeed."""
        ended = self.python(self.folder / "digits" / name, *arguments)
        assert ended.returncode == 0, ended.stdout

    def python(self, *command: str | Path) -> subprocess.CompletedProcess[str]:
        """Run a program with this Airflow's interpreter and settings."""
        return subprocess.run(
            [self.installed.python, *command],
            cwd=self.folder / "home",
            env=self.installed.environment(self.settings),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )


@pytest.fixture(scope="module")
def airflow(installed_wheel: Installed, tmp_path_factory: pytest.TempPathFactory) -> Airflow:
    folder = tmp_path_factory.mktemp("examples")
    (folder / "home").mkdir()
    hidden = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "dags", folder / "dags", ignore=hidden)
    shutil.copytree(ROOT / "docker" / "digits", folder / "digits", ignore=hidden)
    airflow = Airflow(installed=installed_wheel, folder=folder)
    installed_wheel.run("airflow", "db", "migrate", env=airflow.settings, timeout=600)
    return airflow


def find(pattern: str, text: str) -> tuple[str, ...]:
    """Return the groups of the pattern's only match at the beginning of a line."""
    (match,) = re.finditer(f"^{pattern}", text, re.MULTILINE)
    return match.groups()


def test_every_file_is_a_dag_of_its_name_and_cheap_to_parse(airflow: Airflow) -> None:
    """Airflow parses DAG files continuously: none imports PyTorch, and only one with a pod task a Kubernetes client."""
    command = ("python", "-c", PARSE, str(airflow.folder / "dags"), WITH_PODS)

    printed = airflow.installed.run(*command, env=airflow.settings, timeout=300)

    assert json.loads(printed.splitlines()[-1]) == {"tasks": DAGS, "heavy": {WITH_PODS: ["kubernetes"]}}


def test_the_scheduled_dag_trains_evaluates_and_reports(airflow: Airflow) -> None:
    """The report has the hash of the model's file, and the accuracy that the second job computed."""
    ended = airflow.run("digits")

    assert ended.returncode == 0, ended.stdout
    path, size, sha256 = find(r"model pvc://digits/(\S+), (\d+) bytes, sha256 (\w+)$", ended.stdout)
    content = (airflow.claim / path).read_bytes()
    assert (len(content), hashlib.sha256(content).hexdigest()) == (int(size), sha256)
    assert float(*find(r"accuracy on held-out digits: (\S+)$", ended.stdout)) >= 0.97
    assert {log.parent.name for log in airflow.claim.glob("logs/*/*/events.*")} == {"train", "evaluate"}


def test_a_manifest_beside_the_dag_is_run(airflow: Airflow) -> None:
    """The YAML file is found from any working directory, and its outputs are returned."""
    ended = airflow.run("digits_yaml")

    assert ended.returncode == 0, ended.stdout
    (path,) = find(r"model pvc://digits/(\S+), sha256 \w+$", ended.stdout)
    assert (airflow.claim / path).is_file()
    assert float(*find(r"held_out/accuracy = (\S+) after step 6$", ended.stdout)) > 0.9


def test_the_sweep_picks_the_best_of_its_trainings(airflow: Airflow) -> None:
    """Every learning rate has its own training, model and accuracy."""
    ended = airflow.run("digits_sweep")

    assert ended.returncode == 0, ended.stdout
    accuracies = re.findall(r"^learning rate (\S+): accuracy (\S+)$", ended.stdout, re.MULTILINE)
    rate, path = find(r"best is (\S+): pvc://digits/(\S+)$", ended.stdout)
    assert [rate for rate, _ in accuracies] == ["0.0003", "0.003", "0.03"]
    assert rate == max(accuracies, key=lambda pair: float(pair[1]))[0]
    assert len(list((airflow.claim / path).parents[1].glob("*/model.pt"))) == 3


def test_the_failing_training_says_who_failed_first_and_is_not_tried_again(airflow: Airflow) -> None:
    """The script fails, and the task's error begins with the replica, the reason and the advice."""
    ended = airflow.run("digits_failing")

    assert ended.returncode == 1
    assert re.search(
        r"AirflowFailException: default/digits-failing-\w{12} failed: worker-0 \(rank 1\) exited with code 1: "
        r"ValueError: image 17 has the label 11; allowed are 0 to 9\. .*; never_retry_on names ValueError",
        ended.stdout,
    )
    assert "rank 1 of 2 has begun" in ended.stdout.rpartition("Last lines of")[2]
    assert ended.stdout.count("was submitted") == 1


def test_a_notifier_tells_whoever_can_help(airflow: Airflow) -> None:
    """The author of a program with a bug; the platform team for a training that was killed from outside."""
    ended = airflow.run("digits_notified")

    assert ended.returncode == 1
    author, reason = find(r"to (\S+): mistaken failed \(python_exception, a retry cannot help\): (.*)$", ended.stdout)
    assert author == "ann@example.org"
    assert "NameError: name 'lables' is not defined. Fix the training code" in reason
    assert find(r"to (\S+): killed failed \(killed, a retry may help\): ", ended.stdout) == ("platform@example.org",)


def test_a_python_task_beside_the_claim_evaluates_the_model(airflow: Airflow) -> None:
    """The URI in the result becomes a path of this machine, and the model there is the trained one."""
    ended = airflow.run("digits_local_evaluation")

    assert ended.returncode == 0, ended.stdout
    (trained,) = set(re.findall(r"held-out accuracy (\S+) \(\d+ of 360\)", ended.stdout))
    path, evaluated = find(r"(/\S+/model\.pt): accuracy (\S+) on 360 held-out digits$", ended.stdout)
    assert path.startswith(str(airflow.claim))
    assert evaluated == trained


def test_the_maintenance_finds_nothing_where_every_job_has_ended(airflow: Airflow) -> None:
    """It also runs as a script, and prints which namespace it searched."""
    ended = airflow.run("ptjob_maintenance")

    assert ended.returncode == 0, ended.stdout
    assert "0 orphaned jobs in default" in ended.stdout


@pytest.mark.timeout(1800)
def test_a_rollback_restores_the_champion_before_and_the_consumer_reads_it_from_its_event(airflow: Airflow) -> None:
    """`tests/demo/test_demo.py` runs the DAG that trains on arriving data and promotes what is better."""
    champion = airflow.claim / "champion"
    for epochs in ("2", "12"):
        model = airflow.folder / f"{epochs}.pt"
        airflow.program("train.py", "--epochs", epochs, "--save_path", model)
        airflow.program("promote.py", "--model_path", model, "--champion_dir", champion)
    promoted = [json.loads(file.read_text()) for file in sorted((champion / "history").iterdir())]

    restored, consumed = airflow.run("digits_rollback"), airflow.run("digits_champion")

    assert (restored.returncode, consumed.returncode) == (0, 0), restored.stdout + consumed.stdout
    number, accuracy = find(r"champion (\d): accuracy (\S+)$", consumed.stdout)
    assert (number, float(accuracy)) == ("3", pytest.approx(promoted[0]["accuracy"], abs=1e-4))
    path, sha256 = find(r"model pvc://digits/(\S+), sha256 (\w+)$", consumed.stdout)
    assert hashlib.sha256((airflow.claim / path).read_bytes()).hexdigest() == sha256 == promoted[0]["sha256"]
