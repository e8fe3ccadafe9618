"""The Dockerfiles as texts: what they copy is there and is sent, and what a registry shows of an image is said."""

from __future__ import annotations

import fnmatch
import json
from typing import TYPE_CHECKING, NamedTuple

import pytest
from dockerfile_parse import DockerfileParser

from installed import ROOT
from ptjob_provider import __version__

if TYPE_CHECKING:
    from pathlib import Path

LABELS = ("title", "description", "licenses", "version", "revision", "base.name")


class Image(NamedTuple):
    """A Dockerfile and the folder it is built in."""

    file: Path
    context: Path

    @property
    def steps(self) -> list[tuple[str, str]]:
        """Its instructions, each with what follows it."""
        with self.file.open("rb") as file:
            structure = DockerfileParser(fileobj=file, env_replace=False).structure
        return [(step["instruction"], step["value"]) for step in structure if step["instruction"] != "COMMENT"]

    @property
    def sources(self) -> list[str]:
        """What it copies from its context."""
        copied = [value.split() for name, value in self.steps if name in {"COPY", "ADD"}]
        own = [words for words in copied if not any(word.startswith("--from") for word in words)]
        return [word for words in own for word in words[:-1] if not word.startswith("--")]

    @property
    def patterns(self) -> list[str]:
        """The lines of the context's .dockerignore."""
        lines = (self.context / ".dockerignore").read_text().splitlines()
        return [line for line in lines if line and not line.startswith("#")]

    def sends(self, path: str) -> bool:
        """Tell whether a file of the context is sent to the builder: the last pattern that fits decides."""
        sent = True
        for pattern in self.patterns:
            rule = pattern.removeprefix("!").removeprefix("**/")
            whole = path if pattern == pattern.replace("**/", "") else path.rpartition("/")[2]
            if fnmatch.fnmatch(whole, rule) or path.startswith(f"{rule}/") or f"/{rule}/" in path:
                sent = pattern.startswith("!")
        return sent


IMAGES = {
    "airflow": Image(ROOT / "docker" / "airflow" / "Dockerfile", ROOT),
    "digits": Image(ROOT / "docker" / "digits" / "Dockerfile", ROOT / "docker" / "digits"),
    "step": Image(ROOT / "docker" / "step" / "Dockerfile", ROOT),
    "sync": Image(ROOT / "docker" / "sync" / "Dockerfile", ROOT),
}


@pytest.fixture(params=IMAGES)
def image(request: pytest.FixtureRequest) -> Image:
    """Return each image in turn."""
    return IMAGES[request.param]


def test_what_is_copied_is_there_and_is_sent(image: Image) -> None:
    """A build neither misses a file nor finds it excluded."""
    copied = [path for source in image.sources for path in _files(image.context, source)]
    needed = [path for path in copied if path.endswith((".py", ".toml", ".md", "LICENSE"))]

    assert image.sources
    assert needed
    assert [path for path in needed if not image.sends(path)] == []


@pytest.mark.parametrize(
    "path", [".git/config", ".venv/pyvenv.cfg", "tests/conftest.py", "ptjob_provider/__pycache__/x.pyc"]
)
def test_what_no_image_needs_is_not_sent(path: str) -> None:
    """Neither gigabytes of environments nor anybody's repository settings reach a builder."""
    assert not IMAGES["airflow"].sends(path)


def test_the_base_is_an_argument_with_an_official_default(image: Image) -> None:
    """Whoever has a mirror, a CPU-only base or another version says so without editing the file."""
    first, second, *_ = image.steps

    assert first[0] == "ARG"
    official = ("apache/airflow:3.", "pytorch/pytorch:2.", "python:3.")
    assert first[1].startswith(tuple(f"BASE_IMAGE={name}" for name in official))
    assert second[1].startswith("${BASE_IMAGE}")


def test_a_registry_can_say_what_an_image_is(image: Image) -> None:
    """All labels are there; the version is the package's unless a release says otherwise."""
    labels = next(value for name, value in image.steps if name == "LABEL")
    arguments = [value for name, value in image.steps if name == "ARG"]

    assert [name for name in LABELS if f"org.opencontainers.image.{name}=" not in labels] == []
    assert f"VERSION={__version__}" in arguments


def test_arguments_alone_start_a_training() -> None:
    """A manifest without a command works: the image has an entrypoint in the form that takes arguments."""
    entrypoint = dict(IMAGES["digits"].steps)["ENTRYPOINT"]

    assert json.loads(entrypoint)[0] == "python"


def test_airflow_runs_as_a_user_that_kubernetes_can_judge() -> None:
    """`runAsNonRoot` needs a number, and it is the one of Airflow's own image."""
    assert dict(IMAGES["airflow"].steps)["USER"] == "50000:0"


@pytest.mark.parametrize("name", ["step", "sync"])
def test_our_pods_run_as_a_user_that_kubernetes_can_judge_and_write_nowhere_else(name: str) -> None:
    """Kubeflow Pipelines has what it runs write below /tmp first of all."""
    steps = dict(IMAGES[name].steps)

    assert steps["USER"].split(":")[0].isdecimal()
    assert steps["VOLUME"] == "/tmp"  # noqa: S108 - the image's


@pytest.mark.parametrize("name", ["digits", "step", "sync"])
def test_the_images_of_compiled_pipelines_are_those_that_are_built(name: str) -> None:
    """Whoever builds them as the files say has what the pipelines name, in this version."""
    (built,) = [line for line in IMAGES[name].file.read_text().splitlines() if "docker build" in line]

    image = f"-t ghcr.io/ptjob-provider/{name}:{__version__} "
    assert image in built
    assert image in (ROOT / "docker" / "README.md").read_text()
    if name == "digits":
        assert image.split()[1] in (ROOT / "docs" / "how-to" / "kubeflow-pipelines.md").read_text()


def _files(context: Path, source: str) -> list[str]:
    path = context / source
    found = [path] if path.is_file() else [file for file in path.rglob("*") if "__pycache__" not in file.parts]
    return [str(file.relative_to(context)) for file in found if file.is_file()]
