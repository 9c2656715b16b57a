#!/usr/bin/env python3
"""What masked diffusion learns of instructions (`masked_diffusion_sft`): the loss of held-out answers, before and after.

Makes conversations of three kinds, training and held-out apart (no held-out prompt is a training prompt): sums of two numbers,
letters to write backwards, and what somebody has of a list of people and things. `anyorder prep --chat-template` writes them as
text in words; for each seed configs/finetune/diffusion-sft-tiny.toml, made smaller, trains from random weights. Then `anyorder eval`:

  before     the bound of the held-out answers' negative log-likelihood with random weights, nats a token; known: ln V, and more by as
             much as random logits differ
  after      the same after the last step
  exchanged  after, with every prompt another one's of its kind: what of the answer does not depend on its prompt

That only answers are masked and counted is checked in the same evaluation at a mask rate of 1: its targets must be as many as the
answers have words, the template's end and <eod>.

Usage: instructions.py --anyorder BIN --work DIR [--seeds 1,2,3] [--steps 1500]
A finished run in DIR is not run again.
"""
import json
import math
import random

from programs import command_line, evaluate, parsed, print_seeds, run, train

CONFIG = "finetune/diffusion-sft-tiny.toml"
SMALL = {"model.model_dim": 128, "model.head_dim": 32, "model.ffn_dim": 512, "sampling.seq_len": 48, "optimizer.learning_rate": 1e-3,
         "cpu.threads": 1}
TEMPLATE = "{message}{role} : {content} ; "
NAMES, THINGS = "anna ben carl dora emil frida gus hanna".split(), "apples pears plums nuts figs eggs keys coins".split()


def digits(number):
    return " ".join(str(number))


def conversation(rng):
    """(kind, prompt, answer) in words, which are what stands between spaces."""
    kind = rng.choice(["sum", "reversal", "lookup"])
    if kind == "sum":
        a, b = rng.randrange(100), rng.randrange(100)
        return kind, rng.choice(["what is {} plus {} ?", "add {} to {} ."]).format(digits(a), digits(b)), digits(a + b)
    if kind == "reversal":
        letters = [rng.choice("abcdefghij") for _ in range(rng.randint(3, 6))]
        return kind, rng.choice(["write {} backwards .", "say {} from the end ."]).format(" ".join(letters)), " ".join(letters[::-1])
    names = rng.sample(NAMES, 3)
    owned = [f"{rng.randrange(2, 10)} {rng.choice(THINGS)}" for _ in names]
    asked = rng.randrange(3)
    listed = " , ".join(f"{name} has {thing}" for name, thing in zip(names, owned))
    return kind, f"{listed} . what does {names[asked]} have ?", owned[asked]


def make(args):
    """Writes training and held-out conversations, and the latter with their prompts exchanged within a kind; gives the latter."""
    rng = random.Random(11)
    found = {}
    while len(found) < args.examples + args.held_out:
        kind, prompt, answer = conversation(rng)
        found[prompt] = (kind, answer)
    rows = [(prompt, kind, answer) for prompt, (kind, answer) in found.items()]
    rng.shuffle(rows)
    training, held_out = rows[args.held_out:], rows[:args.held_out]
    exchanged = []
    for kind in ("sum", "reversal", "lookup"):
        own = [row for row in held_out if row[1] == kind]
        exchanged += [(other[0], kind, row[2]) for row, other in zip(own, own[1:] + own[:1])]
    for name, part in (("train", training), ("held-out", held_out), ("exchanged", exchanged)):
        with open(args.work / f"{name}.jsonl", "w", encoding="utf-8") as out:
            for prompt, _, answer in part:
                messages = [{"role": "user", "content": prompt}, {"role": "assistant", "content": answer}]
                out.write(json.dumps({"messages": messages}) + "\n")
    with open(args.work / "words.txt", "w", encoding="utf-8") as out:
        out.writelines(f"user : {prompt} ; assistant : {answer} ; \n" for prompt, _, answer in training)
    return held_out


def prepare(args):
    log = args.work / "prep.log"
    if not (args.work / "words" / "dataset.json").exists():
        run([args.anyorder, "prep", "--input", args.work / "words.txt", "--output", args.work / "words", "--vocab-type", "word",
             "--vocab-size", 1000, "--no-filter", "--quiet"], log)
    for name in ("train", "held-out", "exchanged"):
        if not (args.work / name / "dataset.json").exists():
            run([args.anyorder, "prep", "--examples", args.work / f"{name}.jsonl", "--vocab", args.work / "words",
                 "--chat-template", TEMPLATE, "--output", args.work / name], log)


def evaluated(args, run_dir, data, changes):
    """The evaluation's line of both directions: "nats" and "targets"."""
    values = {"sampling.answer_padding": "none", **changes}
    return evaluate(args, run_dir, data, values, "--batches", 0, "--threads", 1)["losses"][0]


def losses(args, seed):
    """{name: nats a token}, and targets counted at a mask rate of 1."""
    random_weights = train(args, CONFIG, "random", seed,
                           {**SMALL, "train.steps": 1, "optimizer.warmup_steps": 0, "optimizer.learning_rate": 1e-12})
    trained = train(args, CONFIG, "trained", seed, {**SMALL, "train.steps": args.steps, "optimizer.warmup_steps": args.steps // 10})
    found = {"before": evaluated(args, random_weights, "held-out", {}), "after": evaluated(args, trained, "held-out", {}),
             "exchanged": evaluated(args, trained, "exchanged", {})}
    counted = evaluated(args, trained, "held-out", {"sampling.mask_rate_min": 1})["targets"]
    return {name: report["nats"] for name, report in found.items()}, counted


def main():
    parser = command_line(__doc__)
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--examples", type=int, default=8000)
    parser.add_argument("--held-out", type=int, default=512, help="a multiple of the batch, 16: all are read once")
    args = parsed(parser)
    held_out = make(args)
    prepare(args)
    answers = sum(len(answer.split()) + 2 for _, _, answer in held_out)
    vocab = json.loads((args.work / "train" / "dataset.json").read_text(encoding="utf-8"))["vocab_size"]
    print(f"{len(held_out)} held-out answers of {answers} tokens with what closes them; ln V = {math.log(vocab):.3f}")
    rows = {}
    for seed in args.seeds:
        found, counted = losses(args, seed)
        print(f"seed {seed}: {found}; targets where everything is masked that may be: {counted}", flush=True)
        if counted != answers:
            raise SystemExit(f"{counted} tokens were masked, and answers have {answers}")
        for name, value in found.items():
            rows.setdefault(name, []).append(value)
    print_seeds("held-out answers, nats a token", args, rows)


if __name__ == "__main__":
    main()
