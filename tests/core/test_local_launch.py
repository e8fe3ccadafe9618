from __future__ import annotations

from pathlib import Path
from typing import Any

from ptjob_provider.core.local.config import Setup
from ptjob_provider.core.local.image import ImageFacts
from ptjob_provider.core.local.launch import Launch, Place, PodPlan, Stores, launch
from ptjob_provider.core.local.operator import defaulted
from ptjob_provider.core.local.volumes import Binding

IMAGE = ImageFacts(
    python="/py",
    entrypoint=["python", "/app/train.py"],
    working_dir="/app",
    env={"CONF": "/app/conf.yaml", "A": "image"},
    files={"/app/train.py": "/ctx/train.py"},
    directories=["/app"],
)
META = {"name": "j-master-0", "namespace": "ns", "uid": "P", "labels": {"team": "a"}, "annotations": {"note": "n"}}


def plan(container: dict[str, Any], *mounts: Binding, is_init: bool = False, devices: tuple[int, ...] = ()) -> Launch:
    job = {"metadata": {"name": "j", "uid": "J"}, "spec": {"pytorchReplicaSpecs": {"Master": {"template": {}}}}}
    setup = Setup(
        claims="/claims",
        devices="/devices",
        gpus="refuse",
        restart_backoff=1.0,
        environment={"PATH": "/bin", "HOME": "/home/me"},
        python="/default-py",
        images={"known": IMAGE},
        stores=Stores(secrets={}, config_maps={}),
    )
    pod = PodPlan(
        job=defaulted(job),
        pod={"metadata": META},
        place=Place(role="Master", index=0, port=1, rdzv_port=2),
        setup=setup,
        directory=Path("/pod"),
        devices=devices,
    )
    return launch(pod, {"name": "pytorch", "image": "other", **container}, mounts, is_init=is_init)


def test_paths_are_translated_in_command_arguments_and_environment() -> None:
    """After references are expanded, and once."""
    found = plan(
        {
            "command": ["run", "--out=$(OUT)"],
            "args": ["/data/a:/data2"],
            "env": [{"name": "OUT", "value": "/data/out"}],
            "workingDir": "/data/work",
        },
        Binding(container_path="/data", host_path="/claims/c"),
    )

    assert found.argv == ["run", "--out=/claims/c/out", "/claims/c/a:/data2"]
    assert found.env["OUT"] == "/claims/c/out"
    assert found.working_dir == "/claims/c/work"


def test_an_images_files_lie_below_the_pods_root() -> None:
    """Its variables stand behind the container's, its working directory is the default, its interpreter counts."""
    found = plan({"image": "known", "env": [{"name": "A", "value": "mine"}]})

    assert found.argv == ["/py", "/pod/root/app/train.py"]
    assert (found.env["CONF"], found.env["A"]) == ("/pod/root/app/conf.yaml", "mine")
    assert found.working_dir == "/pod/root/app"


def test_a_mount_hides_what_the_image_has_there() -> None:
    """And what lies below it."""
    found = plan({"image": "known"}, Binding(container_path="/app", host_path="/claims/c"))

    assert found.working_dir == "/claims/c"
    assert found.env["CONF"] == "/claims/c/conf.yaml"


def test_without_an_image_the_working_directory_is_the_pods() -> None:
    """Never one of this machine."""
    assert plan({"command": ["x"]}).working_dir == "/pod/root"
    assert plan({"command": ["x"], "workingDir": "/work"}).working_dir == "/pod/root/work"
    assert plan({"command": ["python"]}).argv == ["/default-py"]


def test_the_environment_is_inherited_named_and_marked() -> None:
    """What this machine gives, the pod's name, the interpreter's names first on the path, no device unasked."""
    found = plan({"command": ["x"]})

    assert found.env["HOME"] == "/home/me"
    assert found.env["HOSTNAME"] == "j-master-0"
    assert found.env["PATH"] == "/pod/bin/pytorch:/bin"
    assert found.env["CUDA_VISIBLE_DEVICES"] == ""
    assert found.env["PTJOB_LOCAL_PROCESS"] == found.mark == "J/P/pytorch/"
    assert found.env["RANK"] == "0"


def test_devices_are_named_whatever_the_container_says() -> None:
    """It sees its own."""
    found = plan({"command": ["x"], "env": [{"name": "CUDA_VISIBLE_DEVICES", "value": "0,1,2,3"}]}, devices=(2, 3))

    assert found.env["CUDA_VISIBLE_DEVICES"] == "2,3"


def test_a_path_of_the_containers_own_stays_behind_the_interpreter() -> None:
    """`PATH` can be set, and python is still found."""
    assert plan({"command": ["x"], "env": [{"name": "PATH", "value": "/opt"}]}).env["PATH"] == "/pod/bin/pytorch:/opt"


def test_nothing_is_injected_into_an_init_container() -> None:
    """The operator leaves them alone."""
    assert "RANK" not in plan({"command": ["x"]}, is_init=True).env


def test_a_field_of_the_pod_can_be_told() -> None:
    """Its name, its ids, its labels and annotations, its addresses."""
    paths = ("metadata.name", "metadata.uid", "metadata.labels['team']", "metadata.annotations['note']", "status.podIP")
    env = [{"name": f"V{n}", "valueFrom": {"fieldRef": {"fieldPath": path}}} for n, path in enumerate(paths)]

    found = plan({"command": ["x"], "env": env})

    assert [found.env[f"V{n}"] for n in range(5)] == ["j-master-0", "P", "a", "n", "127.0.0.1"]


def test_the_log_tells_why_unless_a_file_should() -> None:
    """`File` is the one policy that says otherwise."""
    assert plan({"command": ["x"]}).logs_as_message
    assert plan({"command": ["x"], "terminationMessagePolicy": "FallbackToLogsOnError"}).logs_as_message
    assert not plan({"command": ["x"], "terminationMessagePolicy": "File"}).logs_as_message


def test_a_setup_survives_the_way_to_the_supervisor() -> None:
    """Through a pipe, as JSON."""
    setup = Setup(
        claims="/c",
        devices="/d",
        gpus=2,
        restart_backoff=0.5,
        environment={"A": "b"},
        python="/py",
        images={"known": IMAGE},
        stores=Stores(secrets={"s": {"k": "v"}}, config_maps={}),
    )

    assert Setup.from_dict(setup.to_dict()) == setup
