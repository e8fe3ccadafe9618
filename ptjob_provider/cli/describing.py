"""What a field's flag says in `--help`: the first sentence that stands under the field in the source."""

from __future__ import annotations

import ast
import inspect
import re
from functools import cache
from typing import TYPE_CHECKING

from ptjob_provider.core.spec import RoleFields, TrainingJob

if TYPE_CHECKING:
    from ptjob_provider.cli.fields import Flag

_MARKS = re.compile(r"(?:`|\*\*)([^`*]*)(?:`|\*\*)")


def described(flag: Flag) -> str:
    """Return the sentence; a role's field means what the job's does, and a name is kept as it is."""
    if flag.path == ("name",):
        return "Of the job, as it is.  [default: the manifest's]"
    owner = TrainingJob if flag.owner is RoleFields else flag.owner
    return _sentences(owner).get(flag.path[-1], "")


@cache
def _sentences(owner: type) -> dict[str, str]:
    (body,) = ast.parse(inspect.getsource(owner)).body
    assert isinstance(body, ast.ClassDef)  # noqa: S101 - it is a class's source
    found, field = {}, ""
    for node in body.body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            field = node.target.id
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and field:
            found[field] = _first(str(node.value.value))
            field = ""
    return found


def _first(text: str) -> str:
    """Return the first sentence on one line, without marks."""
    line = " ".join(text.split())
    end = re.search(r"\.\s(?=[A-Z0-9])|\.$", line)
    return _MARKS.sub(r"\1", line[: end.start() + 1] if end else line)
