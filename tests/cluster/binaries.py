"""Build the cluster's programs from their Go modules, and keep them under a hash of their sources."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cluster.layout import BINARIES
from cluster.shell import ClusterFailed, locked, run

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

MODULES = Path(__file__).parent / "go"
GO_NEEDED = (1, 26)
BUILD_TIMEOUT = 3600


@dataclass(frozen=True, kw_only=True)
class Family:
    """Programs whose modules share one set of versions: one folder with a go.mod.

    Attributes:
        name: name of the folder below `go/`.
        estimate: duration of the first build on two cores, as a text for people.
        package: package to build: `tool` for all tools of go.mod, or a package in the folder.
        version_of: module whose version the programs report, set through Kubernetes' own variables.
    """

    name: str
    estimate: str
    package: str = "tool"
    version_of: str = ""

    @property
    def folder(self) -> Path:
        """Return the folder of the go.mod."""
        return MODULES / self.name

    @property
    def ldflags(self) -> str:
        """Return the linker flags: no debug information, and the version of `version_of`."""
        if not self.version_of:
            return "-s -w"
        version = module_version(self.folder / "go.mod", self.version_of)
        major, minor, _ = version.removeprefix("v").split(".", 2)
        said = {"gitVersion": version, "gitMajor": major, "gitMinor": minor}
        return " ".join(
            ["-s -w", *(f"-X k8s.io/component-base/version.{name}={value}" for name, value in said.items())]
        )

    @property
    def digest(self) -> str:
        """Return a hash of everything in the repository that determines the build."""
        digest = hashlib.sha256(f"{self.ldflags} {self.package}".encode())
        for path in sorted(self.folder.iterdir()):
            digest.update(path.name.encode() + b"\0" + path.read_bytes())
        return digest.hexdigest()[:16]


PAUSE = Family(name="pause", estimate="1 s", package=".")
ETCD = Family(name="etcd", estimate="30 s")
KUBERNETES = Family(name="kubernetes", estimate="7 min", version_of="k8s.io/kubernetes")
COREDNS = Family(name="coredns", estimate="2 min")
TRAINING_OPERATOR = Family(name="training-operator", estimate="1 min 30 s")
TRAINER = Family(name="trainer", estimate="2 min 30 s")
KUEUE = Family(name="kueue", estimate="3 min 30 s")
"""Not in every cluster: `kueue.ensure_kueue` builds it when a test needs it."""

METRICS_SERVER = Family(name="metrics-server", estimate="2 min")
"""Not in every cluster: `metrics_server.serving` builds it and runs it during one test."""

FAMILIES = (PAUSE, ETCD, KUBERNETES, COREDNS, TRAINING_OPERATOR, TRAINER)
"""Programs of every cluster."""

S3_SERVER = Family(name="versitygw", estimate="1 min 30 s")
"""S3 server of tests that need no cluster (`tests/s3_server.py`)."""

ARENA = Family(name="arena", estimate="3 min")
"""Arena's own command line; the tests that run it need a cluster."""


@dataclass(frozen=True)
class Binaries:
    """Folder of all builds; a family's programs are in a folder named after the family and its digest."""

    root: Path

    def folder(self, family: Family) -> Path:
        """Return the folder of the family's programs on this machine."""
        return self.root / f"{family.name}-{family.digest}"

    def inside(self, family: Family, program: str) -> str:
        """Return the path of a program inside the cluster's machine."""
        return str(BINARIES / self.folder(family).name / program)

    def missing(self, families: Sequence[Family] = FAMILIES) -> list[Family]:
        """Return the families that are not built yet."""
        return [family for family in families if not self.folder(family).exists()]

    def build(self, tell: Callable[[str], None], families: Sequence[Family] = FAMILIES) -> None:
        """Build the missing families; a lock keeps two processes from building the same one.

        Raises:
            ClusterFailed: a build failed; the message has the end of Go's output.
        """
        for family in self.missing(families):
            tell(f"building {family.name} (about {family.estimate} on two cores, once)")
            with locked(self.root / f"{family.name}.lock"):
                if self.missing([family]):  # the previous holder of the lock may have built it
                    self._build(family)

    def _build(self, family: Family) -> None:
        unfinished = Path(tempfile.mkdtemp(prefix="unfinished-", dir=self.root))
        command = ["go", "build", "-trimpath", "-ldflags", family.ldflags, "-o", f"{unfinished}/", family.package]
        try:
            run(command, cwd=family.folder, env=go_environment(), timeout=BUILD_TIMEOUT)
            unfinished.chmod(0o755)
            unfinished.rename(self.folder(family))
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)


def module_folder(family: Family, module: str) -> Path:
    """Return the read-only folder of a module's own files, such as its manifests."""
    said = run(["go", "mod", "download", "-json", module], cwd=family.folder, env=go_environment(), timeout=300)
    return Path(json.loads(said)["Dir"])


def module_version(go_mod: Path, module: str) -> str:
    """Return the version of a module that a go.mod requires."""
    found = re.search(rf"\b{re.escape(module)} (v[0-9]\S*)", go_mod.read_text())
    if found is None:
        raise ClusterFailed(f"{go_mod} requires no {module}")
    return found[1]


def go_environment() -> dict[str, str]:
    """Return the caller's environment with variables that make builds static and independent of a workspace."""
    return {**os.environ, "CGO_ENABLED": "0", "GOWORK": "off"}


def go_unmet() -> str:
    """Return the reason why this machine cannot build with Go; "" if it can."""
    needed = ".".join(map(str, GO_NEEDED))
    if shutil.which("go") is None:
        return f"Go {needed} is needed on PATH"
    said = run(["go", "env", "GOVERSION"], cwd=TRAINING_OPERATOR.folder, env=go_environment(), timeout=60).strip()
    found = tuple(int(part) for part in re.findall(r"\d+", said)[:2])
    return "" if found >= GO_NEEDED else f"Go {needed} is needed, found {said}"
