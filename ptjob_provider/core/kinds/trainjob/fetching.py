"""Fetch a TrainJob's code with an init container of its runtime, which a job can configure but not add."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ptjob_provider.core.code_sync import CONTAINER as SYNC_CONTAINER
from ptjob_provider.core.errors import InvalidSpec
from ptjob_provider.core.kinds import code, podtemplate
from ptjob_provider.core.kinds.trainjob.template import CONTAINER

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ptjob_provider.core.identity import Manifest
    from ptjob_provider.core.spec.code import CodeSource

_TOLD = ("name", "env", "volumeMounts")


def with_code(template: Manifest, source: CodeSource | None, *, has_own_runtime: bool) -> Manifest:
    """Return the template with the runtime's init container configured, and the code in the training container.

    The runtime defines its user, image and resources, and the working directory: the code is in `code/<repository>`
    below `DEFAULT_WORKING_DIR`.

    Raises:
        InvalidSpec: the runtime is known to have none, or the source has settings that only a runtime can have.
    """
    if source is None:
        return template
    if not has_own_runtime:
        raise InvalidSpec(
            f"code: a TrainJob can add no init container; name a runtime that has one called {SYNC_CONTAINER} with "
            "`runtime`, or have the code in the image"
        )
    if source.image:
        raise InvalidSpec(f"code.image: the runtime's init container {SYNC_CONTAINER} has it; leave it out")
    grown = code.with_code(template, source, image="", container=CONTAINER)
    pod = grown["spec"]
    inits = [_told(each) for each in pod["initContainers"]]
    return podtemplate.map_container({**grown, "spec": {**pod, "initContainers": inits}}, CONTAINER, _where_it_was)


def _told(container: Mapping[str, Any]) -> Manifest:
    if container["name"] != SYNC_CONTAINER:
        return dict(container)
    return {name: container[name] for name in _TOLD}


def _where_it_was(container: Manifest) -> Manifest:
    return {name: part for name, part in container.items() if name != "workingDir"}
