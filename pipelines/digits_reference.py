"""Pass the model on by reference: nothing is copied, and the next step mounts the claim.

`mount_model(task, train)` mounts the claim in any task, and `model_path(train)` is the model's path there. On one
machine, nothing is mounted; in an image with ptjob-provider, `find_output` returns the model's path in both cases. The
component runs as the user that owns the model: `USER` is the user of the training's image.

`python digits_reference.py` writes `digits_reference.yaml`.
"""

from kfp import compiler, dsl, kubernetes

from ptjob_provider import __version__
from ptjob_provider.kfp.component import STEP_IMAGE, pytorchjob_op
from ptjob_provider.kfp.handover import mount_model

IMAGE = f"ghcr.io/ptjob-provider/digits:{__version__}"
USER = 0
RUN = dsl.PIPELINE_JOB_ID_PLACEHOLDER


@dsl.component(base_image=STEP_IMAGE, install_kfp_package=False)
def check(model: dsl.Input[dsl.Model]) -> str:
    """Return the SHA-256 of the model's file, after comparing it with the artifact's."""
    import hashlib  # noqa: PLC0415 - only this function's source is in the pipeline

    from ptjob_provider.kfp.claim_paths import find_output  # noqa: PLC0415 - as above

    digest = hashlib.sha256(find_output(model).read_bytes()).hexdigest()
    print(f"{model.metadata['uri']}: sha256 {digest}")
    if digest != model.metadata["sha256"]:
        raise ValueError(f"this is not the model that was trained: sha256 {model.metadata['sha256']}")
    return digest


@dsl.pipeline(name="digits-reference")
def digits_reference(epochs: int = 2, image: str = IMAGE) -> None:
    """Train, and read the model from the training's claim.

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
    )
    checked = check(model=train.outputs["trained_model"])
    checked.set_caching_options(enable_caching=False)
    mount_model(checked, train)
    kubernetes.set_security_context(checked, run_as_user=USER)


if __name__ == "__main__":
    compiler.Compiler().compile(digits_reference, "digits_reference.yaml")
