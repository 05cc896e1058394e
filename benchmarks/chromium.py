"""A headless Chromium over DevTools' pipe: no port, no library. For tests and measurements of pages.

The browser reads commands from its descriptor 3 and writes answers and events to 4, JSON with a NUL behind each.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def found() -> str | None:
    """The browser's path, None where there is none."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class PageError(AssertionError):
    """What a script threw, or what did not come true in time."""


class Page:
    """One tab. `errors` collects exceptions and console errors of the page's own scripts."""

    def __init__(self, browser: Browser, session: str) -> None:
        self._browser = browser
        self._session = session
        self.errors: list[str] = browser.errors

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """A DevTools command of this tab."""
        return self._browser.call(method, parameters, self._session)

    def open(self, url: str) -> None:
        self.call("Page.navigate", url=url)

    def run(self, script: str) -> Any:
        """The value of an expression; promises are awaited. Raises PageError for what it throws."""
        answer = self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in answer:
            raise PageError(answer["exceptionDetails"].get("exception", {}).get("description", answer))
        return answer["result"].get("value")

    def wait(self, condition: str, limit_s: float = 30.0) -> None:
        """Until an expression is true. Raises PageError with what the page says when it does not become so."""
        until = time.monotonic() + limit_s
        while time.monotonic() < until:
            with suppress(PageError):  # the page may be between two documents
                if self.run(f"Boolean({condition})"):
                    return
            time.sleep(0.02)
        said = self.run("document.body ? document.body.innerText.slice(0, 500) : ''")
        raise PageError(f"not true within {limit_s:g} s: {condition}; errors {self.errors}; the page says {said!r}")

    def press(self, key: str) -> None:
        """A key, down and up."""
        text = {"text": key} if len(key) == 1 else {"text": "\r"} if key == "Enter" else {}
        code = {"Enter": 13, "Escape": 27}.get(key, 0)
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, windowsVirtualKeyCode=code, **text)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key, windowsVirtualKeyCode=code)

    def size(self, width: int, height: int, *, scale: float = 1.0, mobile: bool = False) -> None:
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=scale, mobile=mobile
        )

    def dark(self, on: bool) -> None:
        value = "dark" if on else "light"
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": value}])

    def picture(self, path: Path) -> None:
        """What is seen, as a PNG."""
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))


class Browser:
    """The process and its pipe. Use `browser()`."""

    def __init__(self, process: subprocess.Popen[bytes], commands: int, answers: int) -> None:
        self.process = process
        self.errors: list[str] = []
        self._commands, self._answers = commands, answers
        self._number, self._rest = 0, b""

    def page(self) -> Page:
        target = self.call("Target.createTarget", {"url": "about:blank"})["targetId"]
        session = self.call("Target.attachToTarget", {"targetId": target, "flatten": True})["sessionId"]
        page = Page(self, session)
        for domain in ("Page", "Runtime", "Performance"):
            page.call(f"{domain}.enable")
        return page

    def call(self, method: str, parameters: dict[str, Any], session: str | None = None) -> dict[str, Any]:
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if session is not None:
            message["sessionId"] = session
        os.write(self._commands, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._read()
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise PageError(f"{method}: {answer['error']['message']}")
                return answer["result"]
            self._note(answer)

    def _note(self, event: dict[str, Any]) -> None:
        details = event.get("params", {})
        if event.get("method") == "Runtime.exceptionThrown":
            thrown = details["exceptionDetails"]
            self.errors.append(thrown.get("exception", {}).get("description") or thrown["text"])
        elif event.get("method") == "Runtime.consoleAPICalled" and details["type"] == "error":
            self.errors.append(" ".join(str(a.get("value", a.get("description", ""))) for a in details["args"]))

    def _read(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            data = os.read(self._answers, 1 << 20)
            if not data:
                raise PageError(f"Chromium ended with status {self.process.wait()}")
            self._rest += data
        message, _, self._rest = self._rest.partition(b"\0")
        return json.loads(message)


@contextmanager
def browser() -> Iterator[Browser]:
    """A browser with a profile of its own, gone with it afterwards. Raises FileNotFoundError where there is none."""
    path = found()
    if path is None:
        raise FileNotFoundError(f"no browser: none of {', '.join(NAMES)} is on PATH")
    theirs_in, commands = os.pipe()
    answers, theirs_out = os.pipe()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        options = ["--headless=new", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe", "--no-first-run"]
        options += ["--disable-dev-shm-usage", "--hide-scrollbars", f"--user-data-dir={profile}", "about:blank"]
        shell = f'exec 3<&{theirs_in} 4>&{theirs_out}; exec "$@"'
        process = subprocess.Popen(
            ["/bin/bash", "-c", shell, "chromium", path, *options],
            pass_fds=(theirs_in, theirs_out), stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(theirs_in)
        os.close(theirs_out)
        try:
            yield Browser(process, commands, answers)
        finally:
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            os.close(commands)
            os.close(answers)
