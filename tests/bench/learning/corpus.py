"""Real text for the experiments: cut into documents, some of them held out, prepared by `anyorder prep`."""

import re
from pathlib import Path

from experiments import output_of

# A level-1 heading of the WikiText format: " = Title = ".
HEADING = re.compile(r"^ ?= [^=].*[^=] = ?$")


def documents(text):
    """The documents of a text: from heading to heading if it has WikiText's headings, else from blank line to blank line."""
    lines = [line.strip() for line in text.splitlines()]
    by_heading = sum(1 for line in lines if HEADING.match(line)) >= 2
    found, current = [], []
    for line in lines:
        if (HEADING.match(line) if by_heading else not line) and current:
            found.append(current)
            current = []
        if line:
            current.append(line)
    if current:
        found.append(current)
    return found


def sentences(line):
    """WikiText has a paragraph a line and free-standing full stops; the sampler wants a sentence a line."""
    return re.sub(r" ([.?!]) (?=\S)", r" \1\n", line)


def split(corpus, out, every=6):
    """Writes train.txt and heldout.txt to `out`: every `every`-th document is held out."""
    out.mkdir(parents=True, exist_ok=True)
    found = documents(Path(corpus).read_text(encoding="utf-8"))
    if len(found) < 2 * every:
        raise SystemExit(f"run.py: {corpus} has {len(found)} documents; {2 * every} are needed to hold some out")
    for name, keeps in (("train", lambda i: i % every), ("heldout", lambda i: not i % every)):
        chosen = ["\n".join(map(sentences, d)) for i, d in enumerate(found) if keeps(i)]
        (out / f"{name}.txt").write_text("\n\n".join(chosen) + "\n", encoding="utf-8")


def prepare(binaries, corpus, out, vocab_size):
    """Shards out/train and out/heldout with one vocabulary, learned from the training part."""
    split(corpus, out)
    for name, vocabulary in (("train", ["--vocab-size", vocab_size]), ("heldout", None)):
        if vocabulary is None:
            vocabulary = ["--vocab", next((out / "train").glob("*.model"))]
        output_of([binaries / "anyorder-prep", "--input", out / f"{name}.txt", "--output", out / name, *vocabulary,
                   "--workers", "1", "--no-filter", "--quiet"])
