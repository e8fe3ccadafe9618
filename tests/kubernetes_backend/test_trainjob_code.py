"""Tests of code for a TrainJob: an init container of its runtime fetches it, with parameters from the job."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest
import yaml

import code_servers
from cluster.sync_image import SYNC
from cluster.tenants import service_account
from cluster.trainer import apply_runtimes
from code_servers import PASSWORD, USER, Net
from installed import ROOT
from kubernetes_backend.trainjob_stories import runtime
from ptjob_provider.core.errors import InvalidSpec
from ptjob_provider.core.in_pod.sync_code import CONTAINER
from ptjob_provider.core.kinds.code import DEFAULT_WORKING_DIR
from ptjob_provider.core.run.outcome import Outcome
from rbac import rules_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from kubernetes_backend.trainjobs import Lab
    from ptjob_provider.core.identity import Manifest

OURS = "TrainingRuntime/ours"


def documented_runtime(namespace: str, image: str) -> Manifest:
    """Return the documented runtime, with another image to fetch code."""
    [text] = re.findall(
        r"^```yaml\n(.*?)^```", (ROOT / "docs" / "reference" / "kinds.md").read_text(), re.DOTALL | re.MULTILINE
    )
    found: Manifest = yaml.safe_load(text)
    [node] = found["spec"]["template"]["spec"]["replicatedJobs"]
    [fetching] = node["template"]["spec"]["template"]["spec"]["initContainers"]
    fetching["image"] = image
    return {**found, "metadata": {**found["metadata"], "namespace": namespace}}


async def test_a_private_repository_is_fetched_and_its_revision_reported(
    lab: Lab, tmp_path: Path, tell: Callable[[str], None]
) -> None:
    """The runtime's container fetches it, with parameters from the job; a Secret of the job has its credentials."""
    code_servers.ensure_programs()
    repository = code_servers.repository(tmp_path)
    apply_runtimes(lab.cluster.kubectl, documented_runtime(lab.namespace, SYNC.ensure(lab.cluster, tell)))
    service_account(lab.cluster, lab.namespace, rules_of("kinds", "code"))
    env = {"GIT_SYNC_USERNAME": USER, "GIT_SYNC_PASSWORD": PASSWORD}

    with code_servers.http(repository.path.parent, Net.of(lab.cluster), private=True) as address:
        where = {"code": f"{address}/mnist.git", "runtime": "TrainingRuntime/with-code"}
        submission = await lab.submit(f"cat {DEFAULT_WORKING_DIR}/code/mnist/train.py", env=env, workers=1, **where)
        conclusion = await lab.follow(submission)

    assert conclusion.outcome is Outcome.SUCCEEDED, conclusion
    assert lab.lines == ["print('v2')"]
    assert (conclusion.result or {})["git_revision"] == repository.revisions["main"]
    job = await lab.backend.get("TrainJob", lab.namespace, submission.ref.name)
    assert PASSWORD not in json.dumps([job, conclusion.to_dict(), lab.sink.notices])


async def test_a_folder_is_trained_with_trainers_own_runtime(lab: Lab, digits_image: str, tmp_path: Path) -> None:
    """Without an init container: each node unpacks it before its command, which runs there and imports its modules."""
    (tmp_path / "train.py").write_text("import net, os\nprint('trained', net.SIZE, os.environ['RANK'], os.getcwd())\n")
    (tmp_path / "net.py").write_text("SIZE = 3\n")
    service_account(lab.cluster, lab.namespace, rules_of("kinds", "code"))

    submission = await lab.submit(code=str(tmp_path), image=digits_image, command=["python3", "train.py"])
    conclusion = await lab.follow(submission)

    assert conclusion.outcome is Outcome.SUCCEEDED, conclusion
    assert lab.lines == ["trained 3 0 /ptjob-code"]
    assert (conclusion.result or {})["code_revision"] == submission.code_revision


async def test_a_runtime_that_cannot_fetch_code_is_known_before_anything_is_created(lab: Lab) -> None:
    """A job can configure an init container, but cannot add one: its pods would never be created."""
    apply_runtimes(lab.cluster.kubectl, runtime("Never", 0, namespace=lab.namespace))

    with pytest.raises(InvalidSpec, match=rf"^code: the runtime {OURS} has no init container {CONTAINER}"):
        await lab.submit("true", code="https://git.example/team/mnist.git", runtime=OURS)

    assert await lab.backend.list("TrainJob", lab.namespace, {}) == []
