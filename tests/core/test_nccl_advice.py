"""Tests of the advice for a program that asks for NCCL where there are no GPUs."""

from __future__ import annotations

import pytest

from ends import VALUE_ERROR, end, judged
from ptjob_provider.core.diagnosis import Cause

GLOO = "have the program use the back-end gloo, which needs none, instead of nccl"


@pytest.mark.parametrize(
    "error",
    [
        "RuntimeError: nccl2 requires at least one CUDA device",
        "ValueError: ProcessGroupNCCL is only supported with GPUs, no GPUs found!",
        "RuntimeError: Distributed package doesn't have NCCL built in",
        "torch.distributed.DistBackendError: NCCL error: unhandled cuda error, no CUDA-capable device is detected",
    ],
)
def test_a_program_that_finds_no_gpu_for_nccl_is_told_of_gloo(error: str) -> None:
    """PyTorch's messages, of several versions; a retry would not help, and it is not a lost connection."""
    found = judged(end(message=VALUE_ERROR.replace("ValueError: bad batch", error)))

    assert (found.cause, found.retryable) == (Cause.PYTHON_EXCEPTION, False)
    assert GLOO in found.resolution


def test_a_program_that_refuses_nccl_itself_is_told_of_it_too() -> None:
    """It ends with argparse's line and no traceback; other wrong arguments are unrelated."""
    text = "train.py: error: --backend nccl needs a GPU and this process has none"

    refused = judged(end(code=2, message=text))
    other = judged(end(code=2, message="train.py: error: unrecognized arguments: --backend-nccl"))

    assert (refused.cause, refused.retryable) == (Cause.EXIT_CODE, False)
    assert GLOO in refused.resolution
    assert GLOO not in other.resolution
