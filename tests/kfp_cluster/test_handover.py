"""Tests of models in the pods of steps: the compiled examples, with claims that only their owner may enter.

The volumes of the tests' cluster are directories owned by root (0750), like those of some provisioners.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from kfp_adapter.driver_stand_in import TASK
from kfp_cluster.lab import new_run
from kfp_cluster.step_pod import Try

if TYPE_CHECKING:
    from kfp_cluster.lab import Lab

IMAGES_USER = 65532
WRITES = 'mkdir -p "$(dirname "$PTJOB_MODEL_PATH")" && echo weights > "$PTJOB_MODEL_PATH"'


def trained(lab: Lab, run: str, pipeline: dict[str, Any], image: str) -> dict[str, Any]:
    """Run an example's training and return its published outputs."""
    step = lab.start(Try(run=run, parameters={"epochs": 1, "image": image}), pipeline)
    assert step.wait() == 0, step.log()
    return step.published()


def test_the_next_steps_read_and_write_where_the_model_is(lab: Lab, digits_image: str) -> None:
    """By reference: one step finds the model by its input artifact, another keeps a copy of it."""
    run, pipeline = new_run("reference"), lab.example("digits_reference")
    upstream = {TASK: trained(lab, run, pipeline, digits_image)}
    model = upstream[TASK]["artifacts"]["trained_model"]
    results = [
        {"model": {"uri": model["metadata"]["uri"]}, "tfevents": {"scalars": {"held_out/accuracy": accuracy}}}
        for accuracy in (0.5, "NaN")
    ]

    check = lab.start(Try(run=run, task="check", upstream=upstream), pipeline)
    sweep = lab.example("digits_sweep")
    wanted = sweep["root"]["dag"]["tasks"]["keep-best"]["inputs"]["parameters"]["results"]["taskOutputParameter"]
    loop = {"parameters": {wanted["outputParameterKey"]: results}, "artifacts": {}}
    keep = lab.start(Try(run=run, task="keep-best", upstream={wanted["producerTask"]: loop}), sweep)

    assert check.wait() == 0, check.log()
    assert check.published()["parameters"]["Output"] == model["metadata"]["sha256"]
    assert keep.wait() == 0, keep.log()
    assert f"best is {model['metadata']['uri']}, kept as pvc://digits/best/model.pt" in keep.log().splitlines()


def test_a_model_is_copied_by_a_step_that_runs_as_its_owner(lab: Lab, digits_image: str) -> None:
    """The artifact store has the bytes, and the job does not have the step's mount."""
    run, pipeline = new_run("copy"), lab.example("digits_copy")

    published = trained(lab, run, pipeline, digits_image)

    model = published["artifacts"]["trained_model"]
    assert model["sha256"] == model["metadata"]["sha256"]
    assert "/mnt/own-claim" not in json.dumps(lab.objects("pytorchjobs"))


def test_a_step_that_may_not_read_the_claim_says_so_before_it_trains(lab: Lab) -> None:
    """The message names the user that may read it. Nobody waits for a training whose model cannot be passed on.

    The step runs as the user of its image. A user that only the pod sets is in group 0, which may read the directory.
    """
    run = new_run("refused")
    model = {"model": f"pvc://digits/{run}/m.txt", "model_artifact": "copy"}
    root = {"container_security_context": {"runAsUser": 0}}
    pipeline = lab.pipeline(command=["sh", "-c", WRITES], as_user=IMAGES_USER, **model, **root)

    step = lab.start(Try(run=run), pipeline)

    assert step.wait() == 1  # the launcher, after any exit code
    (said,) = [line for line in step.log().splitlines() if line.startswith("model_artifact: ")]
    assert f"user {IMAGES_USER} may not enter the claim at /mnt/own-claim (drwxr-x---, user 0, group 0)" in said
    assert said.endswith("kubernetes.set_security_context(task, run_as_user=0)")
    assert lab.ever_submitted(run) == set()
