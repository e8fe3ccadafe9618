"""Tests of a digits training as a TrainJob: its outputs are verified and reported as those of a PyTorchJob."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cluster.fixtures import import_or_skip
from kubernetes_backend.finished import digest, no_probe_is_left, prepared_volume
from ptjob_provider.core.diagnosis import Cause
from ptjob_provider.core.run.outcome import Outcome
from ptjob_provider.core.run.snapshot import look

if TYPE_CHECKING:
    from kubernetes_backend.trainjobs import Lab

OUTPUTS = {"volumes": ["data/out:/data"], "model": "/data/model.pt", "tfevents": "pvc://data/out/tb"}
LITTLE = {"requests": {"cpu": "100m", "memory": "300Mi"}}


async def test_digits_on_two_nodes_leave_a_model_that_is_verified(lab: Lab, digits_image: str) -> None:
    """Two torchrun processes on each node train together; the result's facts equal those of the files."""
    accumulators = import_or_skip("tensorboard.backend.event_processing.event_accumulator")
    volume = prepared_volume(lab.cluster, lab.namespace)

    submission = await lab.submit(
        image=digits_image,
        command=["torchrun", "/opt/digits/train.py"],
        args=["--epochs", "2"],
        nproc_per_node=2,
        container_resources=LITTLE,
        **OUTPUTS,
    )
    conclusion = await lab.follow(submission)

    assert conclusion.outcome is Outcome.SUCCEEDED, conclusion
    assert conclusion.result is not None
    model, tfevents = conclusion.result["model"], conclusion.result["tfevents"]
    file = volume / "model.pt"
    assert (model["uri"], model["path"]) == ("pvc://data/out/model.pt", "out/model.pt")
    assert (model["bytes"], model["sha256"]) == (file.stat().st_size, digest(file))
    events = accumulators.EventAccumulator(str(volume / "tb")).Reload()
    last = {tag: events.Scalars(tag)[-1] for tag in events.Tags()["scalars"]}
    assert tfevents["scalars"] == {tag: scalar.value for tag, scalar in last.items()}
    assert tfevents["last_step"] == max(scalar.step for scalar in last.values())
    no_probe_is_left(lab.cluster, await lab.backend.get("TrainJob", lab.namespace, submission.ref.name))
    seen = await look(lab.backend, lab.namespace, submission.ref.name)
    assert seen.submission.outputs == submission.outputs


async def test_a_model_that_was_not_written_fails_the_job(lab: Lab, digits_image: str) -> None:
    """Every node exits with 0, but there is nothing to promote: the error names the address."""
    prepared_volume(lab.cluster, lab.namespace)

    conclusion = await lab.run("true", image=digits_image, workers=1, **OUTPUTS)

    assert conclusion.outcome is Outcome.FAILED
    assert conclusion.diagnosis is not None
    assert conclusion.diagnosis.cause is Cause.OUTPUTS
    assert "pvc://data/out/model.pt" in conclusion.diagnosis.summary
