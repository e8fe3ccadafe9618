"""Build a release's files: wheel, sdist, the images' build commands, SBOMs, provenance and checksums.

python scripts/release.py FOLDER

Files that are already in the folder, such as compiled pipelines, become part of the release. Wheel and sdist are
reproducible: their timestamps are the commit's, and `constraints/release.txt` pins the build back-end.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent
EXTRAS = ("airflow", "kfp")
"""Extras that have an SBOM each, because they cannot share an environment."""

CHECKSUMS = "SHA256SUMS"
PROVENANCE = "provenance.unsigned.json"
IMAGES = "build-images.sh"
_PAGE = "ptjob_provider/airflow/training_page/built/page.js"
CONSTRAINTS = tuple(f"constraints/{name}.txt" for name in ("release", *EXTRAS))


def main(arguments: list[str]) -> int:
    """Build everything and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--uncommitted", action="store_true", help="allow uncommitted changes; the provenance says so")
    options = parser.parse_args(arguments)
    folder: Path = options.folder.resolve()
    changes = _git("status", "--porcelain")
    if changes and not options.uncommitted:
        print(f"The tree has changes that are in no commit; a release is built from a commit:\n{changes}")
        print("Commit or remove them, or try the build with --uncommitted.")
        return 1
    folder.mkdir(parents=True, exist_ok=True)
    (folder / PROVENANCE).unlink(missing_ok=True)
    commit, epoch = _git("log", "-1", "--format=%H"), _git("log", "-1", "--format=%ct")
    env = {**os.environ, "SOURCE_DATE_EPOCH": epoch}
    _run(sys.executable, "-m", "hatchling", "build", "-d", str(folder), env=env)
    (wheel,), (sdist,) = folder.glob("ptjob_provider-*.whl"), folder.glob("ptjob_provider-*.tar.gz")
    if _PAGE not in zipfile.ZipFile(wheel).namelist():
        print("The Training page is not built: run `make page`.")
        return 1
    (folder / IMAGES).write_text(image_commands(sdist.name, commit))
    (folder / IMAGES).chmod(0o755)
    for extra in EXTRAS:
        (folder / f"sbom-{extra}.cdx.json").write_text(_sbom(wheel, extra, env))
    statement = provenance(checksums(folder), commit, epoch, has_changes=bool(changes))
    (folder / PROVENANCE).write_text(json.dumps(statement, indent=2) + "\n")
    sums = checksums(folder)
    (folder / CHECKSUMS).write_text("".join(f"{digest}  {name}\n" for name, digest in sums.items()))
    print((folder / CHECKSUMS).read_text(), end="")
    return 0


def image_commands(sdist: str, commit: str) -> str:
    """Return a script that builds every image from the sdist in its folder, with the command in each Dockerfile."""
    texts = [file.read_text() for file in sorted((ROOT / "docker").glob("*/Dockerfile"))]
    lines = [line for text in texts for line in re.findall(r"^#   docker (build .*)$", text, re.MULTILINE)]
    labelled = [line.replace("build ", f"build --build-arg REVISION={commit} ", 1) for line in lines]
    return "\n".join(
        [
            "#!/bin/sh",
            "# Builds the images of this release. BUILDER=podman or buildah: another program than docker.",
            "set -eu",
            'cd "$(dirname "$0")"',
            f"tar -xzf {sdist}",
            f"cd {sdist.removesuffix('.tar.gz')}",
            *(f'"${{BUILDER:-docker}}" {line}' for line in labelled),
            "",
        ]
    )


def provenance(files: dict[str, str], commit: str, epoch: str, *, has_changes: bool) -> dict[str, Any]:
    """Return an in-toto statement with SLSA provenance: the commit and the command that made these files."""
    constraints = [{"name": name, "digest": {"sha256": _sha256(ROOT / name)}} for name in CONSTRAINTS]
    return {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [{"name": name, "digest": {"sha256": digest}} for name, digest in files.items()],
        "predicateType": "https://slsa.dev/provenance/v1",
        "predicate": {
            "buildDefinition": {
                "buildType": "urn:ptjob-provider:make-release",
                "externalParameters": {"command": "make release", "uncommittedChanges": has_changes},
                "internalParameters": {"SOURCE_DATE_EPOCH": epoch, "python": platform.python_version()},
                "resolvedDependencies": [{"name": "source", "digest": {"gitCommit": commit}}, *constraints],
            },
            "runDetails": {"builder": {"id": "urn:ptjob-provider:unsigned-local-build"}},
        },
    }


def checksums(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of every file below the folder, by the file's path there."""
    files = sorted(file for file in folder.rglob("*") if file.is_file() and file.name != CHECKSUMS)
    return {file.relative_to(folder).as_posix(): _sha256(file) for file in files}


def _sbom(wheel: Path, extra: str, env: dict[str, str]) -> str:
    """Return the CycloneDX document of a new environment with the wheel and the tested versions of its dependencies."""
    with tempfile.TemporaryDirectory(prefix="ptjob-release-") as scratch:
        installed, output = Path(scratch, "venv"), Path(scratch, "sbom.json")
        _run(str(ROOT / "scripts" / "environment.sh"), "wheel", extra, str(installed), f"{wheel}[{extra}]", env=env)
        words = ("--no-validate", "--output-reproducible", "--mc-type", "library", "--pyproject", "pyproject.toml")
        _run(str(BIN / "cyclonedx-py"), "environment", *words, "-o", str(output), str(installed), env=env)
        document = json.loads(output.read_text())
    version = wheel.name.split("-")[1]  # pyproject.toml has no version: the build back-end reads it from the package
    document["metadata"]["component"] |= {"version": version, "purl": f"pkg:pypi/ptjob-provider@{version}"}
    return json.dumps(document, indent=2) + "\n"


def _sha256(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def _git(*words: str) -> str:
    command = ("/usr/bin/env", "git", *words)
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip("\n")


def _run(*command: str, env: dict[str, str]) -> None:
    subprocess.run(command, cwd=ROOT, env=env, check=True, stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
