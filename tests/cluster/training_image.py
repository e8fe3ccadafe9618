"""Training image: PyTorch from Debian's packages, and the examples' program."""

from __future__ import annotations

from pathlib import Path

from cluster.buildah import Base
from cluster.built_image import BuiltImage

DISTRIBUTED = "/usr/lib/python3/dist-packages/torch/distributed"
BASE = Base(
    repository="localhost/training-base",
    estimate="2 min 30 s",
    suite="trixie",
    # PyTorch 2.6, built for CPUs: PyPI's build for this platform is for CUDA and four times as large.
    packages=("ca-certificates", "python-is-python3", "python3", "python3-pip", "python3-torch"),
    # Debian builds PyTorch without libuv. A script's TCPStore reads that from the variable USE_LIBUV; torchrun ignores
    # the variable.
    environment=("PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", "USE_LIBUV=0"),
    repairs=(
        f'sed -i "s/multi_tenant=True,/multi_tenant=True, use_libuv=False,/" "$1{DISTRIBUTED}"/elastic/rendezvous/*.py',
        f'sed -i "s/is_master=False,/is_master=False, use_libuv=False,/" "$1{DISTRIBUTED}/rendezvous.py"',
    ),
)
DIGITS = BuiltImage(
    name="ghcr.io/ptjob-provider/digits:test", context=Path(__file__).parents[2] / "docker" / "digits", base=BASE
)
