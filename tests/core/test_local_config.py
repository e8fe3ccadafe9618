from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ptjob_provider.core.errors import InvalidSpec
from ptjob_provider.core.local.config import LocalConfig, base_environment, gpu_ids, untagged
from rows import each_row

ROOT = Path("/var/lib/ptjob")


@each_row(
    ("image", "name"),
    [
        ("train", "train"),
        ("train:1", "train"),
        ("host:5000/team/train", "host:5000/team/train"),
        ("host:5000/team/train:1@sha256:ab", "host:5000/team/train"),
        ("host:5000/team/train@sha256:ab", "host:5000/team/train"),
    ],
)
def test_an_image_has_a_name_without_its_version(image: str, name: str) -> None:
    """The port of a registry belongs to the name."""
    assert untagged(image) == name


def test_an_exact_name_stands_before_one_without_a_tag() -> None:
    """A single version can have another replacement."""
    both = {"train:2": Path("/two"), "train": Path("/all")}
    config = LocalConfig(root=ROOT, images=both)

    found = [config.replacement(image) for image in ("train:2", "train:3", "other")]

    assert found == [Path("/two"), Path("/all"), None]


@each_row(
    ("fields", "words"),
    [
        ({"root": Path("/with space")}, "root: '/with space'"),
        ({"root": Path("/a:b")}, "root"),
        ({"root": Path("/it's")}, "root"),
        ({"gpus": "all"}, r"^\[ptjob\] local_gpus: 'all'.*ignore.*number"),
        ({"gpus": -1, "title": "PTJOB_{}".format}, "^PTJOB_local_gpus: -1"),
        ({"gpus": True}, "local_gpus: True"),
    ],
)
def test_a_wrong_setting_is_named(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidSpec, match=words):
        LocalConfig(**{"root": ROOT, **fields})


def test_only_variables_that_every_program_needs_are_inherited() -> None:
    environ = {
        "PATH": "/bin",
        "HOME": "/root",
        "LC_ALL": "C",
        "LD_LIBRARY_PATH": "/cuda",
        "CUDA_VISIBLE_DEVICES": "2,3",
        "AIRFLOW__CORE__FERNET_KEY": "x",
        "AWS_SECRET_ACCESS_KEY": "x",
        "http_proxy": "http://user:password@host",
        "MY_PATH": "x",
    }

    assert base_environment(environ) == {
        "PATH": "/bin",
        "HOME": "/root",
        "LANG": "C.UTF-8",
        "LC_ALL": "C",
        "LD_LIBRARY_PATH": "/cuda",
        "CUDA_VISIBLE_DEVICES": "2,3",
    }


@each_row(
    ("environment", "most", "ids"),
    [
        ({}, 2, ["0", "1"]),
        ({"CUDA_VISIBLE_DEVICES": "3,GPU-8932f937,5"}, 2, ["3", "GPU-8932f937"]),
        ({"CUDA_VISIBLE_DEVICES": "3"}, 2, ["3"]),
        ({"CUDA_VISIBLE_DEVICES": "3, 4,-1,5"}, 4, ["3", "4"]),
        ({"CUDA_VISIBLE_DEVICES": "-1"}, 2, []),
        ({"CUDA_VISIBLE_DEVICES": ""}, 2, []),
    ],
)
def test_jobs_have_the_gpus_that_the_submitting_process_may_use(
    environment: dict[str, str], most: int, ids: list[str]
) -> None:
    """The other GPUs of a shared machine are somebody else's."""
    assert gpu_ids(environment, most) == ids


def test_secrets_are_not_shown() -> None:
    assert "hidden" not in repr(LocalConfig(root=ROOT, secrets={"s": {"k": "hidden"}}))
