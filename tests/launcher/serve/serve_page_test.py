"""The page of `serve --http` in a headless Chromium, where there is one, with a service whose answers are known.

Usage: serve_page_test.py FAKE_SERVE
"""
import http.server
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
by('alternatives').value = 1;
press('Enter', true);
await wait(() => settled() && items().length === 1);
found.continued = items();
by('continue').click();
await wait(() => settled() && items().length === 1);
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


class Proxy(http.server.BaseHTTPRequestHandler):
    """The server with a probe in its page."""
    server_to_ask = None

    def answer(self, body):
        headers = {key: self.headers[key] for key in ("Content-Type", "Authorization") if self.headers[key]}
        # As the browser would ask the server itself: from its own page.
        own = f"127.0.0.1:{Proxy.server_to_ask.port}"
        if self.headers["Origin"]:
            headers["Origin"] = "http://" + own
        status, got, data = Proxy.server_to_ask.request(self.command, self.path, body, headers)
        if self.path == "/":
            data = probed(data.decode(), PROBE).encode()
        self.send_response(status)
        for key in ("content-type", "content-security-policy"):
            if key in got:
                self.send_header(key, got[key])
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self):
        self.answer(None)

    def do_POST(self):
        self.answer(self.rfile.read(int(self.headers["Content-Length"])))

    def log_message(self, *unused):
        pass


def check(browser, _):
    with Server(sys.argv[1]) as server:
        Proxy.server_to_ask = server
        proxy = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Proxy)
        threading.Thread(target=proxy.serve_forever, daemon=True).start()
        for width in (1200, 400):
            check_found(browser.find(f"http://127.0.0.1:{proxy.server_port}/", width, 60000, may_print=["400 (Bad Request)"]))
        proxy.shutdown()
        page = server.request("GET", "/")[2].decode()
        outside = [word for word in ("http:", "https:", "src=", "@import", "url(", "innerHTML", "eval(") if word in page]
        assert not outside, outside


def check_found(found):
    assert found["methods"][1:] == ["left-to-right", "llada"] and "step 7" in found["model"], found
    assert len(found["filled"]) == 3 and found["filled"][0].startswith("The fill1 (77.9 %) fox jumps over the fill2 (77.9 %) dog."), found["filled"]
    assert "all blanks together: 60.7 %" in found["filled"][0]
    assert found["marks"] == [["fill1", "probability 77.9 %"], ["fill2", "probability 77.9 %"]], found["marks"]
    assert found["escaped"].startswith("<b onclick=alert(1)>x</b> &amp; fill1 (77.9 %) <img src=x onerror=alert(2)>"), found["escaped"]
    assert set(found["elements"]) == {"li", "mark", "small", "br"}, found["elements"]
    assert found["continued"] == ["a b b a"], found["continued"]
    assert "has no blank" in found["fault"] and found["after"] == [] and found["status"] == "", found
    assert not found["unlabelled"] and not found["wide"], found
    assert set(found["asked"]) == {"/v1/models", "/v1/infill", "/v1/completions"}, found["asked"]


if __name__ == "__main__":
    sys.exit(check_pages(check))
