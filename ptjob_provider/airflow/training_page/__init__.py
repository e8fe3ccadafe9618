"""Serve the Training page: static files that a browser runs; they read Airflow's own API with the visitor's session.

No route of ours gives out data. Only an API server serves it, so only there is its web framework loaded. `make page`
builds the files from `source`.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

if TYPE_CHECKING:
    from typing import Any

PREFIX = "/ptjob/training"
"""Path of the page below Airflow's address."""

_BUILT = Path(__file__).with_name("built")

NOT_BUILT = (
    "The Training page is not built. It is in every released wheel; a source tree builds it with npm: run `make page` "
    "there, then restart Airflow's API server.\n"
)

_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'self'; require-trusted-types-for 'script'; trusted-types 'none'"
)
"""Content security policy: the page may load itself and ask the server that it came from; no text becomes markup."""

_HEADERS = (
    (b"content-security-policy", _POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-cache"),  # asks whether it has changed, so an upgrade is seen at once
)


def address(dag_id: str, run_id: str, task_id: str, map_index: int | None) -> str:
    """Return the page's address for a task instance, relative to Airflow's, which a proxy may serve below a path.

    Airflow's pages resolve it against their `<base>`.
    """
    ids = {"dag_id": dag_id, "run_id": run_id, "task_id": task_id}
    mapped = {} if map_index is None or map_index < 0 else {"map_index": str(map_index)}
    query = "&".join(f"{name}={quote(value, safe='')}" for name, value in {**ids, **mapped}.items())
    return f"{PREFIX.removeprefix('/')}/?{query}"


async def training_page(scope: Any, receive: Any, send: Any) -> None:
    """Answer a request for the page or a file of it: an ASGI application, mounted at `PREFIX`."""

    async def send_with_policy(message: Any) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message.get("headers", ()), *_HEADERS]}
        await send(message)

    await _files()(scope, receive, send_with_policy)


@cache
def _files() -> Any:
    from starlette.responses import PlainTextResponse  # noqa: PLC0415 - only an API server has visitors
    from starlette.staticfiles import StaticFiles  # noqa: PLC0415 - as above

    if not (_BUILT / "index.html").is_file():
        return PlainTextResponse(NOT_BUILT, status_code=503)
    return StaticFiles(directory=_BUILT, html=True)
