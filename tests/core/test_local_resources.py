from __future__ import annotations

from typing import Any

import pytest

from ptjob_provider.core.errors import InvalidSpec
from ptjob_provider.core.local.devices import devices_of, extended, has_limits, is_gpu


def container(limits: dict[str, Any] | None = None, requests: dict[str, Any] | None = None) -> dict[str, Any]:
    return {"resources": {"limits": limits, "requests": requests}}


def test_devices_are_what_no_machine_has_by_itself() -> None:
    """Limits win over requests; none of a kind is no wish."""
    wanted = container(
        {"cpu": "2", "memory": "1Gi", "nvidia.com/gpu": "2", "rdma/hca": 1, "amd.com/gpu": 0, "hugepages-2Mi": "1Gi"},
        {"nvidia.com/gpu": 1, "ephemeral-storage": "1Gi"},
    )

    assert dict(extended(wanted)) == {"nvidia.com/gpu": 2, "rdma/hca": 1}
    assert dict(extended({})) == {}


def test_a_pod_gets_the_gpus_of_all_its_containers() -> None:
    """Other devices are no GPUs."""
    spec = {"containers": [container({"nvidia.com/gpu": 2, "rdma/hca": 1}), container({"nvidia.com/mig-1g.5gb": "1"})]}

    assert devices_of(spec) == 3


@pytest.mark.parametrize(
    ("name", "gpu"),
    [("nvidia.com/gpu", True), ("amd.com/gpu", True), ("nvidia.com/mig-1g.5gb", True), ("rdma/hca", False)],
)
def test_a_gpu_is_known_by_its_name(name: str, gpu: bool) -> None:  # noqa: FBT001 - a table
    """Whoever made it."""
    assert is_gpu(name) is gpu


def test_half_a_device_is_refused() -> None:
    """With its name and what was asked."""
    with pytest.raises(InvalidSpec, match=r"nvidia.com/gpu.*'500m'.*whole number"):
        dict(extended(container({"nvidia.com/gpu": "500m"})))


def test_only_limits_are_limits() -> None:
    """A request alone limits nothing."""
    assert has_limits(container({"cpu": 1}))
    assert not has_limits(container(None, {"cpu": 1}))
    assert not has_limits({})
