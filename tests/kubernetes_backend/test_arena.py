"""Tests of Arena and `ptjob` on the same jobs: its own command line handles ours, and `ptjob` handles its jobs."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner, Result

import code_servers
from arena_page import CHINESE, PAGE, serve_code, session, trained
from cluster import arena
from cluster.gpu import gpus
from cluster.images import INIT_IMAGE
from cluster.layout import NODE
from cluster.shell import bare_environment, until
from cluster.sync_image import SYNC
from cluster.tenants import rules_everywhere, service_account
from cluster_world import PATIENCE
from guide_pages import DIGITS
from ptjob_provider.cli import main
from rbac import cluster_rules, optional_rules, rules, tensorboard_rules
from worlds import OVER

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from cluster.boot import Cluster

pytestmark = pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")

SPEAKS = 'for n in 1 2 3; do echo "rank $RANK line $n"; done; until [ -e /tmp/go ]; do sleep 0.1; done'
GO = "/tmp/go"  # noqa: S108 - in a pod
SMALL = ("--cpu", "50m", "--memory", "32Mi", "--termination-grace-period-seconds", "1")


@dataclass(frozen=True, kw_only=True)
class People:
    """An Arena user and a `ptjob` user in one namespace.

    Attributes:
        cluster: the cluster.
        namespace: of both.
        kubeconfig: of the `ptjob` user, who has the rights of a Role.
        program: Arena's.
        home: of both, for the files that they keep.
        options: of our command line, as variables.
    """

    cluster: Cluster
    namespace: str
    kubeconfig: Path
    program: Path
    home: Path
    options: Mapping[str, str] = field(default_factory=dict)

    def ptjob(self, *words: str) -> Result:
        environment = {"KUBECONFIG": str(self.kubeconfig), "AIRFLOW_HOME": str(self.home), **self.options}
        return CliRunner().invoke(main, ["-n", self.namespace, *words], env=environment)

    def arena(self, *words: str) -> str:
        """Run Arena's command line as the cluster's administrator, and return its output."""
        environment = bare_environment(
            self.home, KUBECONFIG=str(self.cluster.layout.kubeconfig), PATH=f"{self.home}:{os.defpath}"
        )
        command = [str(self.program), *words, "-n", self.namespace]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=60)
        return re.sub(r"\x1b\[[0-9;]*m", "", done.stdout + done.stderr)

    def has(self, kind: str, name: str) -> bool:
        """Return whether such an object exists."""
        return name in [each["metadata"]["name"] for each in self.cluster.kubectl.list(kind, namespace=self.namespace)]

    def wait_for_lines(self, pod: str) -> None:
        """Wait until the pod has printed its lines."""
        there = ("--namespace", self.namespace)
        until(
            "its lines",
            lambda: "line 3" in self.cluster.kubectl("logs", pod, *there, "--ignore-errors"),
            timeout=PATIENCE,
        )


@pytest.fixture(scope="session")
def arena_program(cluster: Cluster, tell: Callable[[str], None]) -> Path:
    """Return Arena's program, built once from its Go module."""
    return arena.ensure_built(cluster, tell)


@pytest.fixture
def people(cluster: Cluster, namespace: str, arena_program: Path, tmp_path: Path) -> People:
    (tmp_path / "arena-kubectl").symlink_to(cluster.kubectl.program)  # Arena's releases ship kubectl under this name
    (tmp_path / "charts").symlink_to(arena.charts())
    account = service_account(cluster, namespace, [*rules(), *optional_rules(), *tensorboard_rules()])
    return People(cluster=cluster, namespace=namespace, kubeconfig=account, program=arena_program, home=tmp_path)


def test_arenas_own_command_line_handles_our_jobs(people: People) -> None:
    """`arena list`, `get`, `logs`, `top job`, `delete` and `prune`, as on a job of its own; `ptjob` submitted them."""
    short = people.ptjob("run", "--name", "short", "--image", INIT_IMAGE, *SMALL, "true")
    submitted = people.ptjob("submit", "--name", "ours", "--image", INIT_IMAGE, "--workers", "2", *SMALL, SPEAKS)
    assert short.exit_code == submitted.exit_code == 0, short.output + submitted.output
    people.wait_for_lines("ours-master-0")
    people.wait_for_lines("ours-worker-0")

    listed = people.arena("list")
    topped = people.arena("top", "job")
    pruned = people.arena("prune", "--since", "1s")
    left = [name for name in ("short", "ours") if people.has("pytorchjobs", name)]
    shown = people.arena("get", "ours")
    rank0 = people.arena("logs", "ours")
    worker = people.arena("logs", "ours", "-i", "ours-worker-0", "-t", "1")
    selected = people.cluster.kubectl(
        "get", "pods", "-n", people.namespace, "-l", "pytorch_job_name=ours", "-o", "name"
    )
    deleted = people.arena("delete", "ours")

    assert re.search(r"^ours\s+RUNNING\s+PYTORCHJOB", listed, re.MULTILINE), listed
    assert re.search(r"^ours\s+RUNNING\s+PYTORCHJOB", topped, re.MULTILINE), topped
    assert left == ["ours"], pruned
    assert "ours-master-0" in shown
    assert "ours-worker-0" in shown
    assert [line for line in rank0.splitlines() if "line" in line] == [f"rank 0 line {n}" for n in (1, 2, 3)]
    assert "rank 1 line 3" in worker
    assert selected.split() == ["pod/ours-master-0", "pod/ours-worker-0"]
    assert "has been deleted successfully" in deleted
    until("the job to be gone", lambda: not people.has("pytorchjobs", "ours"), timeout=PATIENCE)
    until("the ConfigMap to be gone", lambda: not people.has("configmaps", "ours-pytorchjob"), timeout=PATIENCE)


def test_ptjob_handles_arenas_jobs(people: People) -> None:
    """A job of `arena submit` is listed with its user, shown, read, followed, adopted and deleted.

    Following it changes nothing; adopting it sets the time to live that every job has. Deleting it deletes what Arena
    stores for it.
    """
    made = people.arena(
        *("submit", "pytorch", "--name=theirs", "--workers=2", f"--image={INIT_IMAGE}"),
        *("--image-pull-policy=IfNotPresent", "--cpu=50m", "--memory=32Mi"),
        SPEAKS,
    )
    assert "theirs has been submitted successfully" in made, made
    people.wait_for_lines("theirs-master-0")
    people.wait_for_lines("theirs-worker-0")

    listed = people.ptjob("list", "-o", "wide").output.splitlines()
    shown = json.loads(people.ptjob("get", "theirs", "-o", "json").stdout)
    worker = people.ptjob("logs", "theirs", "--type", "pytorchjob", "-i", "theirs-worker-0", "-t", "1").stdout
    for pod in ("theirs-master-0", "theirs-worker-0"):
        people.cluster.kubectl.let_end(pod, "touch", "/tmp/go", namespace=people.namespace)  # noqa: S108 - in a pod
    followed = people.ptjob("follow", "theirs")
    untouched = people.cluster.kubectl.get("pytorchjob", "theirs", namespace=people.namespace)
    adopted = people.ptjob("follow", "theirs", "--adopt")
    ours = people.cluster.kubectl.get("pytorchjob", "theirs", namespace=people.namespace)
    deleted = people.ptjob("delete", "theirs")

    person = re.escape(untouched["metadata"]["annotations"]["arena.kubeflow.org/username"])
    assert re.match(rf"theirs\s+Running\s+2\s.*\sPyTorchJob\s+{NODE}\s+{person} \(Arena\)$", listed[1]), listed
    assert [replica["name"] for replica in shown["replicas"]] == ["theirs-master-0", "theirs-worker-0"]
    assert worker == "rank 1 line 3\n"
    assert followed.exit_code == 0, followed.output
    assert followed.stdout.splitlines() == [f"rank 0 line {n}" for n in (1, 2, 3)]
    assert not [name for name in untouched["metadata"]["annotations"] if name.startswith("ptjob-provider")]
    assert adopted.exit_code == 0, adopted.output
    assert "ttlSecondsAfterFinished" not in untouched["spec"]["runPolicy"]
    assert ours["spec"]["runPolicy"]["ttlSecondsAfterFinished"] == 7 * 24 * 3600
    assert deleted.exit_code == 0
    until("the ConfigMap to be gone", lambda: not people.has("configmaps", "theirs-pytorchjob"), timeout=PATIENCE)
    assert "theirs" not in people.arena("list")


def test_a_session_of_arenas_guide_does_the_same_here(
    people: People, digits_image: str, tmp_path: Path, tell: Callable[[str], None]
) -> None:
    """The page's lines train real digits, with an image and a repository of the test, on GPUs that do not exist.

    They are those of the longer guide, in Chinese; on one machine the tests run both.
    The claim with the guide's data exists before, as in the guide; gloo takes NCCL's place.
    The documented Roles, including the optional ones, are enough.
    """
    code_servers.ensure_programs()
    net = code_servers.Net.of(people.cluster)
    person = replace(people, options={"PTJOB_SYNC_IMAGE": SYNC.ensure(people.cluster, tell)})
    have_data(person, digits_image, tmp_path)
    job, said = "pytorch-dist", {}

    with (
        gpus(people.cluster, 3),
        rules_everywhere(people.cluster, people.namespace, cluster_rules()),
        code_servers.http(serve_code(tmp_path, stays_until=GO), net) as served,
    ):
        for _, *line in session(CHINESE, address=f"{served}/mnist-pytorch.git", image=digits_image, backend="gloo"):
            if line[0] == "logs" and "follow" not in said:
                said["follow"] = followed(person, line[1])
            result = person.ptjob(*line)
            assert result.exit_code == 0, f"{line}: {result.output}"
            said.setdefault(" ".join(line), result.stdout)  # TensorBoard releases a claim of one node when the job ends

    log, worker_log = said[f"logs {job}"], said[f"logs {job} -i {job}-worker-0"]
    tail = said[f"logs {job} -t 5"]
    assert said["top node"].splitlines()[-1] == "0/3 (0%)"
    assert f"{job}-worker-0" in said[f"get {job}"]
    assert said["follow"] == log
    accuracies = [trained(rank, text, workers=3, epochs=10) for rank, text in enumerate((log, worker_log))]
    assert accuracies[0] == accuracies[1] > 0.9
    assert tail.splitlines() == log.splitlines()[-5:]
    assert "training-data" in said["data list"]
    assert said["top job"].splitlines()[1].split()[0] == job
    by_node, by_name = r"[\d.]+:\d+", rf"{job}-tensorboard\.{people.namespace}\.svc:\d+"  # until it has a node
    assert re.search(f"http://({by_node}|{by_name})/", said[f"get {job}"])
    assert person.ptjob("delete", job).stdout.endswith("is deleted; its claims are as they were\n")


def followed(people: People, job: str) -> str:
    """Follow a job whose rank 0 stays until the cluster reports the workers' end; return the output."""
    is_over = threading.Event()  # however it ended
    with ThreadPoolExecutor(1) as threads:
        releasing = threads.submit(let_rank0_end, people, job, is_over)
        said = people.ptjob("follow", job).stdout
        is_over.set()
        releasing.result()
    return said


def let_rank0_end(people: People, job: str, is_over: threading.Event) -> None:
    selector = f"training.kubeflow.org/job-name={job},training.kubeflow.org/replica-type=worker"

    def have_ended() -> bool:
        pods = people.cluster.kubectl.list("pods", namespace=people.namespace, selector=selector)
        return bool(pods) and all(pod["status"].get("phase") in OVER for pod in pods)

    until("the workers' ends", lambda: is_over.is_set() or have_ended(), timeout=600)
    people.cluster.kubectl.let_end(f"{job}-master-0", "sh", "-c", f": > {GO}", namespace=people.namespace)


def have_data(people: People, image: str, folder: Path) -> None:
    """Create the guide's claim on this cluster's one node, and copy the training's images to it."""
    deliver = [sys.executable, str(DIGITS / "deliver.py"), "--to", str(folder / "pytorch_data"), "--count", "1437"]
    subprocess.run(deliver, check=True, capture_output=True)
    made = people.ptjob("data", "create", "training-data", "--access-mode", "ReadWriteOnce")
    copied = people.ptjob("data", "cp", str(folder / "pytorch_data"), "pvc://training-data/", "--image", image)
    assert made.exit_code == copied.exit_code == 0, made.output + copied.output


@pytest.mark.parametrize(
    "command",
    ["submit pytorchjob", *("list", "get", "logs", "delete", "prune", "attach", "top job", "top node", "data list")],
)
def test_every_flag_of_arenas_help_is_on_the_page(arena_program: Path, command: str, tmp_path: Path) -> None:
    """docs/tutorials/from-arena.md has every flag; tests of the command line check what it says about each."""
    words = [str(arena_program), *command.split(), "--help"]
    done = subprocess.run(words, env=bare_environment(tmp_path), capture_output=True, text=True, check=True)

    flags = set(re.findall(r"(?<![-\w])--[a-zA-Z][-a-zA-Z]+", done.stdout + done.stderr)) - {"--help"}
    assert "--loglevel" in flags
    assert not {flag for flag in flags if f"`{flag}" not in PAGE}
