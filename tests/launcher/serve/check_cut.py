#!/usr/bin/env python3
"""`anyorder serve --stdio` of a run, asked with `cut_context`: what is too long for the model is computed of the tokens that it reads at
the end of it, and is refused without.

Usage: check_cut.py BIN_DIR RUN TEXT, a run without learned positions, and a text like that which it learned.
"""
import random
import sys

from serve_client import answers_of


def tokens_of(ask, texts):
    return [answer["tokens"] for answer in ask([{"op": "tokens", "text": text} for text in texts])]


def endings(ask, words, continuation, room):
    """Ends of the words, less than all, that have exactly so many tokens together with the continuation."""
    all_, asked = tokens_of(ask, [" ".join(words), continuation]) if continuation else (tokens_of(ask, [" ".join(words)])[0], 0)
    near = len(words) - round((room - asked) / all_ * len(words))
    texts = [" ".join(words[begin:]) for begin in range(max(1, near - 5), min(near + 6, len(words)))]
    sizes = tokens_of(ask, texts + [text + continuation for text in texts])
    return [text for text, size, whole in zip(texts, sizes, sizes[len(texts):]) if size == room - asked and whole == room]


def check_scores(ask, words, length, rng):
    compared = 0
    for _ in range(12):
        begin = rng.randrange(len(words) - 120)
        chosen, continuation = words[begin:begin + 60], " " + " ".join(words[begin + 60:begin + 60 + rng.randint(1, 4)])
        long = {"op": "score", "context": " ".join(chosen), "continuation": continuation}
        for text in endings(ask, chosen, continuation, length):
            cut, refused, whole = ask([{**long, "cut_context": True}, long, {**long, "context": text}])
            assert cut == whole and cut["tokens"] > 0 and cut["log_prob"] < 0, (cut, whole)
            assert f"tokens, but the model has learned to read {length}; shorten it or score it in parts" in refused["error"]["message"], refused
            compared += 1
    assert compared >= 1, "no text has a number of tokens that can be compared"
    short = {"op": "score", "context": words[0], "continuation": " " + words[1]}
    plain, cut = ask([short, {**short, "cut_context": True}])
    assert plain == cut, (plain, cut)
    # A continuation that leaves no room for any context.
    endless, = ask([{"op": "score", "continuation": " ".join(words[:100]), "cut_context": True}])
    assert "shorten it" in endless["error"]["message"], endless


def check_texts(ask, words, length, rng):
    compared, how = 0, {"op": "complete", "method": "sequential", "temperature": 0, "max_tokens": 10}
    for _ in range(8):
        begin = rng.randrange(len(words) - 60)
        chosen = words[begin:begin + 60]
        for text in endings(ask, chosen, "", length - 10):
            asked = {**how, "prompt": " ".join(chosen)}
            cut, refused, whole = ask([{**asked, "cut_context": True}, asked, {**how, "prompt": text}])
            assert cut == whole and cut["completions"][0]["tokens"] <= 10, (cut, whole)
            assert "shorten the prompt or write fewer" in refused["error"]["message"], refused
            compared += 1
    assert compared >= 1, "no prompt has a number of tokens that can be compared"
    much, = ask([{**how, "prompt": words[0], "max_tokens": 500, "min_tokens": 500, "cut_context": True}])
    assert much["completions"][0]["tokens"] == length // 2, much


def main(bin_dir, run, text):
    def ask(requests):
        return answers_of(f"{bin_dir}/anyorder", run, requests, "--threads", "1")

    facts, = ask([{"op": "facts"}])
    rng = random.Random(7)
    with open(text) as file:
        words = file.read().split()
    check_scores(ask, words, facts["seq_len"], rng)
    check_texts(ask, words, facts["seq_len"], rng)
    print("what is too long is computed of its end")


if __name__ == "__main__":
    main(*sys.argv[1:])
