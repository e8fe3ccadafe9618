"""Train on handwritten digits, evaluate the model, and promote it if it is better than the champion.

Training and evaluation are PyTorchJobs, so this file runs unchanged on a cluster with Kubeflow Pipelines, or on one
machine with `kfp.local` and PTJOB_BACKEND=local.

To adapt it:

- `IMAGE`: your training image, here built from `docker/digits`; a run may use another one. Its program reads its output
  paths from the variables PTJOB_MODEL_PATH, PTJOB_TFEVENTS_DIR and PTJOB_CHECKPOINT_DIR, or from arguments.
- `CLAIM`: your claim. The steps `compare` and `promote` mount it, too: unless all pods run on one node, the claim must
  be ReadWriteMany.
- `USER`: the user of that image, who owns the written files. The steps `compare` and `promote` run as the same user.
- `workers` counts pods, rank 0 included. On GPUs: `gpus=1` and the argument `--backend=nccl`.

`python digits.py` writes `digits.yaml`, which you can upload to Kubeflow Pipelines in the web interface or by a client.
"""

from kfp import compiler, dsl, kubernetes

from ptjob_provider import __version__
from ptjob_provider.kfp.component import STEP_IMAGE, pytorchjob_op
from ptjob_provider.kfp.handover import mount_claim

IMAGE = f"ghcr.io/ptjob-provider/digits:{__version__}"
CLAIM = "digits"
USER = 0
VOLUMES = [f"{CLAIM}:/data"]
RUN = dsl.PIPELINE_JOB_ID_PLACEHOLDER


@dsl.component(base_image=STEP_IMAGE, install_kfp_package=False)
def compare(scalars: dict, champion: str) -> str:
    """Return `better` or `not better`: compare these scalars with those of the champion.

    If there is no champion, a model is better. A model whose accuracy is not a number is never better.

    Args:
        scalars: the evaluation's scalars; NaN and infinities are strings, such as "NaN".
        champion: address of the champion's directory.
    """
    import json  # noqa: PLC0415 - only this function's source is in the pipeline
    import math  # noqa: PLC0415 - as above

    from ptjob_provider.kfp.claim_paths import find_output  # noqa: PLC0415 - as above

    file = find_output(champion) / "scalars.json"
    accuracy = float(scalars["held_out/accuracy"])
    to_beat = float(json.loads(file.read_text())["held_out/accuracy"]) if file.is_file() else -math.inf
    print(f"accuracy {accuracy}, the champion's: {to_beat}")
    return "not better" if math.isnan(accuracy) or accuracy <= to_beat else "better"


@dsl.component(base_image=STEP_IMAGE, install_kfp_package=False)
def promote(model: dsl.Input[dsl.Model], scalars: dict, champion: str) -> str:
    """Promote the model to champion unless a better one is it by now, and return the champion's address.

    Args:
        model: the model; only its address is passed.
        scalars: the evaluation's scalars.
        champion: address of the champion's directory.
    """
    import json  # noqa: PLC0415 - only this function's source is in the pipeline
    import shutil  # noqa: PLC0415 - as above
    from pathlib import Path  # noqa: PLC0415 - as above
    from tempfile import TemporaryDirectory  # noqa: PLC0415 - as above

    from ptjob_provider.kfp.claim_paths import find_output  # noqa: PLC0415 - as above

    folder = find_output(champion)
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "scalars.json"
    to_beat = json.loads(file.read_text())["held_out/accuracy"] if file.is_file() else "NaN"
    if float(scalars["held_out/accuracy"]) < float(to_beat):
        print(f"another run has promoted a better model: {champion}/model.pt")
        return f"{champion}/model.pt"
    with TemporaryDirectory(dir=folder) as new:
        shutil.copyfile(find_output(model), Path(new, "model.pt"))
        Path(new, "scalars.json").write_text(json.dumps(scalars))
        for name in ("scalars.json", "model.pt"):  # each is whole at any moment
            Path(new, name).replace(folder / name)
    print(f"{model.metadata['uri']} is the champion now: {champion}/model.pt")
    return f"{champion}/model.pt"


@dsl.pipeline(name="digits")
def digits(
    epochs: int = 12,
    lr: float = 0.003,
    workers: int = 2,
    champion: str = f"pvc://{CLAIM}/champion",
    image: str = IMAGE,
) -> None:
    """Train, evaluate, and promote if better.

    Args:
        epochs: total number of epochs.
        lr: learning rate.
        workers: pods of the training.
        champion: address of the directory of the best model so far.
        image: image of training and evaluation.
    """
    train = pytorchjob_op(
        name="digits",
        image=image,
        args=["--epochs", epochs, "--lr", lr],
        workers=workers,
        cpu=1,
        memory="2Gi",
        volumes=VOLUMES,
        model=f"/data/models/{RUN}/model.pt",
        tfevents=f"/data/logs/{RUN}/train",
        checkpoints=f"/data/checkpoints/{RUN}",
    )
    # For failures that a retry can fix, such as a lost machine; no retry starts later than a day after the first try.
    train.set_retry(num_retries=2, backoff_max_duration="86400s")

    evaluate = pytorchjob_op(
        name="digits-evaluate",
        image=image,
        command=["python", "evaluate.py"],
        args=[f"--model_path=/data/{train.outputs['model_path']}"],
        cpu=1,
        memory="2Gi",
        volumes=VOLUMES,
        tfevents=f"/data/logs/{RUN}/evaluate",
    )

    compared = compare(scalars=evaluate.outputs["scalars"], champion=champion)
    compared.set_caching_options(enable_caching=False)
    mount_claim(compared, CLAIM)
    kubernetes.set_security_context(compared, run_as_user=USER)
    with dsl.If(compared.output == "better"):
        promoted = promote(model=train.outputs["trained_model"], scalars=evaluate.outputs["scalars"], champion=champion)
        promoted.set_caching_options(enable_caching=False)
        mount_claim(promoted, CLAIM)
        kubernetes.set_security_context(promoted, run_as_user=USER)


if __name__ == "__main__":
    compiler.Compiler().compile(digits, "digits.yaml")
