#!/usr/bin/env python3
"""50 optimizer steps of fine-tuning here and in torch: the losses must be the same.

Trains each of CASES with `anyorder launch` on two ranks, and transformers' class from the same exported weights on the same batches, in
double, with the optimizer of train_parity_reference.py. Dropout is off.

Exit status: 0 they agree, 1 they do not, 77 torch or transformers is missing.
"""
import json
import math
import sys
import tempfile
from pathlib import Path

import heads_parity
import hf_model
import run_programs
import torch
import train_parity_reference as reference
import transformers

STEPS = 50
# Of each step's loss, relative: what fp32 makes of it.
LOSS_BOUND = 1e-6
OPTIMIZER = {
    "learning_rate": 1e-3, "min_learning_rate_ratio": 0.0, "warmup_steps": 5, "adam_beta1": 0.9, "adam_beta2": 0.999,
    "adam_epsilon": 1e-6, "weight_decay": 0.01, "bias_correction": True, "adam_form": "torch", "max_grad_norm": 1.0,
}
SETTINGS = {
    **heads_parity.SMALL, "optimizer.decay": "linear", "train.steps": STEPS, "objective.classifier_dropout": 0, "model.init_range": 0.1,
    **{f"optimizer.{key}": str(value).lower() for key, value in OPTIMIZER.items()}}
# name: class, configuration, data, what differs from SETTINGS.
CASES = {
    "classes, pooler": heads_parity.RUNS["xlnet classes"],
    "conditional spans, answer class": heads_parity.RUNS["xlnet answers"],
}


def loss_of(model, facts):
    inputs = heads_parity.inputs_for(model, facts, heads_parity.SETTINGS["sampling.seq_len"])
    if isinstance(model, transformers.XLNetForSequenceClassification):
        return model(**heads_parity.pad_left(inputs), labels=facts["task_labels"].long(), use_mems=False).loss
    facts = {name: value.long() for name, value in facts.items() if name.startswith("task_")}
    return model(**inputs, start_positions=facts["task_starts"], end_positions=facts["task_ends"], use_mems=False,
                 is_impossible=facts["task_labels"].double(), cls_index=facts["task_classifiers"],
                 p_mask=1 - facts["task_valid"].double()).loss


def train_theirs(model, batches):
    """The loss of each step, before its update."""
    model.double().train()
    hf_model.exact_position_tables(model, torch.float64)
    parameters = {name: value for name, value in model.named_parameters() if name != "transformer.mask_emb"}
    adam, losses = reference.TorchAdamW(parameters, OPTIMIZER), []
    for step, facts in enumerate(batches):
        loss = loss_of(model, facts)
        model.zero_grad()
        loss.backward()
        norm = math.sqrt(sum(float(value.grad.square().sum()) for value in parameters.values() if value.grad is not None))
        for value in parameters.values():
            if value.grad is None:  # segments of one kind alone
                value.grad = torch.zeros_like(value)
            value.grad.mul_(OPTIMIZER["max_grad_norm"] / max(norm, OPTIMIZER["max_grad_norm"]))
        adam.step(reference.learning_rate(OPTIMIZER, len(batches), step))
        losses.append(float(loss.detach()))
    return losses


def compare(folder, name, shards):
    architecture, config, task, changes = CASES[name]
    settings, config = {**SETTINGS, "data.shards": shards[task], **changes}, f"finetune/{config}"
    # Of one step, whose learning rate is 0: it ends with the weights that it began with.
    run_programs.launch(folder / "first", {**settings, "train.steps": 1, "optimizer.warmup_steps": 1}, config, ranks=2)
    run_programs.launch(folder / "run", settings, config, ranks=2)
    run_programs.export(folder / "first", folder / "initial")
    run_programs.dump(folder / "run", STEPS, folder / "batches", "--batches")
    model = getattr(transformers, architecture).from_pretrained(folder / "initial", dropout=0.0, summary_last_dropout=0.0)
    theirs = train_theirs(model, hf_model.read_steps(folder / "batches", STEPS))
    ours = [json.loads(line)["loss"] for line in (folder / "run/metrics.jsonl").read_text().splitlines()]
    assert len(ours) == STEPS, f"{len(ours)} losses"
    worst, step = max((abs(a - b) / b, step + 1) for step, (a, b) in enumerate(zip(ours, theirs)))
    print(f"{name}: loss {theirs[0]:.4f} to {theirs[-1]:.4f}, largest relative difference {worst:.1e} in step {step}", flush=True)
    return [] if worst <= LOSS_BOUND else [f"{name}: {worst:.1e} is over {LOSS_BOUND:.0e}"]


def main():
    torch.set_num_threads(1)
    print(hf_model.versions())
    faults = []
    with tempfile.TemporaryDirectory() as temporary:
        shards = {"text": run_programs.prepare_text(Path(temporary))}
        for task in ("classification", "span_extraction"):
            shards[task] = run_programs.prepare_examples(Path(temporary), task, shards["text"])
        for name in CASES:
            faults += compare(Path(tempfile.mkdtemp(dir=temporary)), name, shards)
    return run_programs.conclude(faults, f"{STEPS} steps agree")


if __name__ == "__main__":
    sys.exit(main())
