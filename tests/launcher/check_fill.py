"""Asks `anyorder fill` about sentences that a network knows by heart: check_fill.py ANYORDER RUN SENTENCES VOCABULARY OBJECTIVE."""
import json
import math
import os
import pty
import subprocess
import sys

from protobuf import fields

anyorder, run, sentences, vocabulary, objective = sys.argv[1:]
lines = open(sentences).read().splitlines()
exact = objective in ("as_arm", "permutation_lm")


def fill(texts, *options, threads=2):
    """The alternatives of each text; texts may be objects."""
    options = options if "--bound-samples" in options else (*options, "--bound-samples", "32")
    texts = [text if isinstance(text, dict) else {"text": text} for text in texts]
    command = [anyorder, "fill", run, "--input", "-", "--output", "-", "--threads", str(threads), *options]
    done = subprocess.run(command, input="".join(json.dumps(text) + "\n" for text in texts), capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"exit status {done.returncode} of {command}: {done.stderr}")
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert [line["line"] for line in found] == list(range(1, len(texts) + 1))
    assert [line["input"] for line in found] == [text["text"] for text in texts]
    return [line["alternatives"] for line in found]


def pieces():
    """Of the SentencePiece model: (text, type)."""
    messages = [message for number, message in fields(open(vocabulary, "rb").read()) if number == 1]
    return [(piece[1].decode(), piece.get(3, 1)) for piece in map(dict, map(fields, messages))]


def close(a, b):
    return abs(a - b) < 1e-5 * (1 + abs(b))


# Words that no other sentence would have there: the fourth and the last of each.
holes = []
for line in lines:
    words = line.split()
    for at in (3, len(words) - 1):
        holes.append((" ".join(words[:at]), words[at], "".join(" " + word for word in words[at + 1:])))
with_blank = [f"{before} ___{behind}" for before, _, behind in holes]
with_words = [f"{before} {{{{{word}}}}}{behind}" for before, word, behind in holes]

# Unknown length: the right words.
found = fill(with_blank)
right = [texts[0]["blanks"] == [word] and texts[0]["text"] == f"{before} {word}{behind}" for texts, (before, word, behind) in zip(found, holes)]
wrong = [(texts[0]["text"], word) for texts, (_, word, _), ok in zip(found, holes, right) if not ok]
print(f"{objective}: {sum(right)} of {len(right)} words of unknown length; not: {wrong}")
assert sum(right) >= 0.85 * len(right), wrong
# Without what stands behind them, blanks are cut off: that is what the fit is for.
short = fill(with_blank, "--fit-tokens", "0", "--bound-samples", "16")
cut = sum(word.startswith(texts[0]["blanks"][0]) and texts[0]["blanks"][0] != word for texts, (_, word, _) in zip(short, holes))
print(f"{objective}: {cut} of {len(holes)} words are cut off without the fit")
# It is the probability of the next token, which words of one token tell.
compared = 0
asked = [(texts[0], behind.split()) for texts, (_, _, behind) in zip(found, holes) if behind]
told = fill([f"{one['text'][:len(one['text']) - len(' '.join(behind))]}{{{{{behind[0]}}}}} {' '.join(behind[1:])}" for one, behind in asked], "--score")
for (one, behind), (score,) in zip(asked, told):
    if score["lengths"] == [1]:
        compared += 1
        assert close(one["score"], one["log_prob"] / sum(one["lengths"]) + score["log_prob"]), (one, score)
assert compared > 0, told

# Known length: the right words, and the same probability as when they are asked about.
scores = [texts[0] for texts in fill(with_words, "--score")]
known = fill([f"{before} {{{score['lengths'][0]}}}{behind}" for (before, _, behind), score in zip(holes, scores)])
agree = 0
for texts, score, (_, word, _) in zip(known, scores, holes):
    assert len(texts) == 1 and texts[0]["lengths"] == score["lengths"]
    assert score["blanks"] == [word] and score["score"] == score["log_prob"] / score["lengths"][0]
    if texts[0]["blanks"] == [word]:
        agree += 1
        assert close(texts[0]["log_prob"], score["log_prob"]), (texts, score)
        assert texts[0]["is_exact"] == score["is_exact"]
    one_token = score["lengths"] == [1]
    assert score["is_exact"] == (exact or (one_token and objective != "eso_lm")), score
    assert (score["standard_error"] > 0) == (not score["is_exact"]), score
assert agree >= 0.85 * len(holes), agree

# Of all pieces that may stand in a blank of one token, the probabilities sum to at most 1, and the
# greedy one is the likeliest.
before, _, behind = holes[0]
words = [text[1:] for text, kind in pieces() if kind == 1 and text[0] == "\u2581" and text != "\u2581"]
scored = [texts[0] for texts in fill([f"{before} {{{{{word}}}}}{behind}" for word in words], "--score")]
scored = [score for score in scored if score["lengths"] == [1]]
assert len(scored) > 20, len(scored)
total = sum(math.exp(score["log_prob"]) for score in scored)
assert 0 < total <= 1 + 1e-5, total
likeliest = max(scored, key=lambda score: score["log_prob"])
greedy = fill([f"{before} {{1}}{behind}"])[0][0]
assert greedy["log_prob"] >= likeliest["log_prob"] - 1e-5, (greedy, likeliest)
assert greedy["blanks"] != likeliest["blanks"] or close(greedy["log_prob"], likeliest["log_prob"])

# A line's answer depends neither on the others nor on threads.
few = with_blank[:3]
options = ("--alternatives", "3", "--bound-samples", "16", "--max-blank", "4")
together = fill(few, *options)
assert together == fill(few, *options, threads=1)
assert together == [fill([text], *options)[0] for text in few]
# Alternatives differ, the best first; the first is that without others, or better.
for texts, alone in zip(together, fill(few, "--bound-samples", "16", "--max-blank", "4")):
    assert 1 <= len(texts) <= 3 and len({text["text"] for text in texts}) == len(texts)
    assert [text["score"] for text in texts] == sorted((text["score"] for text in texts), reverse=True)
    assert texts[0]["score"] >= alone[0]["score"] - 1e-9
drawn = [fill(few, *options, "--temperature", "1.5", "--seed", seed) for seed in "556"]
assert drawn[0] == drawn[1] != drawn[2]

# The rule by which lengths compare, from options and from lines.
rules = [{}, {"length_penalty": 0}, {"length_penalty": 0.5, "mean_length": 3}, {"mean_length": 1.5}]
text = f"{before} ___{behind} {{2}}"
for rule, texts in zip(rules, fill([{"text": text, "alternatives": 4, "max_blank_tokens": 3, "bound_samples": 8, "fit_tokens": 0, **rule} for rule in rules])):
    for one in texts:
        assert one["lengths"][0] <= 3 and one["lengths"][1] == 2
        mean = rule.get("mean_length")
        prior = (one["lengths"][0] - 1) * math.log(1 - 1 / mean) - math.log(mean) if mean else 0
        assert close(one["score"], (one["log_prob"] + prior) / sum(one["lengths"]) ** rule.get("length_penalty", 1)), (rule, one)
by_option = fill([text], "--alternatives", "4", "--max-blank", "3", "--bound-samples", "8", "--fit-tokens", "0", "--length-penalty", "0.5", "--mean-length", "3")
assert by_option[0] == fill([{"text": text, "alternatives": 4, "max_blank_tokens": 3, "bound_samples": 8, "fit_tokens": 0, **rules[2]}])[0]

# More texts than are written at once.
many, = fill([f"{before} {{1}}{behind}"], "--alternatives", "1000")
assert [one["score"] for one in many] == sorted((one["score"] for one in many), reverse=True)
assert len({tuple(one["blanks"]) for one in many}) == len(many) > 1 and many[0]["score"] >= fill([f"{before} {{1}}{behind}"])[0][0]["score"] - 1e-5

# Several blanks; blanks that touch letters stay within their word; a blank at the beginning.
first = lines[0].split()
several = fill([f"{first[0]} ___ {first[2]} ___ {' '.join(first[4:])}"], "--max-blank", "5")[0][0]
assert several["text"].startswith(first[0] + " ") and len(several["blanks"]) == 2 and "  " not in several["text"], several
word = holes[0][1]
touching = fill([f"{before} {word[0]}{{1}}{behind}", f"{before} {{1}}{word[-1]}{behind}", f"___ {' '.join(first[1:])}"])
assert touching[0][0]["text"].startswith(f"{before} {word[0]}") and touching[0][0]["blanks"][0].strip() == touching[0][0]["blanks"][0]
assert touching[1][0]["text"] == f"{before} {touching[1][0]['blanks'][0]}{word[-1]}{behind}"
assert touching[2][0]["blanks"][0] == first[0] or objective == "block_diffusion", touching[2]

# A reader at a terminal; an identifier; plain lines.
parent, child = pty.openpty()
plain = subprocess.run([anyorder, "fill", run, "--input", "-", "--output", "-", "--bound-samples", "8"], input=with_blank[0] + "\n", stdout=child, stderr=subprocess.PIPE, text=True)
os.close(child)
shown = os.read(parent, 1 << 16).decode()
assert plain.returncode == 0 and "\x1b[4m" in shown and "\r\n   1  " in shown, (shown, plain.stderr)
with open("texts.jsonl", "w") as file:
    file.write(json.dumps({"id": "x7", "text": with_blank[0]}) + "\n")
subprocess.run([anyorder, "fill", "--run-dir", run, "--input", "texts.jsonl", "--output", "filled.jsonl", "--bound-samples", "32"], check=True, stderr=subprocess.DEVNULL)
line = json.loads(open("filled.jsonl").read())
assert line["id"] == "x7" and line["alternatives"] == found[0], line
