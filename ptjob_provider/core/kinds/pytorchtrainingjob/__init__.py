"""PyTorchTrainingJob of `batch.tensorstack.dev/v1beta1`, as run by T9k's platform."""

from __future__ import annotations

from ptjob_provider.core.kinds.pytorchtrainingjob.read import PyTorchTrainingJob
from ptjob_provider.core.kinds.pytorchtrainingjob.render import KIND
