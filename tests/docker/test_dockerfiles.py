"""Tests of the text of the Dockerfiles: labels, users, volumes and names."""

from __future__ import annotations

import pytest
from dockerfile_parse import DockerfileParser

from installed import ROOT
from ptjob_provider import __version__

LABELS = ("title", "description", "licenses", "version", "revision", "base.name")


IMAGES = {name: ROOT / "docker" / name / "Dockerfile" for name in ("airflow", "digits", "step", "sync")}


def steps(name: str) -> list[tuple[str, str]]:
    """Return the instructions of a Dockerfile with their arguments."""
    with IMAGES[name].open("rb") as file:
        structure = DockerfileParser(fileobj=file, env_replace=False).structure
    return [(step["instruction"], step["value"]) for step in structure]


@pytest.mark.parametrize("name", IMAGES)
def test_an_image_has_all_labels(name: str) -> None:
    """All labels are set; by default the version is the package's."""
    labels = next(value for word, value in steps(name) if word == "LABEL")
    arguments = [value for word, value in steps(name) if word == "ARG"]

    assert [label for label in LABELS if f"org.opencontainers.image.{label}=" not in labels] == []
    assert f"VERSION={__version__}" in arguments


@pytest.mark.parametrize("name", ["step", "sync"])
def test_our_pods_run_as_a_user_that_kubernetes_can_judge_and_write_nowhere_else(name: str) -> None:
    """The runtime of Kubeflow Pipelines writes to /tmp."""
    instructions = dict(steps(name))

    assert instructions["USER"].split(":")[0].isdecimal()
    assert instructions["VOLUME"] == "/tmp"  # noqa: S108 - the image's


@pytest.mark.parametrize("name", ["digits", "step", "sync"])
def test_the_images_of_compiled_pipelines_are_those_that_are_built(name: str) -> None:
    """The documented build commands give the image names that pipelines use, in this version."""
    (built,) = [line for line in IMAGES[name].read_text().splitlines() if "docker build" in line]

    image = f"-t ghcr.io/ptjob-provider/{name}:{__version__} "
    assert image in built
    assert image in (ROOT / "docker" / "README.md").read_text()
    if name == "digits":
        assert image.split()[1] in (ROOT / "docs" / "how-to" / "kubeflow-pipelines.md").read_text()
