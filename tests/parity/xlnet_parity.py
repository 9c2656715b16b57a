#!/usr/bin/env python3
"""An exported XLNet, in transformers, must agree with the network that was exported.

Makes text, prepares it, trains a small run, exports it, dumps the network's own results on the run's first steps
(parity_dump) and asks XLNetLMHeadModel for the same in fp32. Permutation masks, target mappings and labels are built
here from the sampler's facts by the rule of the published `_local_perm`, not taken from the network's batch.

Exit status: 0 they agree, 1 they do not, 77 torch or transformers is missing.
"""
import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path

try:
    import torch
    from safetensors import safe_open
    from transformers import XLNetConfig, XLNetLMHeadModel
except ImportError as missing:
    print(f"SKIPPED: {missing}; name an interpreter that has torch and transformers in ANYORDER_PARITY_PYTHON")
    sys.exit(77)

SEP, CLS = 4, 3
STEPS = 4  # no memory, part of it, all of it, all of it with rows from two steps back
# Two fp32 implementations sum in different orders: 3 layers of some 10 rounded operations on sums of up to 128 products
# differ by about 3 * 10 * sqrt(128) * 2^-24 = 2e-5. A wrong mask, sign or position moves losses by 1e-3 and more.
TOLERANCE = 2e-5
# Where attention is sharp, the gradient of its scores is a difference of nearly equal numbers.
GRADIENT_TOLERANCE = 10 * TOLERANCE

SETTINGS = {
    "model.num_layers": 3, "model.model_dim": 64, "model.num_heads": 4, "model.head_dim": 16, "model.ffn_dim": 128,
    "model.mem_len": 48, "model.init_range": 0.2,  # wide, so that attention is far from uniform
    "model.dropout": 0.0, "model.attention_dropout": 0.0,
    "sampling.seq_len": 64, "sampling.reuse_len": 32, "sampling.num_predict": 11,
    "train.lanes": 4, "train.microbatch_lanes": 2, "train.steps": 12,
    "optimizer.warmup_steps": 2, "optimizer.learning_rate": 3e-3,
}
# What each variant changes.
VARIANTS = {
    "untied": {"sampling.perm_size": 32, "model.untie_r": "true", "model.activation": "gelu"},
    "shared biases, blocks, clamped, relu": {
        "sampling.perm_size": 16, "model.untie_r": "false", "model.clamp_len": 20, "model.activation": "relu"},
    "no memory, exact gelu": {"sampling.perm_size": 32, "model.mem_len": 0, "model.activation": "gelu_erf"},
}


def write_text(path):
    """Documents of sentences of made-up words: enough for four streams."""
    rng = random.Random(3)
    words = ["".join(rng.choice("bdfgklmnprst") + rng.choice("aeiou") for _ in range(rng.randint(1, 4)))
             for _ in range(400)]
    with open(path, "w", encoding="utf-8") as out:
        for _ in range(60):
            for _ in range(rng.randint(4, 12)):
                out.write(" ".join(rng.choice(words) for _ in range(rng.randint(3, 14))).capitalize() + ".\n")
            out.write("\n")


def run(*command):
    result = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    if result.returncode != 0:
        sys.exit(f"{command[0]} ended with {result.returncode}:\n{result.stdout}{result.stderr}")


def permutation_mask(tokens, masked, order, reuse_len):
    """1 where row i may not see column j: the 2 x 2 blocks of the published data_utils.py."""
    size = len(tokens)
    mask = torch.zeros(size, size)
    functional = (tokens == SEP) | (tokens == CLS)
    for begin in (0, reuse_len):
        half = slice(begin, begin + reuse_len)
        context = (masked[half] == 0) & ~functional[half]
        target = (masked[half] == 1) & ~functional[half]
        rank = torch.where(context, torch.tensor(-1), order[half])
        own = torch.where(target, rank, rank + 1)
        mask[half, half] = ((own[:, None] <= rank[None, :]) & ~context[None, :]).float()
    mask[:reuse_len, reuse_len:] = 1
    return mask


def target_positions(tokens, masked):
    return [i for i in range(len(tokens)) if masked[i] == 1 and tokens[i] not in (SEP, CLS)]


def relative_difference(ours, theirs):
    """Largest difference, relative to the largest value."""
    return float((ours.double() - theirs.double()).abs().max() / theirs.double().abs().max())


def check_layout(facts, reuse_len, faults):
    """The sequence is [reuse | A SEP B SEP CLS] with the published segment ids."""
    for tokens, segment in zip(facts["tokens"], facts["segment"]):
        separators = [i for i in range(reuse_len, len(tokens)) if tokens[i] == SEP]
        if len(separators) != 2 or separators[1] != len(tokens) - 2 or tokens[-1] != CLS:
            faults.append(f"SEP at {separators}, last token {int(tokens[-1])}")
            continue
        expected = [0] * (separators[0] + 1) + [1] * (separators[1] - separators[0]) + [2]
        if segment.tolist() != expected:
            faults.append("segment ids are not 0 .. 0 1 .. 1 2")


def check_continuity(facts, following, reuse_len, faults):
    """A of one step begins where the reuse part of the next one does."""
    for tokens, next_tokens in zip(facts["tokens"], following["tokens"]):
        a = tokens[reuse_len:]
        length = a.tolist().index(SEP)
        if not torch.equal(a[:length], next_tokens[:length]):
            faults.append("the next step does not go on where this one's reuse part ends")


def inputs_of(facts, reuse_len):
    tokens, masked = facts["tokens"].long(), facts["masked"]
    lanes, slots = tokens.shape[0], facts["labels"].shape[1]
    masks = torch.stack([permutation_mask(tokens[b], masked[b], facts["order"][b], reuse_len) for b in range(lanes)])
    mapping = torch.zeros(lanes, slots, tokens.shape[1])
    labels = torch.zeros(lanes, slots, dtype=torch.long)
    weights = torch.zeros(lanes, slots)
    for b in range(lanes):
        for slot, position in enumerate(target_positions(tokens[b], masked[b])):
            mapping[b, slot, position] = 1
            labels[b, slot] = tokens[b, position]
            weights[b, slot] = 1
    return dict(input_ids=tokens, token_type_ids=facts["segment"].long(), perm_mask=masks, target_mapping=mapping), \
        labels, weights


def gradient_differences(facts, model):
    """Each parameter of ours, and how far its gradient is from transformers'. Biases that all layers share are copied
    to every layer there."""
    theirs = {name: parameter.grad for name, parameter in model.named_parameters()}
    for name, gradient in facts.items():
        if not name.startswith("gradient/"):
            continue
        name = name.removeprefix("gradient/")
        if name in theirs:
            yield name, relative_difference(gradient, theirs[name])
        else:
            copies = [theirs[other] for other in theirs if other.endswith(name.removeprefix("transformer."))]
            yield name, relative_difference(gradient, sum(copies))


def compare(export, dump):
    """The largest relative differences of each kind; and what is simply wrong."""
    # Only the comparison has both directions in a batch: half of its rows forward, half backward, as ours.
    config = XLNetConfig.from_pretrained(export, bi_data=True)
    model, info = XLNetLMHeadModel.from_pretrained(export, config=config, output_loading_info=True)
    faults = [f"{key}: {value}" for key, value in info.items() if value]
    model.eval().float()
    reuse_len = config.reuse_len
    worst = {"forward losses": 0.0, "backward losses": 0.0, "memory": 0.0, "gradients": 0.0}
    mems = None
    with safe_open(dump, "pt") as file:
        steps = [{name.split(".", 1)[1]: file.get_tensor(name) for name in file.keys() if name.startswith(f"{t}.")}
                 for t in range(STEPS)]
    for t, facts in enumerate(steps):
        half = len(facts["backward"]) // 2
        if facts["backward"].tolist() != [0] * half + [1] * half:
            faults.append(f"directions are {facts['backward'].tolist()}")
        check_layout(facts, reuse_len, faults)
        if t + 1 < STEPS:
            check_continuity(facts, steps[t + 1], reuse_len, faults)
        inputs, labels, weights = inputs_of(facts, reuse_len)
        if not torch.equal(weights, facts["weights"]) or not torch.equal(labels, facts["labels"].long()):
            faults.append(f"step {t}: labels or weights differ")
        result = model(**inputs, mems=mems, use_mems=config.mem_len > 0)
        losses = torch.nn.functional.cross_entropy(result.logits.transpose(1, 2), labels, reduction="none") * weights
        model.zero_grad()
        losses.sum().backward()
        for name, difference in gradient_differences(facts, model):
            worst["gradients"] = max(worst["gradients"], difference)
        losses = losses.detach()
        ours = facts["losses"] * weights
        for name, rows in (("forward losses", slice(0, half)), ("backward losses", slice(half, None))):
            worst[name] = max(worst[name], relative_difference(ours[rows], losses[rows]))
        if config.mem_len > 0:
            mems = result.mems
            theirs = torch.stack(list(mems)).detach().permute(2, 0, 1, 3)  # [lanes, layers, rows, d]
            held = theirs.shape[2]
            if held != min(config.mem_len, (t + 1) * reuse_len):
                faults.append(f"step {t}: transformers keeps {held} rows of memory")
            worst["memory"] = max(worst["memory"], relative_difference(facts["memory"][:, :, -held:], theirs))
    return worst, faults


def main():
    programs = Path(os.environ["ANYORDER_BIN"])
    config = Path(os.environ["ANYORDER_SOURCE"]) / "configs" / "xlnet-tiny.toml"
    torch.set_num_threads(1)
    failed = False
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        write_text(folder / "text.txt")
        run(programs / "anyorder", "prep", "--input", folder / "text.txt", "--output", folder / "shards",
            "--vocab-size", 300, "--workers", 1, "--quiet")
        for number, (name, changes) in enumerate(VARIANTS.items()):
            run_dir, export, dump = (folder / f"{kind}{number}" for kind in ("run", "export", "dump"))
            settings = {**SETTINGS, **changes, "data.shards": folder / "shards", "cpu.threads": 1}
            overrides = [part for key, value in settings.items() for part in ("--set", f"{key}={value}")]
            run(programs / "anyorder", "launch", "--config", config, "--run-dir", run_dir, "--ranks", 1, *overrides)
            run(programs / "anyorder", "export", "--run-dir", run_dir, "--format", "hf", "--output", export)
            run(programs / "parity_dump", run_dir, STEPS, dump)
            worst, faults = compare(export, dump)
            print(f"{name}: " + ", ".join(f"{key} {value:.1e}" for key, value in worst.items()))
            for fault in faults:
                print(f"  {fault}")
            gradients = worst.pop("gradients")
            failed |= bool(faults) or max(worst.values()) > TOLERANCE or gradients > GRADIENT_TOLERANCE
    print("FAILED" if failed else f"all agree within {TOLERANCE:g}, gradients within {GRADIENT_TOLERANCE:g}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
