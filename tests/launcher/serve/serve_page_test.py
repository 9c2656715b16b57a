"""The page of `serve --http` in a headless Chromium, where there is one, with a service whose answers are known.

Usage: serve_page_test.py FAKE_SERVE
"""
import contextlib
import http.server
import json
import os
import sys
import threading
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from browser import check_pages, probed  # noqa: E402
from serve_client import Server  # noqa: E402

PROBE = """
const wait = async condition => { for (let i = 0; i < 400 && !condition(); ++i) await new Promise(done => setTimeout(done, 25)); };
const settled = () => !document.getElementById('fill').disabled && document.getElementById('status').textContent !== 'computing...';
const items = () => [...document.querySelectorAll('#answers li')].map(item => item.textContent);
const by = id => document.getElementById(id), press = (key, ctrl) => by('text').dispatchEvent(new KeyboardEvent('keydown', {key, ctrlKey: ctrl, bubbles: true}));
await wait(() => by('method').options.length > 1);
found.model = by('model').textContent;
found.methods = [...by('method').options].map(option => option.textContent);
const blankUsual = by('temperature').placeholder;
by('form').requestSubmit();
await wait(() => settled() && items().length);
found.filled = items();
found.marks = [...document.querySelectorAll('#answers li:first-child mark')].map(mark => [mark.textContent, mark.title]);
by('text').value = '<b onclick=alert(1)>x</b> &amp; ___ <img src=x onerror=alert(2)>';
press('Enter', true);
await wait(() => settled() && items().length && items()[0].includes('&amp;'));
found.escaped = items()[0];
found.elements = [...document.querySelectorAll('#answers *')].map(e => e.localName);
by('text').value = 'a b';
by('text').dispatchEvent(new Event('input'));
found.usual = [blankUsual, by('temperature').placeholder];
by('alternatives').value = 2;
by('seed').value = 5;
by('stop').value = 'zzz | yyy';
press('Enter', true);
await wait(() => settled() && items().length === 2);
found.continued = items();
by('continue').click();
by('halt').click();
await wait(settled);
found.stopped = [by('status').textContent, by('fault').textContent, by('halt').disabled];
by('model').textContent = '';
by('token').dispatchEvent(new Event('change'));
await wait(() => by('model').textContent);
found.modelAgain = by('model').textContent;
by('text').value = 'no blank here';
by('fill').click();
await wait(() => settled() && by('fault').textContent);
found.fault = by('fault').textContent;
found.after = items();
found.status = by('status').textContent;
const focusable = [...document.querySelectorAll('textarea, input, select, button')].filter(e => e.offsetParent);
found.unlabelled = focusable.filter(e => !(e.labels && e.labels.length) && !e.textContent.trim()).map(e => e.id);
found.wide = document.documentElement.scrollWidth > document.documentElement.clientWidth + 1;
found.asked = performance.getEntriesByType('resource').map(r => new URL(r.name).pathname);
"""


# Of a causal model.
CAUSAL_PROBE = """
const by = id => document.getElementById(id), shown = e => e.offsetParent !== null;
for (let i = 0; i < 400 && by('method').options.length < 2; ++i) await new Promise(done => setTimeout(done, 25));
found.title = by('title').textContent;
found.text = by('text').value;
found.words = document.body.innerText;
found.fill = shown(by('fill'));
found.usual = by('temperature').placeholder;
by('form').requestSubmit();
for (let i = 0; i < 400 && by('fill').disabled; ++i) await new Promise(done => setTimeout(done, 25));
found.continued = [...document.querySelectorAll('#answers li')].map(item => item.textContent);
"""


class Proxy(http.server.BaseHTTPRequestHandler):
    """The server with a probe in its page, below a path that it takes off or leaves to the server."""
    server_to_ask = None
    probe = PROBE
    takes_off = False
    bodies = []

    def answer(self, body):
        headers = {key: self.headers[key] for key in ("Content-Type", "Authorization", "Origin", "Host") if self.headers[key]}
        path = self.path.removeprefix("/llm") or "/"
        Proxy.bodies.append((path, json.loads(body or b"null")))
        status, got, data = Proxy.server_to_ask.request(self.command, path if Proxy.takes_off else self.path, body, headers)
        if path == "/":
            data = probed(data.decode(), Proxy.probe).encode()
        self.send_response(status)
        for key in ("content-type", "content-security-policy"):
            if key in got:
                self.send_header(key, got[key])
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        with contextlib.suppress(BrokenPipeError):  # of the page that was told to stop
            self.wfile.write(data)

    def do_GET(self):
        self.answer(None)

    def do_POST(self):
        self.answer(self.rfile.read(int(self.headers["Content-Length"])))

    def log_message(self, *unused):
        pass


def check(browser, _):
    proxy = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Proxy)
    threading.Thread(target=proxy.serve_forever, daemon=True).start()
    # A name of its own, which the server knows by --public-url only.
    url = f"http://anyorder.localhost:{proxy.server_port}/llm"
    with Server(sys.argv[1], "--public-url", url) as server:
        Proxy.server_to_ask = server
        for width, end in ((1200, "/"), (400, "")):
            Proxy.takes_off = width == 400
            check_found(browser.find(url + end, width, 60000, may_print=["400 (Bad Request)"]))
        page = server.request("GET", "/")[2].decode()
        outside = [word for word in ("http:", "https:", "src=", "@import", "url(", "innerHTML", "eval(") if word in page]
        assert not outside, outside
    with Server(sys.argv[1], "--public-url", url, environment={**os.environ, "ANYORDER_FAKE_CAUSAL": "1"}) as server:
        Proxy.server_to_ask, Proxy.probe = server, CAUSAL_PROBE
        found = browser.find(url + "/", 1200, 60000)
        assert found["title"] == "Continue a text" and "___" not in found["text"] and "blank" not in found["words"], found
        assert not found["fill"] and found["usual"] == "1" and found["continued"][0].startswith(found["text"]), found
    proxy.shutdown()


def check_found(found):
    assert found["methods"][1:] == ["left-to-right", "llada"] and "step 7" in found["model"], found
    assert len(found["filled"]) == 3 and found["filled"][0].startswith("The fill1 (77.9 %) fox jumps over the fill2 (77.9 %) dog."), found["filled"]
    # In the order in which they are, also where each is improbable.
    assert [text.rsplit("dog.")[1] for text in found["filled"]] == ["66.5 % among these", "24.5 % among these", "9.0 % among these"], found["filled"]
    assert found["marks"] == [["fill1", "probability 77.9 %"], ["fill2", "probability 77.9 %"]], found["marks"]
    assert found["escaped"].startswith("<b onclick=alert(1)>x</b> &amp; fill1 (77.9 %) <img src=x onerror=alert(2)>"), found["escaped"]
    assert set(found["elements"]) == {"li", "mark", "small", "br"}, found["elements"]
    assert found["usual"] == ["0", "1"] and found["continued"] == ["a b b a", "a b a"], found
    assert found["stopped"] == ["stopped", "", True], found["stopped"]
    assert found["modelAgain"] == found["model"], found
    filled, continued = (next(body for path, body in Proxy.bodies if path == asked) for asked in ("/v1/infill", "/v1/completions"))
    assert "temperature" not in filled, filled
    assert continued["stream"] and continued["seed"] == 5 and continued["stop"] == ["zzz", "yyy"] and "temperature" not in continued, continued
    assert "has no blank" in found["fault"] and found["after"] == [] and found["status"] == "", found
    assert not found["unlabelled"] and not found["wide"], found
    assert set(found["asked"]) == {"/llm/v1/models", "/llm/v1/infill", "/llm/v1/completions"}, found["asked"]


if __name__ == "__main__":
    sys.exit(check_pages(check))
