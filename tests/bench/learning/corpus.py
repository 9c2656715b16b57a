"""Real text for the experiments: cut into documents, some of them held out, prepared by `anyorder prep`."""

import re

import programs

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


def prepare(args, every=6):
    """The datasets of args.corpus (programs.prepare): every `every`-th document is held out."""
    found = documents(args.corpus.read_text(encoding="utf-8"))
    if len(found) < 2 * every:
        raise SystemExit(f"run.py: {args.corpus} has {len(found)} documents; {2 * every} are needed to hold some out")
    args.text, args.held_out = args.work / "train.txt", args.work / "held-out.txt"
    for path, keeps in ((args.text, lambda i: i % every), (args.held_out, lambda i: not i % every)):
        chosen = ["\n".join(map(sentences, d)) for i, d in enumerate(found) if keeps(i)]
        path.write_text("\n\n".join(chosen) + "\n", encoding="utf-8")
    programs.prepare(args, "--workers", 1, "--no-filter", "--quiet")
