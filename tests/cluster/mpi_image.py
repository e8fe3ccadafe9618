"""Image of an MPI runtime: OpenMPI and sshd from Debian's packages, without PyTorch."""

from __future__ import annotations

from pathlib import Path

from cluster.buildah import Base
from cluster.built_image import BuiltImage

MPI = BuiltImage(
    name="localhost/mpi:test",
    context=Path(__file__).parent / "mpi",
    base=Base(
        repository="localhost/mpi-base",
        estimate="1 min 40 s",
        suite="bookworm",
        packages=("openmpi-bin", "openssh-client", "openssh-server", "python3"),  # Python: for the probe of outputs
        environment=("PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",),
    ),
    estimate="10 s",
    import_estimate="20 s",
)
