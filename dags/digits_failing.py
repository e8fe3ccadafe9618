"""A training that fails on purpose, to show how a failure is reported.

Rank 1 finds an error in its data while rank 0 waits for it. The first line of the task's error names the replica that
failed first, the cause, and what to do next; the last lines of that replica's log follow. Rank 0's failure, which is a
consequence of rank 1's, is reported as such. The task is not retried although it has retries left: `never_retry_on`
declares that a ValueError of this program comes from its data, which a retry does not change.

You do not need to adapt anything. You can reuse the pattern: any image with Python and PyTorch, and the program as
text.
"""

from __future__ import annotations

import sys

from airflow.sdk import DAG, Param

from ptjob_provider.airflow.operators import PyTorchJobOperator

IMAGE = "digits"
PROGRAM = """
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
print(f"rank {dist.get_rank()} of {dist.get_world_size()} has begun", flush=True)
if dist.get_rank() == 1:
    raise ValueError("image 17 has the label 11; allowed are 0 to 9")
dist.all_reduce(torch.ones(1))
"""

with DAG("digits_failing", schedule=None, doc_md=__doc__, params={"image": Param(IMAGE, type="string")}) as dag:
    PyTorchJobOperator(
        task_id="train",
        name="digits-failing",
        image="{{ params.image }}",
        command=["python", "-c", PROGRAM],
        workers=2,
        retries=3,
        never_retry_on=[ValueError],
    )

if __name__ == "__main__":
    sys.exit(dag.test().state != "success")
