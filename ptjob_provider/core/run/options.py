"""Parse an installation's options for running jobs; each adapter supplies the options as texts.

Importing this module loads no back-end; its functions import what they need.
"""

from __future__ import annotations

import contextlib
import json
import math
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ptjob_provider.core.errors import InvalidSpec, one_of
from ptjob_provider.core.manifest import load_yaml
from ptjob_provider.core.spec import Installation, kind_name
from ptjob_provider.core.spec import job_template as read_template

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ptjob_provider.core.identity import Manifest
    from ptjob_provider.core.kubernetes.probe import ProbeOptions
    from ptjob_provider.core.local.config import LocalConfig
    from ptjob_provider.core.spec import TrainingJob

BACKENDS = ("kubernetes", "local")


@dataclass(frozen=True, kw_only=True)
class Options:
    """An adapter's options.

    Attributes:
        text: returns an option's text by name; "" if it is unset and has no default.
        title: returns an option's name as users write it, for errors.
    """

    text: Callable[[str], str]
    title: Callable[[str], str]

    def backend(self) -> str:
        """Return the back-end, one of BACKENDS.

        Raises:
            InvalidSpec: there is no such back-end.
        """
        word = self.text("backend").lower()
        if word not in BACKENDS:
            raise InvalidSpec.of(self.title("backend"), word, one_of(BACKENDS))
        return word

    def kind(self) -> str | None:
        """Return the kind of jobs that name no kind; None if the option is unset.

        Raises:
            InvalidSpec: there is no such kind.
        """
        text = self.text("kind")
        return kind_name(self.title("kind"), text) if text else None

    def _job_template(self) -> TrainingJob | None:
        if not self.text("job_template"):
            return None
        return read_template(self._document("job_template"), field=self.title("job_template"))

    def installation(self, *, change_pod: Callable[[Manifest], Manifest] | None = None) -> Installation:
        """Return the installation's settings for every job; `change_pod` is its hook that changes pods.

        Raises:
            InvalidSpec: a setting cannot be read.
        """
        from ptjob_provider.core.kinds.code import SYNC_IMAGE, with_prefix  # noqa: PLC0415 - only to render a job

        prefix = self.text("image_prefix")
        return Installation(
            template=self._job_template(),
            change_pod=change_pod,
            sync_image=with_prefix(prefix, self.text("sync_image") or SYNC_IMAGE),
            tensorboard_image=with_prefix(prefix, self.text("tensorboard_image")),
            kind=self.kind(),
        )

    def probe(self) -> ProbeOptions:
        """Return the settings of the output probe inside a cluster.

        Raises:
            InvalidSpec: the time limit is not a number of seconds above 0.
        """
        from ptjob_provider.core.inspector import FILES_IMAGE  # noqa: PLC0415 - only where jobs run there
        from ptjob_provider.core.kinds.code import with_prefix  # noqa: PLC0415 - as above
        from ptjob_provider.core.kubernetes.probe import ProbeOptions  # noqa: PLC0415 - as above

        prefix, image = self.text("image_prefix"), self.text("probe_image")
        return ProbeOptions(
            image=with_prefix(prefix, image),
            files_image=with_prefix(prefix, image or FILES_IMAGE),
            timeout=self._seconds("probe_timeout", "seconds"),
            title=self.title,
        )

    def usage_interval(self) -> float:
        """Return the seconds between two usage samples in a cluster; 0 disables sampling.

        Raises:
            InvalidSpec: it is neither 0 nor a number of seconds.
        """
        return self._seconds("usage_interval", "seconds, or 0 for never")

    def api_error_timeout(self) -> float:
        """Return the seconds for which requests about a job may be refused.

        Raises:
            InvalidSpec: it is neither 0 nor a number of seconds.
        """
        return self._seconds("api_error_timeout", "seconds, 0 or more")

    def orphan_grace(self) -> timedelta:
        """Return the grace period of the orphan search for a job that could not be followed any more.

        Raises:
            InvalidSpec: it is neither 0 nor a number of seconds.
        """
        return timedelta(seconds=self._seconds("orphan_grace", "seconds, 0 or more"))

    def local(self, *, default_root: Path, environ: Mapping[str, str]) -> LocalConfig:
        """Return the configuration of the local back-end.

        Args:
            default_root: directory of local jobs if no option sets it.
            environ: variables of this process; jobs inherit its paths and its language.

        Raises:
            InvalidSpec: an option is invalid; the text names it.
        """
        from ptjob_provider.core.local.config import LocalConfig, base_environment  # noqa: PLC0415 - only for local jobs

        return LocalConfig(
            root=self._path("local_root") or default_root,
            images={image: self._context(image, value) for image, value in self._document("local_images").items()},
            python=self.text("local_python") or None,
            gpus=_gpus(self.text("local_gpus")),
            secrets=self._tables("local_secrets"),
            config_maps=self._tables("local_config_maps"),
            environment=base_environment(environ),
            title=self.title,
        )

    def _seconds(self, name: str, allowed: str) -> float:
        text = self.text(name)
        with contextlib.suppress(ValueError):
            if 0 <= (number := float(text)) < math.inf:
                return number
        raise InvalidSpec.of(self.title(name), text, f"allowed: {allowed}")

    def _path(self, name: str) -> Path | None:
        text = self.text(name)
        return Path(text).expanduser() if text else None

    def _context(self, image: str, value: Any) -> Path:
        if not isinstance(value, str):
            raise InvalidSpec.of(self.title("local_images"), {image: value}, "allowed: a directory, the build context")
        return Path(value).expanduser()

    def _tables(self, name: str) -> dict[str, dict[str, str]]:
        tables = self._document(name)
        for table, entries in tables.items():
            if not isinstance(entries, dict):
                raise InvalidSpec(f"{self.title(name)}: {table} has to be a map of key to value")
        return {table: {key: str(value) for key, value in entries.items()} for table, entries in tables.items()}

    def _document(self, name: str) -> Mapping[str, Any]:
        """Return an option's map, given as JSON or the path of a file. Errors quote no values, which may be secret."""
        text, title = self.text(name) or "{}", self.title(name)
        try:
            if text.startswith("{"):
                document = json.loads(text)
            else:
                document = load_yaml(Path(text).expanduser().read_text(), field=title)
        except InvalidSpec:
            raise
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or "it is neither JSON nor YAML"
            raise InvalidSpec(f"{title}: {why}; give JSON, or the path of a JSON or YAML file") from None
        if not isinstance(document, dict):
            raise InvalidSpec(f"{title}: a map is needed")
        return document


def _gpus(text: str) -> Any:
    return int(text) if text.isdecimal() else text or 0
