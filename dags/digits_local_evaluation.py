"""Train, then evaluate the model in a Python task of Airflow itself.

This needs the claim as a directory on the Airflow worker's machine, as with `[ptjob] backend = local`, and PyTorch and
scikit-learn in Airflow's environment. Elsewhere `local_path` raises an error that says so; `digits.py` evaluates in a
job instead and runs anywhere.

To adapt it: replace the body of `evaluate`; the network is that of `docker/digits/network.py`.
"""

from __future__ import annotations

import sys
from typing import Any

from airflow.sdk import DAG, Param, task

from ptjob_provider.airflow.operators import PyTorchJobOperator

IMAGE = "digits"

with DAG(
    "digits_local_evaluation",
    schedule=None,
    doc_md=__doc__,
    params={"image": Param(IMAGE, type="string"), "epochs": Param(4, type="integer", minimum=1)},
) as dag:
    train = PyTorchJobOperator(
        task_id="train",
        name="digits-local",
        image="{{ params.image }}",
        args=["--epochs={{ params.epochs }}"],
        workers=2,
        volumes=["digits:/data"],
        model="/data/models/{{ run_id }}/model.pt",
        tfevents="/data/logs/{{ run_id }}/train",
    )

    @task
    def evaluate(trained: dict[str, Any]) -> float:
        """Print and return the model's accuracy on the digits that were held out from the training."""
        # Imported here, because Airflow parses this file often, and importing PyTorch and a client takes seconds.
        import torch  # noqa: PLC0415
        from sklearn.datasets import load_digits  # noqa: PLC0415
        from sklearn.model_selection import train_test_split  # noqa: PLC0415
        from torch import nn  # noqa: PLC0415

        from ptjob_provider.airflow.hooks import PyTorchJobHook  # noqa: PLC0415

        path = PyTorchJobHook().local_path(trained["model"]["uri"], namespace=trained["job"]["namespace"])
        model = nn.Sequential(
            nn.Conv2d(1, 32, kernel_size=3, padding=1),
            nn.ReLU(),
            nn.Conv2d(32, 64, kernel_size=3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(64 * 4 * 4, 128),
            nn.ReLU(),
            nn.Linear(128, 10),
        )
        model.load_state_dict(torch.load(path, weights_only=True))
        digits = load_digits()
        _, images, _, labels = train_test_split(
            digits.images, digits.target, test_size=0.2, random_state=0, stratify=digits.target
        )
        with torch.no_grad():
            outputs = model(torch.tensor(images, dtype=torch.float32).unsqueeze(1) / 16)
        accuracy = float((outputs.argmax(dim=1) == torch.tensor(labels)).float().mean())
        print(f"{path}: accuracy {accuracy:.4f} on {len(labels)} held-out digits")
        return accuracy

    evaluate(train.output)

if __name__ == "__main__":
    sys.exit(dag.test().state != "success")
