"""Tests of a step's container on the cluster, started as Kubeflow's launcher starts it, and of its job."""

from __future__ import annotations

import json
import secrets
from typing import TYPE_CHECKING

from kfp import dsl

import code_servers
from cluster.sync_image import SYNC
from cluster.tenants import service_account
from code_servers import Net
from kfp_adapter.driver_stand_in import ROOT, TASK
from kfp_adapter.folders import sized, write_code
from kfp_cluster.lab import PATIENCE, STEM, new_run, owners, until
from kfp_cluster.step_pod import Try
from kfp_cluster.stock_role import STOCK, documented, of_accounts
from ptjob_provider.core.identity import JobRef
from ptjob_provider.kfp.component import pytorchjob_op
from rbac import rules_of, rules_of_kinds

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from cluster.boot import Cluster
    from kfp_cluster.lab import Lab

TRAINS = 'echo "a canary of ${#CANARY} characters"; exec python code/digits/train.py --epochs=2 --backend=gloo'
KINDS = ("pytorchjobs", "pods", "events", "configmaps")


def test_a_training_hands_on_model_metrics_curves_and_report(
    lab: Lab, digits_image: str, tmp_path: Path, tell: Callable[[str], None]
) -> None:
    """Real training: the outputs for the next tasks, with no secret in any of them.

    The program comes from a git repository, and its commit is one of the outputs.
    """
    canary, run = f"canary-{secrets.token_hex(8)}", new_run("trains")
    lab.deposit("hub", token=canary)
    with code_servers.digits(tmp_path, Net.of(lab.cluster)) as code:
        pipeline = lab.pipeline(
            image=digits_image,
            command=["sh", "-c", TRAINS],
            code={"git": code.address, "image": SYNC.ensure(lab.cluster, tell)},
            env={"CANARY": {"secret": "hub", "key": "token"}},
            volumes=["digits:/data"],
            model=f"/data/{run}/model.pt",
            tfevents=f"/data/{run}/logs",
        )
        step = lab.start(Try(run=run), pipeline)
        exit_code = step.wait()

    assert exit_code == 0, step.log()
    ref, log, published = JobRef.of(lab.job(run)), step.log(), step.published()
    parameters, artifacts = published["parameters"], published["artifacts"]
    assert f"a canary of {len(canary)} characters" in log
    assert f"── {ref} succeeded" in log
    assert (parameters["job_name"], parameters["model_uri"]) == (ref.name, f"pvc://digits/{run}/model.pt")
    assert (parameters["model_claim"], parameters["tfevents_uri"]) == ("digits", f"pvc://digits/{run}/logs")
    assert parameters["result"]["git_revision"] == code.revision
    place, _, name = artifacts["trained_model"]["uri"].rpartition("/")
    assert (place.rpartition("/")[0], name) == (f"{ROOT}/test/{run}/{TASK}", "trained_model")
    assert artifacts["trained_model"]["metadata"]["uri"] == parameters["model_uri"]
    assert json.loads(artifacts["trained_model"]["content"])["sha256"] == parameters["result"]["model"]["sha256"]
    assert set(artifacts["metrics"]["metadata"]) == set(parameters["scalars"]) >= {"train/loss", "held_out/accuracy"}
    assert "<h2>held_out/accuracy</h2>" in artifacts["curves"]["content"]
    assert artifacts["curves"]["uri"] == f"{place}/curves"
    assert parameters["result"]["model"]["sha256"] in artifacts["report"]["content"]
    assert lab.ever_submitted(run) == {ref.uid}
    lab.wait_until_only_rank0_is_left(ref)
    everywhere = json.dumps([pipeline, log, published, *(lab.objects(kind) for kind in KINDS)])
    assert canary not in everywhere


def test_a_train_job_is_a_step_like_any_other(lab: Lab, trained: Cluster) -> None:
    """With the Role of its kind: the step has the job's log, and the run owns the ended job."""
    run, account = new_run("trainer"), "runs-train-jobs"
    service_account(trained, lab.namespace, [*STOCK, *documented(), *rules_of_kinds()], name=account)
    says = ["sh", "-c", 'echo "rank $RANK of $WORLD_SIZE"']

    step = lab.start(Try(run=run), lab.pipeline(kind="TrainJob", workers=2, command=says), account=account)

    assert step.wait() == 0, step.log()
    (job,) = lab.objects("trainjobs")
    parameters = step.published()["parameters"]
    assert "rank 0 of 2" in step.log().splitlines()
    assert (parameters["job_name"], parameters["result"]["job"]["kind"]) == (job["metadata"]["name"], "TrainJob")
    assert owners(job) == [lab.controller(run)["uid"]]


def test_a_folder_that_the_step_before_has_written_is_the_code(lab: Lab, trained: Cluster, digits_image: str) -> None:
    """The folder passes from the artifact store through the step's pod to the pods of the job."""
    run, account = new_run("folder"), "runs-folders"
    service_account(trained, lab.namespace, [*STOCK, *documented(), *rules_of("code")], name=account)
    write = dsl.component(base_image=lab.image, install_kfp_package=False)(write_code)

    def define():  # noqa: ANN202 - kfp reads annotations, which are texts here
        fields = {"image": digits_image, "name": f"{STEM}{dsl.PIPELINE_JOB_ID_PLACEHOLDER}"}
        pytorchjob_op(step_image=lab.image, function=sized, code=write().output, **fields)

    pipeline = lab.compiled(define)
    before = lab.start(Try(run=run, task="write-code"), pipeline, account=account)
    assert before.wait() == 0, before.log()
    upstream = {"write-code": before.published()}
    step = lab.start(Try(run=run, upstream=upstream), pipeline, account=account)

    assert step.wait() == 0, step.log()
    result = step.published()["parameters"]["result"]
    assert result["return_value"] == 3
    assert result["code_revision"]["digest"].startswith("sha256:")


def test_terminating_a_run_stops_the_job_while_the_pod_stays(lab: Lab) -> None:
    """Kubeflow keeps the pod until the run is deleted, so the owner reference does not delete the job.

    SIGTERM kills the launcher at once, and the container ends within a second. Here the step has the time that it needs
    on a busy machine; the soak measures how often a second is enough.
    """
    run = new_run("terminated")
    step, ref = lab.running(Try(run=run, alive=PATIENCE))

    step.terminate()

    assert step.wait() == 143
    lab.wait_until_gone(run)
    assert lab.ever_submitted(run) == {ref.uid}
    assert step.published() == {}


def test_the_retry_of_a_step_that_was_killed_adopts_the_job(lab: Lab) -> None:
    """The job is trained once; the retry's pod owns it, so deleting the first pod does not delete it."""
    run = new_run("killed")
    first, ref = lab.running(Try(run=run, retry=0))

    first.kill()
    code = first.wait()
    second = lab.start(Try(run=run, retry=1))
    second.wait_for_notice("was adopted")
    until("the job to be the retry's, which takes it over then", lambda: owners(lab.job(run)) == [second.uid])
    first.delete(at_once=True)
    lab.release(ref)

    assert code != 0
    assert second.wait() == 0, second.log()
    assert second.published()["parameters"]["job_name"] == ref.name
    assert lab.ever_submitted(run) == {ref.uid}


def test_under_an_account_of_its_own_a_step_lacks_nothing(lab: Lab) -> None:
    """The documented Roles alone allow masking, notes and diagnosis of pods that do not start."""
    run, account, canary = new_run("own"), "trainings", f"canary-{secrets.token_hex(8)}"
    service_account(lab.cluster, lab.namespace, of_accounts(), name=account)
    lab.deposit(run, token=canary)
    env = {"CANARY": {"secret": run, "key": "token"}}

    step = lab.start(
        Try(run=run, retry=0), lab.pipeline(command=["sh", "-c", "echo a $CANARY"], env=env), account=account
    )

    assert step.wait() == 0, step.log()
    assert "a ***" in step.log().splitlines()
    assert [said for said in step.notices() if "cannot" in said or "could not" in said] == []
