#!/usr/bin/env python3
"""Missing words of held-out text: models of any order, which read both sides, against a causal one, which reads the left side.

Takes runs that orders.py made. Of each number of missing words from one to eight, in windows of 36 words: nats a missing word
(of the words that stood there: exact, of diffusion models a bound), and how often all of them are found, when it is known how many
tokens they have. Prints a table of medians over seeds with all values.

Usage: infilling.py --anyorder BIN --runs DIR --held-out FILE --work DIR [--seeds 1,2,3] [--models AS-ARM,...] [--items 100]
A model's answer that is in DIR is not asked for again.
"""
import json
import random
import re
import statistics
from pathlib import Path

from programs import command_line, parsed, run

WINDOW, COUNTS = 36, range(1, 9)
CAUSAL = "causal"


def windows(path):
    """Windows of words that need no escapes, of lines that are long enough."""
    found = []
    for line in Path(path).read_text(encoding="utf-8").splitlines():
        words = line.split()
        for begin in range(0, len(words) - WINDOW, WINDOW):
            window = words[begin:begin + WINDOW]
            if all(re.fullmatch(r"[^<{}_\\]+", word) for word in window):
                found.append(window)
    return found


def make_items(path, number):
    """[(number of missing words, left, middle, right)]"""
    random.seed(1)
    chosen = windows(path)
    random.shuffle(chosen)
    items = []
    for count in COUNTS:
        for window in chosen[:number]:
            begin = random.randrange(12, 24 - count)
            items.append((count, " ".join(window[:begin]), " ".join(window[begin:begin + count]), " ".join(window[begin + count:])))
    return items


def ask(args, name, what, lines, command, *options):
    """The JSON lines that the command answers for the run `name`."""
    file = str(args.work / f"{name}-{what}")
    answers, asked, made = (Path(file + suffix) for suffix in (".jsonl", ".asked.jsonl", ".new.jsonl"))
    if not answers.exists():
        asked.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
        made.unlink(missing_ok=True)
        run([args.anyorder, command, args.runs / name, *options, "--input", asked, "--output", made, *args.option], file + ".log")
        made.rename(answers)
    return [json.loads(line) for line in answers.read_text(encoding="utf-8").splitlines()]


def any_order(args, name, items):
    """Of each item: nats of the middle, whether it is found."""
    scored = ask(args, name, "score", [{"text": f"{left} {{{{{middle}}}}} {right}"} for _, left, middle, right in items],
                 "fill", "--score", "--bound-samples", args.bound_samples)
    best = [line["alternatives"][0] for line in scored]
    filled = ask(args, name, "fill",
                 [{"text": f"{left} {{{one['lengths'][0]}}} {right}"} for (_, left, _, right), one in zip(items, best)], "fill")
    return [(-one["log_prob"], any(found["blanks"][0].strip() == middle for found in line["alternatives"]))
            for one, line, (_, _, middle, _) in zip(best, filled, items)]


def causal(args, name, items):
    scored = ask(args, name, "score", [{"input": left, "text": f" {middle}"} for _, left, middle, _ in items], "likelihood")
    found = ask(args, name, "fill", [{"text": left} for _, left, _, _ in items], "generate", "--beam", 1, "--max-len", 40)
    return [(-one["log_prob"], line["text"].split()[:count] == middle.split())
            for one, line, (count, _, middle, _) in zip(scored, found, items)]


def main():
    parser = command_line(__doc__, trains=False)
    parser.add_argument("--runs", required=True, type=Path)
    parser.add_argument("--held-out", required=True)
    parser.add_argument("--models", default="causal,XLNet,AS-ARM,A3,block-diffusion-4,masked-diffusion")
    parser.add_argument("--items", type=int, default=100, help="of each number of missing words")
    parser.add_argument("--bound-samples", type=int, default=32, help="masks of a bound")
    parser.add_argument("--option", action="append", default=[], help="of every command, as --option=--threads=1")
    args = parsed(parser)
    items = make_items(args.held_out, args.items)
    print(f"{len(items)} items\n| model | {' | '.join(f'{count} words' for count in COUNTS)} |\n|---|{'---|' * len(COUNTS)}")
    for model in args.models.split(","):
        answers = [(causal if model == CAUSAL else any_order)(args, f"{model}-{seed}", items) for seed in args.seeds]
        rows = {"nats a word": [], "found": []}
        for count in COUNTS:
            places = [n for n, item in enumerate(items) if item[0] == count]
            nats = [statistics.mean(one[n][0] for n in places) / count for one in answers]
            found = [100 * statistics.mean(one[n][1] for n in places) for one in answers]
            rows["nats a word"].append(f"{statistics.median(nats):.2f} ({' '.join(f'{value:.2f}' for value in nats)})")
            rows["found"].append(f"{statistics.median(found):.0f} % ({' '.join(f'{value:.0f}' for value in found)})")
        for what, cells in rows.items():
            print(f"| {model}, {what} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
