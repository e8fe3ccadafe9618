"""Use a loop's item in every form that docs/how-to/kubeflow-pipelines.md lists: compiled, and run with kfp.local.

kfp.local of 2.16 does not run loops; with it the forms are only compiled.
"""

import re
from collections.abc import Callable
from typing import Any, List  # noqa: UP035 - kfp reads it

import kfp
import pytest
from kfp import dsl
from kubernetes import client

from kfp_adapter.compiled import compile_pipeline
from kfp_adapter.conftest import LocalStep
from ptjob_provider.kfp.component import STEP_IMAGE, pytorchjob_op

pytestmark = pytest.mark.filterwarnings("ignore:You may be attemping:RuntimeWarning")

RUNS_LOOPS = not kfp.__version__.startswith("2.16.")
Job = dict[str, Any]


def pod(job: Job) -> dict[str, Any]:
    """Return the pod template of rank 0."""
    template: dict[str, Any] = job["spec"]["pytorchReplicaSpecs"]["Master"]["template"]
    return template


def container(job: Job) -> dict[str, Any]:
    training: dict[str, Any] = pod(job)["spec"]["containers"][0]
    return training


def args(job: Job) -> Any:
    return container(job)["args"]


def variable(job: Job) -> Any:
    """Return the value of the variable A."""
    return {each["name"]: each.get("value") for each in container(job)["env"]}["A"]


def pods(job: Job) -> int:
    """Return the number of pods."""
    return sum(each["replicas"] for each in job["spec"]["pytorchReplicaSpecs"].values())


def manifest(item: Any) -> dict[str, Any]:
    """Return the fields of a job manifest with the item in it."""
    spec = {"containers": [{"name": "pytorch", "image": "none", "command": ["echo"], "args": [item]}]}
    replicas = {"Master": {"replicas": 1, "template": {"spec": spec}}}
    meta = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": {"name": "own"}}
    whole = {**meta, "spec": {"pytorchReplicaSpecs": replicas}}
    return {"manifest": whole, "name": None, "image": None, "command": None}


def parts(item: Any) -> dict[str, Any]:
    """Return fields that use parts of a map."""
    return {"image": item.image, "cpu": item.lr, "args": [item.epochs, f"--lr={item.lr}"]}


def template(item: Any) -> dict[str, Any]:
    return {"pod_template": {"metadata": {"labels": {"team": item}}, "spec": {}}}


TWO_PARTS = [{"image": "none", "epochs": 2, "lr": 0.5}, {"image": "other", "epochs": 3, "lr": 1.5}]
XY = ["x", "y"]
FORMS: dict[str, tuple[list[Any], Callable[[Any], dict[str, Any]], Callable[[Job], Any], list[Any]]] = {
    "a text as a whole": (
        *(["none", "other"], lambda item: {"image": item}),
        *(lambda job: container(job)["image"], ["none", "other"]),
    ),
    "a whole number as a whole": ([1, 2], lambda item: {"workers": item}, pods, [1, 2]),
    "a number as a whole": (
        *([0.5, 1.5], lambda item: {"cpu": item}),
        *(lambda job: container(job)["resources"]["limits"]["cpu"], ["0.5", "1.5"]),
    ),
    "a list as a whole": ([["a", "b"], ["c"]], lambda item: {"args": item}, args, [["a", "b"], ["c"]]),
    "a map as a whole": ([{"A": "x"}, {"A": "y"}], lambda item: {"env": item}, variable, XY),
    "a part of a map": (TWO_PARTS, parts, args, [["2", "--lr=0.5"], ["3", "--lr=1.5"]]),
    "in a text": ([2, 3], lambda item: {"args": [f"--epochs={item}"]}, args, [["--epochs=2"], ["--epochs=3"]]),
    "in a list": ([2, 3], lambda item: {"args": ["-e", item]}, args, [["-e", "2"], ["-e", "3"]]),
    "in a map": (XY, lambda item: {"env": {"A": item}}, variable, XY),
    "in a map of a list": (
        *(XY, lambda item: {"tolerations": [{"key": item, "operator": "Exists"}]}),
        *(lambda job: pod(job)["spec"]["tolerations"][0]["key"], XY),
    ),
    "in an object of the Kubernetes client": (
        *(XY, lambda item: {"env": [client.V1EnvVar(name="A", value=item)]}, variable, XY),
    ),
    "in a pod template": (XY, template, lambda job: pod(job)["metadata"]["labels"]["team"], XY),
    "in a manifest": (XY, manifest, args, [["x"], ["y"]]),
}
"""The thirteen forms: items of a loop, fields of a training with an item, a getter for the job, the expected values."""


def train(**fields: Any) -> dsl.PipelineTask:
    """Add a training that ends at once."""
    return pytorchjob_op(**{"name": "digits", "image": "none", "command": ["echo"], **fields})


def jobs(machine: LocalStep, define: Callable[[], Any]) -> list[Job]:
    """Compile a pipeline, run it and return its jobs."""
    compile_pipeline(define, machine.folder)
    if not RUNS_LOOPS:
        pytest.skip("needs kfp 2.17: kfp.local of 2.16 runs no loops, so they are compiled only")
    machine.run_pipeline(define)
    return machine.jobs()


@pytest.mark.parametrize("name", FORMS)
def test_an_item_of_a_loop_may_be_an_argument(local_pipelines: LocalStep, name: str) -> None:
    items, fields, shown, expected = FORMS[name]

    def pipeline() -> None:
        with dsl.ParallelFor(items) as item:
            train(**fields(item))

    assert sorted(map(shown, jobs(local_pipelines, pipeline))) == expected


@dsl.component(base_image=STEP_IMAGE, install_kfp_package=False)
def rates() -> List[float]:  # noqa: UP006 - as above
    """Return values that are known only at run time."""
    return [0.25, 0.5]


def of_a_parameter(epochs: List[int] = [2, 3]) -> None:  # noqa: B006, UP006 - as above
    with dsl.ParallelFor(epochs) as each:
        train(args=["--epochs", each])


def of_a_step() -> None:
    with dsl.ParallelFor(rates().output) as rate:
        train(args=["--lr", rate])


def of_whole_floats() -> None:
    with dsl.ParallelFor([{"epochs": 2, "lr": 1.0, "decay": 0.5}, {"epochs": 3, "lr": 2.0, "decay": 1}]) as item:
        train(args=[item.epochs, item.lr, f"{item.lr}", item.decay])


def in_a_loop() -> None:
    with dsl.ParallelFor([1, 2]) as workers, dsl.ParallelFor(["x", "y"]) as word:
        train(workers=workers, args=[f"{word}-{workers}", word])


def collected() -> None:
    with dsl.ParallelFor(["x", "y"]) as word:
        first = train(name=f"digits-{word}", args=[])
    train(args=dsl.Collected(first.outputs["job_name"]))


@dsl.component(base_image=STEP_IMAGE, install_kfp_package=False)
def says() -> str:
    """Return a string that JSON escapes."""
    return 'say "hi"\nand go \\'


def said(more: dict = {"a": [1, "b"]}) -> None:  # noqa: B006
    """Use another step's string, and a map, in lists and strings."""
    note = says().output
    train(args=["--note", note, f"{note}!", f"{more}"])


@pytest.mark.parametrize(
    ("define", "expected"),
    [
        (of_a_parameter, [["--epochs", "2"], ["--epochs", "3"]]),
        (of_a_step, [["--lr", "0.25"], ["--lr", "0.5"]]),
        (of_whole_floats, [["2", "1.0", "1.0", "0.5"], ["3", "2.0", "2.0", "1"]]),
        (in_a_loop, [["x-1", "x"], ["x-2", "x"], ["y-1", "y"], ["y-2", "y"]]),
        (collected, [[], [], ["digits-x", "digits-y"]]),
        (said, [["--note", 'say "hi"\nand go \\', 'say "hi"\nand go \\!', '{"a": [1, "b"]}']]),
    ],
)
def test_every_kind_of_loop_may_give_an_argument(
    local_pipelines: LocalStep, define: Callable[..., Any], expected: list[Any]
) -> None:
    made = [container(job).get("args") or () for job in jobs(local_pipelines, define)]

    assert sorted([re.sub("-[0-9a-f]{12}$", "", word) for word in words] for words in made) == expected
