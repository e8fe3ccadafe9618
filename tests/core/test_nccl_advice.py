"""Tests of the verdicts on errors of NCCL and CUDA, with the messages of PyTorch and NCCL in several versions."""

from __future__ import annotations

import pytest

from ends import VALUE_ERROR, end, judged
from ptjob_provider.core.diagnosis import Cause
from rows import each_row

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
def test_the_advice_to_a_program_that_finds_no_gpu_for_nccl_is_gloo(error: str) -> None:
    """PyTorch's messages, of several versions; a retry would not help, and it is not a lost connection."""
    found = judged(end(message=VALUE_ERROR.replace("ValueError: bad batch", error)))

    assert (found.cause, found.retryable) == (Cause.PYTHON_EXCEPTION, False)
    assert GLOO in found.resolution


def test_the_advice_to_a_program_that_refuses_nccl_itself_is_gloo_too() -> None:
    """It ends with argparse's line and no traceback; other wrong arguments are unrelated."""
    text = "train.py: error: --backend nccl needs a GPU and this process has none"

    refused = judged(end(code=2, message=text))
    other = judged(end(code=2, message="train.py: error: unrecognized arguments: --backend-nccl"))

    assert (refused.cause, refused.retryable) == (Cause.EXIT_CODE, False)
    assert GLOO in refused.resolution
    assert GLOO not in other.resolution


NCCL_FAILED = """torch.distributed.DistBackendError: NCCL error in: /pytorch/NCCLUtils.cpp:93, unhandled cuda error \
(run with NCCL_DEBUG=INFO for details), NCCL version 2.27.3
ncclUnhandledCudaError: Call to CUDA function failed.
Last error:
{last}"""
MISUSED = """torch.distributed.DistBackendError: NCCL error in: /pytorch/NCCLUtils.cpp:93, invalid usage (run with \
NCCL_DEBUG=WARN for details), NCCL version 2.28.9
ncclInvalidUsage: This usually reflects invalid usage of NCCL library.
Last error:
Duplicate GPU detected : rank 0 and rank 1 both on CUDA device ac000"""
WATCHDOG = "[PG ID 0 PG GUID 0(default_pg) Rank 0] Process group watchdog thread terminated with exception: "
FRAMES = "".join(
    f"frame: {name} + 0x98 (0x7fcaf2b785e8 in /usr/lib/libtorch_cuda.so)\n"
    for name in (
        "c10::cuda::c10_cuda_check_implementation(int)",
        "c10d::ProcessGroupNCCL::Watchdog::run()",
        *"abcdefghijklmn",
    )
)
ABORTED = f"""[rank0]:[E830 17:28:57.137 ProcessGroupNCCL.cpp:2068] {WATCHDOG}{{error}}
CUDA kernel errors might be asynchronously reported at some other API call.

{FRAMES}
terminate called after throwing an instance of 'c10::DistBackendError'
  what():  {WATCHDOG}{{error}}
CUDA kernel errors might be asynchronously reported at some other API call.

Exception raised from run at /pytorch/ProcessGroupNCCL.cpp:2074 (most recent call first):
{FRAMES}"""


@each_row(
    ("error", "cause", "retryable"),
    [
        (NCCL_FAILED.format(last="Cuda failure 2 'out of memory'"), Cause.GPU_OUT_OF_MEMORY, False),
        (NCCL_FAILED.format(last="Cuda failure 710 'device-side assert triggered'"), Cause.PYTHON_EXCEPTION, False),
        (NCCL_FAILED.format(last="Cuda failure 999 'unknown error'"), Cause.PYTHON_EXCEPTION, True),
        (MISUSED.partition("\n")[0], Cause.PYTHON_EXCEPTION, False),
        (MISUSED, Cause.PYTHON_EXCEPTION, False),
    ],
)
def test_an_error_of_this_process_that_nccl_raises_is_no_lost_connection(
    error: str, cause: Cause, *, retryable: bool
) -> None:
    """NCCL raises the same type when a CUDA call of this process fails and when another replica is gone."""
    found = judged(end(message=VALUE_ERROR.replace("ValueError: bad batch", error)))

    assert (found.cause, found.retryable) == (cause, retryable)


@each_row(
    ("error", "cause", "retryable"),
    [
        ("CUDA error: device-side assert triggered", Cause.CRASHED, False),
        ("CUDA error: out of memory", Cause.GPU_OUT_OF_MEMORY, False),
        ("CUDA error: uncorrectable ECC error encountered", Cause.CRASHED, True),
        ("CUDA error: an illegal memory access was encountered", Cause.CRASHED, True),
        ("Watchdog caught collective operation timeout: WorkNCCL(SeqNum=10)", Cause.CONNECTION_LOST, True),
    ],
)
def test_a_watchdog_that_reports_a_cuda_error_has_lost_no_connection(
    error: str, cause: Cause, *, retryable: bool
) -> None:
    """It aborts the process before the program's own traceback is printed, and prints its frames last."""
    log = ABORTED if error.startswith("CUDA") else ABORTED.replace("c10_cuda_check_implementation", "torchCheckFail")

    found = judged(end(code=134, message=log.format(error=error)))

    assert (found.cause, found.retryable) == (cause, retryable)
    assert error in found.summary


def test_frames_alone_show_that_a_cuda_error_ended_the_process() -> None:
    """The kubelet's 2 KiB may begin after the error itself: nothing shows that a connection was lost."""
    found = judged(end(code=134, message=FRAMES))

    assert found.cause is Cause.CRASHED
