#!/usr/bin/env python3
"""launcher/inference/lm_eval_adapter.py in lm-evaluation-harness itself, with tasks of made-up text; and the harness's own model
local-completions, which asks `anyorder serve --http`.

Small runs, a causal one and one of masked diffusion, are trained and evaluated: choices, words to come, windows of long texts, texts to
write, with repeats. Every number and text that the harness keeps of a sample must be what `anyorder serve --stdio` says when it is asked
directly, everything at once or one request after the other, with the draws that are due; what the harness computes of them must follow;
and of the causal run all must be what numpy makes of the exported weights in double, from token ids of the exported tokenizer.json.
"""
import json
import math
import os
import random
import re
import subprocess
import sys
import tempfile
from pathlib import Path

os.environ.update(HF_HUB_OFFLINE="1", HF_DATASETS_OFFLINE="1", HF_EVALUATE_OFFLINE="1", TOKENIZERS_PARALLELISM="false")
home = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)  # for what datasets keeps
os.environ["HF_HOME"] = home.name
try:
    import lm_eval
    import lm_eval.models.openai_completions
    import numpy
    import tokenizers
    from lm_eval.tasks import TaskManager
except ImportError as missing:
    print(f"SKIPPED: {missing}; name an interpreter that has lm_eval in ANYORDER_PARITY_PYTHON")
    sys.exit(77)

import run_programs

ADAPTER = Path(os.environ["ANYORDER_SOURCE"]) / "launcher/inference/lm_eval_adapter.py"
sys.path[:0] = [str(ADAPTER.parent), str(Path(__file__).resolve().parents[1] / "launcher/serve")]
import lm_eval_adapter
from serve_client import Server

PROGRAM = run_programs.PROGRAMS / "anyorder"
LENGTH, SAMPLES, SEED, NUM_DOCUMENTS = 48, 24, 5, 8
SMALL = {"model.num_layers": 2, "model.model_dim": 64, "model.num_heads": 4, "model.head_dim": 16, "model.ffn_dim": 96,
         "sampling.seq_len": LENGTH, "train.global_batch_size": 8, "train.micro_batch_size": 8, "train.steps": 80,
         "optimizer.learning_rate": 3e-3, "optimizer.warmup_steps": 5, "checkpoint.every": 0, "cpu.threads": 1}
RUNS = {"causal": ("llama-tiny", {"model.num_kv_heads": 2}), "masked": ("masked-diffusion-tiny", {})}
# fp32 against double: 2 layers of some 10 rounded operations on sums of up to 96 products move a
# logit by less than 2 * 10 * sqrt(96) * 2^-24 = 1.2e-5 of its size, which is below 8 here, and a
# log-probability, a difference of two such numbers, by twice that.
A_TOKEN = 2e-4
# Two results in fp32 are both that near to the one in double. They differ where other texts are
# computed at the same time: matrix products of another number of rows add in another order. And of
# two tokens whose log-probabilities are nearer to one another, either may be the likelier.
APART = 2 * A_TOKEN
TASKS = {
    "choices": {"output_type": "multiple_choice", "doc_to_text": "{{context}} ", "doc_to_choice": "{{choices}}",
                "doc_to_target": "{{answer}}", "repeats": 2, "metric_list": [{"metric": "acc"}, {"metric": "acc_norm"}]},
    "words": {"output_type": "loglikelihood", "doc_to_text": "{{context}}", "target_delimiter": " ", "doc_to_target": "{{words}}",
              "metric_list": [{"metric": "perplexity"}, {"metric": "acc"}]},
    "rolling": {"output_type": "loglikelihood_rolling", "doc_to_text": "", "doc_to_target": "{{text}}",
                "metric_list": [{"metric": "word_perplexity"}, {"metric": "byte_perplexity"}, {"metric": "bits_per_byte"}]},
    "written": {"output_type": "generate_until", "doc_to_text": "{{context}}", "doc_to_target": "{{words}}",
                "generation_kwargs": {"until": ["e ", "?"], "max_gen_toks": 12, "do_sample": False}, "metric_list": [{"metric": "exact_match"}]},
    "drawn": {"output_type": "generate_until", "doc_to_text": "{{context}}", "doc_to_target": "{{words}}", "repeats": 3,
              "generation_kwargs": {"until": [], "max_gen_toks": 10, "do_sample": True, "temperature": 1.5},
              "metric_list": [{"metric": "exact_match"}]},
}


def documents(rng, text, number):
    """Of sentences of the text; contexts of a word, of none, and of more than the models read."""
    sentences = [line.rstrip(".").lower().split() for line in text.splitlines() if line.count(" ") > 4]
    for n in range(number):
        first, second = rng.sample(sentences, 2)
        long = sum(rng.sample(sentences, 12), [])
        context = {0: [], 1: first[:1], 2: long}.get(n, first[:4])
        kinds = [first[4:6], second[:1], second[:3], first[5:6] + second[-1:]]
        yield {"context": " ".join(context), "choices": [" ".join(words) for words in kinds], "answer": n % 4,
               "words": " ".join(first[4:6]), "text": " ".join(long if n == 2 else first)}


def write_tasks(folder, rng):
    """A file a task, and their documents."""
    rows = list(documents(rng, (folder / "text.txt").read_text(), NUM_DOCUMENTS))
    (folder / "tasks").mkdir()
    (folder / "documents.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    for name, task in TASKS.items():  # JSON is YAML, too
        (folder / f"tasks/{name}.yaml").write_text(json.dumps({
            "task": name, "dataset_path": "json", "dataset_kwargs": {"data_files": {"test": str(folder / "documents.jsonl")}},
            "test_split": "test", **task}))


def ask(run, requests, batch):
    """What the program says, so many requests at once."""
    lines = "".join(json.dumps({"id": n, **request}) + "\n" for n, request in enumerate(requests))
    done = subprocess.run([PROGRAM, "serve", run, "--stdio", "--threads", "1", "--max-batch", str(batch)], input=lines, capture_output=True,
                          text=True)
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    if done.returncode != 0 or [answer["id"] for answer in answers] != list(range(len(requests))):
        sys.exit(f"serve ended with {done.returncode}: {done.stderr}{done.stdout}")
    errors = [answer["error"]["message"] for answer in answers if "error" in answer]
    if errors:
        sys.exit(f"serve refuses what is asked directly: {errors[0]}")
    return answers


def due(task, document, repeat, arguments):
    """The request for a sample, written without the adapter's help but for the numbers of draws."""
    bound = {"bound_samples": SAMPLES, "seed": lm_eval_adapter.numbered(SEED, task, document, repeat)}
    kind = TASKS[task]["output_type"]
    if kind == "loglikelihood_rolling":
        return {"op": "rolling", "text": arguments[0], **bound}
    if kind != "generate_until":
        context, continuation = arguments
        spaces = re.search(r"\s*$", context).group()
        return {"op": "score", "context": context[:len(context) - len(spaces)], "continuation": spaces + continuation, "wants_greedy": True,
                "cut_context": True, **bound}
    options = TASKS[task]["generation_kwargs"]
    return {"op": "complete", "prompt": arguments[0], "max_tokens": options["max_gen_toks"], "stop": options["until"], "seed": SEED,
            "temperature": options.get("temperature", 0), "first_stream": lm_eval_adapter.numbered(task, document, repeat), "cut_context": True}


def said(request, answer):
    """As the harness keeps it."""
    if request["op"] == "complete":
        return answer["completions"][0]["text"]
    return answer["log_prob"] if request["op"] == "rolling" else (answer["log_prob"], answer["is_greedy"])


def agree(request, ours, other):
    """Whether two answers to a request are the same but for rounding. A bound is a mean of sums over all tokens, too, each counted once on
    average, so that it moves as far."""
    if request["op"] == "complete":
        return ours == other["completions"][0]["text"]
    ours, greedy = (ours, None) if request["op"] == "rolling" else ours
    return abs(ours - other["log_prob"]) <= APART * other["tokens"] and greedy in (None, other["is_greedy"])


class Samples:
    """What the harness keeps: [(task, document, number of the request, repeat, arguments, response)]."""

    def __init__(self, results):
        self.rows = [(task, sample["doc_id"], n, repeat, arguments, response)
                     for task, samples in results["samples"].items() for sample in samples
                     for n, (arguments, responses) in enumerate(zip(sample["arguments"], sample["resps"]))
                     for repeat, response in enumerate(responses)]
        self.requests = [due(task, document, repeat, arguments) for task, document, _, repeat, arguments, _ in self.rows]

    def of(self, task, repeat=0):
        return [(row, request) for row, request in zip(self.rows, self.requests) if row[0] == task and row[3] == repeat]


def value(response):
    return response if isinstance(response, (str, float)) else tuple(response)


def metric_faults(results, samples):
    """The harness's metrics, from the responses."""
    found, first = results["results"], {task: [value(row[5]) for row, _ in samples.of(task)] for task in TASKS}
    choices = [first["choices"][i:i + 4] for i in range(0, len(first["choices"]), 4)]
    right = [max(range(4), key=lambda n: chosen[n][0]) == document % 4 for document, chosen in enumerate(choices)]
    texts = [row[4][0] for row, _ in samples.of("rolling")]
    wanted = {("choices", "acc"): sum(right) / len(right),
              ("words", "perplexity"): math.exp(-sum(log_prob for log_prob, _ in first["words"]) / len(first["words"])),
              ("words", "acc"): sum(greedy for _, greedy in first["words"]) / len(first["words"]),
              ("rolling", "byte_perplexity"): math.exp(-sum(first["rolling"]) / sum(len(text.encode()) for text in texts))}
    for (task, metric), number in wanted.items():
        if not math.isclose(found[task][metric + ",none"], number, rel_tol=1e-9):
            yield f"{metric} of {task} is {found[task][metric + ',none']}, but its samples make {number}"


class Causal:
    """An exported Llama in numpy, in double."""

    def __init__(self, folder, run):
        run_programs.export(run, folder / "hf")
        self.length = LENGTH
        self.config, blob = json.loads((folder / "hf/config.json").read_text()), (folder / "hf/model.safetensors").read_bytes()
        begin = 8 + int.from_bytes(blob[:8], "little")
        header = json.loads(blob[8:begin])
        header.pop("__metadata__", None)
        self.weights = {name: numpy.frombuffer(blob[begin:][slice(*tensor["data_offsets"])], "<f4").reshape(tensor["shape"]).astype(float)
                        for name, tensor in header.items()}
        self.tokenizer = tokenizers.Tokenizer.from_file(str(folder / "hf/tokenizer.json"))
        self.pieces = [piece for piece, _ in json.loads((folder / "hf/tokenizer.json").read_text())["model"]["vocab"]]
        self.end = self.pieces.index("<eod>")  # ends a document, and stands before the first
        self.banned = [n for n, piece in enumerate(self.pieces) if piece[0] == "<" and n != self.end]  # no texts

    def encode(self, texts):
        return [encoding.ids for encoding in self.tokenizer.encode_batch(texts, add_special_tokens=False)]

    def norm(self, x, name):
        return x / numpy.sqrt((x * x).mean(-1, keepdims=True) + self.config["rms_norm_eps"]) * self.weights[name]

    def rotated(self, x):
        half = x.shape[-1] // 2
        angles = numpy.arange(x.shape[0])[:, None] * self.config["rope_theta"] ** (-numpy.arange(half) / half)
        cos, sin, a, b = numpy.cos(angles)[:, None], numpy.sin(angles)[:, None], x[..., :half], x[..., half:]
        return numpy.concatenate([a * cos - b * sin, b * cos + a * sin], -1)

    def attention(self, x, p):
        heads, groups = self.config["num_attention_heads"], self.config["num_key_value_heads"]
        q, k, v = ((x @ self.weights[f"{p}{kind}_proj.weight"].T).reshape(len(x), number, -1)
                   for kind, number in zip("qkv", (heads, groups, groups)))
        q, k, v = self.rotated(q), self.rotated(k).repeat(heads // groups, 1), v.repeat(heads // groups, 1)
        scores = numpy.einsum("ihd,jhd->hij", q, k) / math.sqrt(q.shape[-1])
        scores[:, numpy.triu(numpy.ones((len(x), len(x)), bool), 1)] = -math.inf
        shares = numpy.exp(scores - scores.max(-1, keepdims=True))
        shares /= shares.sum(-1, keepdims=True)
        return numpy.einsum("hij,jhd->ihd", shares, v).reshape(len(x), -1) @ self.weights[p + "o_proj.weight"].T

    def log_probs(self, tokens):
        """[tokens, words]: of the one behind each."""
        x = self.weights["model.embed_tokens.weight"][tokens]
        for layer in range(self.config["num_hidden_layers"]):
            p = f"model.layers.{layer}."
            x = x + self.attention(self.norm(x, p + "input_layernorm.weight"), p + "self_attn.")
            y = self.norm(x, p + "post_attention_layernorm.weight")
            gate, up, down = (self.weights[f"{p}mlp.{kind}_proj.weight"].T for kind in ("gate", "up", "down"))
            x = x + ((y @ gate) / (1 + numpy.exp(-(y @ gate))) * (y @ up)) @ down
        logits = self.norm(x, "model.norm.weight") @ self.weights["lm_head.weight"].T
        logits -= logits.max(-1, keepdims=True)
        return logits - numpy.log(numpy.exp(logits).sum(-1, keepdims=True))

    def score(self, given, tokens):
        """(log-probability of the tokens behind the first `given`, how many, whether they are the likeliest, by how much the likeliest of
        each place is likelier than the next at least)."""
        if given == 0:
            given, tokens = 1, [self.end] + tokens
        dropped = max(0, len(tokens) - self.length)
        given, tokens = given - dropped, tokens[dropped:]
        rows, asked = self.log_probs(tokens)[given - 1:-1], tokens[given:]
        leads = [row[-1] - row[-2] for row in numpy.sort(rows)]
        return sum(row[token] for row, token in zip(rows, asked)), len(asked), [row.argmax() for row in rows] == asked, min(leads, default=math.inf)

    def write(self, prompt, most, stops):
        """The likeliest text, and by how much each token is likelier than the next at least."""
        tokens, lead = prompt[-(self.length - most):] or [self.end], math.inf
        begin = len(tokens)
        while len(tokens) < begin + most and (len(tokens) == begin or tokens[-1] != self.end):
            row = self.log_probs(tokens)[-1]
            row[self.banned] = -math.inf
            second, first = numpy.argsort(row)[-2:]
            lead = min(lead, row[first] - row[second])
            tokens.append(int(first))
        text = "".join(self.pieces[token] for token in tokens[begin:] if token != self.end).replace("\u2581", " ")
        text = text if prompt else text.removeprefix(" ")
        return text[:min([text.find(stop) for stop in stops if stop in text], default=None)], lead


def causal_faults(model, samples):
    """Where a response is not what numpy makes of it."""
    asked = [(row, request) for task in TASKS for row, request in samples.of(task)]
    contexts = model.encode([request.get("context", request.get("prompt", "")) for _, request in asked])
    wholes = model.encode([request.get("text", request.get("context", "") + request.get("continuation", "")) for _, request in asked])
    checked = {task: 0 for task in TASKS}
    for (row, request), context, whole in zip(asked, contexts, wholes):
        task, response = row[0], value(row[5])
        if task == "written":
            text, lead = model.write(context, request["max_tokens"], request["stop"])
            is_right = text == response or lead < APART
        elif task == "drawn" or (task == "rolling" and len(whole) >= model.length):  # drawn here; in windows
            continue
        else:
            log_prob, tokens, is_greedy, lead = model.score(len(context), whole)
            ours, greedy = (response, None) if task == "rolling" else response
            is_right = abs(ours - log_prob) < A_TOKEN * tokens and (greedy in (None, is_greedy) or lead < APART)
            text = (log_prob, is_greedy)
        checked[task] += 1
        if not is_right:
            yield f"{task}, document {row[1]}, request {row[2]}: {response!r}, but of the exported weights {text!r}"
    yield from (f"nothing of {task} was compared" for task, number in checked.items() if not number and task != "drawn")
    print("  as numpy computes it:", ", ".join(f"{number} of {task}" for task, number in checked.items() if number))


def evaluate(folder, run):
    model = lm_eval_adapter.AnyorderLM(run, anyorder=PROGRAM, samples=SAMPLES, seed=SEED, threads=1, batch_size=4)
    return lm_eval.simple_evaluate(model, tasks=list(TASKS), task_manager=TaskManager(include_path=str(folder / "tasks"), include_defaults=False),
                                   bootstrap_iters=0)


def evaluate_over_http(folder, run, end):
    """The same by local-completions, which reads token ids of the exported tokenizer.json, and leaves one of the tokens for an answer."""
    with Server(PROGRAM, "--threads", 1, "--max-tokens", 64, run=run) as server:
        arguments = {"model": server.model, "base_url": f"http://127.0.0.1:{server.port}/v1/completions", "tokenizer": str(folder / "hf"),
                     "max_length": LENGTH, "custom_prefix_token_id": end, "num_concurrent": 1}
        # Of a context that is only a space it makes no token, which it does not take (ctxlen > 0).
        chosen = {task: list(range(task == "choices", NUM_DOCUMENTS)) for task in TASKS}
        return lm_eval.simple_evaluate("local-completions", model_args=arguments, tasks=list(TASKS), batch_size=4, bootstrap_iters=0, samples=chosen,
                                       task_manager=TaskManager(include_path=str(folder / "tasks"), include_defaults=False))


def http_faults(folder, run, model):
    samples = Samples(evaluate_over_http(folder, run, model.end))
    model.length = LENGTH - 1
    yield from (f"local-completions: {fault}" for fault in causal_faults(model, samples))


def repeat_faults(samples, can_score_exactly):
    """Whether repeats are drawn anew, where something is drawn."""
    def differ(task):
        pairs = [(value(a[5]), value(b[5])) for (a, _), (b, _) in zip(samples.of(task), samples.of(task, 1))]
        return any(a != b if isinstance(a, str) else abs(a[0] - b[0]) > APART * LENGTH for a, b in pairs)
    if not differ("drawn"):
        yield "repeats draw the same texts"
    if differ("choices") == can_score_exactly:
        yield f"repeats of a probability {'differ' if can_score_exactly else 'have the same draws'}"


def margins(results, samples, together, alone):
    """{(task, metric): by how much rounding may change it}: the share of documents that it decides about, and nats of the words."""
    rows = [(row, a, b) for row, a, b in zip(samples.rows, together, alone) if row[3] == 0]
    words = [(a, b) for row, a, b in rows if row[0] == "words"]

    def is_undecided(document, size):
        *others, (first, moves) = sorted((a["log_prob"] / size(row), APART * a["tokens"] / size(row)) for row, a, _ in rows
                                         if row[0] == "choices" and row[1] == document)
        return any(first - other < moves + also for other, also in others)

    def share(size):
        return sum(is_undecided(document, size) for document in range(NUM_DOCUMENTS)) / NUM_DOCUMENTS
    nats = APART * sum(a["tokens"] for a, _ in words) / len(words)
    return {("choices", "acc,none"): share(lambda row: 1), ("choices", "acc_norm,none"): share(lambda row: len(row[4][1].strip())),
            ("words", "acc,none"): sum(a["is_greedy"] != b["is_greedy"] for a, b in words) / len(words),
            ("words", "perplexity,none"): results["results"]["words"]["perplexity,none"] * math.expm1(nats)}


def command_faults(folder, run, results, margin_of):
    """The same by the command line, for the installed harness to find the model and the tasks."""
    done = subprocess.run([sys.executable, ADAPTER, "--model_args", f"run={run},anyorder={PROGRAM},samples={SAMPLES},seed={SEED}", "--tasks",
                           "choices,words", "--include_path", folder / "tasks", "--output_path", folder / "results"],
                          capture_output=True, text=True)
    files = list((folder / "results").rglob("results*.json"))
    if done.returncode != 0 or len(files) != 1:
        yield f"the command ended with {done.returncode} and left {files}:\n{done.stdout}{done.stderr}"
        return
    found = json.loads(files[0].read_text())
    for (task, metric), margin in margin_of.items():
        ours, there = results["results"][task][metric], found["results"][task].get(metric)
        if there is None or abs(ours - there) > margin:
            yield f"the command says {metric} of {task} is {there}, not {ours}"
    if Path(found["config"]["run"]).resolve() != run.resolve() or found["config"]["samples"] != SAMPLES:
        yield f"the command's results do not say of which run they are: {found['config']}"


def compare_run(folder, name, shards):
    config, changes = RUNS[name]
    run = folder / name
    run_programs.launch(run, {**SMALL, **changes, "data.shards": shards}, config)
    results = evaluate(folder, run)
    samples = Samples(results)
    together, alone = (ask(run, samples.requests, batch) for batch in (64, 1))
    print(f"{name}: {len(alone)} responses;", ", ".join(
        f"{key.split(',')[0]} of {task} {number:.4g}" for task, metrics in results["results"].items() for key, number in metrics.items()
        if isinstance(number, float)))
    for row, request, *answers in zip(samples.rows, samples.requests, together, alone):
        if not any(agree(request, value(row[5]), answer) for answer in answers):
            yield f"{row[0]}, document {row[1]}, repeat {row[3]}: {row[5]!r}, but asked directly {[said(request, answer) for answer in answers]}"
    yield from metric_faults(results, samples)
    yield from repeat_faults(samples, results["config"]["can_score_exactly"])
    if name == "causal":
        model = Causal(folder, run)
        yield from causal_faults(model, samples)
        yield from http_faults(folder, run, model)
    else:
        yield from command_faults(folder, run, results, margins(results, samples, together, alone))


def main():
    print("lm_eval", lm_eval.__version__, "numpy", numpy.__version__)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        shards = run_programs.prepare_text(folder)
        write_tasks(folder, random.Random(2))
        faults = [f"{name}: {fault}" for name in RUNS for fault in compare_run(folder, name, shards)]
    return run_programs.conclude(faults, "every response is what serve says, and of the causal run what numpy computes")


if __name__ == "__main__":
    sys.exit(main())
