#!/usr/bin/env python3
"""The next-sentence head in transformers: an exported run with one is an XLNetForSequenceClassification of two classes.

Trains small runs with `objective.next_sentence`, loads each exported directory with AutoModelForSequenceClassification, and compares
both logits of each pair, the loss and the last layer's states with our own on the run's first steps, memory carried along. Both
objectives need a perm_mask: in denoising rows that are remembered do not see later text, in the permutation objective rows see what
their order allows, and none but CLS sees CLS. CLS sees everything. Lastly the exported directory is imported into a run with the
head, and back.
"""
import sys
from functools import partial

import cases
import hf_model
import masks
import run_programs
import torch
import xlnet_parity
from transformers import AutoConfig, AutoModelForSequenceClassification

STEPS = xlnet_parity.STEPS
# The forward pass of xlnet_parity.py's networks, with the same bound for the same reasons.
TOLERANCE = xlnet_parity.TOLERANCE
SETTINGS = {**xlnet_parity.SETTINGS, "objective.next_sentence": "true"}
HEAD = ("sequence_summary.", "logits_proj.")
VARIANTS = {"permutation": {"objective.name": "permutation_lm"}, "denoising": {"objective.name": "dae", "sampling.perm_size": 256}}  # unset


def load_classifier(export, faults):
    """As a user loads it, but with forward and backward lanes in a batch."""
    config = AutoConfig.from_pretrained(export, bi_data=True)
    model, info = AutoModelForSequenceClassification.from_pretrained(export, config=config, output_loading_info=True)
    # The language model's own output, and the mask embedding of query streams, have no place in
    # some versions.
    spare = {"lm_loss.weight", "lm_loss.bias"}
    if config.num_labels != 2 or info["missing_keys"] or not set(info["unexpected_keys"]) <= spare or info["mismatched_keys"]:
        faults.append(f"{config.num_labels} labels, {info}")
    return model.eval().float()


def compare(name, work, shards):
    settings = {**SETTINGS, **VARIANTS[name], "data.shards": shards["text"], "cpu.threads": 1}
    export, dump = run_programs.dumped_run(work, settings, STEPS, "--forward-only")
    faults, measures, mems = [], hf_model.Measures(), None
    model = load_classifier(export, faults)
    classes = set()
    for t, facts in enumerate(hf_model.read_steps(dump, STEPS)):
        lanes, slots = facts["tokens"].shape
        seen = masks.keys_of_rows(facts, 0, slots)[:, :, -slots:]
        if name == "denoising":
            half = torch.arange(slots) // model.config.reuse_len > 0
            right = torch.equal(seen, (half[:, None] | ~half[None, :]).expand_as(seen))
        else:
            right = seen[:, -1].all() and not seen[:, :-1, -1].any()
        if not right:
            faults.append(f"step {t}: CLS does not see everything, or others see what they should not")
        inputs = dict(input_ids=facts["input"].long(), token_type_ids=facts["segment"].long(), perm_mask=1 - seen.float())
        with torch.no_grad():
            result = model(**inputs, mems=mems, use_mems=True, output_hidden_states=True, labels=facts["summary_labels"].long())
        mems = result.mems
        last = max(int(name.split("/")[1]) for name in facts if name.startswith("content/"))
        measures.add("last hidden states", facts[f"content/{last}"], result.hidden_states[-1])
        measures.add("logits", facts["summary_logits"], result.logits)
        measures.add("loss", facts["next_sentence_loss"], (result.loss * lanes)[None])
        classes |= set(facts["summary_labels"].tolist())
    if classes != {0, 1}:
        faults.append(f"the pairs are of classes {classes} only")
    check_return(export, work, faults)
    return measures, faults


def check_return(export, folder, faults):
    """The exported directory comes into a run with the head, bit for bit; without the key the head stays out."""
    whole = cases.read_weights(export)
    for name, settings in (("with", {"objective.next_sentence": "true"}), ("without", {})):
        back = cases.read_weights(run_programs.returned(export, folder, name, settings))
        expected = {key: value for key, value in whole.items() if settings or not key.startswith(HEAD)}
        faults += [f"{name} the head, {fault}" for fault in cases.tensor_faults(expected, back)]


torch.set_num_threads(1)
sys.exit(cases.compare_each({name: partial(compare, name) for name in VARIANTS}, TOLERANCE))
