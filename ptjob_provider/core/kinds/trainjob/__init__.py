"""TrainJob of `trainer.kubeflow.org/v1alpha1`, as run by Kubeflow Trainer 2.0 to 2.3, on top of JobSet."""

from __future__ import annotations

from ptjob_provider.core.kinds.trainjob.read import TrainJob
from ptjob_provider.core.kinds.trainjob.render import init_containers
