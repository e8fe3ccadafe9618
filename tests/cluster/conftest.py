"""The cluster, for the tests beside this file."""

from cluster.fixtures import (
    cluster,
    digits_image,
    namespace,
    pytest_collection_modifyitems,
    pytest_runtest_makereport,
    tell,
)

__all__ = [
    "cluster",
    "digits_image",
    "namespace",
    "pytest_collection_modifyitems",
    "pytest_runtest_makereport",
    "tell",
]
