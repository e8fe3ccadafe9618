"""Tests of the compiled component. kfp reads annotations as objects, not as strings."""

from pathlib import Path
from typing import Any

import pytest
from kfp import dsl

from core.odd_values import nested
from kfp_adapter.compiled import compile_pipeline, inputs, request
from kfp_adapter.driver_stand_in import Driven
from ptjob_provider.core.errors import InvalidSpec
from ptjob_provider.kfp.component import STEP_IMAGE, pytorchjob_op
from rows import each_row
from same_fields import FIELDS, arguments, expected, rendered

TASK = "pytorchjob"
TRAINJOB = {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "metadata": {"name": "digits"}}


def compiled(tmp_path: Path, **given: Any) -> dict[str, Any]:
    """Compile a pipeline with one step."""

    def pipeline() -> None:
        pytorchjob_op(**given)

    return compile_pipeline(pipeline, tmp_path)


@each_row("field", FIELDS)
def test_the_component_makes_the_same_job_as_the_operator(field: str, tmp_path: Path) -> None:
    pipeline = compiled(tmp_path, **arguments(field))

    assert rendered(request(pipeline).job) == expected(field)


def test_a_number_that_a_pipeline_may_have_rounded_is_refused_by_the_arguments_name(tmp_path: Path) -> None:
    def pipeline(seed: int = 2**53 + 1) -> None:
        pytorchjob_op(name="a", image="b", args=["--seed", seed])

    compiled_pipeline = compile_pipeline(pipeline, tmp_path)
    default = compiled_pipeline["root"]["inputDefinitions"]["parameters"]["seed"]["defaultValue"]

    with pytest.raises(InvalidSpec, match=r"args\[1\]: 9007199254740992"):
        request(compiled_pipeline, **{"value-1": default})


def test_a_value_that_cannot_be_compiled_is_refused_by_the_arguments_name(tmp_path: Path) -> None:
    with pytest.raises(InvalidSpec, match=r"args\[0\]: NUL or half"):
        compiled(tmp_path, name="a", image="b", args=["a\0"])
    with pytest.raises(InvalidSpec, match="more than 60 levels deep"):
        compiled(tmp_path, name="a", image="b", affinity={"nodeAffinity": nested(100)})


def test_a_job_may_be_named_for_its_run(tmp_path: Path) -> None:
    """The name is validated at compile time with an example run ID, which may start with a digit; a name must not."""
    run = dsl.PIPELINE_JOB_ID_PLACEHOLDER
    pipeline = compiled(tmp_path, name=f"digits-{run}", image="digits")

    assert request(pipeline).job.name == "digits-run-1"
    with pytest.raises(InvalidSpec, match="name: '00000000-"):
        compiled(tmp_path, name=run, image="digits")


@each_row(
    ("given", "said"),
    [
        ({"args": ["--run", f"of {dsl.PIPELINE_JOB_NAME_PLACEHOLDER}"]}, r"args\[1\]: 'of {{\$.pipeline_job_name}}'"),
        ({"labels": {"run": dsl.PIPELINE_JOB_RESOURCE_NAME_PLACEHOLDER}}, r"labels.run: .*PIPELINE_JOB_ID_PLACEHOLDER"),
        ({"model": f"pvc://m/{dsl.PIPELINE_JOB_CREATE_TIME_UTC_PLACEHOLDER}"}, "model: "),
    ],
)
def test_a_placeholder_that_nobody_replaces_is_refused(tmp_path: Path, given: dict[str, Any], said: str) -> None:
    """On a cluster the driver replaces whole inputs only, and the step replaces three placeholders."""
    with pytest.raises(InvalidSpec, match=said):
        compiled(tmp_path, image="digits", **given)

    compiled(tmp_path, image="digits", working_dir=dsl.PIPELINE_JOB_NAME_PLACEHOLDER)


def test_a_pipelines_values_are_taken_as_a_whole_and_inside(tmp_path: Path) -> None:
    """Each value inside another one becomes an input of its own, and is replaced by a marker with its type."""

    def pipeline(epochs: int = 3, lr: float = 0.1, name: str = "digits", more: list = ["a"]) -> None:  # noqa: B006
        pytorchjob_op(name=name, image="digits", workers=epochs, cpu=lr, args=["--epochs", epochs, f"--lr={lr}"])
        pytorchjob_op(name=f"digits-{epochs}", image="digits", args=more, env={"LR": lr})

    spec = compile_pipeline(pipeline, tmp_path)

    first = inputs(spec)
    assert (first["workers"], first["cpu"]) == ("<ptjob-value value-1>", "<ptjob-float value-2>")
    assert first["args"] == ["--epochs", "<ptjob-value value-1>", "--lr=<ptjob-float value-2>"]
    second = spec["root"]["dag"]["tasks"]["pytorchjob-2"]["inputs"]["parameters"]
    assert second["args"] == {"componentInputParameter": "more"}
    assert second["name"]["runtimeValue"]["constant"] == "digits-<ptjob-text value-1>"
    assert second["value-1"] == {"componentInputParameter": "epochs"}


@each_row("as_text", [True, False])
def test_an_artifact_inside_a_value_is_refused(tmp_path: Path, *, as_text: bool) -> None:
    """A step passes strings such as `model_uri` to the next program."""

    def pipeline() -> None:
        model = pytorchjob_op(image="digits").outputs["trained_model"]
        pytorchjob_op(image="digits", args=[f"--from={model}" if as_text else model])

    with pytest.raises(InvalidSpec, match=r"args: 'pytorchjob-trained_model' is not allowed.*model_uri"):
        compile_pipeline(pipeline, tmp_path)


def test_a_step_is_not_cached_and_its_image_can_be_chosen(tmp_path: Path) -> None:
    """A mirror's image can be an argument or a pipeline parameter."""

    def pipeline(image: str = "mirror/step:2") -> None:
        pytorchjob_op(image="digits")
        pytorchjob_op(image="digits", step_image="mirror/step:1")
        pytorchjob_op(image="digits", step_image=image)

    spec = compile_pipeline(pipeline, tmp_path)

    images = [each["container"]["image"] for each in spec["deploymentSpec"]["executors"].values()]
    caching = [task["cachingOptions"] for task in spec["root"]["dag"]["tasks"].values()]
    assert images == [STEP_IMAGE, "mirror/step:1", "{{$.inputs.parameters['pipelinechannel--image']}}"]
    assert caching == [{}, {}, {}]


def test_no_run_finds_a_training_in_the_cache(tmp_path: Path) -> None:
    """Even with caching enabled: the cache key has all inputs, of which the run's ID is one."""

    def pipeline() -> None:
        pytorchjob_op(image="digits").set_caching_options(enable_caching=True)

    spec = compile_pipeline(pipeline, tmp_path)
    first, again, second = (Driven(pipeline=spec, run=run).executor_input() for run in ("run-1", "run-1", "run-2"))

    assert first["inputs"] == again["inputs"] != second["inputs"]


def test_tasks_with_one_display_name_are_two(tmp_path: Path) -> None:
    """The job's identity uses the task's own name, which is unique in its graph."""

    def pipeline() -> None:
        for _ in range(2):
            pytorchjob_op(image="digits").set_display_name("Train")

    spec = compile_pipeline(pipeline, tmp_path)

    assert [inputs(spec, name)["pipeline_task_name"] for name in (TASK, f"{TASK}-2")] == [TASK, f"{TASK}-2"]


def test_a_pipelines_value_inside_the_name_of_the_steps_image_is_refused(tmp_path: Path) -> None:
    """Kubeflow Pipelines replaces a placeholder only if it is the whole image; the image would be `step:{{…}}`."""

    def pipeline(tag: str = "2") -> None:
        pytorchjob_op(image="digits", step_image=f"mirror/step:{tag}")

    with pytest.raises(InvalidSpec, match=r"step_image: .mirror/step:\{\{channel:.*the whole of it"):
        compile_pipeline(pipeline, tmp_path)


@each_row("is_open", [False, True])
@each_row(
    ("given", "said"),
    [
        ({"command": "python train.py"}, "command: 'python train.py'"),
        ({"code": "."}, "code: '.' is not allowed; allowed: an address, or an artifact that is a folder"),
        ({"model_artifact": "move"}, "model_artifact: 'move'.*reference, copy"),
        ({"model_artifact": "copy"}, "model_artifact: 'copy'.*known when the pipeline is compiled"),
        ({"model": "s3://x/y"}, "model: 's3://x/y'"),
        ({"crash_loop_limit": -1}, "crash_loop_limit: '-1'"),
        ({"progress": "step"}, "progress: 'step' has no named group"),
        ({"on_finish_action": "foo"}, "on_finish_action: 'foo'"),
        ({"kind": "TrainJob", "gang": True}, "gang: True.*a TrainJob has no place for it"),
        ({"manifest": TRAINJOB, "backoff_limit": 2}, "backoff_limit: 2.*a TrainJob has no place for it"),
    ],
)
def test_each_argument_that_is_known_is_checked_when_the_pipeline_is_compiled(
    given: dict[str, Any], said: str, tmp_path: Path, *, is_open: bool
) -> None:
    """Also where another argument is only known in a run; the step checks what is left."""

    def pipeline(epochs: int = 3) -> None:
        pytorchjob_op(**{"image": "digits", "args": ["--epochs", epochs if is_open else 3], **given})

    with pytest.raises(InvalidSpec, match=said):
        compile_pipeline(pipeline, tmp_path)


def test_a_missing_image_is_refused_when_the_pipeline_is_compiled(tmp_path: Path) -> None:
    with pytest.raises(InvalidSpec, match="image: None is not allowed"):
        compiled(tmp_path)


@each_row(
    "given",
    [
        lambda text: {"kind": "TrainJob", "gang": text},
        lambda text: {"kind": text, "gang": True},
        lambda text: {"manifest": {**TRAINJOB, "metadata": {"name": text}}, "gang": True},
        lambda text: {"kind": "TrainJob", "working_dir": "/code/src", "code": text},
        lambda text: {"model": f"{text}://x", "timeout": text, "on_finish_action": text},
    ],
)
def test_an_argument_with_a_pipelines_value_is_left_to_the_step(given: Any, tmp_path: Path) -> None:
    """It may turn out to be valid."""

    def pipeline(text: str) -> None:
        pytorchjob_op(image="digits", command=["python", "train.py"], **given(text))

    assert compile_pipeline(pipeline, tmp_path)


def test_a_folder_of_code_may_have_a_working_directory_in_a_trainjob(tmp_path: Path) -> None:
    """Without code a TrainJob has no place for it."""

    def pipeline() -> None:
        code = dsl.importer(artifact_uri="s3://pipelines/project", artifact_class=dsl.Artifact)
        command = ["python", "train.py"]
        pytorchjob_op(image="digits", kind="TrainJob", command=command, working_dir="/code", code=code.output)

    assert compile_pipeline(pipeline, tmp_path)


def test_credentials_for_code_are_not_compiled(tmp_path: Path) -> None:
    """A Secret owned by the job would not help: the compiled pipeline and its runs would show the credentials."""
    given = {"worker": {"env": {"GITSYNC_TOKEN": "tops3cret"}}}

    with pytest.raises(InvalidSpec, match=r"worker\.env\.GITSYNC_TOKEN: ") as error:
        compiled(tmp_path, image="digits", code="https://git.example/mnist.git", **given)

    assert "tops3cret" not in str(error.value)


def test_code_is_an_address_or_a_map_and_may_be_a_pipelines_value(tmp_path: Path) -> None:
    """The component's input is always a map; references to Secrets are allowed."""
    env = {"GIT_SYNC_PASSWORD": {"secret": "hub", "key": "token"}, "GIT_SYNC_BRANCH": "dev"}

    def pipeline(url: str = "https://git.example/mnist.git", branch: str = "dev") -> None:
        pytorchjob_op(image="digits", code=url)
        pytorchjob_op(image="digits", code={"git": url, "branch": branch})

    assert inputs(compiled(tmp_path, image="digits", code="h::m/p", env=env))["code"] == {"rsync": "h::m/p"}
    spec = compile_pipeline(pipeline, tmp_path)
    assert inputs(spec)["code"] == {"git": "<ptjob-value value-1>"}
    assert inputs(spec, "pytorchjob-2")["code"] == {"git": "<ptjob-value value-1>", "branch": "<ptjob-value value-2>"}


def test_a_manifest_is_read_from_its_file_when_the_pipeline_is_compiled(tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text("apiVersion: kubeflow.org/v1\nkind: PyTorchJob\nspec: {pytorchReplicaSpecs: {}, runPolicy: null}\n")

    def pipeline(workers: int = 2) -> None:
        pytorchjob_op(name="own", manifest=str(file), workers=workers)

    assert inputs(compile_pipeline(pipeline, tmp_path))["manifest"]["spec"] == {"pytorchReplicaSpecs": {}}


@each_row(
    "given",
    [
        {"model": "pvc://models/run/m.pt"},
        {"model": "/data/run/m.pt", "volumes": ["models/sub:/data"]},
        {"model": f"/data/{dsl.PIPELINE_JOB_ID_PLACEHOLDER}/m.pt", "volumes": ["models:/data"]},
    ],
)
def test_a_step_that_copies_the_model_mounts_its_claim(given: dict[str, Any], tmp_path: Path) -> None:
    spec = compiled(tmp_path, image="digits", model_artifact="copy", **given)

    (mount,) = spec["platforms"]["kubernetes"]["deploymentSpec"]["executors"][f"exec-{TASK}"]["pvcMount"]
    assert (mount["constant"], mount["mountPath"]) == ("models", "/mnt/own-claim")
