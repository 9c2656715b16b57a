#!/usr/bin/env python3
"""Exported XLNets of many shapes, in transformers, must agree with the networks that were exported.

Makes text, prepares it, trains small runs, exports each, dumps the network's own numbers on the run's first steps
(parity_dump) and asks XLNetLMHeadModel for the same in fp32.

Usage: xlnet_parity.py [NAME...], some of the variants only.
Exit status: 0 they agree, 1 they do not, 77 torch or transformers is missing.
"""
import sys
import tempfile
from pathlib import Path

import forward_comparison
import hf_model
import run_programs
import torch
from measures import print_header, print_table

STEPS = 4  # no memory, part of it, all of it, all of it with rows from two steps back
# Two fp32 implementations sum in different orders: 3 layers of some 10 rounded operations on sums
# of up to 128 products differ by about 3 * 10 * sqrt(128) * 2^-24 = 2e-5. A wrong mask, sign or
# position moves losses by 1e-3 and more.
TOLERANCE = 2e-5
# Where attention is sharp, the gradient of its scores is a difference of nearly equal numbers.
GRADIENT_TOLERANCE = 10 * TOLERANCE

SETTINGS = {
    "model.num_layers": 3, "model.model_dim": 64, "model.num_heads": 4, "model.head_dim": 16, "model.ffn_dim": 128,
    "model.mem_len": 48, "model.init_range": 0.2,  # wide, so that attention is far from uniform
    "model.dropout": 0.0, "model.attention_dropout": 0.0,
    "sampling.seq_len": 64, "sampling.reuse_len": 32, "sampling.num_predict": 11, "sampling.perm_size": 32,
    "train.global_batch_size": 4, "train.micro_batch_size": 2, "train.steps": 12,
    "optimizer.warmup_steps": 2, "optimizer.learning_rate": 3e-3,
}
# The warm-up's first step has rate 0: after it the weights are still those that were drawn.
UNTRAINED = {"train.steps": 1}
# What each variant changes.
VARIANTS = {
    "trained": {},
    "untrained": UNTRAINED,
    "shared biases, blocks, clamped, relu": {
        "sampling.perm_size": 16, "model.untie_r": "false", "model.clamp_len": 20, "model.activation": "relu"},
    "no memory, exact gelu": {"model.mem_len": 0, "model.activation": "gelu_erf"},
    "memory from zeros": {"model.initial_memory": "zeros"},
    "odd head_dim and lengths": {
        "model.head_dim": 13, "model.model_dim": 52, "model.ffn_dim": 75, "model.mem_len": 37, "sampling.seq_len": 58,
        "sampling.reuse_len": 29, "sampling.perm_size": 29, "sampling.num_predict": 9},
    "odd heads, memory shorter than a step, uneven epsilon": {
        "model.num_heads": 3, "model.head_dim": 14, "model.model_dim": 42, "model.ffn_dim": 67, "model.mem_len": 5,
        "model.layer_norm_epsilon": 1e-5, "sampling.seq_len": 34, "sampling.reuse_len": 17, "sampling.perm_size": 17,
        "sampling.num_predict": 7, "train.global_batch_size": 6, "train.micro_batch_size": 3},
    "one head, one layer, memory longer than the run": {
        "model.num_layers": 1, "model.num_heads": 1, "model.head_dim": 30, "model.model_dim": 30, "model.mem_len": 200},
    "forward lanes only, clamped": {
        "sampling.bidirectional": "false", "model.clamp_len": 7, "train.global_batch_size": 3, "train.micro_batch_size": 3},
    "everything masked, no memory": {"sampling.num_predict": 64, "model.mem_len": 0, "sampling.perm_size": 8},
}


def check_variant(folder, name, number, shards):
    """Whether the variant agrees; prints its rows of the table."""
    run_dir, export, dump = (folder / f"{kind}{number}" for kind in ("run", "export", "dump"))
    settings = {**SETTINGS, **VARIANTS[name], "data.shards": shards, "cpu.threads": 1}
    run_programs.launch(run_dir, settings)
    run_programs.export(run_dir, export)
    run_programs.dump(run_dir, STEPS, dump)
    measures, faults, blind = forward_comparison.compare(
        export, dump, STEPS, zero_memory=settings.get("model.initial_memory") == "zeros")
    print_table(name, measures)
    if (blind > 0) != ("everything masked" in name):
        faults.append(f"{blind} targets see nothing")
    faults += forward_comparison.exceeding(measures, TOLERANCE, GRADIENT_TOLERANCE)
    for fault in faults:
        print(f"FAULT in {name}: {fault}")
    return not faults


def main():
    torch.set_num_threads(1)
    print(hf_model.versions())
    print_header()
    names = sys.argv[1:] or list(VARIANTS)
    with tempfile.TemporaryDirectory() as folder:
        shards = run_programs.prepare_text(Path(folder))
        results = [check_variant(Path(folder), name, number, shards) for number, name in enumerate(names)]
    agree = all(results)
    print(f"all agree within {TOLERANCE:g}, gradients within {GRADIENT_TOLERANCE:g}" if agree else "FAILED")
    return 0 if agree else 1


if __name__ == "__main__":
    sys.exit(main())
