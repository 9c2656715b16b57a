#!/usr/bin/env python3
"""`anyorder report` as a user opens it: pages from disk in a headless Chromium, light and wide as well as narrow. They must draw what
the run's files say, print nothing on the console, ask for nothing outside themselves, and no text may leave its place or meet another.

Usage: check_report.py BIN_DIR      exit 77: no browser that can read a file of ours
"""
import json
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

from browser import check_pages, probed
from make_run import Run, eventful_run

ANYORDER = Path(sys.argv[1]) / "anyorder"
PANELS = ["starts", "loss", "lr", "grad", "speed", "stall"]

# Tries the controls.
PROBE = """
const visible = e => e.getClientRects().length > 0;
const look = name => {
  const faults = [], page = document.documentElement;
  if (page.scrollWidth > page.clientWidth) faults.push(`the page is ${page.scrollWidth} wide, the window ${page.clientWidth}`);
  for (const e of document.querySelectorAll('main *')) {
    if (!visible(e) || e.closest('svg') || e.matches('.scroll, pre, .unseen, .unseen *')) continue;
    const style = getComputedStyle(e);
    if (style.overflowX === 'visible' && style.display !== 'inline' && e.scrollWidth > e.clientWidth + 1 && !e.closest('.scroll'))
      faults.push(`<${e.localName} class="${e.className}"> overflows: ${e.textContent.slice(0, 40)}`);
  }
  for (const svg of document.querySelectorAll('#charts .panel > div > svg')) {
    const frame = svg.getBoundingClientRect(), boxes = [];
    for (const text of svg.querySelectorAll('text')) {
      const box = text.getBoundingClientRect();
      if (box.left < frame.left - 1 || box.right > frame.right + 1 || box.top < frame.top - 1 || box.bottom > frame.bottom + 1)
        faults.push(`${svg.dataset.curve}: '${text.textContent}' leaves the picture`);
      for (const [other, words] of boxes)
        if (box.left < other.right - 1 && other.left < box.right - 1 && box.top < other.bottom - 3 && other.top < box.bottom - 3)
          faults.push(`${svg.dataset.curve}: '${text.textContent}' meets '${words}'`);
      boxes.push([box, text.textContent]);
    }
  }
  for (const e of document.querySelectorAll('#charts [d], #charts [x], #charts [cx], #charts [points]'))
    for (const a of ['d', 'x', 'y', 'x1', 'x2', 'y1', 'y2', 'cx', 'cy', 'width', 'height'])
      if (/NaN|Infinity|undefined/.test(e.getAttribute(a) || '')) faults.push(`${name}: <${e.localName} ${a}="${e.getAttribute(a).slice(0, 60)}">`);
  found[name] = {faults, panels: Object.fromEntries([...document.querySelectorAll('#charts svg[data-curve]')].map(s =>
    [s.dataset.curve, {points: +s.dataset.points, low: +s.dataset.low, high: +s.dataset.high, paths: s.querySelectorAll('path').length,
      bold: [...s.querySelectorAll('path.bold')].map(p => p.getAttribute('d')),
      words: [...s.querySelectorAll('text')].map(t => t.firstChild.data), titles: [...s.querySelectorAll('title')].map(t => t.textContent),
      described: s.querySelector('desc').textContent}]))};
};
look('first');
const charts = document.getElementById('charts'), key = k => charts.dispatchEvent(new KeyboardEvent('keydown', {key: k, bubbles: true}));
key('ArrowRight');
found.spoken = document.getElementById('spoken').textContent;
found.legends = [...document.querySelectorAll('.legend')].map(l => l.textContent);
look('read out');
key('+'); key('+');
look('zoomed');
key('Escape');
for (const mode of ['active', 'step', 'clock']) { document.querySelector(`input[value=${mode}]`).click(); look(mode); }
found.drawn = document.documentElement.dataset.drawn || '';
found.state = (document.querySelector('.state') || {}).textContent;
found.time = Object.fromEntries([...document.querySelectorAll('tr[data-class]')].map(r => [r.dataset.class, +r.dataset.seconds]));
found.tiles = Object.fromEntries([...document.querySelectorAll('.tiles div')].map(d => [d.children[0].textContent, d.children[1].textContent]));
found.asked = performance.getEntriesByType('resource').map(r => r.name);
found.title = document.title;
"""


def report(*options):
    return subprocess.run([ANYORDER, "report", *map(str, options)], capture_output=True, text=True)


def write_report(output, *run_dirs):
    done = report(*[word for run_dir in run_dirs for word in ("--run-dir", run_dir)], "--output", output)
    assert done.returncode == 0, done.stderr
    return output.read_text(encoding="utf-8")


def numbers(text):
    return json.loads(re.search(r'<script type="application/json" id="report-data">(.*?)</script>', text, re.S).group(1))["runs"]


class References(HTMLParser):
    """What a page would load."""

    def __init__(self, text):
        super().__init__()
        self.found = []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.found += [(tag, key, value) for key, value in attributes if key in ("src", "href", "action", "data", "poster", "srcset")]
        if tag in ("link", "iframe", "object", "embed", "img", "base"):
            self.found.append((tag, "", ""))


def check_is_self_contained(text):
    assert not References(text).found, References(text).found
    outside = [url for url in re.findall(r"https?://[^\s'\"<>)]+|url\(|@import|fetch\(|XMLHttpRequest", text) if url != "http://www.w3.org/2000/svg"]
    assert not outside, outside


def look(browser, page, width=1200, panels=PANELS):
    text = page.read_text(encoding="utf-8")
    check_is_self_contained(text)
    copy = page.with_name("probed-" + page.name)
    copy.write_text(probed(text, PROBE), encoding="utf-8")
    found = browser.find(copy.as_uri(), width)
    for name in ("first", "read out", "zoomed", "active", "step", "clock"):
        assert not found[name]["faults"], f"{page.name}, {width} wide, {name}: {found[name]['faults'][:8]}"
        assert list(found[name]["panels"]) == panels, found[name]["panels"].keys()
    assert found["drawn"] == " ".join(panels) and not found["asked"], found
    return found


def check_eventful(browser, folder):
    run = eventful_run(folder / "eventful run")
    text = write_report(folder / "eventful.html", run)
    found = look(browser, folder / "eventful.html")
    panels, lines = found["first"]["panels"], [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    finite = [line["loss"] for line in lines if line["loss"] is not None]
    assert len(lines) == 1200 and len(finite) == 1199
    assert panels["loss"]["points"] == 1199 and panels["grad"]["points"] == 1200, panels
    assert panels["loss"]["high"] > max(finite) and panels["loss"]["low"] < min(finite), panels["loss"]
    assert panels["loss"]["described"].startswith("eventful run: from 8.") and "1 step without" in panels["loss"]["described"]
    assert panels["starts"]["points"] == 4
    starts = " ".join(panels["starts"]["words"] + panels["starts"]["titles"])
    for words in ("#1 · 8 ranks", "#2 · 6 ranks", "n3 in start 1; lost", "killed (137)", "stopped on request", 'skipped step 860: nonfinite'):
        assert words in starts, f"{words}: {starts}"
    assert "lost" in panels["starts"]["words"] and "held-out loss" in " ".join(panels["loss"]["titles"])
    # Steps come first; the time of day shows the stops.
    assert "1200" in panels["loss"]["words"] and "Mar 4 22:10" not in panels["lr"]["words"], panels["lr"]["words"]
    clock = found["clock"]["panels"]
    assert "nothing ran for" in " ".join(clock["speed"]["titles"]) and "Mar 4 22:10" in clock["lr"]["words"]
    # Without stops the axis is shorter; by steps it ends with the last one.
    assert "1200" in found["step"]["panels"]["loss"]["words"], found["step"]["panels"]["loss"]["words"]
    assert found["spoken"].startswith("step ") and "gradient norm" in found["spoken"] and any("ranks on n1" in l for l in found["legends"])
    assert found["state"] == "finished" and found["tiles"]["restarts"] == "3" and found["tiles"]["steps recomputed"] == "37", found["tiles"]
    ledger = subprocess.run([ANYORDER, "inspect", run, "--ledger", "--json"], capture_output=True, text=True)
    expected = {name: part["seconds"] for name, part in json.loads(ledger.stdout)["time"].items()}
    assert found["time"].keys() == expected.keys()
    assert all(abs(found["time"][name] - expected[name]) < 0.001 for name in expected), (found["time"], expected)
    assert "&lt;nan&gt; &amp; &quot;bad&quot;" in text and "write &#39;checkpoints/&lt;step&gt;&#39;" in text
    for width in (500, 800):
        look(browser, folder / "eventful.html", width)


def check_long(browser, folder):
    """Fifty thousand steps: a page of the same size, with the one spike on it."""
    run = Run(folder / "long", 50000)
    run.start(0, 64)
    run.train(1, 31337, seconds=3, every=500)
    run.train(31338, 31338, seconds=3, grad_norm=12345.0)
    run.train(31339, 50000, seconds=3, every=500)
    text = write_report(folder / "long.html", run.write())
    assert len(text) < 400 * 1024, f"{len(text) >> 10} KiB"
    curves = numbers(text)[0]["curves"]
    assert 800 <= len(curves["t0"]) <= 1600 and max(curves["grad"]["max"]) == 12345 and curves["s1"][-1] == 50000
    found = look(browser, folder / "long.html")
    assert found["first"]["panels"]["grad"]["high"] > 12345 and "Mar 5" in " ".join(found["clock"]["panels"]["lr"]["words"])


def check_small(browser, folder):
    evil = folder / "<b>&'\" --> </script> run"
    run = Run(evil, 1)
    run.start(0, 1)
    run.train(1, 1)
    run.end(0, 1, "</title><script>alert(1)</script>")
    write_report(folder / "one.html", run.write())
    found = look(browser, folder / "one.html")
    assert evil.name in found["title"] and found["first"]["panels"]["loss"]["points"] == 1, found
    empty = Run(folder / "empty", 10)
    empty.start(0, 2)
    empty.end(65, 0, "bad data")
    write_report(folder / "none.html", empty.write())
    found = look(browser, folder / "none.html")
    assert found["state"] == "failed" and found["first"]["panels"]["loss"]["points"] == 0 and found["tiles"]["last loss"] == "none yet"
    broken = Run(folder / "not finite", 30)
    broken.start(0, 2)
    broken.train(1, 30, loss=None, grad_norm=None)
    write_report(folder / "broken.html", broken.write())
    found = look(browser, folder / "broken.html")
    assert found["first"]["panels"]["loss"]["points"] == 0 and found["tiles"]["last loss"] == "nan"


def check_diverged(browser, folder):
    """A classifier whose rate was absurd: gaps where the loss is no number, labels of axes that people can read, and accuracy."""
    run = Run(folder / "diverged", 60)
    run.start(0, 1)
    run.train(1, 20, evaluate=10, lr=1e10, grad_norm=3.4e38, task_accuracy=0.5, eval_task_accuracy=0.75)
    run.train(21, 40, lr=1e10, loss=None, grad_norm=None, task_accuracy=0.5, skipped=True)
    run.train(41, 45, lr=4e10, task_accuracy=0.625)
    run.train(46, 60, lr=1e10, loss=None, grad_norm=None, task_accuracy=0.5, skipped=True)
    run.record("stop", attempt=1, step=60, trained_step=45, exit_status=93, may_restart=0, reason="diverged", detail="it diverged")
    run.record("exit", attempt=1, exit_status=93)
    write_report(folder / "diverged.html", run.write())
    found = look(browser, folder / "diverged.html", panels=PANELS[:2] + ["accuracy"] + PANELS[2:])
    panels = found["step"]["panels"]
    [smooth] = panels["loss"]["bold"]
    assert smooth.count("M") == 2 and smooth.count("L") == 19 + 4, smooth
    assert max(float(x) for x in re.findall(r"[ML]([\d.]+)", smooth)) < 58 + 0.8 * 1120, "a line where there is no loss"
    assert "4e10" in panels["lr"]["words"] and not [word for word in panels["lr"]["words"] if "e+" in word], panels["lr"]["words"]
    assert panels["accuracy"]["points"] == 60 and "held-out accuracy 0.75 after step 20" in panels["accuracy"]["titles"], panels["accuracy"]
    assert found["state"] == "diverged" and found["tiles"]["last loss"] == "nan"
    assert found["tiles"]["accuracy"] == "0.5000, held-out 0.7500", found["tiles"]
    # Beside a run that is no classifier.
    write_report(folder / "mixed.html", run.directory, folder / "not finite")
    look(browser, folder / "mixed.html", panels=PANELS[:2] + ["accuracy"] + PANELS[2:])


def check_comparison(browser, folder):
    second = eventful_run(folder / "second", steps=600, seed=2)
    write_report(folder / "both.html", folder / "eventful run", second)
    found = look(browser, folder / "both.html")
    words = found["first"]["panels"]["starts"]["words"]
    assert "second" in words and found["first"]["panels"]["speed"]["points"] == 1800, found["first"]["panels"]["speed"]
    assert any("eventful run" in legend and "second" in legend for legend in found["legends"])


def check(browser, folder):
    check_eventful(browser, folder)
    check_comparison(browser, folder)
    check_small(browser, folder)
    check_diverged(browser, folder)
    check_long(browser, folder)


if __name__ == "__main__":
    sys.exit(check_pages(check))
