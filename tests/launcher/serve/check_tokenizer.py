"""`anyorder serve`, `generate`, `fill` and `chat` of a run whose tokens are bytes: characters come whole.

Usage: check_tokenizer.py ANYORDER RUN FILLER: a causal run that knows TEXT by heart, and one that fills blanks, of the same data
"""
import json
import random
import subprocess
import sys
from pathlib import Path

from serve_client import Server, answers_of, check_prompts, check_streams

ANYORDER, RUN, FILLER = sys.argv[1:]
TEXT = "\u65e5\u672c\u8a9e \U0001F600 na\u00efve"


def run(*words, text=""):
    done = subprocess.run([ANYORDER, *words], input=text, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


def main():
    facts, count, complete, score = answers_of(ANYORDER, RUN, [
        {"op": "facts"},
        {"op": "tokens", "text": TEXT},
        {"op": "complete", "prompt": TEXT[:2], "max_tokens": 64, "temperature": 0},
        {"op": "score", "context": TEXT[:3], "continuation": TEXT[3:]}])
    print(facts, count, complete, score)
    assert facts["vocab_size"] == 260 and count["tokens"] == len(TEXT.encode())
    completion = complete["completions"][0]
    assert completion["text"] == TEXT[2:] and completion["ended"], "the run does not know its text by heart"
    assert score["log_prob"] < 0 and score["bytes"] == len(TEXT[3:].encode()), score
    fill, words = answers_of(ANYORDER, FILLER, [{"op": "fill", "text": TEXT[:2] + "{1} {2}" + TEXT[3:]}, {"op": "fill", "text": TEXT[:3] + "{{" + TEXT[3:5] + "}}" + TEXT[5:]}])
    print(fill, words)
    filled = fill["alternatives"][0]
    assert filled["lengths"] == [1, 2] and filled["text"] == TEXT[:2] + filled["blanks"][0] + " " + filled["blanks"][1] + TEXT[3:], fill
    assert words["alternatives"][0]["lengths"] == [5] and words["alternatives"][0]["text"] == TEXT, words
    # Of bytes: parts of characters are told with the rest of them.
    with Server(ANYORDER, "--max-batch", 1, run=RUN) as server:
        deltas = server.streamed("/v1/completions", {"prompt": TEXT[:2], "max_tokens": 64, "temperature": 0})
        print(deltas)
        assert "".join(deltas) == completion["text"] and len([delta for delta in deltas if delta]) > 5, deltas
        noise = random.Random(len(deltas))
        check_streams(server, noise, ["", TEXT, TEXT[:2], "a"], keeps_spaces=True)
        check_prompts(server, noise, ["", TEXT, TEXT[:2] + " \n "])
        # Tokens are bytes from 1 on.
        ids = server.expect("/v1/completions", {"prompt": [1 + byte for byte in TEXT[:2].encode()], "max_tokens": 64, "temperature": 0, "echo": True})
        assert ids["choices"][0]["text"] == TEXT, ids
        # What is cut in a character ends with U+FFFD.
        cut = server.expect("/v1/completions", {"prompt": TEXT[:2], "max_tokens": 2, "temperature": 0})
        assert cut["choices"][0]["text"] == "\ufffd", cut
    Path("prompts.txt").write_text(TEXT[:2] + "\n")
    run("generate", RUN, "--input", "prompts.txt", "--output", "texts.jsonl", "--beam", "2")
    written = json.loads(Path("texts.jsonl").read_text().splitlines()[0])
    assert written["text"] == TEXT[2:], written
    # <|im_start|> and <|im_end|> are tokens there.
    assert run("chat", RUN, "--chat-template", "chatml", "--max-tokens", "8", "--temperature", "0", text=TEXT + "\n").count("\n") == 1
    print("characters come whole")


if __name__ == "__main__":
    main()
