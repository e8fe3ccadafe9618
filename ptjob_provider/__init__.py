"""PyTorch training jobs as tasks of workflow orchestrators; importing this package loads nothing."""

__version__ = "0.1.0"
