"""Train a script's function with Kubeflow's SDK and its local process back-end: `kubeflow_local.train(fit)`.

The SDK's runtime for PyTorch installs PyTorch for each job and starts torchrun. Here it installs no packages and starts
Python, so that it only creates an empty virtual environment, which is its fastest possible start.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kubeflow.trainer import CustomTrainer, LocalProcessBackendConfig, TrainerClient

if TYPE_CHECKING:
    from collections.abc import Callable


def train(function: Callable[[], None]) -> None:
    """Run the function, and print its log while it runs."""
    client = TrainerClient(backend_config=LocalProcessBackendConfig())
    runtime = client.get_runtime("torch-distributed")
    runtime.trainer.framework = "python"
    job = client.train(runtime=runtime, trainer=CustomTrainer(func=function))
    for _ in client.get_job_logs(job, follow=True):
        pass
