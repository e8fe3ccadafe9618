"""Tests of a release's files: checksums, provenance, SBOMs, and a reproducible build."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
import subprocess
import sys
import tarfile
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from cluster.fixtures import skip_because
from demo.infrastructure import InfrastructureFailed
from installed import ROOT, unbuilt_page
from ptjob_provider import __version__

if TYPE_CHECKING:
    from pathlib import Path

RELEASE_PYTHON = ROOT / ".venv-release" / "bin" / "python"
WHEEL = f"ptjob_provider-{__version__}-py3-none-any.whl"
SDIST = f"ptjob_provider-{__version__}"


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build a release from the working tree, next to the files that `make release` adds: pages and a pipeline."""
    skip_because(unbuilt_page())
    environment = {**os.environ, "PYTHON": sys.executable}
    if subprocess.run([str(ROOT / "scripts" / "environment.sh"), "release"], env=environment, check=False).returncode:
        raise InfrastructureFailed("the environment that builds a release was not made")
    folder = tmp_path_factory.mktemp("release")
    (folder / "docs.tar.gz").write_bytes(b"pages")
    (folder / "pipelines").mkdir()
    (folder / "pipelines" / "component.yaml").write_text("name: component\n")
    command = [str(RELEASE_PYTHON), str(ROOT / "scripts" / "release.py"), "--uncommitted", str(folder)]
    subprocess.run(command, env=environment, check=True)
    return folder


@pytest.fixture(scope="module")
def unpacked(release: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the unpacked tree of the sdist."""
    folder = tmp_path_factory.mktemp("sdist")
    with tarfile.open(release / f"{SDIST}.tar.gz") as archive:
        archive.extraction_filter = lambda member, _: member  # Debian's Python 3.11.2 has no argument `filter`
        archive.extractall(folder)  # noqa: S202 - our own sdist
    return folder / SDIST


def names(release: Path) -> set[str]:
    return {file.relative_to(release).as_posix() for file in release.rglob("*") if file.is_file()}


def digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def read(release: Path, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((release / name).read_text())
    return found


def test_every_file_is_checked_by_sha256sum(release: Path) -> None:
    """Every file except the list itself, in the format of `sha256sum`."""
    listed = {line.split("  ", 1)[1] for line in (release / "SHA256SUMS").read_text().splitlines()}

    subprocess.run(["sha256sum", "--check", "--strict", "--quiet", "SHA256SUMS"], cwd=release, check=True)

    assert listed == names(release) - {"SHA256SUMS"}
    assert listed >= {WHEEL, f"{SDIST}.tar.gz", "build-images.sh", "docs.tar.gz", "pipelines/component.yaml"}


def test_the_provenance_is_of_these_files_and_this_commit(release: Path) -> None:
    """The digests are in an in-toto statement; the file's name says that it is not signed."""
    statement = read(release, "provenance.unsigned.json")
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    built = names(release) - {"SHA256SUMS", "provenance.unsigned.json"}

    assert statement["_type"] == "https://in-toto.io/Statement/v1"
    assert statement["predicateType"] == "https://slsa.dev/provenance/v1"
    assert {each["name"]: each["digest"]["sha256"] for each in statement["subject"]} == {
        name: digest(release / name) for name in built
    }
    source, *constraints = statement["predicate"]["buildDefinition"]["resolvedDependencies"]
    assert source["digest"] == {"gitCommit": head.strip()}
    assert {each["name"]: each["digest"]["sha256"] for each in constraints} == {
        f"constraints/{name}.txt": digest(ROOT / "constraints" / f"{name}.txt")
        for name in ("release", "airflow", "kfp")
    }


def test_the_sdist_builds_the_same_wheel(release: Path, unpacked: Path, tmp_path: Path) -> None:
    """It is identical bit by bit, on another day and in another directory, with the epoch that the provenance names."""
    definition = read(release, "provenance.unsigned.json")["predicate"]["buildDefinition"]
    env = {**os.environ, "SOURCE_DATE_EPOCH": definition["internalParameters"]["SOURCE_DATE_EPOCH"]}
    for file in unpacked.rglob("*.py"):
        os.utime(file, (0, 0))

    command = [str(RELEASE_PYTHON), "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(command, cwd=unpacked, env=env, check=True)

    assert digest(tmp_path / WHEEL) == digest(release / WHEEL)


@pytest.mark.parametrize(("extra", "framework"), [("airflow", "apache-airflow"), ("kfp", "kfp")])
def test_an_sbom_has_what_is_installed_in_the_tested_versions(release: Path, extra: str, framework: str) -> None:
    """It lists the package's requirements with their dependencies, and nothing that only tests or builds need."""
    sbom = read(release, f"sbom-{extra}.cdx.json")
    tested = dict(re.findall(r"^([\w.-]+)==(\S+)$", (ROOT / "constraints" / f"{extra}.txt").read_text(), re.MULTILINE))
    found = {re.sub(r"[-_.]+", "-", each["name"]).lower(): each["version"] for each in sbom["components"]}

    assert sbom["bomFormat"] == "CycloneDX"
    assert (sbom["metadata"]["component"]["name"], sbom["metadata"]["component"]["version"]) == (
        "ptjob-provider",
        __version__,
    )
    assert {"aiohttp", "kubernetes-asyncio", "yarl", framework} <= set(found)
    assert {"pytest", "ruff", "hatchling", "cyclonedx-bom"}.isdisjoint(found)
    assert {name: version for name, version in found.items() if tested.get(name) != version} == {}


def test_the_images_are_built_of_what_the_sdist_has(release: Path, unpacked: Path) -> None:
    """Every Dockerfile of the repository is used, and the images have the commit as a label."""
    script = (release / "build-images.sh").read_text()
    lines = [shlex.split(line) for line in script.splitlines() if line.startswith('"${BUILDER')]
    contexts = [unpacked / line[-1] for line in lines]
    files = [
        unpacked / line[line.index("-f") + 1] if "-f" in line else context / "Dockerfile"
        for line, context in zip(lines, contexts, strict=True)
    ]

    assert [file.relative_to(unpacked) for file in files] == [
        file.relative_to(ROOT) for file in sorted((ROOT / "docker").glob("*/Dockerfile"))
    ]
    assert all(file.is_file() for file in [*files, *(context / ".dockerignore" for context in contexts)])
    assert all(re.search(r"--build-arg REVISION=[0-9a-f]{40} ", shlex.join(line)) for line in lines)


def test_no_document_names_the_machine_that_built_it(release: Path) -> None:
    """Neither its directories nor the source of its packages."""
    texts = [file.read_text() for file in release.rglob("*") if file.suffix in {".json", ".sh", ""} and file.is_file()]
    here = {str(ROOT), str(release.parent), "/ptjob-release-", "file://"}

    assert [path for path in here for text in texts if path in text] == []


def test_a_citation_names_this_version() -> None:
    """It also has the fields that the format requires."""
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())

    assert citation["version"] == __version__
    assert all(citation[field] for field in ("cff-version", "message", "title", "authors"))


def test_a_tree_with_changes_is_refused(tmp_path: Path) -> None:
    """The message names the changed file, and nothing is built."""
    clone = tmp_path / "clone"
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True)
    (clone / "scripts" / "release.py").write_text((ROOT / "scripts" / "release.py").read_text())
    (clone / "README.md").write_text("changed\n")

    command = [sys.executable, str(clone / "scripts" / "release.py"), str(tmp_path / "release")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)

    assert done.returncode == 1
    assert " M README.md" in done.stdout
    assert not (tmp_path / "release").exists()
