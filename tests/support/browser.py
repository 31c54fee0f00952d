"""Debian's chromium without a head, driven through a pipe: what a page looks like, says and asks for."""

import base64
import json
import os
import shutil
import subprocess
from pathlib import Path

from processes import Process

CHROMIUM = os.environ.get("INOSGM_CHROMIUM") or shutil.which("chromium")

QUIET = ["--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-sync"]


class Browser:
    """A browser with one page, in a profile of its own."""

    def __init__(self, profile):
        to_browser, commands = os.pipe()
        answers, from_browser = os.pipe()

        def ends():
            spare = os.dup(to_browser), os.dup(from_browser)  # either may be in the other's place
            for number, end in zip((3, 4), spare, strict=True):
                os.dup2(end, number)

        options = ["--headless", "--no-sandbox", "--disable-component-update", *QUIET, f"--user-data-dir={profile}"]
        nothing = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)
        command = [CHROMIUM, *options, "--remote-debugging-pipe", "about:blank"]
        self._process = Process(command, **nothing, preexec_fn=ends, close_fds=False)
        for end in (to_browser, from_browser):
            os.close(end)
        self._commands, self._answers = os.fdopen(commands, "wb"), os.fdopen(answers, "rb")
        self._number, self._left, self._session = 0, b"", None
        self.events = []
        try:
            target = next(one for one in self.send("Target.getTargets")["targetInfos"] if one["type"] == "page")
            attached = self.send("Target.attachToTarget", targetId=target["targetId"], flatten=True)
            self._session = attached["sessionId"]
            for domain in ("Page", "Runtime", "Log", "Network"):
                self.send(f"{domain}.enable")
        except BaseException:
            self.__exit__()
            raise

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._process.end()
        self._commands.close()
        self._answers.close()

    def send(self, method, **parameters):
        """Give a command and return its answer; what the browser says meanwhile is kept in `events`."""
        self._number += 1
        command = {"id": self._number, "method": method, "params": parameters}
        if self._session is not None:
            command["sessionId"] = self._session
        self._commands.write(json.dumps(command).encode() + b"\0")
        self._commands.flush()
        while True:
            message = self._message()
            if message.get("id") == self._number:
                assert "error" not in message, message
                return message["result"]
            self.events.append(message)

    def _message(self):
        while b"\0" not in self._left:
            part = os.read(self._answers.fileno(), 1 << 16)
            assert part, "the browser has ended"
            self._left += part
        first, _, self._left = self._left.partition(b"\0")
        return json.loads(first)

    def open(self, file, *, width=1200, height=900, dark=False, media=""):
        """Show a file, in a window of a size; `events` begins anew."""
        self.send(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 600,
        )
        look = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.send("Emulation.setEmulatedMedia", media=media, features=look)
        self.events.clear()
        self.send("Page.navigate", url=Path(file).resolve().as_uri())
        while not any(one["method"] == "Page.loadEventFired" for one in self.events):
            self.events.append(self._message())

    def value(self, expression):
        """Return what JavaScript says."""
        found = self.send("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def complaints(self):
        """Return what the browser has complained about."""
        kinds = ("Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded")
        return [one for one in self.events if one["method"] in kinds]

    def requests(self):
        """Return the addresses that were asked for."""
        asked = [one["params"]["request"]["url"] for one in self.events if one["method"] == "Network.requestWillBeSent"]
        return [url for url in asked if not url.startswith("data:")]

    def screenshot(self, file):
        """Write a picture of the whole page."""
        found = self.send("Page.captureScreenshot", format="png", captureBeyondViewport=True)
        Path(file).write_bytes(base64.b64decode(found["data"]))
