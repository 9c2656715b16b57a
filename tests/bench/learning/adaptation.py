#!/usr/bin/env python3
"""What a causal Llama's weights are worth to masked diffusion, against random weights.

Trains configs/llama-tiny.toml causally, then diffusion models on the same text, with several seeds:

  adapted           from the causal weights, read out at the token's own place, all attention at once
  adapted, shifted  the same, token i read out at place i - 1, where the causal model has it
  adapted, band     the same as shifted, with attention that opens over half of the steps
  scratch           from random weights, as many steps as the adapted ones: equal tokens of diffusion
  scratch, long     from random weights, as many steps as causal and adapted together: equal compute

and prints the held-out bound of each, in nats a token, by the mask counts of LLaDA's evaluation. The bound of a shifted
model leaves out a sequence's first token, which it is given: it is compared with the same bound of the others.

Usage: adaptation.py --anyorder BIN --text FILE --held-out FILE --work DIR [--seeds 1,2,3]
A finished run in DIR is not run again.
"""
from programs import command_line, evaluate, kept, parsed, prepare, print_seeds, train

DIFFUSION = {"objective.name": "masked_diffusion", "sampling.keep_first_token": "true"}
SHIFTED = {"sampling.shifted_readout": "true"}
COUNTED = {"sampling.mask_draw": "count", "sampling.mask_rate_min": 0}


def train_model(args, name, seed, steps, values):
    keys = {"train.steps": steps, "optimizer.warmup_steps": min(200, steps // 10), **values}
    return train(args, "llama-tiny.toml", name, seed, keys)


def bound(args, run_dir):
    """Held-out nats a token."""
    report = kept(run_dir / "bound.json", lambda: evaluate(args, run_dir, "held-out", COUNTED, "--batches", args.batches))
    return report["losses"][0]["nats"]


def runs_of(args, seed):
    """{name: run directory} of the diffusion models."""
    causal = train_model(args, "causal", seed, args.causal_steps, {})
    start = {**DIFFUSION, "train.init_from": causal}
    band = {"sampling.annealing": "band", "sampling.anneal_steps": args.steps // 2}
    return {"adapted": train_model(args, "adapted", seed, args.steps, start),
            "adapted, shifted": train_model(args, "adapted, shifted", seed, args.steps, {**start, **SHIFTED}),
            "adapted, band": train_model(args, "adapted, band", seed, args.steps, {**start, **SHIFTED, **band}),
            "scratch": train_model(args, "scratch", seed, args.steps, DIFFUSION),
            "scratch, long": train_model(args, "scratch, long", seed, args.causal_steps + args.steps, DIFFUSION)}


def main():
    parser = command_line(__doc__)
    parser.add_argument("--text", required=True)
    parser.add_argument("--held-out", required=True)
    parser.add_argument("--causal-steps", type=int, default=2000)
    parser.add_argument("--steps", type=int, default=1000, help="of the adapted models")
    parser.add_argument("--vocab-size", type=int, default=8000)
    parser.add_argument("--batches", type=int, default=0, help="held-out batches a bound is the mean of; 0: all")
    args = parsed(parser)
    prepare(args)
    bounds = {}
    for seed in args.seeds:
        for name, run_dir in runs_of(args, seed).items():
            bounds.setdefault(name, []).append(bound(args, run_dir))
            print(f"seed {seed}: {name} {bounds[name][-1]:.4f}", flush=True)
    print_seeds("weights", args, bounds)


if __name__ == "__main__":
    main()
