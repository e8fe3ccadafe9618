"""Train a script's function by Kubeflow's SDK and its local process back-end: `kubeflow_local.train(fit)`.

Its runtime for PyTorch starts torchrun, which it installs with PyTorch for each job. Without packages and with Python
instead of torchrun, it only makes an empty virtual environment: the quickest that it can be.
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
