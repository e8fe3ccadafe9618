"""Reads the namespaces of a kubeconfig's contexts by kubectl's rules; the back-end reads how to reach the cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import yaml

from ptjob_provider.core.errors import InvalidSpec

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path


def context_namespace(paths: Sequence[Path], context: str | None) -> str:
    """Return the namespace of the context, or of the current one; "" if it names none.

    Of several files, the first with a value counts; missing files are ignored.

    Raises:
        InvalidSpec: a file is not YAML.
    """
    found = [_read(path) for path in paths if path.is_file()]
    wanted = context or next((each["current-context"] for each in found if each.get("current-context")), None)
    listed = [entry for each in found for entry in _contexts(each) if entry.get("name") == wanted]
    return str((listed[0].get("context") or {}).get("namespace") or "") if listed else ""


def known_namespaces(paths: Sequence[Path]) -> list[str]:
    """Return the namespaces of all contexts, each once.

    Raises:
        InvalidSpec: a file is not YAML.
    """
    contexts = [entry for path in paths if path.is_file() for entry in _contexts(_read(path))]
    return sorted({str(name) for entry in contexts if (name := (entry.get("context") or {}).get("namespace"))})


def _contexts(found: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the valid contexts; the back-end reports invalid ones when it connects."""
    listed = found.get("contexts")
    return [each for each in listed if isinstance(each, dict)] if isinstance(listed, list) else []


def _read(path: Path) -> dict[str, Any]:
    try:
        found = yaml.safe_load(path.read_text())
    except (OSError, UnicodeError, yaml.YAMLError) as error:
        why = (error.strerror or "it cannot be read") if isinstance(error, OSError) else "it is not YAML"
        raise InvalidSpec(f"{path}: not a kubeconfig: {why}") from None
    return found if isinstance(found, dict) else {}
