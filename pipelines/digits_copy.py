"""Pass the model on as a copy: `model_artifact="copy"` puts it into the run's artifact store.

Any component can then read it as a file, `torch.load(model.path)`, in any namespace and on any node. The cost: the
step mounts the claim as the user that owns the model, and reads and writes the model once more. `USER` is the user of
the training's image.

`python digits_copy.py` writes `digits_copy.yaml`.
"""

from kfp import compiler, dsl, kubernetes

from ptjob_provider import __version__
from ptjob_provider.kfp.component import pytorchjob_op

IMAGE = f"ghcr.io/ptjob-provider/digits:{__version__}"
"""Image of the training and of the component below, which needs PyTorch and kfp's runtime in its image."""

USER = 0
RUN = dsl.PIPELINE_JOB_ID_PLACEHOLDER


@dsl.component(base_image=IMAGE, install_kfp_package=False)
def count_parameters(model: dsl.Input[dsl.Model]) -> int:
    """Return the model's number of parameters."""
    import torch  # noqa: PLC0415 - only this function's source is in the pipeline

    state = torch.load(model.path, weights_only=True)
    count = sum(part.numel() for part in state.values())
    print(f"{count} parameters in {model.path}, sha256 {model.metadata['sha256']}")
    return count


@dsl.pipeline(name="digits-copy")
def digits_copy(epochs: int = 2, image: str = IMAGE) -> None:
    """Train, and read the model from the artifact store.

    Args:
        epochs: total number of epochs.
        image: image of the training.
    """
    train = pytorchjob_op(
        name="digits",
        image=image,
        args=["--epochs", epochs],
        cpu=1,
        memory="2Gi",
        model=f"pvc://digits/models/{RUN}/model.pt",
        tfevents=f"pvc://digits/logs/{RUN}",
        model_artifact="copy",
    )
    kubernetes.set_security_context(train, run_as_user=USER)
    count_parameters(model=train.outputs["trained_model"])


if __name__ == "__main__":
    compiler.Compiler().compile(digits_copy, "digits_copy.yaml")
