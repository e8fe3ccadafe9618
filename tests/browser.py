"""Drive Debian's headless Chromium over a pipe, in the DevTools protocol, as a visitor of a page."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import select
import subprocess
import tempfile
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from cluster import debian
from demo.infrastructure import InfrastructureFailed
from demo.processes import end_processes, session_processes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PACKAGE = "chromium"
ANSWER = 60.0
"""Seconds in which the browser answers a command, and in which a page shows what a test waits for."""

SEPARATOR = b"\0"


def unmet() -> str:
    """Return one line that says why this machine has no browser and can install none, or ""."""
    return debian.unmet_program(PACKAGE)


@contextlib.contextmanager
def browser(tell: Callable[[str], None]) -> Iterator[Browser]:
    """Install Chromium if it is missing, start it with an empty profile, and end it with all its processes.

    Raises:
        ClusterFailed: it could not be installed.
    """
    debian.install((PACKAGE,), tell)
    with tempfile.TemporaryDirectory(prefix="ptjob-browser-", ignore_cleanup_errors=True) as profile:
        options = ("--headless", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars", "--no-first-run")
        root = ("--no-sandbox",) if os.geteuid() == 0 else ()
        words = (PACKAGE, *options, *root, f"--user-data-dir={profile}", "--remote-debugging-pipe", "about:blank")
        commands, for_commands = os.pipe()
        answers, for_answers = os.pipe()
        # The browser reads commands from descriptor 3 and writes answers to 4.
        moved = f'exec "$@" 3<&{commands} 4>&{for_answers}'
        process = subprocess.Popen(
            ("bash", "-c", moved, "bash", *words),
            pass_fds=(commands, for_answers),
            env={**os.environ, "HOME": profile},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        os.close(commands)
        os.close(for_answers)
        try:
            yield Browser(for_commands, answers)
        finally:
            end_processes(session_processes(process.pid), grace=0)
            process.wait(10)
            os.close(for_commands)
            os.close(answers)


@dataclass
class Browser:
    """The browser: commands go to it one at a time, and events are kept until a page is asked for them."""

    commands: int
    answers: int
    events: list[dict[str, Any]] = field(default_factory=list)
    _sent: int = 0
    _left: bytes = b""

    def __call__(self, method: str, session: str = "", **parameters: Any) -> dict[str, Any]:
        """Send a command and return its result.

        Raises:
            InfrastructureFailed: the browser refused the command, or did not answer.
        """
        self._sent += 1
        message = {"id": self._sent, "method": method, "params": parameters}
        words = {**message, "sessionId": session} if session else message
        os.write(self.commands, json.dumps(words).encode() + SEPARATOR)
        deadline = time.monotonic() + ANSWER
        while (answer := self._next(deadline)).get("id") != self._sent:
            self.events.append(answer)
        if "error" in answer:
            raise InfrastructureFailed(f"the browser refused {method}: {answer['error']}")
        result: dict[str, Any] = answer["result"]
        return result

    def _next(self, deadline: float) -> dict[str, Any]:
        while SEPARATOR not in self._left:
            ready, _, _ = select.select([self.answers], [], [], max(0.0, deadline - time.monotonic()))
            got = os.read(self.answers, 1 << 20) if ready else b""
            if not got:
                raise InfrastructureFailed(f"the browser did not answer in {ANSWER:.0f} s")
            self._left += got
        one, _, self._left = self._left.partition(SEPARATOR)
        message: dict[str, Any] = json.loads(one)
        return message

    @contextlib.contextmanager
    def page(self, *, width: int = 1400, dark: bool = False, cookies: dict[str, str] | None = None) -> Iterator[Page]:
        """Open an empty page with cookies of its own."""
        context = self("Target.createBrowserContext")["browserContextId"]
        target = self("Target.createTarget", url="about:blank", browserContextId=context)["targetId"]
        session = self("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = Page(self, session)
        for domain in ("Page", "Runtime", "Network", "Log"):
            page(f"{domain}.enable")
        page.look(width=width, dark=dark)
        for name, value in (cookies or {}).items():
            page("Network.setCookie", name=name, value=value, domain="127.0.0.1", path="/", httpOnly=True)
        try:
            yield page
        finally:
            self("Target.disposeBrowserContext", browserContextId=context)


@dataclass(frozen=True)
class Page:
    """One page, at a width and in a theme."""

    browser: Browser
    session: str

    def __call__(self, method: str, **parameters: Any) -> dict[str, Any]:
        return self.browser(method, self.session, **parameters)

    def look(self, *, width: int, dark: bool, height: int = 900) -> None:
        """Set the window's width in pixels, and the visitor's theme."""
        self("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        theme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self("Emulation.setEmulatedMedia", features=[theme])

    def open(self, url: str, *, until: str) -> None:
        """Go to the address, and wait for a text."""
        self("Page.navigate", url=url)
        self.wait_for(until)

    def run(self, expression: str) -> Any:
        """Return the value of a JavaScript expression, awaited; the policy of the page does not apply to it."""
        done = self("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in done, done["exceptionDetails"]
        return done["result"].get("value")

    def hurry(self, times: int) -> None:
        """Let the timers of the pages that are opened from now on run faster."""
        source = (
            f"window.setTimeout = ((real) => (run, after, ...rest) => real(run, after / {times}, ...rest))(setTimeout)"
        )
        self("Page.addScriptToEvaluateOnNewDocument", source=source)

    @property
    def text(self) -> str:
        """Return the text that the page shows, as a visitor reads it."""
        return str(self.run("document.body?.innerText ?? ''"))

    def wait_for(self, text: str) -> None:
        """Wait until the page shows the text.

        Raises:
            TimeoutError: it does not show it in time; the message has what it shows.
        """
        deadline = time.monotonic() + ANSWER
        while text not in (shown := self.text):
            if time.monotonic() > deadline:
                raise TimeoutError(f"the page does not show {text!r} but:\n{shown}\n{self.complaints}")
            time.sleep(0.05)

    @property
    def complaints(self) -> list[str]:
        """Return the errors of scripts, and what the page's policy has forbidden."""
        events = self._events("Runtime.exceptionThrown", "Log.entryAdded")
        return [json.dumps(event) for event in events if event.get("entry", {}).get("source") != "network"]

    @property
    def requests(self) -> list[str]:
        """Return the addresses of all requests since the page was made."""
        return [event["request"]["url"] for event in self._events("Network.requestWillBeSent")]

    def press(self, key: str) -> None:
        """Press a key."""
        code, text = KEYS[key]
        self("Input.dispatchKeyEvent", type="keyDown", key=key, code=key, windowsVirtualKeyCode=code, text=text)
        self("Input.dispatchKeyEvent", type="keyUp", key=key, code=key, windowsVirtualKeyCode=code)

    def picture(self, *, height: int = 0) -> bytes:
        """Return the page as a PNG: the window, or this many pixels from its top."""
        size = self("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": height or size["height"], "scale": 1}
        shot = self("Page.captureScreenshot", format="png", clip=clip, captureBeyondViewport=True)
        return base64.b64decode(shot["data"])

    def _events(self, *methods: str) -> list[dict[str, Any]]:
        self("Runtime.evaluate", expression="0")  # brings the events until now
        own = [event for event in self.browser.events if event.get("sessionId") == self.session]
        return [event["params"] for event in own if event["method"] in methods]


KEYS = {"Tab": (9, ""), "Enter": (13, "\r")}
"""The code of each key, and the text that it types."""
