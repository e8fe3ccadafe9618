from __future__ import annotations

from typing import Any

from ptjob_provider.core.local.image import ImageFacts, arguments, with_interpreter
from rows import each_row

IMAGE = ImageFacts(python="/py", entrypoint=["python", "train.py"], cmd=["--epochs", "1"], env={}, files={"/a": "/b"})


@each_row(
    ("container", "runs"),
    [
        ({}, ["python", "train.py", "--epochs", "1"]),
        ({"args": ["--epochs", "9"]}, ["python", "train.py", "--epochs", "9"]),
        ({"command": ["sh"]}, ["sh"]),
        ({"command": ["sh"], "args": ["-c", "x"]}, ["sh", "-c", "x"]),
        ({"command": [], "args": None}, ["python", "train.py", "--epochs", "1"]),
    ],
)
def test_command_replaces_the_entrypoint_and_args_replace_cmd(container: dict[str, Any], runs: list[str]) -> None:
    """Kubernetes' four cases."""
    assert arguments(container, IMAGE) == runs


@each_row(
    ("argv", "runs"),
    [
        (["python", "x"], ["/py", "x"]),
        (["python3"], ["/py"]),
        (["/usr/bin/python3.11", "x"], ["/py", "x"]),
        (["/opt/conda/bin/python", "x"], ["/py", "x"]),
        (["torchrun", "x"], ["/py", "-m", "torch.distributed.run", "x"]),
        (["/opt/conda/bin/torchrun", "x"], ["/py", "-m", "torch.distributed.run", "x"]),
        (["python-config"], ["python-config"]),
        (["pythonic", "python"], ["pythonic", "python"]),
        (["./python"], ["./python"]),
        (["sh", "-c", "python"], ["sh", "-c", "python"]),
    ],
)
def test_this_machines_interpreter_stands_in_for_the_images(argv: list[str], runs: list[str]) -> None:
    """By each of its usual names, and for torchrun."""
    assert with_interpreter(argv, "/py") == runs


def test_facts_survive_the_way_to_the_supervisor() -> None:
    """They are rebuilt as they were."""
    assert ImageFacts.from_dict(IMAGE.to_dict()) == IMAGE
