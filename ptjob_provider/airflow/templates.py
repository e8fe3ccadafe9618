"""Rendering of templates: in files next to the DAG, and inside the objects of a Kubernetes client."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from airflow.sdk import BaseOperator

from ptjob_provider.core.wire import is_model, to_wire

FILES = ("manifest", "pod_template")
"""Fields that may be the path of a file; no other text is treated as a path."""


class ObjectTemplates(BaseOperator):
    """An operator whose fields hold Kubernetes objects: in YAML files, as maps, or as a client's objects."""

    def resolve_template_files(self) -> None:
        """Read the files that fields name, relative to the DAG; an absolute path is a worker's."""
        for name in FILES:
            content = getattr(self, name)
            if _is_path(content) and not Path(content).is_absolute():
                setattr(self, name, self._read_file(content))

    def render_template(self, content: Any, *args: Any, **kwargs: Any) -> Any:
        """Render a field; convert a client's object to its wire format, and replace a file's path by its content.

        In a mapped task, and in `dag.test()`, `resolve_template_files` has not run before.
        """
        if is_model(content):
            content = to_wire(content)
        elif _is_path(content) and any(content is getattr(self, name) for name in FILES):
            content = self._read_file(content)
        return super().render_template(content, *args, **kwargs)

    def _read_file(self, path: str) -> str:
        if Path(path).is_absolute():
            return Path(path).read_text()
        env = self.get_template_env()
        return env.loader.get_source(env, path)[0] if env.loader else path


def _is_path(content: Any) -> bool:
    return isinstance(content, str) and "\n" not in content and content.endswith((".yaml", ".yml"))
