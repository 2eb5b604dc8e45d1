"""The page of package serve/page in a real browser: it shows the models, draws a digit and sees the answer.

The browser is told what to do over the DevTools protocol, by a pair of pipes, so that no package is needed for it. Where
there is no Chromium these tests are skipped; what the page's answers are made of is tested in Go.
"""

from __future__ import annotations

import base64
import json
import math
import os
import re
import shutil
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pytorch_bridge.native.toolchain import ROOT
from pytorch_bridge.testing.gotests import run_go

CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
if CHROMIUM is None:
    pytest.skip("there is no Chromium to show the page in", allow_module_level=True)

DIGITS = ROOT / ".venv/share/digits/mnist_5k.csv.gz"
TOKEN = "a-token-for-the-page-0123"


class Browser:
    """A headless Chromium with one page."""

    def __init__(self, profile: Path, dark: bool = False) -> None:
        to_read, self.to = os.pipe()
        self.back, back_write = os.pipe()
        os.set_inheritable(to_read, True)
        os.set_inheritable(back_write, True)

        # It reads from 3 and writes to 4.
        command = f'exec 3<&{to_read} 4>&{back_write}; exec "$@"'
        self.process = subprocess.Popen(
            ["bash", "-c", command, "bash", CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu",
             "--remote-debugging-pipe", f"--user-data-dir={profile}", "--window-size=1200,1000",
             "--no-first-run", "--disable-background-networking", "--disable-component-update",
             "--disable-dev-shm-usage", "about:blank"],
            pass_fds=(to_read, back_write), stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(to_read)
        os.close(back_write)
        self.buffer = b""
        self.number = 0
        self.session: str | None = None
        self.complaints: list[str] = []
        page = next(t for t in self.call("Target.getTargets")["targetInfos"] if t["type"] == "page")
        self.session = self.call("Target.attachToTarget", targetId=page["targetId"], flatten=True)[
            "sessionId"
        ]
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")
        if dark:
            feature = {"name": "prefers-color-scheme", "value": "dark"}
            self.call("Emulation.setEmulatedMedia", features=[feature])

    def call(self, method: str, **params: Any) -> Any:
        self.number += 1
        message = {"id": self.number, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.to, json.dumps(message).encode() + b"\0")
        while True:
            while b"\0" not in self.buffer:
                got = os.read(self.back, 1 << 16)
                assert got, "the browser has ended"
                self.buffer += got
            text, _, self.buffer = self.buffer.partition(b"\0")
            answer = json.loads(text)
            if answer.get("id") == self.number:
                assert "error" not in answer, answer
                return answer["result"]
            if answer.get("method") in ("Runtime.exceptionThrown", "Log.entryAdded"):
                self.complaints.append(json.dumps(answer["params"]))

    def js(self, expression: str) -> Any:
        """The value of an expression, which may be a promise."""
        result = self.call(
            "Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True
        )
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def wait(self, expression: str) -> Any:
        """The first value of an expression that is one."""
        return self.js(
            "new Promise((done, fail) => {const begin = Date.now(); const look = () => {"
            f"let v; try {{ v = {expression}; }} catch {{ }}"
            "if (v) done(v); else if (Date.now() - begin > 10000) fail(new Error("
            f"{json.dumps('in vain: ' + expression)} + document.body.innerText));"
            "else setTimeout(look, 30);}; look();})"
        )

    def go(self, url: str) -> None:
        self.call("Page.navigate", url=url)
        self.wait("document.readyState === 'complete' && location.href.startsWith('http')")

    def mouse(self, kind: str, x: float, y: float) -> None:
        self.call(
            "Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", buttons=1, clickCount=1
        )

    def key(self, key: str, **more: Any) -> None:
        code = {"Tab": 9, "Enter": 13, " ": 32, "ArrowDown": 40, "ArrowUp": 38, "Delete": 46}[key]
        shown = {"Enter": "\r", " ": " "}.get(key, "")
        event = {"key": key, "windowsVirtualKeyCode": code, **more}
        self.call("Input.dispatchKeyEvent", type="keyDown", text=shown, **event)
        self.call("Input.dispatchKeyEvent", type="keyUp", **event)

    def picture(self, path: Path) -> None:
        data = self.call("Page.captureScreenshot", captureBeyondViewport=True)["data"]
        path.write_bytes(base64.b64decode(data))

    def close(self) -> None:
        os.close(self.to)
        os.close(self.back)
        self.process.terminate()
        self.process.wait(20)


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    if not DIGITS.exists():
        pytest.skip("make setup fetches the digits that the model learns")
    folder = tmp_path_factory.mktemp("page")
    program = folder / "daemon"
    built = run_go("build", "-buildvcs=false", "-o", str(program), "./tests/serve/daemon")
    assert built.returncode == 0, built.stderr
    tokens = folder / "tokens"
    tokens.write_text(f"page infer {TOKEN}\n")
    environment = {**os.environ, "DIGITS": str(DIGITS), "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(
        [program, "--http=127.0.0.1:0", "--grpc=", "--metrics=", "--drain=0", "--log.format=json",
         f"--auth.tokens={tokens}"],
        stderr=subprocess.PIPE, text=True, env=environment,
    ) as process:  # fmt: skip
        assert process.stderr is not None
        for line in process.stderr:
            if '"daemon: ready"' in line:
                break
        else:
            pytest.fail("the server has ended")
        yield f"http://{json.loads(line)['http']}"
        process.terminate()
        assert process.wait(20) == 0


@pytest.fixture(scope="module", params=["light", "dark"])
def browser(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Browser]:
    profile = tmp_path_factory.mktemp("profile")
    made = Browser(profile, dark=request.param == "dark")
    yield made
    made.close()


def _enter(browser: Browser, url: str) -> None:
    browser.go(url)
    browser.wait("!document.getElementById('token').hidden")
    browser.js(f"document.getElementById('secret').value = {TOKEN!r}")
    browser.js("document.getElementById('token').requestSubmit()")
    browser.wait("document.querySelector('nav button')")


def _choose(browser: Browser, text: str) -> None:
    browser.js(
        "[...document.querySelectorAll('nav button')].find("
        f"b => b.firstChild.textContent === {json.dumps(text)}).click()"
    )


def _draw(browser: Browser, points: list[tuple[float, float]]) -> None:
    """Moves the mouse along points of the unit square of the canvas."""
    box = browser.js(
        "(() => {const c = document.querySelector('canvas'); c.scrollIntoView({block: 'center'});"
        "const r = c.getBoundingClientRect(); return [r.left, r.top, r.width, r.height]})()"
    )
    at = [(box[0] + x * box[2], box[1] + y * box[3]) for x, y in points]
    browser.mouse("mousePressed", *at[0])
    for point in at[1:]:
        browser.mouse("mouseMoved", *point)
    browser.mouse("mouseReleased", *at[-1])


def _zero() -> list[tuple[float, float]]:
    turns = [2 * math.pi * i / 40 for i in range(41)]
    return [(0.5 + 0.2 * math.cos(t), 0.5 + 0.28 * math.sin(t)) for t in turns]


SEVEN = [(0.3, 0.28), (0.5, 0.27), (0.7, 0.26), (0.62, 0.42), (0.54, 0.58), (0.46, 0.78)]
ONE = [(0.52, 0.22), (0.51, 0.4), (0.5, 0.6), (0.49, 0.78)]
ANSWER = "document.querySelector('.answer')?.firstChild.textContent"
AS_JSON = "[...document.querySelectorAll('button')].find(b => b.textContent === 'As JSON').click()"
REQUEST = "document.querySelector('textarea[aria-label^=request]')"
CLEAR = "[...document.querySelectorAll('button')].find(b => b.textContent === 'Clear').click()"


def test_a_digit_that_is_drawn_is_read(browser: Browser, url: str, tmp_path: Path) -> None:
    _enter(browser, url)
    browser.complaints.clear()  # about the request without a token
    _choose(browser, "digits 2")
    browser.wait("document.getElementById('state').textContent.startsWith('version 2')")
    for points, digit in ((_zero(), "0"), (SEVEN, "7"), (ONE, "1")):
        browser.js("document.getElementById('results').replaceChildren()")
        browser.js(CLEAR)
        _draw(browser, points)
        assert browser.wait(ANSWER) == digit
        shares = browser.js("[...document.querySelectorAll('.fill')].map(f => f.style.width)")
        assert len(shares) == 10
    # What is shown is what the server has counted.
    answered = browser.wait(
        "(() => {const row = [...document.querySelectorAll('#stats tbody tr')].find("
        "r => r.firstChild.textContent === '2'); const n = Number(row.children[1].textContent);"
        "return n >= 3 && n})()"
    )
    assert answered >= 3
    assert "digits" in browser.js("document.querySelector('#signature').parentNode.innerText")
    browser.picture(Path(os.environ.get("PAGE_PICTURES", tmp_path)) / "digit.png")
    assert browser.complaints == []


@pytest.mark.parametrize("browser", ["light"], indirect=True)
def test_the_keyboard_is_enough(browser: Browser, url: str) -> None:
    """From the list of models to the answer, without a mouse."""
    _enter(browser, url)
    browser.js("document.querySelector('nav button').focus()")
    for _ in range(20):
        if browser.js("document.activeElement.textContent").startswith("digits 1"):
            break
        browser.key("Tab")
    browser.key("Enter")
    browser.wait("document.querySelector('canvas')")
    for _ in range(20):
        if browser.js("document.activeElement.tagName") == "CANVAS":
            break
        browser.key("Tab")
    assert browser.js("document.activeElement.tagName") == "CANVAS"
    for _ in range(7):
        browser.key("ArrowUp")
    for _ in range(14):  # with Shift, a line: a one
        browser.key("ArrowDown", modifiers=8)
    browser.key("Enter")
    assert browser.wait(ANSWER) == "1"
    browser.js("document.getElementById('results').replaceChildren()")
    browser.key("Delete")
    browser.key("Enter")
    browser.wait(ANSWER)
    browser.js(AS_JSON)
    text = browser.js(REQUEST + ".value")
    assert set(json.loads(text)["inputs"][0]["data"]) == {0}, "Delete clears"


@pytest.mark.parametrize("browser", ["light"], indirect=True)
def test_other_inputs_are_typed_and_names_are_text(
    browser: Browser, url: str, tmp_path: Path
) -> None:
    _enter(browser, url)
    _choose(browser, "<img src=x onerror=alert(1)>")
    browser.wait("document.querySelectorAll('#form textarea').length === 4")
    assert browser.js("document.querySelectorAll('img').length") == 0
    browser.js(
        "(() => {const t = document.querySelectorAll('#form textarea');"
        "t[0].value = 'one\\ntwo'; t[1].value = '3'; t[2].value = 'true';"
        "document.querySelector('#form input[type=number]').value = 2;"
        "document.getElementById('form').requestSubmit()})()"
    )
    shown = browser.wait("document.querySelector('#results pre')?.textContent")
    assert shown == '"one!"\n"two!"'
    assert "NaN" in browser.js("document.getElementById('results').textContent")
    # As JSON it is the same; and what is wrong is said.
    browser.js(AS_JSON)
    text = browser.js(REQUEST + ".value")
    assert [i["name"] for i in json.loads(text)["inputs"]] == ["texts", "times", "loud"]
    browser.js(
        f"(() => {{{REQUEST}.value = '{{';document.getElementById('form').requestSubmit()}})()"
    )
    assert "INVALID_ARGUMENT" in browser.wait(
        "document.querySelector('.wrong[role=alert]:not(#refused)')?.textContent"
    )
    browser.picture(Path(os.environ.get("PAGE_PICTURES", tmp_path)) / "typed.png")
    _choose(browser, "idle")
    browser.wait("document.getElementById('form').textContent.includes('not ready')")
    _choose(browser, "colour")
    browser.wait("document.querySelector('canvas')")
    _draw(browser, SEVEN)
    browser.wait(ANSWER)


@pytest.mark.parametrize("browser", ["light"], indirect=True)
def test_a_narrow_screen_has_all_of_it(browser: Browser, url: str, tmp_path: Path) -> None:
    """A telephone is 390 pixels wide: nothing is wider, but what scrolls by itself."""
    wider = (
        "[...document.querySelectorAll('body *')].filter(e => {const r = e.getBoundingClientRect();"
        "return r.width && r.right > 390.5 && !e.closest('.scroll, pre')}).map(e => e.outerHTML.slice(0, 80))"
    )
    try:
        browser.call(
            "Emulation.setDeviceMetricsOverride",
            width=390, height=844, deviceScaleFactor=2, mobile=True,
        )  # fmt: skip
        browser.go(url)
        browser.wait("!document.getElementById('token').hidden")
        assert browser.js(wider) == [], "the token's form"
        _enter(browser, url)
        pictures = Path(os.environ.get("PAGE_PICTURES", tmp_path))
        for name in browser.js(
            "[...document.querySelectorAll('nav button')].map(b => b.firstChild.textContent)"
        ):
            _choose(browser, name)
            title = json.dumps(re.sub(r" [12]$", "", name))
            browser.wait(f"document.getElementById('title').textContent === {title}")
            if version := re.search(r" ([12])$", name):  # the title is that of both versions
                state = json.dumps(f"version {version[1]},")
                browser.wait(f"document.getElementById('state').textContent.startsWith({state})")
            browser.wait("document.querySelector('#form button, #form p')")
            assert browser.js(wider) == [], name
            assert browser.js("document.documentElement.scrollWidth") <= 390, name
            if browser.js("!!document.querySelector('#form .main')"):  # of whatever is in the form
                browser.js("document.getElementById('form').requestSubmit()")
                browser.wait(
                    "!document.querySelector('#results').innerText.startsWith('The answer')"
                )
            browser.js("document.querySelector('#form button.main') && " + AS_JSON)
            browser.wait("document.querySelector('#stats table')")
            assert browser.js(wider) == [], f"{name}, with its answer"
            assert browser.js("document.documentElement.scrollWidth") <= 390, name
            browser.picture(pictures / f"narrow-{re.sub('[^a-z0-9]+', '-', name)}.png")
    finally:
        browser.call("Emulation.clearDeviceMetricsOverride")


@pytest.mark.parametrize("browser", ["light"], indirect=True)
def test_a_wrong_token_is_refused(browser: Browser, url: str) -> None:
    browser.go(url)
    browser.wait("!document.getElementById('token').hidden")
    browser.js("document.getElementById('secret').value = 'a-wrong-token-0123456789'")
    browser.js("document.getElementById('token').requestSubmit()")
    assert "not known" in browser.wait("document.getElementById('refused').textContent")
    assert browser.js("document.querySelectorAll('nav button').length") == 0


def test_the_page_loads_nothing_else(url: str) -> None:
    with urllib.request.urlopen(url) as answer:
        text = answer.read().decode()
        policy = answer.headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "http:" not in text
    assert "https:" not in text
    assert "innerHTML" not in text
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(url + "/v2")
    assert refused.value.code == 401
