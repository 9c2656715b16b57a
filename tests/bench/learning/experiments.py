"""What is run: a list of experiments, each a list of jobs. A job has a key, and a function that returns its records.
"args" are those of run.py."""

import json
import shutil
from functools import partial
from itertools import product
from typing import Callable, NamedTuple

import programs

# The network and the batch of the real-text experiments: configs/xlnet-tiny.toml made smaller.
VOCAB_SIZE = 2000
MODEL = {
    "model.num_layers": 3, "model.model_dim": 128, "model.num_heads": 4, "model.head_dim": 32,
    "model.ffn_dim": 512, "model.init_range": 0.09,
}
TRAINING = {
    "train.global_batch_size": 16, "train.micro_batch_size": 8, "cpu.threads": 1,
    "optimizer.learning_rate": "1e-3", "optimizer.warmup_steps": 80,
}
SPANS_6 = {"sampling.spans": '"subword"', "sampling.num_predict": 21, "sampling.mask_alpha": 6}
SINGLE_6 = SPANS_6 | {"sampling.spans": '"single"'}
SPANS_7 = SPANS_6 | {"sampling.num_predict": 18, "sampling.mask_alpha": 7}
# BERT's input with 21 of 128 tokens as targets: as many as the permutation objective has with K =
# 6.
DENOISING = {"sampling.mask_fraction": 0.1640625}

# One row of the paper's ablation table each: what differs from the first.
VARIANTS = {
    "k6": {},
    "no memory": {"model.mem_len": 0},
    "single tokens": SINGLE_6,
    "one direction": {"sampling.bidirectional": "false"},
    "k7": SPANS_7,
    "dae": DENOISING | {"objective.name": '"dae"', "sampling.perm_size": 256},  # 256: unset
}
# What every variant is asked: 21 or 18 real tokens of a sequence, in both directions, with its own
# memory.
ALWAYS = {"sampling.functional_targets": "false", "sampling.bidirectional": "true"}
QUESTIONS = {"spans K=6": SPANS_6, "single K=6": SINGLE_6, "spans K=7": SPANS_7}
SMOKE = {"model.num_layers": 1, "model.model_dim": 32, "model.num_heads": 1, "model.ffn_dim": 32}
ALL_MASKED = {"sampling.mask_token_prob": 1, "sampling.random_token_prob": 0}


class Job(NamedTuple):
    key: str
    run: Callable


def bench_job(args, key, program, arguments):
    """A program of this folder; its JSON lines are the records."""
    def run():
        output = programs.run([args.binaries / program, *arguments], args.work / f"{program}.log")
        return [json.loads(line) for line in output.splitlines()]
    return Job(f"{key} {program} {' '.join(map(str, arguments))}", run)


def pair(args):
    steps, every, size = (400, 100, ["--firsts", 8, "--branches", 2, "--dim", 32, "--seq-len", 32, "--lr", 4e-3]) \
        if args.smoke else (3000, 100, [])
    for seed in args.seeds:
        common = ["--seed", seed, "--steps", steps, "--every", every, *size]
        for name, extra in (("permutation_lm", []), ("dae", ["--mask-token-prob", 1, "--random-token-prob", 0]),
                            ("dae", []), ("gpt", [])):
            yield bench_job(args, "pair", "pair_bench", ["--objective", name, *extra, *common])


def lag(args):
    steps, every, size = (250, 50, ["--symbols", 8, "--dim", 32]) if args.smoke else (1500, 50, [])
    for seed, distance, memory in product(args.seeds, (24, 10), (0, 32)):
        yield bench_job(args, "lag", "lag_bench",
                        ["--mem", memory, "--lag", distance, "--seed", seed, "--steps", steps, "--every", every, *size])


def longer(args):
    """The copy with memories longer than the model was trained with, by the positions that it has."""
    size = ["--steps", 250, "--symbols", 8, "--dim", 32] if args.smoke else \
        ["--steps", 1200, "--symbols", 16, "--lanes", 16, "--eval-steps", 24]
    for seed, positions in product(args.seeds, ("relative", "learned")):
        job = bench_job(args, "longer", "lag_bench",
                        ["--lag", 24, "--mem", 32, "--every", 100000, "--positions", positions, "--longer", 1, "--seed", seed, *size])
        yield Job(job.key, lambda run=job.run: [record for record in run() if record["bench"] == "lag_longer"])


def unigram(args):
    for spans in ("subword", "single"):
        yield bench_job(args, "unigram", "unigram_bench",
                        ["--train", args.work / "train", "--heldout", args.work / "held-out", "--spans", spans])


def train(args, config, name, seed, steps, values):
    """The run's directory and the metrics of all steps."""
    size = MODEL | (SMOKE if args.smoke else {}) | TRAINING | {"train.steps": steps}
    run_dir = programs.train(args, config, f"{name}-{steps}", seed, size | values)
    return run_dir, programs.metrics_of(run_dir)


def evaluate(args, run_dir, values, *options):
    return programs.evaluate(args, run_dir, "held-out", values, "--threads", 1, *options)


def sums(report):
    """{(direction, part): (targets, loss sum)}"""
    return {(split["direction"], split["part"]): (split["targets"], split["loss_sum"]) for split in report["losses"]}


def own_losses(args, run_dir, values):
    """Mean losses of all of the text."""
    report = evaluate(args, run_dir, values, "--batches", 2 if args.smoke else 0, "--seed", 1, "--batch-size", 16)
    return [{"direction": d, "part": p, "targets": n, "nats": loss / n} for (d, p), (n, loss) in sums(report).items() if n]


def curve(metrics, window=20):
    """Mean training loss of each `window` steps."""
    return [[m[-1]["step"], sum(x["loss"] for x in m) / len(m)]
            for m in (metrics[i:i + window] for i in range(0, len(metrics), window))]


def train_and_ask(args, variant, seed, steps):
    differences = VARIANTS[variant]
    run_dir, metrics = train(args, "xlnet-tiny.toml", variant, seed, steps, SPANS_6 | {"model.mem_len": 96} | differences)
    about = {"bench": "ablation", "variant": variant, "seed": seed, "steps": steps}
    records = [about | {"curve": curve(metrics), "targets_a_step": metrics[-1]["targets"]}]

    def ask(question, values):
        for split in own_losses(args, run_dir, values):
            records.append(about | {"question": question} | split)

    if variant == "dae":
        ask("spans K=6", ALWAYS | SPANS_6 | DENOISING | ALL_MASKED)
        ask("spans K=6, 80/10/10", ALWAYS | SPANS_6 | DENOISING)
    else:
        for name, question in QUESTIONS.items():
            ask(name, ALWAYS | question)
    if variant == "k6":
        ask("spans K=6, memory off", ALWAYS | SPANS_6 | {"model.mem_len": 0})
    shutil.rmtree(run_dir)
    return records


def ablation(args):
    steps = 4 if args.smoke else 800
    for seed, variant in product(args.seeds, VARIANTS):
        yield Job(f"ablation {variant} {seed} {steps}", partial(train_and_ask, args, variant, seed, steps))


def train_causally(args, seed, steps):
    """Transformer-XL: perplexity of the held-out text read from left to right, by memory at evaluation."""
    run_dir, metrics = train(args, "transformer-xl-tiny.toml", "transformer-xl", seed, steps,
                             {"sampling.seq_len": 64, "model.mem_len": 64})
    about = {"bench": "causal", "seed": seed, "steps": steps}
    records = [about | {"curve": curve(metrics)}]
    for memory in (0, 64, 128, 256, 512):
        same = ["--same-length"] if memory else []
        report = evaluate(args, run_dir, {}, "--objective", "causal", "--mem-len", memory, "--target-len", 64, *same,
                          "--batch-size", 4, "--batches", 2 if args.smoke else 0)
        records.append(about | {"eval_mem_len": memory, "report": report})
    shutil.rmtree(run_dir)
    return records


def causal(args):
    steps = 4 if args.smoke else 800
    for seed in args.seeds:
        yield Job(f"causal {seed} {steps}", partial(train_causally, args, seed, steps))


def neighbours(args):
    steps, size = (600, ["--symbols", 4, "--dim", 32, "--lr", 4e-3, "--seq-len", 32]) if args.smoke else (1500, [])
    for seed, objective in product(args.seeds, ("gpt", "bert")):
        yield bench_job(args, "neighbour", "neighbour_bench",
                        ["--objective", objective, "--seed", seed, "--steps", steps, "--every", steps, *size])


# In the order of running.
EXPERIMENTS = {
    "unigram": unigram, "pair": pair, "neighbours": neighbours, "lag": lag, "longer": longer,
    "causal": causal, "ablation": ablation,
}
NEEDS_TEXT = {"unigram", "causal", "ablation"}
