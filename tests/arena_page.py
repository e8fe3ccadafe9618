"""The lines of docs/tutorials/from-arena.md and of Arena's guides, for the tests that run them."""

from __future__ import annotations

import ast
import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import code_servers
from guide_pages import DIGITS, DOCS

if TYPE_CHECKING:
    from collections.abc import Mapping

PAGE = (DOCS / "tutorials" / "from-arena.md").read_text()
ADDRESS = "https://code.example/mnist-pytorch.git"
IMAGE = "mnist:1"
WORKING_DIR = "/root"
"""The working directory in the guides' images and Arena's default: both guides name their program below it."""

ENGLISH, CHINESE = "The guide in English", "The guide in Chinese"

GUIDES: Mapping[str, str] = {
    ENGLISH: f"""
arena top node
arena --loglevel info submit pytorch \
    --name=pytorch-dist-git \
    --gpus=1 \
    --workers=2 \
    --image=registry.cn-beijing.aliyuncs.com/ai-samples/pytorch-with-tensorboard:1.5.1-cuda10.1-cudnn7-runtime \
    --sync-mode=git \
    --sync-source=https://code.aliyun.com/370272561/mnist-pytorch.git \
    "python {WORKING_DIR}/code/mnist-pytorch/mnist.py --backend gloo"
arena get pytorch-dist-git --type pytorchjob
arena list
arena get pytorch-local-git
arena logs pytorch-dist-git
arena logs pytorch-dist-git -i pytorch-dist-git-worker-0
arena logs pytorch-dist-git -i pytorch-dist-git-worker-0 -t 5
""",
    CHINESE: f"""
arena top node
arena submit pytorch \
    --name=pytorch-dist \
    --gpus=1 \
    --workers=3 \
    --working-dir={WORKING_DIR} \
    --image=registry.cn-huhehaote.aliyuncs.com/lumo/pytorch-with-tensorboard:1.5.1-cuda10.1-cudnn7-runtime \
    --sync-mode=git \
    --sync-source=https://code.aliyun.com/370272561/mnist-pytorch.git \
    --data=training-data:/mnist_data \
    --tensorboard \
    --logdir=/mnist_data/pytorch_data/logs \
    "python {WORKING_DIR}/code/mnist-pytorch/mnist.py --epochs 10 --backend nccl --dir /mnist_data/pytorch_data/logs \
--data /mnist_data/pytorch_data/"
arena data list
arena list
arena top job
arena top node
arena get pytorch-dist
arena logs pytorch-dist
arena get pytorch-dist
arena logs pytorch-dist -i pytorch-dist-worker-0
arena logs $job_name -f
arena logs --help
arena logs pytorch-dist -t 5
""",
}
"""Every line of Arena in the guides, in order; for private repositories, `submit` has two more variables."""

EDITED: Mapping[str, str] = {
    "arena": "ptjob",
    "--image=registry.cn-beijing.aliyuncs.com/ai-samples/pytorch-with-tensorboard:1.5.1-cuda10.1-cudnn7-runtime": (
        f"--image={IMAGE}"
    ),
    "--image=registry.cn-huhehaote.aliyuncs.com/lumo/pytorch-with-tensorboard:1.5.1-cuda10.1-cudnn7-runtime": (
        f"--image={IMAGE}"
    ),
    "--sync-source=https://code.aliyun.com/370272561/mnist-pytorch.git": f"--sync-source={ADDRESS}",
    "pytorch-local-git": "pytorch-dist-git",
    "$job_name": "pytorch-dist",
}
"""Words of the guides that differ on the page: the program, images, the address and two job names.

The English guide once uses a job name that occurs nowhere else; the Chinese one leaves a name to the reader.
"""


def session(guide: str, **replaced: str) -> list[list[str]]:
    """Return the words of each line that the page has for a guide, split as by a shell.

    The working directory is the page's; image, address and back-end of torch.distributed are the test's.
    """
    part = PAGE.partition(f"### {guide}\n")[2].partition("\n##")[0]
    lines = [shlex.split(line) for line in part.splitlines() if line.startswith("    ")]
    (working_dir,) = re.findall(r"^    WORKDIR=(\S+)$", PAGE, re.MULTILINE)
    others = {ADDRESS: replaced.get("address", ADDRESS), IMAGE: replaced.get("image", IMAGE)}
    others["--backend nccl"] = f"--backend {replaced.get('backend', 'nccl')}"
    for given, own in {"$WORKDIR": working_dir, **others}.items():
        lines = [[word.replace(given, own) for word in line] for line in lines]
    return lines


def task_fields(**replaced: str) -> dict[str, Any]:
    """Return the arguments of the page's Airflow task, with some replaced by the test's."""
    (text,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    (call,) = [each for each in ast.walk(ast.parse(text)) if isinstance(each, ast.Call)]
    fields = {each.arg or "": ast.literal_eval(each.value) for each in call.keywords}
    return {**fields, **{name: value for name, value in replaced.items() if name in fields}}


def serve_code(folder: Path, *, stays_until: str = "") -> Path:
    """Create the guides' repository, whose `mnist.py` trains on handwritten digits; return the folder to serve.

    Rank 0 waits for some seconds at the end, or until the file `stays_until` exists.
    """
    programs = [Path(__file__).parent / "guides" / "mnist.py", *DIGITS.glob("*.py")]
    served = folder / "served"
    served.mkdir()
    stays = {"stays-until": stays_until} if stays_until else {}
    code_servers.plain_repository(served, "mnist-pytorch", stays | {each.name: each.read_text() for each in programs})
    return served


def trained(rank: int, log: str, *, workers: int, epochs: int) -> float:
    """Check a rank's log against the output in the guides, and return the accuracy in it."""
    lines = log.splitlines()
    assert lines[0] == f"WORLD_SIZE: {workers}, CURRENT_RANK: {rank}"
    assert "backend='gloo'" in lines[1]
    assert "Using distributed PyTorch with gloo backend" in lines
    assert {int(number) for number in re.findall(r"^Train Epoch: (\d+) \[", log, re.MULTILINE)} == {
        *range(1, epochs + 1)
    }
    (found,) = re.findall(r"accuracy=(\d\.\d+)", lines[-1])
    return float(found)


def rows(heading: str) -> list[list[str]]:
    """Return the cells of the table below a heading, without the header row."""
    part = PAGE.partition(f"## {heading}")[2].partition("\n## ")[0]
    found = [line.strip("| ").split(" | ") for line in part.splitlines() if line.startswith("| `")]
    return [[cell.strip(" |") for cell in row] for row in found]
