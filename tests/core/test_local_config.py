from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ptjob_provider.core.errors import InvalidSpec
from ptjob_provider.core.local.config import LocalConfig, base_environment, gpu_ids
from rows import each_row

ROOT = Path("/var/lib/ptjob")


@each_row(
    ("image", "place"),
    [
        ("train", "/all"),
        ("train:2", "/two"),
        ("train:3", "/all"),
        ("host:5000/train", "/other"),
        ("host:5000/train:1@sha256:ab", "/other"),
        ("host:5000/train@sha256:ab", "/other"),
        ("host", None),
    ],
)
def test_an_image_is_replaced_by_its_exact_name_or_by_its_name_without_a_version(image: str, place: str | None) -> None:
    """A single version can have another replacement; the port of a registry belongs to the name."""
    images = {"train:2": Path("/two"), "train": Path("/all"), "host:5000/train": Path("/other")}

    assert LocalConfig(root=ROOT, images=images).replacement(image) == (place and Path(place))


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
    kept = {"PATH": "/bin", "HOME": "/root", "LC_ALL": "C", "LD_LIBRARY_PATH": "/cuda", "CUDA_VISIBLE_DEVICES": "2,3"}
    others = dict.fromkeys(("AIRFLOW__CORE__FERNET_KEY", "AWS_SECRET_ACCESS_KEY", "http_proxy", "MY_PATH"), "x")

    assert base_environment({**kept, **others}) == {"LANG": "C.UTF-8", **kept}


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
