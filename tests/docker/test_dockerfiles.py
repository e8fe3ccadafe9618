"""The Dockerfiles as texts: what a registry shows of an image is said, and whom it runs as."""

from __future__ import annotations

import pytest
from dockerfile_parse import DockerfileParser

from installed import ROOT
from ptjob_provider import __version__

LABELS = ("title", "description", "licenses", "version", "revision", "base.name")


IMAGES = {name: ROOT / "docker" / name / "Dockerfile" for name in ("airflow", "digits", "step", "sync")}


def steps(name: str) -> list[tuple[str, str]]:
    """Return an image's instructions, each with what follows it."""
    with IMAGES[name].open("rb") as file:
        structure = DockerfileParser(fileobj=file, env_replace=False).structure
    return [(step["instruction"], step["value"]) for step in structure]


@pytest.mark.parametrize("name", IMAGES)
def test_a_registry_can_say_what_an_image_is(name: str) -> None:
    """All labels are there; the version is the package's unless a release says otherwise."""
    labels = next(value for word, value in steps(name) if word == "LABEL")
    arguments = [value for word, value in steps(name) if word == "ARG"]

    assert [label for label in LABELS if f"org.opencontainers.image.{label}=" not in labels] == []
    assert f"VERSION={__version__}" in arguments


@pytest.mark.parametrize("name", ["step", "sync"])
def test_our_pods_run_as_a_user_that_kubernetes_can_judge_and_write_nowhere_else(name: str) -> None:
    """Kubeflow Pipelines has what it runs write below /tmp first of all."""
    told = dict(steps(name))

    assert told["USER"].split(":")[0].isdecimal()
    assert told["VOLUME"] == "/tmp"  # noqa: S108 - the image's


@pytest.mark.parametrize("name", ["digits", "step", "sync"])
def test_the_images_of_compiled_pipelines_are_those_that_are_built(name: str) -> None:
    """Whoever builds them as the files say has what the pipelines name, in this version."""
    (built,) = [line for line in IMAGES[name].read_text().splitlines() if "docker build" in line]

    image = f"-t ghcr.io/ptjob-provider/{name}:{__version__} "
    assert image in built
    assert image in (ROOT / "docker" / "README.md").read_text()
    if name == "digits":
        assert image.split()[1] in (ROOT / "docs" / "how-to" / "kubeflow-pipelines.md").read_text()
