"""Tests of the Airflow image, built with its Dockerfile on a stand-in: `apache/airflow` is not available here."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cluster import boot, debian
from cluster.buildah import Buildah
from cluster.fixtures import skip_because
from cluster.layout import Layout
from cluster.training_image import BASE
from installed import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

STAND_IN = Path(__file__).parent / "airflow-base-stand-in"
STAND_IN_NAME = "localhost/airflow-base-stand-in:1"
IMAGE = "localhost/airflow-with-ptjob:1"
VERSION = "3.3.2"
SETTINGS = ("AIRFLOW__CORE__UNIT_TEST_MODE=False", "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN=sqlite:////tmp/airflow.db")

HASHES = """
import hashlib, json, pathlib, ptjob_provider
package = pathlib.Path(ptjob_provider.__file__).parent
files = [path for path in package.rglob("*") if path.is_file() and "__pycache__" not in path.parts]
print(json.dumps({str(path.relative_to(package)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}))
"""

pytestmark = pytest.mark.timeout(1200)


@pytest.fixture(scope="module")
def buildah(tell: Callable[[str], None]) -> Iterator[Buildah]:
    """Set up buildah with the store of the test images, and the training base image in it."""
    skip_because(boot.not_root() or debian.unmet())
    layout = Layout.of(os.environ)
    with Buildah.of(layout, tell) as tool:
        BASE.ensure(tool, layout.images, tell)
        yield tool


@pytest.fixture(scope="module")
def container(buildah: Buildah, tmp_path_factory: pytest.TempPathFactory, tell: Callable[[str], None]) -> Iterator[str]:
    """Build the stand-in and the image based on it; return a container of the image."""
    context = tmp_path_factory.mktemp("stand-in")
    shutil.copy(STAND_IN / "Dockerfile", context)
    shutil.copy(ROOT / "constraints" / "airflow.txt", context / "constraints.txt")
    tell("building the stand-in for apache/airflow (about 2 min, once)")
    buildah.build(context, STAND_IN_NAME, base=BASE.name, AIRFLOW_VERSION=VERSION)
    tell("building the Airflow image on it (about 1 min when the package has changed)")
    buildah.build(ROOT, IMAGE, base=STAND_IN_NAME, file=ROOT / "docker" / "airflow" / "Dockerfile")
    name = buildah("from", "--pull-never", IMAGE).strip()
    yield name
    buildah("rm", name)


def inside(buildah: Buildah, container: str, *words: str, user: str = "50000:0") -> str:
    """Run a program in the image as a user and return its output."""
    settings = [f"--env={setting}" for setting in SETTINGS]
    return buildah("run", "--isolation=chroot", f"--user={user}", *settings, container, "--", *words)


@pytest.mark.parametrize("user", ["50000:0", "123456:0"])
def test_any_user_of_group_0_finds_the_provider(buildah: Buildah, container: str, user: str) -> None:
    """Airflow's user and any other user of group 0 find the provider with `airflow providers list`."""
    providers = json.loads(inside(buildah, container, "airflow", "providers", "list", "-o", "json", user=user))

    assert "ptjob-provider" in {provider["package_name"] for provider in providers}


def test_the_package_is_the_trees(buildah: Buildah, container: str) -> None:
    """Every file is compared, so a stale build step is noticed."""
    installed = json.loads(inside(buildah, container, "python", "-c", HASHES))

    package = ROOT / "ptjob_provider"
    files = [path for path in package.rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    here = {str(path.relative_to(package)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}
    assert installed == here


def test_airflow_is_still_the_bases(buildah: Buildah, container: str) -> None:
    assert inside(buildah, container, "airflow", "version").splitlines()[-1] == VERSION


def test_the_image_says_who_it_is_and_who_runs_it(buildah: Buildah) -> None:
    """Registries and Kubernetes read labels and user from the image's configuration."""
    config = json.loads(buildah("inspect", "--type=image", IMAGE))["OCIv1"]["config"]

    assert config["User"] == "50000:0"
    assert config["Labels"]["org.opencontainers.image.title"] == "Airflow with ptjob-provider"
    assert config["Labels"]["org.opencontainers.image.base.name"] == STAND_IN_NAME
