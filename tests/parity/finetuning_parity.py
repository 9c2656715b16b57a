#!/usr/bin/env python3
"""50 optimizer steps of fine-tuning here and in torch: the losses must be the same (README.md). Dropout is off."""
import sys
from functools import partial

import cases
import heads_parity
import hf_model
import run_programs
import torch
import train_parity_reference as reference
import transformers

STEPS = 50
# Of each step's loss, relative: what fp32 makes of it.
LOSS_BOUND = 1e-6
OPTIMIZER = {**reference.OPTIMIZER, "min_learning_rate_ratio": 0.0, "warmup_steps": 5, "bias_correction": True, "adam_form": "torch"}
SETTINGS = {
    **heads_parity.SMALL, "optimizer.decay": "linear", "train.steps": STEPS, "objective.classifier_dropout": 0, "model.init_range": 0.1,
    **reference.settings(OPTIMIZER)}
# Of heads_parity.RUNS: their class, configuration, data and what differs from SETTINGS.
CASES = ["xlnet classes", "xlnet answers", "xlnet tags", "bert classes", "bert tags", "longformer classes", "longformer tags",
         "gpt classes"]
# No part of our networks: zeros, or, of XLNet, without effect.
NOT_OURS = ("transformer.mask_emb", "longformer.embeddings.token_type_embeddings.weight")
NO_LANGUAGE_MODEL = {"objective.lm_weight": 0}  # beside GPT's classes, whose class there has none


def loss_of(model, facts, task):
    inputs = heads_parity.inputs_for(model, facts, heads_parity.SETTINGS["sampling.seq_len"])
    if model.config.model_type == "xlnet":
        if task == "classification":
            inputs = heads_parity.pad_left(inputs)
        inputs["use_mems"] = False
    facts = {name: value.long() for name, value in facts.items() if name.startswith("task_")}
    if task == "token_classification":  # -100: a token that begins no word
        return model(**inputs, labels=facts["task_tags"].masked_fill(facts["task_valid"] == 0, -100)).loss
    if task == "span_extraction":
        return model(**inputs, start_positions=facts["task_starts"], end_positions=facts["task_ends"],
                     is_impossible=facts["task_labels"].double(), cls_index=facts["task_classifiers"],
                     p_mask=1 - facts["task_valid"].double()).loss
    return model(**inputs, labels=facts["task_labels"]).loss


def prepare(model):
    """In double, without dropout. Returns the parameters by names by which reference.decays knows norms."""
    model.double().train()
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    if model.config.model_type == "xlnet":
        hf_model.exact_position_tables(model, torch.float64)
    return {name.replace("ln_", "layer_norm_"): value for name, value in model.named_parameters() if name not in NOT_OURS}


def compare(name, folder, shards):
    architecture, config, task, changes = heads_parity.RUNS[name]
    settings, config = {**SETTINGS, "data.shards": shards[task], **changes}, f"finetune/{config}"
    if architecture.startswith("OpenAIGPT"):
        settings |= NO_LANGUAGE_MODEL
    run_programs.launch_on_two_ranks(folder, settings, config)
    run_programs.dump(folder / "run", STEPS, folder / "batches", "--batches")
    model = getattr(transformers, architecture).from_pretrained(folder / "initial")
    parameters = prepare(model)
    batches = hf_model.read_steps(folder / "batches", STEPS)
    theirs = reference.optimize(parameters, OPTIMIZER, batches, lambda facts: loss_of(model, facts, task))[1]["loss"]
    ours = [line["loss"] for line in run_programs.metrics(folder / "run")]
    assert len(ours) == STEPS, f"{len(ours)} losses"
    worst, step = max((abs(a - b) / b, step + 1) for step, (a, b) in enumerate(zip(ours, theirs)))
    print(f"{name}: loss {theirs[0]:.4f} to {theirs[-1]:.4f}, largest relative difference {worst:.1e} in step {step}", flush=True)
    return [] if worst <= LOSS_BOUND else [f"{worst:.1e} is over {LOSS_BOUND:.0e}"]


def main():
    torch.set_num_threads(1)
    print(hf_model.versions())
    return cases.check_each({name: partial(compare, name) for name in sys.argv[1:] or CASES}, f"{STEPS} steps agree")


if __name__ == "__main__":
    sys.exit(main())
