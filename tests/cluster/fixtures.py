"""A cluster for every test that asks for it: one for the whole session, and a namespace for each test.

A pytest plugin of all folders, so it must cost nothing where nobody asks: it imports only the standard library.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

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
    """Return what writes progress to the terminal while pytest captures output."""
    capture = request.config.pluginmanager.getplugin("capturemanager")
    progress = Progress()

    def write(step: str) -> None:
        with capture.global_and_fixture_disabled():
            progress(step)

    return write


@pytest.fixture(scope="session")
def cluster(tell: Callable[[str], None]) -> Iterator[Cluster]:
    """Have a cluster with the training operator; one that is up already is used and left up."""
    own = Cluster.of(Layout.of(os.environ))
    skip_unless_possible(own)
    with own.borrowed(tell):
        yield own


@pytest.fixture(scope="session")
def digits_image(cluster: Cluster, tell: Callable[[str], None]) -> str:
    """Have the digits image in the cluster."""
    return training_image.ensure_digits(cluster, tell)


@pytest.fixture(scope="session")
def trained(cluster: Cluster) -> Cluster:
    """Have Trainer and JobSet on the cluster."""
    trainer.install(cluster)
    return cluster


@pytest.fixture(scope="module")
def own_cluster(tell: Callable[[str], None]) -> Iterator[Cluster]:
    """Have a second cluster for one file of tests alone, which may crash its components or taint its node."""
    own = Cluster.of(Layout.of(os.environ, number=OWN_NUMBER))
    skip_unless_possible(own)
    with locked(own.layout.cache / "own-cluster.lock"), own.borrowed(tell):
        yield own


@pytest.fixture
def namespace(cluster: Cluster) -> Iterator[str]:
    """Have an empty namespace; it is deleted afterwards, and nobody waits for that."""
    with namespace_in(cluster) as name:
        yield name


@pytest.fixture
def hardened_namespace(cluster: Cluster) -> Iterator[str]:
    """Have a namespace with restricted pods, a quota and a limit range."""
    with hardened_namespace_in(cluster) as name:
        yield name


@pytest.fixture
def own_namespace(own_cluster: Cluster) -> Iterator[str]:
    """Have an empty namespace in the second cluster, whose operator judges jobs again if a test killed the kubelet."""
    wait_for_training_operator(own_cluster.kubectl)
    with namespace_in(own_cluster) as name:
        yield name


def skip_unless_possible(cluster: Cluster) -> None:
    """Skip where this machine can have no cluster, or has none built; where one is required that is an error."""
    reason = boot.unmet()
    if not reason and os.environ.get(REQUIRED) != "1" and cluster.programs.missing():
        reason = "the cluster's programs are not built: `make cluster` builds them once, in about 12 minutes"
    skip_because(reason)


def skip_because(reason: str) -> None:
    """Skip if there is a reason; where a cluster is required, and all that one needs, the reason is an error."""
    if reason and os.environ.get(REQUIRED) == "1":
        pytest.fail(f"{REQUIRED}=1, but {reason}", pytrace=False)
    if reason:
        pytest.skip(reason, allow_module_level=True)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark whoever uses a cluster, and give the time to boot or build it; every wait inside has a limit of its own."""
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
    """Add what the cluster says of a failed test's namespace to the test's report."""
    report = yield
    if report.failed and report.when == "call":
        used = getattr(item, "funcargs", {})
        for cluster, namespace in PLACES:
            if {cluster, namespace} <= used.keys():
                heading = f"{cluster}, namespace {used[namespace]}"
                report.sections.append((heading, story(used[cluster], used[namespace])))
    return report


def story(cluster: Cluster, namespace: str) -> str:
    """Return what can be read about a namespace's jobs and pods, and the last lines of these."""
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
