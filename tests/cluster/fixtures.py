"""What a test folder imports to have the cluster: one for the whole session, and a namespace for each test."""

from __future__ import annotations

import contextlib
import os
import secrets
from typing import TYPE_CHECKING

import pytest

from cluster import boot, training_image
from cluster.boot import Cluster
from cluster.layout import Layout
from cluster.shell import ClusterFailed, Progress, last_lines, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

REQUIRED = "PTJOB_REQUIRE_CLUSTER"
FIRST_BUILD_TIMEOUT = 3600
BOOT_TIMEOUT = 900


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


@pytest.fixture
def namespace(cluster: Cluster) -> Iterator[str]:
    """Have an empty namespace; it is deleted afterwards, and nobody waits for that."""
    name = f"test-{secrets.token_hex(4)}"
    cluster.kubectl("create", "namespace", name)
    wait_until(
        f"the service account of {name}",
        lambda: cluster.kubectl.get("serviceaccount", "default", namespace=name),
        timeout=30,
    )
    yield name
    cluster.kubectl("delete", "namespace", name, "--wait=false")


def skip_unless_possible(cluster: Cluster) -> None:
    """Skip where this machine can have no cluster, or has none built; where one is required that is an error."""
    required = os.environ.get(REQUIRED) == "1"
    reason = boot.unmet()
    if not reason and not required and cluster.programs.missing():
        reason = "the cluster's programs are not built: `make cluster` builds them once, in about 12 minutes"
    if reason and required:
        pytest.fail(f"{REQUIRED}=1, but {reason}", pytrace=False)
    if reason:
        pytest.skip(reason)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give the tests that may have to boot or build the time for it; every wait inside has a limit of its own."""
    built = not Cluster.of(Layout.of(os.environ)).programs.missing()
    limit = pytest.mark.timeout(BOOT_TIMEOUT if built else FIRST_BUILD_TIMEOUT)
    for item in items:
        if "cluster" in getattr(item, "fixturenames", ()) and item.get_closest_marker("timeout") is None:
            item.add_marker(limit)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add what the cluster says of a failed test's namespace to the test's report."""
    report = yield
    used = getattr(item, "funcargs", {})
    if report.failed and report.when == "call" and {"cluster", "namespace"} <= used.keys():
        report.sections.append((f"cluster, namespace {used['namespace']}", story(used["cluster"], used["namespace"])))
    return report


def story(cluster: Cluster, namespace: str) -> str:
    """Return what can be read about a namespace's jobs and pods."""
    parts = []
    for words in (("describe", "pytorchjobs,pods"), ("get", "events", "--sort-by=.lastTimestamp")):
        with contextlib.suppress(ClusterFailed):
            parts.append(last_lines(cluster.kubectl(*words, "--namespace", namespace), 200))
    return "\n".join(parts)
