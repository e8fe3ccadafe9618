"""Tests of values per event loop: the triggerer has one loop, and each task that waits in its worker has its own."""

from __future__ import annotations

import asyncio

from ptjob_provider.core.shared import OnePerLoop


def test_each_loop_has_a_value_of_its_own() -> None:
    values = OnePerLoop(object)

    async def twice() -> tuple[object, object]:
        return values.get(), values.get()

    with asyncio.Runner() as one, asyncio.Runner() as other:
        first, again = one.run(twice())
        second, _ = other.run(twice())

    assert first is again
    assert first is not second
