"""Test that a real API server and the operator's webhook accept what our validation accepts, with 5,000 specs.

PTJOB_SPECS lowers the number for a quick run, which does not check coverage.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import assume, find, settings
from hypothesis import strategies as st
from hypothesis.errors import NoSuchExample

from cluster_world import PATIENCE, config_of
from kubernetes_backend import crd_schema
from kubernetes_backend.dry_run import dry_run, lost
from kubernetes_backend.specs import Specs
from ptjob_provider.core.errors import ClusterUnavailable, InvalidSpec
from ptjob_provider.core.kinds import PYTORCHJOB
from ptjob_provider.core.kubernetes.client.http import shared_client
from ptjob_provider.core.manifest import dump_manifest
from ptjob_provider.core.spec import TrainingJob
from recorded import OWNER

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator

    from cluster.boot import Cluster
    from ptjob_provider.core.kubernetes.client.http import Client

ALL = 5000
NUMBER = int(os.environ.get("PTJOB_SPECS", ALL))
"""Accepted specs."""

SEED = 20
AT_ONCE = 4
"""Concurrent dry runs; with more, the webhook would fail the kubelet's probes and stop serving."""

ENOUGH = 0.95 if NUMBER >= ALL else 0.0

pytestmark = pytest.mark.timeout(1800)


class Server:
    """A real API server with the operator's webhook, used for dry runs."""

    def __init__(self, cluster: Cluster, runner: asyncio.Runner) -> None:
        self._config = config_of(cluster.layout.kubeconfig)
        self._runner = runner

    def schema(self) -> dict[str, Any]:
        """Return the server's schema of a PyTorchJob."""

        async def read() -> dict[str, Any]:
            async with shared_client(self._config) as client:
                return await crd_schema.pytorchjob_schema(client)

        return self._runner.run(read())

    def objections(self, manifests: Iterable[dict[str, Any]]) -> list[str]:
        """Return, for each manifest, the refusal or the first change; "" where the server stores it as it is."""

        async def ask() -> list[str]:
            turns = asyncio.Semaphore(AT_ONCE)
            async with shared_client(self._config) as client:
                return await asyncio.gather(*(_objection(client, each, turns) for each in manifests))

        return self._runner.run(ask())


async def _objection(client: Client, manifest: dict[str, Any], turns: asyncio.Semaphore) -> str:
    async with turns:
        try:
            found = await _answer(client, manifest)
        except InvalidSpec as refusal:
            return str(refusal)
    return next(lost(manifest, found), "")


async def _answer(client: Client, manifest: dict[str, Any]) -> dict[str, Any]:
    """Return the result of a dry run; retry while the webhook of a busy machine is unavailable."""
    give_up_at = time.monotonic() + PATIENCE
    while True:
        try:
            return await dry_run(client, manifest)
        except ClusterUnavailable:
            if time.monotonic() > give_up_at:
                raise
        await asyncio.sleep(1)


@pytest.fixture(scope="module")
def server(cluster: Cluster) -> Iterator[Server]:
    """Return the API server; one event loop keeps its connections."""
    with asyncio.Runner() as runner:
        yield Server(cluster, runner)


class Drawn:
    """The specs that a strategy draws: the same ones in each run."""

    def __init__(self, strategy: st.SearchStrategy[dict[str, Any]]) -> None:
        self._strategy = strategy
        self.tried = 0
        self.manifests: list[dict[str, Any]] = []
        with contextlib.suppress(NoSuchExample):
            self._first(self._keep)

    def smallest(self, refused: Collection[str], server: Server) -> str:
        """Return the smallest manifest that the server objects to, with the objection, starting from the known ones."""
        known = list(refused)

        def is_refused(manifest: dict[str, Any]) -> bool:
            if known and dump_manifest(manifest) not in known:
                return False
            known.clear()
            return bool(server.objections([manifest])[0])

        manifest = _rendered(self._first(is_refused))
        return f"{server.objections([manifest])[0]}\n{dump_manifest(manifest)}"

    def _keep(self, manifest: dict[str, Any]) -> bool:
        self.manifests.append(manifest)
        return False

    def _first(self, condition: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """Return the smallest spec that we accept and that meets the condition."""

        def meets(spec: dict[str, Any]) -> bool:
            self.tried += 1
            try:
                manifest = _rendered(spec)
            except InvalidSpec:
                assume(False)  # noqa: FBT003 - hypothesis' way to skip an example
            return condition(manifest)

        how = settings(max_examples=NUMBER, database=None)
        return find(self._strategy, meets, settings=how, random=Random(SEED))  # noqa: S311 - the same ones each time


def _rendered(spec: dict[str, Any]) -> dict[str, Any]:
    return PYTORCHJOB.render(TrainingJob.parse(**spec), owner=OWNER, attempt=1).manifest


def refusals(drawn: Drawn, server: Server) -> str:
    """Return how many accepted specs the server refuses or changes, and the smallest; "" for none."""
    said = server.objections(drawn.manifests)
    refused = [dump_manifest(manifest) for manifest, objection in zip(drawn.manifests, said, strict=True) if objection]
    return f"{len(refused)} of {len(said)}, the smallest:\n{drawn.smallest(refused, server)}" if refused else ""


def test_no_manifest_that_we_accept_is_refused(server: Server, namespace: str, tell: Callable[[str], None]) -> None:
    """Manifests from the CRD's own schema pass both webhook and schema, and lose nothing."""
    schema = server.schema()
    drawn = Drawn(
        st.fixed_dictionaries({"manifest": Specs(schema).manifests(namespace), "namespace": st.just(namespace)})
    )

    assert len(drawn.manifests) == NUMBER
    refused = refusals(drawn, server)
    assert not refused, refused
    seen = {field for manifest in drawn.manifests for field in crd_schema.set_fields(manifest, schema)}
    known = set(crd_schema.fields(schema))
    share = len(seen & known) / len(known)
    tell(f"{drawn.tried} specs tried, {len(drawn.manifests)} accepted, {share:.1%} of {len(known)} fields set")
    assert share >= ENOUGH
