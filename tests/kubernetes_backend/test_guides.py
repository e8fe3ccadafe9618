"""Tests of the pages for users who come from another guide, on the cluster."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml

from cluster.gpu import RESOURCE, gpus
from guide_pages import OPERATORS, T9K, TRAINED, accuracy, have_examples
from kubernetes_backend.t9k_stand_in import ScriptedT9kController, serve
from kubernetes_backend.terminal import Terminal, terminal_of
from ptjob_provider.core.identity import JobRef

if TYPE_CHECKING:
    from cluster.boot import Cluster
    from ptjob_provider.core.identity import Manifest

JOB = "pytorch-dist-mnist-nccl"
T9K_JOB = "torch-mnist-trainingjob"
ROLES = ("Master", "Worker")

pytestmark = pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")


def test_the_session_of_the_operators_guide_trains(
    terminal: Terminal,
    digits_image: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each line of the page, on GPUs that the node reports; kubectl finds the pods by the old label."""
    monkeypatch.chdir(tmp_path)
    Path(OPERATORS.file).write_text(OPERATORS.manifest(digits_image))
    said = {}

    with gpus(terminal.cluster, 2):
        for program, *words in OPERATORS.session():
            if program == "kubectl":
                said[program] = terminal.cluster.kubectl(*words, "-n", terminal.namespace)
                continue
            result = terminal.ptjob(*words)
            assert result.exit_code == 0, f"{words}: {result.output}"
            said[words[0]] = result.stdout
            if words[0] == "submit":
                made = terminal.cluster.kubectl.get("pytorchjob", JOB, namespace=terminal.namespace)

    for role in ROLES:
        template = made["spec"]["pytorchReplicaSpecs"][role]["template"]
        (container,) = template["spec"]["containers"]
        assert (container["args"], "command" in container) == (["--backend", "gloo"], False)
        assert {name: str(amount) for name, amount in container["resources"]["limits"].items()} == {RESOURCE: "1"}
        assert template["metadata"]["annotations"]["sidecar.istio.io/inject"] == "false"
    assert TRAINED.search(said["follow"])
    assert accuracy(said["follow"]) > 0.9
    found = yaml.safe_load(said["get"])
    assert (found["phase"], found["replica_statuses"]["Master"]["succeeded"]) == ("Succeeded", 1)
    assert {"Created", "Succeeded"} <= {each["type"] for each in found["conditions"] if each["status"] == "True"}
    assert all(each["lastTransitionTime"] for each in found["conditions"])
    assert f"pytorchjob/{JOB}" in said["events"]
    assert f"{JOB}-master-0" in said["kubectl"]
    assert said["logs"].splitlines() == said["follow"].splitlines()[-2:]
    assert said["delete"].endswith("is deleted; its claims are as they were\n")


SMALLER = {"requests": {"cpu": "100m", "memory": "256Mi"}}
"""Requests that fit the test's node; the tutorial's others stay."""


@pytest.fixture
def platform(
    cluster: Cluster, namespace: str, digits_image: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Terminal:
    """Return a terminal on a cluster with T9k's kind, with a clone of the tutorial's examples and its file."""
    monkeypatch.setenv("PTJOB_PROBE_IMAGE", digits_image)
    monkeypatch.chdir(tmp_path)
    have_examples("/opt/digits")
    Path(T9K.file).write_text(T9K.manifest(digits_image).replace("--backend=nccl", "--backend=gloo"))
    return terminal_of(serve(cluster), namespace, tmp_path)


def test_the_session_of_t9ks_tutorial_trains(platform: Terminal, cluster: Cluster, namespace: str) -> None:
    """Each line of the page; the scripted controller starts torchrun as T9k's does, on four GPUs that do not exist."""
    more = ["--queue", "vision", "--container-resources", json.dumps(SMALLER)]
    said = {}

    with gpus(cluster, 4):
        for _, *words in T9K.session("A session on T9k's platform"):
            result = platform.ptjob(*words, *(more if words[0] == "submit" else ()))
            assert result.exit_code == 0, f"{words}: {result.output}"
            said[" ".join(words[:2])] = result.stdout
            if words[0] == "submit":
                made = run_scripted(cluster, namespace)

    previewed = yaml.safe_load(said["render -f"])["spec"]
    assert previewed["torchrunConfig"] == {"enabled": True, "maxRestarts": 3, "procPerNode": "4"}
    (volume,) = [each for each in template_of(previewed)["volumes"] if "emptyDir" in each]
    assert volume["emptyDir"] == {"medium": "Memory", "sizeLimit": "1Gi"}
    assert made["spec"]["scheduler"] == {"t9kScheduler": {"queue": "vision", "priority": 50}}
    (trainer,) = template_of(made["spec"])["containers"]
    assert {str(trainer["resources"]["limits"][name]) for name in ("cpu", RESOURCE)} == {"8", "4"}
    assert trainer["args"][-1] == "--backend=gloo"
    assert f"{T9K_JOB}-worker-0" in said[f"get {T9K_JOB}"]
    assert ["Completed", "True"] in [line.split()[:2] for line in said[f"get {T9K_JOB}"].splitlines()]
    log = said[f"follow {T9K_JOB}"]
    assert "parameters agree on 4 ranks" in log
    assert accuracy(log) > 0.9
    assert f"pod/{T9K_JOB}-5b373-worker-0" in said[f"events {T9K_JOB}"]
    assert said[f"logs {T9K_JOB}"].splitlines() == log.splitlines()[-2:]
    assert {"model_state_dict.pt", "log/"} <= set(said["data ls"].split())


def run_scripted(cluster: Cluster, namespace: str) -> Manifest:
    """Let the scripted controller run the only job to its end, and return its spec."""
    (made,) = cluster.kubectl.list("pytorchtrainingjobs", namespace=namespace)
    controller = ScriptedT9kController(cluster, JobRef.of(made))
    controller.make_pods()
    controller.wait_for_end()
    controller.tell("Succeeded", ("Completed", "Done"))
    return made


def template_of(spec: Manifest) -> Manifest:
    """Return the pod template of the only role."""
    (role,) = spec["replicaSpecs"]
    pod: Manifest = role["template"]["spec"]
    return pod
