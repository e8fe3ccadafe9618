"""PyTorchJob of `kubeflow.org/v1`, as run by training-operator 1.4 to 1.9."""

from __future__ import annotations

from ptjob_provider.core.kinds.pytorchjob.read import PyTorchJob
from ptjob_provider.core.kinds.pytorchjob.render import API_VERSION, CONTAINER, DEFAULT_TTL, KIND, validate
