"""Pages in a headless Chromium, and what a probe finds in them."""
import json
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

PROBE = """<script>
addEventListener('load', () => setTimeout(async () => {
  const found = {};
  try {
    SCRIPT
  } catch (error) { found.error = String(error.stack); }
  const out = document.createElement('script');
  out.type = 'application/json'; out.id = 'found';
  out.textContent = JSON.stringify(found).replace(/</g, '\\\\u003c');
  document.body.append(out);
}, 100));
</script>"""


def probed(page, script):
    """The page with a script that runs after its own, and writes what it puts into `found` into the document."""
    assert "</body>" in page
    return page.replace("</body>", PROBE.replace("SCRIPT", script) + "</body>")


class Browser:
    def __init__(self, folder):
        self.folder = folder
        names = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"]
        self.program = next((path for path in map(shutil.which, names) if path), None)

    def open(self, url, width=1200, milliseconds=3000):
        """The document after its scripts, and what the console printed."""
        done = subprocess.run(
            [self.program, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--disable-background-networking",
             "--disable-dev-shm-usage", "--no-first-run", f"--virtual-time-budget={milliseconds}", f"--window-size={width},1000",
             f"--user-data-dir={self.folder / 'profile'}", "--enable-logging=stderr", "--dump-dom", url],
            capture_output=True, text=True, encoding="utf-8", errors="replace", timeout=400)
        return done.stdout, [line for line in done.stderr.splitlines() if "CONSOLE" in line]

    def find(self, url, width, milliseconds=3000, may_print=()):
        """What the probe found in a page, which prints nothing but that on the console."""
        document, console = self.open(url, width, milliseconds)
        # The browser's own pages complain of a slow network where the machine is busy.
        console = [line for line in console if not any(words in line for words in ("source: chrome://", *may_print))]
        assert not console, console
        match = re.search(r'<script type="application/json" id="found">(.*?)</script>', document, re.S)
        assert match, f"the probe found nothing in {url}: {document[-500:]}"
        found = json.loads(match.group(1))
        assert "error" not in found, found["error"]
        return found

    def unusable(self):
        if not self.program:
            return "no chromium, chromium-browser or google-chrome in PATH"
        page = self.folder / "probe.html"
        page.write_text("<!doctype html><title>x</title><script>document.title = 'reads ' + 'files'</script>")
        try:
            document, _ = self.open(page.as_uri())
        except subprocess.TimeoutExpired:
            return f"{self.program} does not answer"
        # As a snap it sees only parts of the disk.
        return "" if "reads files" in document else f"{self.program} cannot open {page}"


def check_pages(check):
    """check(browser, folder), where there is a browser; the exit status."""
    # Chromium keeps a socket in its profile; long names of build directories do not fit.
    with tempfile.TemporaryDirectory(prefix="anyorder-pages-", ignore_cleanup_errors=True) as folder:
        browser = Browser(Path(folder))
        why = browser.unusable()
        if why:
            print(f"SKIP: {why}")
            return 77
        check(browser, browser.folder)
    print("pages hold")
    return 0
