"""PyTorch training jobs as first-class tasks of workflow orchestrators; importing it loads nothing."""

__version__ = "0.1.0"
