#!/usr/bin/env python3
"""An exported XLNet, in transformers, must agree with the network that was exported.

Makes text, prepares it, trains a small run, exports it, dumps the network's own results on the run's first steps
(parity_dump) and asks XLNetLMHeadModel for the same in fp32. Permutation masks, target mappings and labels are built
here from the sampler's facts by the rule of the published `_local_perm`, not taken from the network's batch.

Exit status: 0 they agree, 1 they do not, 77 torch or transformers is missing.
"""
import sys
import tempfile
from pathlib import Path

import hf_model
import masks
import run_programs
import torch
from hf_model import relative_difference

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


def compare(export, dump):
    """The largest relative differences of each kind; and what is simply wrong."""
    model, faults = hf_model.load_model(export)
    config = model.config
    reuse_len = config.reuse_len
    worst = {"forward losses": 0.0, "backward losses": 0.0, "memory": 0.0, "gradients": 0.0}
    mems = None
    steps = hf_model.read_steps(dump, STEPS)
    for t, facts in enumerate(steps):
        half = len(facts["backward"]) // 2
        if facts["backward"].tolist() != [0] * half + [1] * half:
            faults.append(f"directions are {facts['backward'].tolist()}")
        faults += masks.layout_faults(facts, reuse_len)
        if t + 1 < STEPS:
            faults += masks.continuity_faults(facts, steps[t + 1], reuse_len)
        inputs, labels, weights = masks.model_inputs(facts, reuse_len)
        if not torch.equal(weights, facts["weights"]) or not torch.equal(labels, facts["labels"].long()):
            faults.append(f"step {t}: labels or weights differ")
        result = model(**inputs, mems=mems, use_mems=config.mem_len > 0)
        losses = hf_model.weighted_losses(result.logits, labels, weights)
        model.zero_grad()
        losses.sum().backward()
        for _, ours, theirs in hf_model.gradient_pairs(facts, model):
            worst["gradients"] = max(worst["gradients"], relative_difference(ours, theirs))
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
    torch.set_num_threads(1)
    failed = False
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        shards = run_programs.prepare_text(folder)
        for number, (name, changes) in enumerate(VARIANTS.items()):
            run_dir, export, dump = (folder / f"{kind}{number}" for kind in ("run", "export", "dump"))
            run_programs.launch(run_dir, {**SETTINGS, **changes, "data.shards": shards, "cpu.threads": 1})
            run_programs.export(run_dir, export)
            run_programs.dump(run_dir, STEPS, dump)
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
