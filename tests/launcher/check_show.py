#!/usr/bin/env python3
"""`anyorder show` as a user runs it: committed pictures are current, SVG is well formed and holds one cell for each visible
pair, or each token of a trace once, and mistakes are answered. Usage: check_show.py BIN_DIR SOURCE_DIR"""
import json
import os
import re
import subprocess
import sys
import tempfile
import unicodedata
import xml.etree.ElementTree as ElementTree
from pathlib import Path

ANYORDER, SOURCE = Path(sys.argv[1]) / "anyorder", Path(sys.argv[2])


def picture(name):
    """The committed file of that name, in the folder of whichever system."""
    return next((SOURCE / "core/objective").rglob(name))


PICTURES = {  # committed file -> options that draw it
    picture("permutation_lm.svg"): ["--objective", "xlnet", "--length", "16", "--seed", "3", "--row", "1"],
    picture("causal_lm.svg"): ["--objective", "transformer-xl", "--length", "12"],
    picture("dae.svg"): ["--objective", "dae", "--length", "16", "--seed", "2"],
    picture("unilmv2.svg"): ["--objective", "unilmv2", "--length", "14", "--seed", "3"],
    picture("sigma_gpt.svg"): ["--objective", "sigma_gpt", "--length", "8"],
    picture("order.svg"): ["--order", "3,2,4,1", "--memory", "1"],
    picture("four_orders.svg"): ["--memory", "1", "--row", "3", "--stream", "query"] + [
        word for order in ("3,2,4,1", "2,4,3,1", "1,4,2,3", "4,3,1,2") for word in ("--order", order)],
    picture("position_blind.svg"): ["--order", "3,2,4,1", "--order", "3,2,1,4"],
}
PICTURES |= {
    picture(f"unilm-{mode}.svg"): ["--config", str(SOURCE / "configs/unilm-tiny.toml"), "--length", "16", "--lane", lane]
    for mode, lane in (("bidirectional", "5"), ("seq2seq", "1"), ("left-to-right", "8"), ("right-to-left", "0"))
}
SVG = "{http://www.w3.org/2000/svg}"


def show(*options, locale="C.UTF-8"):
    return subprocess.run([ANYORDER, "show", *options], capture_output=True, text=True, encoding="utf-8",
                          env={**os.environ, "LC_ALL": locale})


def draw(path, *options):
    done = show(*options, "--output", str(path))
    assert done.returncode == 0, done.stderr
    return path.read_bytes()


def cells(svg):
    return [rect for rect in ElementTree.fromstring(svg).iter(SVG + "rect") if rect.find(SVG + "title") is not None]


def check_pictures(folder):
    for path, options in PICTURES.items():
        drawn = draw(folder / path.name, *options)
        assert drawn == path.read_bytes(), f"{path} is stale: anyorder show {' '.join(options)} --output {path}"
        assert draw(folder / path.name, *options) == drawn, "an older picture is replaced"
    golden = SOURCE / "tests/launcher/show_length16.txt"
    text = show("--objective", "xlnet", "--length", "16", "--seed", "3").stdout
    assert text == golden.read_text(encoding="utf-8"), f"{golden} is stale or the picture is wrong:\n{text}"
    assert max(map(len, text.splitlines())) <= 80
    plain = show("--length", "16", locale="C").stdout
    assert plain.isascii() and plain == show("--length", "16", "--ascii").stdout
    # Wide characters take two columns: the cells of all rows begin at the same one.
    wide = show("--length", "10", "--objective", "transformer-xl", "--text", "語順 は any e\u0301te\u0301 한국어").stdout
    begins = {sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in line.split("▒")[0])
              for line in wide.splitlines() if re.match(r" *\d+ \S+ +\d+  ▒", line)}
    assert len(begins) == 1, f"cells begin at columns {begins}:\n{wide}"


def check_cells(folder):
    for name in ("xlnet", "transformer-xl"):
        for length in ("12", "48", "128"):
            options = ["--objective", name, "--length", length, "--memory", "4"]
            svg = draw(folder / f"{name}{length}.svg", *options)
            assert b"href" not in svg and b"url(" not in svg, "self-contained"
            rects = cells(svg)
            if length == "128":  # neighbours share a rectangle: compare areas
                size = float(rects[0].get("height"))
                drawn = round(sum(float(r.get("width")) for r in rects) / size)
                if name == "transformer-xl":
                    assert drawn == 128 * 4 + 128 * 129 // 2, drawn
                continue
            text = show(*options, "--ascii").stdout
            matrices = [line[20:].split("->")[0] for line in text.splitlines() if re.fullmatch(r" *\d+ .{9} +-?\d+  ", line[:20])]
            # One or two characters a cell, by what fits 80 columns.
            wide = 20 + 2 * (int(length) + 4) + 4 <= 80
            visible = sum(len(re.findall("[#om]", row)) for row in matrices) // (2 if wide else 1)
            assert len(rects) == visible, (name, length, len(rects), visible)
            titles = [rect.find(SVG + "title").text for rect in rects]
            for title in titles:
                rank, limit = re.search(r"because rank (-?\d+) <= (-?\d+)$", title).groups()
                assert int(rank) <= int(limit), title


def check_traces(folder):
    """A text with all that is hard to draw: well-formed, each token once, colours where there may be some."""
    pieces = [" <b>", " &", "]]>", "\x01", "\x1b[31m", "語", "é", "\n", "", " ", "'\"", "\ufffe", " word"]
    written = [{"pass": 1 + i // 3, "position": 2 + (5 * i) % len(pieces), "piece": pieces[(5 * i) % len(pieces)],
                "log_prob": -i / 3, "confidence": None if i == 4 else 1 / (i + 1)} for i in range(len(pieces))]
    path = folder / "trace.jsonl"
    text = {"prompt": 1, "rank": 1, "method": "llada", "prompt_pieces": ["A", " prompt"], "passes": 5, "written": written}
    path.write_text(json.dumps(text) + "\n" + json.dumps({**text, "rank": 2, "written": []}) + "\n")
    svg = draw(folder / "trace.svg", "--trace", str(path))
    assert draw(folder / "trace.svg", "--trace", str(path)) == svg, "an older picture is replaced"
    assert b"href" not in svg and b"url(" not in svg, "self-contained"
    tokens = [[child.text for child in group] for group in ElementTree.fromstring(svg).iter(SVG + "g")]
    shown = ["<b>", "&", "]]>", "\u2401", "\u241b[31m", "語", "é", "↵", "∅", "␣", "'\"", "\ufffd", "word"]
    assert [token[2] for token in tokens] == shown, tokens
    for token, position in zip(tokens, range(2, 99)):
        own = next(one for one in written if one["position"] == position)
        assert f"position {position}, written in pass {own['pass']}," in token[0], token
        assert token[3] == str(own["pass"]) + ("" if own["confidence"] is None else f" {own['confidence']:.2f}"), token
    # Without a terminal there are no colours; the second text has nothing to draw but its prompt.
    plain = show("--trace", str(path)).stdout
    assert "\x1b" not in plain and plain.startswith("text 1 of 2: prompt 1, rank 1\nllada: 13 tokens in 5 passes (2.6 a pass)\n")
    assert "\nA prompt\n\n" in show("--trace", str(path), "--trace-text", "2").stdout
    on_terminal = ["script", "-qec", f"{ANYORDER} show --trace {path}", "/dev/null"]
    for refusal, is_coloured in (("", True), ("1", False)):
        env = {**os.environ, "TERM": "xterm", "NO_COLOR": refusal, "LC_ALL": "C.UTF-8"}
        drawn = subprocess.run(on_terminal, capture_output=True, env=env, stdin=subprocess.DEVNULL, check=True).stdout
        assert (b"\x1b[38;5;" in drawn) == is_coloured, drawn
    for options, status, word in [
        (["--trace", str(path), "--trace-text", "3"], 64, "--trace-text 3: "),
        (["--trace", str(path), "--length", "8"], 64, "--length excludes --trace"),
        (["--trace-text", "2"], 64, "--trace-text requires --trace"),
        (["--trace", str(folder / "trace.svg")], 65, "trace.svg:1: not valid JSON"),
    ]:
        done = show(*options)
        assert done.returncode == status and word in done.stderr and done.stderr.count("\n") == 1, (options, done)


def check_mistakes(folder):
    other = folder / "notes.svg"
    other.write_text("mine")
    for options, word in [
        (["--length", "9"], "--length 9: [sampling] seq_len=9 must be even"),
        (["--length", "8"], "--length 8: "),
        (["--objective", "gpt", "--memory", "4"], "--memory 4: "),
        (["--length", "16", "--set", "sampling.num_predict=99"], "--set sampling.num_predict=99: "),
        (["--objective", "xlnt"], "did you mean 'xlnet'?"),
        (["--objective", "causal_lm", "--stream", "query"], "--stream content"),
        (["--length", "100"], "--output FILE.svg"),
        (["--row", "16"], "[0, 16)"),
        (["--lane", "2"], "[0, 2)"),
        (["--output", "picture.png"], ".svg"),
        (["--tokens", "--text", "a b"], "give one"),
        (["--set", "sampling.num_predict=99"], "num_predict=99"),
        (["--output", str(other)], "not drawn by"),
        (["--order", ",".join(map(str, range(1, 66)))], "use a shorter --order"),
        (["--order", "2,1", "--length", "2"], "--order excludes --length"),
        (["--order", "2,1", "--set", "model.mem_len=2"], "--order excludes --set"),
    ]:
        done = show(*options)
        assert done.returncode == 64 and word in done.stderr and done.stderr.count("\n") == 1, (options, done)
    assert other.read_text() == "mine"


def check_names():
    for name, registered in [("xlnet", "permutation_lm"), ("LLaDA", "masked_diffusion"), ("bd3", "block_diffusion"), ("transformer-xl", "causal_lm")]:
        assert show("--objective", name).stdout.startswith(registered + ": "), name


def check_configs():
    text = show("--config", str(SOURCE / "configs/xlnet-tiny.toml"), "--length", "16").stdout
    assert text.startswith("permutation_lm: 16 slots after 12 of memory, 2 targets"), text


with tempfile.TemporaryDirectory() as temporary:
    check_pictures(Path(temporary))
    check_cells(Path(temporary))
    check_traces(Path(temporary))
    check_mistakes(Path(temporary))
    check_configs()
    check_names()
print("pictures hold")
