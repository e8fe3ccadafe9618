"""Run PyTorch training jobs as tasks of workflow orchestrators; importing this package imports no other module.

`train` runs a function as a training job; its module is imported when the name is first used.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ptjob_provider.training import train

__all__ = ["__version__", "train"]

__version__ = "0.1.0"


def __getattr__(name: str) -> object:
    if name != "train":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module  # noqa: PLC0415 - the package itself imports nothing

    return import_module("ptjob_provider.training").train
