#!/usr/bin/env python3
"""Bits a token of nine any-order models of one size: what predicting in another order than the text's costs.

Trains causal, block diffusion with blocks of 2, 4, 8 and 16, masked diffusion, A3, AS-ARM and XLNet on the same text, each with the
objective of its configuration and all with the same network, so that parameters are equal. The learning rate is constant after its
warm-up and scores are of the average of the weights, so that a checkpoint in the middle is a finished model of fewer steps. Prints
held-out bits a token

  at equal tokens   after all steps
  at equal compute  after as many steps as cost the CPU time of the cheapest model's (the checkpoint nearest to that)

A number is exact (one pass has the probability of the text) or the bound that the objective gives (of masks or orders, the mean over
draws). The first token of a window of 128 is given in all: models that predict it, too, are scored with it, and what it costs, which
is measured with windows of one token, is taken out.

Usage: orders.py --anyorder BIN --text FILE --held-out FILE --work DIR [--seeds 1,2,3] [--models causal,...]
A finished run or score in DIR is not made again.
"""
import math
import statistics

from programs import command_line, evaluate, kept, parsed, prepare, train

LENGTH, LANES = 128, 16
NETWORK = {"model.model_dim": 128, "model.num_heads": 2, "model.ffn_dim": 512, "model.layer_norm": "pre",
           "model.layer_norm_epsilon": 1e-5, "model.positions": "rope", "model.segments": "none", "model.mem_len": 0,
           "model.attention_biases": "false", "model.softmax_bias": "true"}
OPTIMIZER = {"optimizer.learning_rate": 1e-3, "optimizer.warmup_steps": 100, "optimizer.decay": "constant",
             "optimizer.adam_epsilon": 1e-8, "optimizer.min_learning_rate_ratio": 0, "optimizer.ema_decay": 0.99}
GIVEN = {"sampling.keep_first_token": "true"}
COUNTED = {"sampling.mask_draw": "count", "sampling.mask_rate_min": 0, "sampling.mask_rate_max": 1}
SINGLE = {"sampling.group_len_min": 1, "sampling.group_len_max": 1}
TEXT = {"sampling.group_order": "text"}
EMPTY = {"sampling.prompt_fraction_min": 0, "sampling.prompt_fraction_max": 0}
ALONE = {"sampling.seq_len": 1}


def own(values, draws=1, alone=None):
    """The loss of the objective itself with other settings, nats a token, as the mean over draws of masks or orders. `alone` are the
    settings that predict a token from nothing, of objectives that count a window's first token."""
    def nats(ask, seed, batches):
        def loss(changes, *words):
            return ask(changes, *words)["losses"][0]["nats"]
        mean = statistics.mean(loss(values, "--batch-size", LANES, "--batches", batches, "--seed", 100 * seed + draw)
                               for draw in range(draws))
        return without_first(mean, loss(alone, "--batch-size", 512, "--batches", 8)) if alone else mean
    return nats


def causal(ask, _, batches):
    """The text from left to right by a model that was trained on other orders, nats a token."""
    def loss(length, number):
        return ask({}, "--objective", "causal", "--target-len", length, "--batch-size", LANES, "--batches", number)["nats_per_token"]
    return without_first(loss(LENGTH, batches), loss(1, 256))


def without_first(whole, first):
    return (LENGTH * whole - first) / (LENGTH - 1)


def models():
    """{name: (configuration, settings of training, {name of a score: what gives its nats})}"""
    found = {"causal": ("gpt-tiny", {}, {"exact": own({"sampling.seq_len": LENGTH - 1})})}
    for length in (2, 4, 8, 16):
        found[f"block diffusion {length}"] = ("block-diffusion-tiny", {**GIVEN, "sampling.block_len": length},
                                               {"bound": own(COUNTED, draws=2)})
    found["masked diffusion"] = ("masked-diffusion-tiny", GIVEN, {"bound": own(COUNTED, draws=8)})
    found["A3"] = ("a3-tiny", {}, {"exact": own({**SINGLE, **TEXT}, alone={**SINGLE, **TEXT, **ALONE}),
                                   "bound": own(SINGLE, draws=2, alone={**SINGLE, **TEXT, **ALONE})})
    found["AS-ARM"] = ("as-arm-tiny", {}, {"exact": own(EMPTY, alone={**EMPTY, **ALONE})})
    found["XLNet"] = ("xlnet-tiny", {"sampling.bidirectional": "false"}, {"exact": causal})
    return found


def train_model(args, name, seed):
    config, values, _ = models()[name]
    keys = {**NETWORK, **OPTIMIZER, **values, "train.steps": args.steps, "train.global_batch_size": args.batch_size, "cpu.threads": 1,
            "checkpoint.every": args.every, "checkpoint.keep_every": args.every}
    return train(args, f"{config}.toml", name, seed, keys)


def bits(args, run_dir, score, seed, step):
    """Held-out bits a token but a window's first."""
    kind, how = score
    def ask(values, *words):
        return evaluate(args, run_dir, "held-out", values, "--step", step, "--threads", 1, *words)
    return kept(run_dir / f"score-{kind}-{step}.json", lambda: how(ask, seed, args.batches) / math.log(2))


def cost(runs, name):
    """CPU seconds of a step: the least of all runs of its configuration, whose steps do the same work whatever the size of blocks;
    what else runs on a machine only adds to them."""
    config = models()[name][0]
    return min(float((run_dir / "done").read_text()) for (which, _), run_dir in runs.items() if models()[which][0] == config)


def print_table(args, runs):
    costs = {name: cost(runs, name) for name, _ in runs}
    print("| model | number | CPU ms a step | bits a token, equal tokens: median | seeds | step of equal compute | median | seeds |")
    print("|---|---|---|---|---|---|---|---|")
    for name in costs:
        affordable = args.steps * min(costs.values()) / costs[name]
        steps = [args.steps, max(1, round(affordable / args.every)) * args.every]
        for score in models()[name][2].items():
            found = [[bits(args, run_dir, score, seed, step) for (which, seed), run_dir in runs.items() if which == name]
                     for step in steps]
            tokens, compute = (f"{statistics.median(values):.3f} | {', '.join(f'{value:.3f}' for value in values)}" for values in found)
            print(f"| {name} | {score[0]} | {1000 * costs[name]:.0f} | {tokens} | {steps[1]} | {compute} |", flush=True)


def main():
    parser = command_line(__doc__)
    parser.add_argument("--text", required=True)
    parser.add_argument("--held-out", required=True)
    parser.add_argument("--models", default=",".join(models()))
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--batch-size", type=int, default=8, help="sequences of 128 tokens a step")
    parser.add_argument("--every", type=int, default=50, help="steps between checkpoints, which are kept")
    parser.add_argument("--batches", type=int, default=0, help="of 16 held-out windows, which a score is the mean of; 0: all")
    parser.add_argument("--vocab-size", type=int, default=4000)
    args = parsed(parser)
    prepare(args)
    print_table(args, {(name, seed): train_model(args, name, seed) for seed in args.seeds
                       for name in args.models.split(",")})


if __name__ == "__main__":
    main()
