"""Fixtures for tests on the cluster: one cluster for the session, and a namespace for each test.

All folders load this pytest plugin, so it must be cheap for tests without a cluster: it imports only the standard
library.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, Any

import pytest

from cluster import boot, trainer, training_image
from cluster.boot import Cluster
from cluster.layout import Layout
from cluster.operators import wait_for_training_operator
from cluster.shell import ClusterFailed, Progress, last_lines, locked
from cluster.tenants import hardened_namespace_in, namespace_in

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

REQUIRED = "PTJOB_REQUIRE_CLUSTER"
FIRST_BUILD_TIMEOUT = 3600
BOOT_TIMEOUT = 900
OWN_NUMBER = 1
CLUSTERS = {"cluster", "own_cluster"}
PLACES = (("cluster", "namespace"), ("cluster", "hardened_namespace"), ("own_cluster", "own_namespace"))


@pytest.fixture(scope="session")
def tell(request: pytest.FixtureRequest) -> Callable[[str], None]:
    """Return a function that writes progress to the terminal while pytest captures output."""
    capture = request.config.pluginmanager.getplugin("capturemanager")
    progress = Progress()

    def write(step: str) -> None:
        with capture.global_and_fixture_disabled():
            progress(step)

    return write


@pytest.fixture(scope="session")
def cluster(tell: Callable[[str], None]) -> Iterator[Cluster]:
    """Yield a cluster with the training operator; a cluster that already runs is used and stays up."""
    own = Cluster.of(Layout.of(os.environ))
    skip_unless_possible(own)
    with own.borrowed(tell):
        yield own


@pytest.fixture(scope="session")
def digits_image(cluster: Cluster, tell: Callable[[str], None]) -> str:
    """Put the digits image into the cluster and return its name."""
    return training_image.DIGITS.ensure(cluster, tell)


@pytest.fixture(scope="session")
def trained(cluster: Cluster) -> Cluster:
    """Install Trainer and JobSet on the cluster."""
    trainer.install(cluster)
    return cluster


@pytest.fixture(scope="module")
def own_cluster(tell: Callable[[str], None]) -> Iterator[Cluster]:
    """Yield a second cluster for one test file only, which may crash its components or taint its node."""
    own = Cluster.of(Layout.of(os.environ, number=OWN_NUMBER))
    skip_unless_possible(own)
    with locked(own.layout.cache / "own-cluster.lock"), own.borrowed(tell):
        yield own


@pytest.fixture
def namespace(cluster: Cluster) -> Iterator[str]:
    """Yield an empty namespace, which is deleted afterwards without waiting."""
    with namespace_in(cluster) as name:
        yield name


@pytest.fixture
def hardened_namespace(cluster: Cluster) -> Iterator[str]:
    """Yield a namespace with restricted pods, a quota and a limit range."""
    with hardened_namespace_in(cluster) as name:
        yield name


@pytest.fixture
def own_namespace(own_cluster: Cluster) -> Iterator[str]:
    """Yield an empty namespace in the second cluster, once its operator responds, also after the kubelet was killed."""
    wait_for_training_operator(own_cluster.kubectl)
    with namespace_in(own_cluster) as name:
        yield name


def is_required() -> bool:
    """Return whether it is an error if something that tests need is missing, as in CI."""
    return os.environ.get(REQUIRED) == "1"


def skip_unless_possible(cluster: Cluster) -> None:
    """Skip if this machine cannot run a cluster or its programs are not built; fail if a cluster is required."""
    reason = boot.unmet()
    if not reason and not is_required() and cluster.programs.missing():
        reason = "the cluster's programs are not built: `make cluster` builds them once, in about 12 minutes"
    skip_because(reason)


def skip_because(reason: str) -> None:
    """Skip if there is a reason; fail with the reason if a cluster is required."""
    if reason and is_required():
        pytest.fail(f"{REQUIRED}=1, but {reason}", pytrace=False)
    if reason:
        pytest.skip(reason, allow_module_level=True)


def import_or_skip(name: str) -> Any:
    """Return a module of an extra; skip if it is not installed, and fail if a cluster is required."""
    try:
        return pytest.importorskip(name)
    except pytest.skip.Exception as missing:
        skip_because(str(missing))
        raise


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests that use a cluster, and give them time to boot or build it; every wait inside has its own limit."""
    users = [item for item in items if item.get_closest_marker("cluster") or _asks_for_cluster(item)]
    if not users:
        return
    built = not Cluster.of(Layout.of(os.environ)).programs.missing()
    limit = pytest.mark.timeout(BOOT_TIMEOUT if built else FIRST_BUILD_TIMEOUT)
    for item in users:
        item.add_marker("cluster")
        if item.get_closest_marker("timeout") is None:
            item.add_marker(limit)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add the state of a failed test's namespace to the test's report."""
    report = yield
    if report.failed and report.when == "call":
        used = getattr(item, "funcargs", {})
        for cluster, namespace in PLACES:
            if {cluster, namespace} <= used.keys():
                heading = f"{cluster}, namespace {used[namespace]}"
                report.sections.append((heading, story(used[cluster], used[namespace])))
    return report


def story(cluster: Cluster, namespace: str) -> str:
    """Return the descriptions, events and last log lines of a namespace's jobs and pods."""
    parts = []
    for words in (("describe", "pytorchjobs,pods"), ("get", "events", "--sort-by=.lastTimestamp")):
        with contextlib.suppress(ClusterFailed):
            parts.append(last_lines(cluster.kubectl(*words, "--namespace", namespace), 200))
    with contextlib.suppress(ClusterFailed):
        for pod in cluster.kubectl.list("pods", namespace=namespace):
            words = ("logs", pod["metadata"]["name"], "--all-containers", "--prefix", "--tail=30", "--ignore-errors")
            parts.append(cluster.kubectl(*words, "--namespace", namespace))
    return "\n".join(parts)


def _asks_for_cluster(item: pytest.Item) -> bool:
    return bool(CLUSTERS & set(getattr(item, "fixturenames", ())))
