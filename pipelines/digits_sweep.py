"""Train once per learning rate, in parallel, and keep the model with the best accuracy.

Each training is a separate job with its own name, log and result; `dsl.Collected` collects the results.

To adapt it: loop over the values of any argument, such as `args`, `image` or `workers`. Use the loop's value in paths
where trainings must not overwrite each other's files. `USER` is the user of your image, who owns the written files.

`python digits_sweep.py` writes `digits_sweep.yaml`.
"""

from kfp import compiler, dsl, kubernetes

from ptjob_provider import __version__
from ptjob_provider.kfp.component import STEP_IMAGE, pytorchjob_op
from ptjob_provider.kfp.handover import mount_claim

IMAGE = f"ghcr.io/ptjob-provider/digits:{__version__}"
CLAIM = "digits"
USER = 0
LEARNING_RATES = [0.0003, 0.003, 0.03]
RUN = dsl.PIPELINE_JOB_ID_PLACEHOLDER


@dsl.component(base_image=STEP_IMAGE, install_kfp_package=False)
def keep_best(results: list, best: str) -> str:
    """Copy the model with the best accuracy, and return its original address.

    A model whose accuracy is not a number is never the best; if there is no other one, the step fails.

    Args:
        results: results of the trainings.
        best: address of the copy.
    """
    import math  # noqa: PLC0415 - only this function's source is in the pipeline
    import shutil  # noqa: PLC0415 - as above

    from ptjob_provider.kfp.claim_paths import find_output  # noqa: PLC0415 - as above

    def accuracy(result: dict) -> float:
        return float(result["tfevents"]["scalars"]["held_out/accuracy"])

    for result in results:
        print(f"{result['model']['uri']}: accuracy {accuracy(result):.4f}")
    trained = [result for result in results if not math.isnan(accuracy(result))]
    if not trained:
        raise ValueError("the accuracy of no training is a number")
    uri = str(max(trained, key=accuracy)["model"]["uri"])
    find_output(best).parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(find_output(uri), find_output(best))
    print(f"best is {uri}, kept as {best}")
    return uri


@dsl.pipeline(name="digits-sweep")
def digits_sweep(epochs: int = 4, best: str = f"pvc://{CLAIM}/best/model.pt", image: str = IMAGE) -> None:
    """Train with each learning rate and keep the best.

    Args:
        epochs: epochs of each training.
        best: address of the best model.
        image: image of the trainings.
    """
    with dsl.ParallelFor(LEARNING_RATES, parallelism=2) as rate:
        train = pytorchjob_op(
            name="digits-sweep",
            image=image,
            args=["--epochs", epochs, f"--lr={rate}"],
            workers=2,
            cpu=1,
            memory="2Gi",
            volumes=[f"{CLAIM}:/data"],
            model=f"/data/models/{RUN}/{rate}/model.pt",
            tfevents=f"/data/logs/{RUN}/{rate}",
        )
    kept = keep_best(results=dsl.Collected(train.outputs["result"]), best=best)
    kept.set_caching_options(enable_caching=False)
    mount_claim(kept, CLAIM)
    kubernetes.set_security_context(kept, run_as_user=USER)


if __name__ == "__main__":
    compiler.Compiler().compile(digits_sweep, "digits_sweep.yaml")
