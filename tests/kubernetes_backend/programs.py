"""Programs that fail: by an exit code, a signal, an exception, or because of another rank."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from cluster.shell import ClusterFailed
from kubernetes_backend.failure import ALPINE, DIGITS, TRAINS, Act, python, shell, together, worker
from kubernetes_backend.world import JOB

if TYPE_CHECKING:
    from cluster.kubectl import Kubectl
    from kubernetes_backend.failure import Failure

RAISES = """\
def check(batch):
    raise ValueError("bad batch")

print("epoch 3 step 41 loss 0.4127", flush=True)
check([1, 2])
"""
RECORDED = """\
from torch.distributed.elastic.multiprocessing.errors import record

@record
def main():
    print("epoch 3 step 41 loss 0.4127", flush=True)
    raise ValueError("bad batch")

main()
"""
LOSES_ITS_SERVER = """\
import urllib.request

print("epoch 1", flush=True)
urllib.request.urlopen("http://127.0.0.1:9/track")
"""
RAISES_AND_ABORTS = """\
import atexit, ctypes

atexit.register(ctypes.CDLL(None).abort)
raise ValueError("bad batch")
"""
THROWS = """\
import ctypes

print("epoch 1", flush=True)
ctypes.CDLL("libstdc++.so.6")._ZSt17__throw_bad_allocv()
"""
READS_NULL = """\
import ctypes

print("epoch 2", flush=True)
ctypes.string_at(0)
"""
FILLS_SHARED_MEMORY = """\
import mmap

with open("/dev/shm/cache", "w+b") as file:
    file.truncate(2**24)
    print("epoch 1", flush=True)
    mmap.mmap(file.fileno(), 2**24).write(b"x" * 2**24)
"""
LOADS_IN_WORKERS = """\
import torch
from torch.utils.data import DataLoader, TensorDataset

def main():
    images = TensorDataset(torch.zeros(64, 2**18))
    for number, _ in enumerate(DataLoader(images, batch_size=8, num_workers=2)):
        print(f"step {number}", flush=True)

main()
"""
ONE_RANK_RAISES = """\
import time
import torch
import torch.distributed as dist
{before}
def check(step):
    if step == 20 and dist.get_rank() == {rank}:
        raise ValueError("bad batch")

{decorator}def main():
    dist.init_process_group("gloo")
    for step in range(10_000):
        check(step)
        dist.all_reduce(torch.ones(4))
        time.sleep(0.05)

main()
"""
PLAIN = ONE_RANK_RAISES.format(before="", decorator="", rank=1)
UNDECORATED = ONE_RANK_RAISES.format(before="", decorator="", rank=3)
DECORATED = ONE_RANK_RAISES.format(
    before="from torch.distributed.elastic.multiprocessing.errors import record\n", decorator="@record\n", rank=3
)
FINDS_NOBODY = """\
from datetime import timedelta
import torch.distributed as dist

dist.init_process_group("gloo", timeout=timedelta(seconds=10))
"""
TORCHRUN = "torchrun --nproc-per-node=2"


def _stop(kubectl: Kubectl, namespace: str) -> None:
    with contextlib.suppress(ClusterFailed):  # the command may end with its container
        kubectl("exec", f"{JOB}-worker-0", "--container", "pytorch", "--namespace", namespace, "--", "kill", "1")


PROGRAMS: dict[str, Failure] = {
    "pod-exit-code": worker("The worker ends with 3.", shell("echo epoch 1; echo no data left; exit 3")),
    "pod-exit-one": worker("The worker ends with 1 after a few words of its own.", shell("echo cannot go on; exit 1")),
    "pod-command-not-found": worker("The worker's shell does not find the program.", shell("python4 train.py")),
    "pod-usage-error": worker(
        "The worker's arguments are wrong.",
        {"image": DIGITS, "args": ["--epochz", "3"]},
        job={"master": {"image": ALPINE, **shell(TRAINS)}},
    ),
    "pod-python-error": worker("The worker raises an exception.", python(RAISES)),
    "pod-error-file": worker(
        "The worker's exception is in torch's error file, which is the termination log.",
        {**python(RECORDED), "env": {"TORCHELASTIC_ERROR_FILE": "/dev/termination-log"}},
    ),
    "pod-server-lost": worker("The worker cannot reach a server outside the job.", python(LOSES_ITS_SERVER)),
    "pod-abort-after-exception": worker("The worker raises and then aborts.", python(RAISES_AND_ABORTS)),
    "pod-abort-cpp": worker("Nothing catches what the worker's C++ code throws.", python(THROWS)),
    "pod-segfault": worker("The worker reads where nothing is.", python(READS_NULL)),
    "pod-bus-error": worker(
        "The worker writes more into /dev/shm than fits.", python(FILLS_SHARED_MEMORY), job={"shared_memory": "1Mi"}
    ),
    "pod-shared-memory": worker(
        "The worker's data loader has too little /dev/shm.", python(LOADS_IN_WORKERS), job={"shared_memory": "1Mi"}
    ),
    "pod-oomkilled": worker(
        "The worker's container reaches its memory limit.",
        {**shell("echo epoch 1; exec tail /dev/zero"), "memory": "64Mi"},
    ),
    "pod-oomkilled-child": worker(
        "A child of the worker's program reaches the memory limit; the program ends with 1 because of it.",
        {**shell("echo epoch 1; tail /dev/zero; echo a data loader died; exit 1"), "memory": "64Mi"},
    ),
    "pod-sigkill": worker(
        "Somebody kills the worker's program.",
        shell("echo epoch 2; sleep 2; kill -9 $$$$"),
        pod={"shareProcessNamespace": True},
    ),
    "pod-sigterm": worker(
        "Somebody tells the worker's program to stop.",
        shell(TRAINS),
        acts=(Act(when=lambda world: world.runs("worker-0"), do=_stop),),
    ),
    "pod-torchrun-root-cause": together(
        "Rank 3 of four under torchrun raises in a function that `record` decorates.", python(DECORATED, TORCHRUN)
    ),
    "pod-torchrun-without-record": together("Rank 3 of four under torchrun raises.", python(UNDECORATED, TORCHRUN)),
    "pods-collateral-gloo": together(
        "Rank 1 of four raises; the others lose their connection.", python(PLAIN), job={"workers": 4}, lasts=6
    ),
    "pods-connection-lost": worker("The worker never reaches the master.", python(FINDS_NOBODY)),
    "pods-crash-loop-of-consequences": together(
        "Rank 1 raises again and again; the other rank's restarts only follow.",
        python(PLAIN),
        job={"restart_policy": "OnFailure", "backoff_limit": 3},
    ),
}
