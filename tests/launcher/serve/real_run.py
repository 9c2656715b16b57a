"""`anyorder serve` of a run: whichever way a request comes, its answer is the same.

Usage: real_run.py ANYORDER RUN VOCABULARY
"""
import random
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from serve_client import Server, answers_of, check_prompts, check_streams

ANYORDER, RUN, VOCABULARY = sys.argv[1:]
# A run that learned the first words of documents, at least.
PROMPTS = [" ".join(line.split()[:3]) for line in open(Path(VOCABULARY).parents[1] / "corpus.txt") if len(line.split()) > 3][:6]


def lines(requests):
    answers = answers_of(ANYORDER, RUN, requests, "--vocab", VOCABULARY, "--max-batch", "1")
    assert len(answers) == len(requests), answers
    return answers


def close(a, b):
    # What else is in the batch may change the order of sums.
    return abs(a - b) <= 1e-4 * max(1, abs(a))


def check_local_completions(server):
    """lm-evaluation-harness's sums of log-probabilities are what /v1/score says of the same tokens."""
    words = sorted({word for prompt in PROMPTS for word in prompt.split()})
    counts = lines([{"op": "tokens", "text": word} for word in words])
    first_words = [word for word, count in zip(words, counts) if count["tokens"] == 1]
    assert first_words, "no word is a token"
    for first_word, prompt in zip(first_words, PROMPTS):
        prompt = first_word + " " + prompt
        found = server.expect("/v1/completions", {"prompt": [prompt], "max_tokens": 1, "temperature": 0, "logprobs": 1, "seed": 1234, "echo": True})["choices"][0]["logprobs"]
        score = server.expect("/v1/score", {"context": first_word, "continuation": prompt[len(first_word):]})
        inner = slice(1, -1)
        assert found["tokens"][0] == first_word and score["tokens"] == len(found["tokens"][inner]), (found, score)
        assert close(score["log_prob"], sum(found["token_logprobs"][inner])), (found, score)
        is_greedy = all(tok == max(top.values()) for tok, top in zip(found["token_logprobs"][inner], found["top_logprobs"][inner]))
        assert is_greedy == score["is_greedy"], (found, score)


def main():
    facts = lines([{"op": "facts"}])[0]
    print(facts)
    complete = [{"id": n, "op": "complete", "prompt": prompt, "max_tokens": 8, "seed": 3, "method": method, "show_written": True}
                for n, prompt in enumerate(PROMPTS) for method in facts["methods"]]
    together = lines(complete)
    alone = [lines([request])[0] for request in complete[:3]]
    for answer in together:
        assert "error" not in answer and len(answer["completions"]) == 1, answer
        assert 1 <= answer["completions"][0]["tokens"] <= 8 and answer["completions"][0]["log_prob"] < 0, answer
    for one, other in zip(alone, together):
        assert one["completions"][0]["text"] == other["completions"][0]["text"], (one, other)
    scores = lines([{"op": "score", "context": PROMPTS[0], "continuation": " and more"}, {"op": "rolling", "text": " ".join(PROMPTS * 9), "bound_samples": 8}])
    print(scores)
    if "error" not in scores[0]:
        assert scores[0]["log_prob"] < 0 and scores[1]["windows"] > 1 and scores[1]["log_prob"] < scores[0]["log_prob"], scores
    # One text at a time: a product may round otherwise for another number of rows.
    with Server(ANYORDER, "--vocab", VOCABULARY, "--max-batch", 1, run=RUN) as server:
        model = server.expect("/v1/models")["data"][0]
        assert model["id"] == Path(RUN).name and model["step"] == facts["step"] and model["methods"] == facts["methods"]

        def ask(n):
            body = {key: complete[n][key] for key in ("prompt", "max_tokens", "seed", "method")}
            if n % 2 == 0:
                return server.expect("/v1/completions", body)["choices"][0]["text"]
            return "".join(server.streamed("/v1/completions", body))

        with ThreadPoolExecutor(len(complete)) as pool:
            texts = list(pool.map(ask, range(len(complete))))
        assert texts == [answer["completions"][0]["text"] for answer in together], (texts, together)
        if "error" not in scores[0]:
            again = server.expect("/v1/score", {"context": PROMPTS[0], "continuation": " and more"})
            assert close(again["log_prob"], scores[0]["log_prob"]), (again, scores[0])
        noise = random.Random(3)
        check_streams(server, noise, ["", *PROMPTS])
        check_prompts(server, noise, ["", *PROMPTS])
        check_local_completions(server)
        status, answer = server.ask("/v1/completions", {"prompt": "a " * 3000, "max_tokens": 8, "method": facts["methods"][-1]})
        assert status == 413 and answer["error"]["code"] == "too_long", (status, answer)
        # A beginning tells; what cleaning takes away is no token, however many bytes it has.
        status, answer = server.ask("/v1/completions", {"prompt": "a " * 400000, "max_tokens": 1})
        assert status == 413 and "the first 65536 bytes of a text have" in answer["error"]["message"], (status, answer)
        assert server.expect("/v1/completions", {"prompt": PROMPTS[0] + "\u3000" * 170000, "max_tokens": 1})["choices"]
        # Blanks count, too.
        status, answer = server.ask("/v1/infill", {"text": "a " + "{%d} " % facts["seq_len"] * 40})
        assert status in (413, 422), (status, answer)
        if facts["can_score_exactly"]:
            status, answer = server.ask("/v1/completions", {"prompt": [5] * (facts["seq_len"] + 1), "echo": True, "logprobs": 1, "max_tokens": 1})
            assert status == 413, (status, answer)
    # Side by side with others, of other seeds and lengths.
    with Server(ANYORDER, "--vocab", VOCABULARY, "--max-batch", 4, run=RUN) as server:
        def seeded(n):
            body = {"prompt": PROMPTS[n % len(PROMPTS)], "max_tokens": 1 + 3 * (n % 5), "seed": n, "method": facts["methods"][0], "n": 1 + n % 2}
            return [choice["text"] for choice in server.expect("/v1/completions", body)["choices"]]

        apart = [seeded(n) for n in range(12)]
        with ThreadPoolExecutor(12) as pool:
            assert list(pool.map(seeded, range(12))) == apart
    for method in facts["methods"]:
        request = {"op": "complete", "prompt": PROMPTS[0], "max_tokens": 40, "min_tokens": 40 - 1, "seed": 2, "method": method}
        whole = lines([request])[0]["completions"][0]
        middle = whole["text"][len(whole["text"]) // 3:][:3]
        stopped = lines([{**request, "stop": [middle]}])[0]["completions"][0]
        assert whole["text"].startswith(stopped["text"] + middle), (method, whole, stopped)
        assert stopped["tokens"] < whole["tokens"] and stopped["ended"], (method, whole, stopped)
        if method in ("left-to-right", "sequential"):
            assert stopped["passes"] == stopped["tokens"] < whole["passes"], (method, whole, stopped)
    print("the same whichever way")


if __name__ == "__main__":
    main()
