"""Hand the model on as bytes: `model_artifact="copy"` puts it into the run's artifact store.

A stock component then reads it as a file, `torch.load(model.path)`, in whatever namespace and on whatever node it runs.
The price: the step mounts the claim, and the model is read once more and written to the store.

`python digits_copy.py` writes `digits_copy.yaml`.
"""

from kfp import compiler, dsl

from ptjob_provider.kfp.component import pytorchjob_op

IMAGE = "digits"
TORCH_IMAGE = "registry.example.com/python-torch-kfp:1"
"""Any image with PyTorch and kfp."""

RUN = dsl.PIPELINE_JOB_ID_PLACEHOLDER


@dsl.component(base_image=TORCH_IMAGE, install_kfp_package=False)
def count_parameters(model: dsl.Input[dsl.Model]) -> int:
    """Return how many parameters the model has."""
    import torch  # noqa: PLC0415 - only this function's source is in the pipeline

    state = torch.load(model.path, weights_only=True)
    count = sum(part.numel() for part in state.values())
    print(f"{count} parameters in {model.path}, sha256 {model.metadata['sha256']}")
    return count


@dsl.pipeline(name="digits-copy")
def digits_copy(epochs: int = 2) -> None:
    """Train, and read the model from the artifact store.

    Args:
        epochs: in all.
    """
    train = pytorchjob_op(
        name="digits",
        image=IMAGE,
        args=["--epochs", epochs],
        cpu=1,
        memory="2Gi",
        model=f"pvc://digits/models/{RUN}/model.pt",
        tfevents=f"pvc://digits/logs/{RUN}",
        model_artifact="copy",
    )
    count_parameters(model=train.outputs["trained_model"])


if __name__ == "__main__":
    compiler.Compiler().compile(digits_copy, "digits_copy.yaml")
