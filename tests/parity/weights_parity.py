#!/usr/bin/env python3
"""Every objective's network, exported as named tensors, in launcher/huggingface/load_anyorder.py: its numbers must be ours (README.md)."""
import json
import os
import sys
from functools import partial

import cases
import hf_model
import masks
import run_programs
import torch

sys.path.insert(0, os.environ["ANYORDER_SOURCE"] + "/launcher/huggingface")
import load_anyorder

STEPS = 2  # without memory, and with what the first left
# As in xlnet_parity.py: what two orders of summation in fp32 make of two or three small layers.
TOLERANCE = 2e-5

SMALL = {
    "model.num_layers": 2, "model.model_dim": 32, "model.num_heads": 2, "model.head_dim": 16, "model.ffn_dim": 48,
    "model.dropout": 0, "model.attention_dropout": 0, "model.init_range": 0.2,
    "train.global_batch_size": 4, "train.micro_batch_size": 1, "train.steps": 3, "optimizer.warmup_steps": 1,
    "optimizer.learning_rate": 3e-3, "checkpoint.every": 0, "cpu.threads": 1}
SHORT = {"sampling.seq_len": 48}
PAIRS = {**SHORT, "sampling.reuse_len": 24, "sampling.num_predict": 8}
LEARNED = {"model.max_positions": 64}
LLAMA = {**SHORT, "model.positions": "rope", "model.layer_norm": "pre", "model.norm": "rms_norm", "model.activation": "silu",
         "model.gated_ffn": "true", "model.ffn_biases": "false", "model.attention_biases": "false",
         "model.softmax_bias": "false", "model.num_heads": 4, "model.num_kv_heads": 2, "model.head_dim": 8}
# name: configuration, what differs from SMALL, and the dataset if it is not plain text. Together
# they have every kind of position, segment, window, softmax and head.
CASES = {
    "permutation_lm": ("xlnet-tiny", {**PAIRS, "sampling.perm_size": 24, "model.mem_len": 20}),
    "shared biases, next sentence, odd heads": ("xlnet-tiny", {
        **PAIRS, "sampling.perm_size": 24, "model.mem_len": 20, "model.untie_r": "false", "model.clamp_len": 9,
        "model.head_dim": 10, "objective.next_sentence": "true"}),
    "dae": ("dae-tiny", {**PAIRS, "model.mem_len": 20, "objective.next_sentence": "true"}),
    "causal_lm": ("transformer-xl-tiny", {**SHORT, "model.mem_len": 30}),
    "adaptive softmax": ("transformer-xl-words-tiny", {**SHORT, "model.mem_len": 30, "model.cutoffs": "100,200"}),
    "adaptive softmax, projected": ("transformer-xl-words-tiny", {
        **SHORT, "model.mem_len": 0, "model.same_length": "off", "model.cutoffs": "100,200", "model.div_val": 2}),
    "gpt": ("gpt-tiny", {**SHORT, **LEARNED}),
    "rotary positions": ("gpt-tiny", {**SHORT, "model.positions": "rope", "model.layer_norm": "pre"}),
    "llama": ("gpt-tiny", {**LLAMA, "model.tie_embeddings": "false", "model.rope_scaling": "llama3",
                           "model.rope_original_positions": 64}),
    "qwen2": ("masked-diffusion-tiny", {**LLAMA, "model.attention_biases": "true", "model.attention_output_bias": "false"}),
    "a3 as released": ("a3-tiny", {**LLAMA, "model.ffn_residual": "normed"}),
    "qwen3": ("a3-tiny", {**LLAMA, "model.num_kv_heads": 1, "model.head_dim": 12, "model.qk_norm": "true"}),
    "t5's decoder bias": ("gpt-tiny", {**SHORT, "model.positions": "none", "model.position_bias": "t5_causal"}),
    "gpt_sft": ("finetune/gpt-sft-tiny", LLAMA, "generation"),
    "gpt_finetuning": ("finetune/gpt-classify-tiny", {**SHORT, **LEARNED, "objective.num_classes": 3}, "classification"),
    "multiple choice": ("finetune/gpt-classify-tiny", {
        **SHORT, **LEARNED, "objective.num_classes": 3, "objective.task": "multiple_choice"}, "multiple_choice"),
    "pooled classes": ("finetune/xlnet-classify-tiny", {**SHORT, "objective.num_classes": 3}, "classification"),
    "pooled choices": ("finetune/bert-classify-tiny", {
        **SHORT, **LEARNED, "objective.num_classes": 3, "objective.task": "multiple_choice"}, "multiple_choice"),
    "score": ("finetune/bert-classify-tiny", {
        **SHORT, **LEARNED, "objective.num_classes": 1, "objective.task": "similarity"}, "similarity"),
    "answers": ("finetune/xlnet-span-tiny", SHORT, "span_extraction"),
    "spans": ("finetune/bert-span-tiny", {**SHORT, **LEARNED}, "span_extraction"),
    "tags": ("finetune/bert-classify-tiny", {
        **SHORT, **LEARNED, "objective.task": "token_classification", "objective.num_classes": 3, "objective.pooler": "false"},
        "token_classification"),
    "global classifier": ("finetune/longformer-classify-tiny", {
        **SHORT, **LEARNED, "objective.num_classes": 3, "model.attention_windows": "8:8"}, "classification"),
    "bert": ("bert-tiny", {**PAIRS, **LEARNED}),
    "masked_diffusion": ("masked-diffusion-tiny", SHORT),
    "masked_diffusion_sft": ("finetune/diffusion-sft-tiny", SHORT, "generation"),
    "block_diffusion": ("block-diffusion-tiny", SHORT),
    "eso_lm": ("eso-lm-tiny", SHORT),
    "a3": ("a3-tiny", SHORT),
    "as_arm": ("as-arm-tiny", SHORT),
    "sigma_gpt": ("sigma-gpt-tiny", {**SHORT, **LEARNED}),
    "unilm": ("unilm-tiny", {**PAIRS, **LEARNED}),
    "unilm_seq2seq": ("unilm-seq2seq-tiny", {**SHORT, **LEARNED}, "generation"),
    "unilmv2": ("unilmv2-tiny", {**PAIRS, **LEARNED}),
    "unilmv2_seq2seq": ("unilmv2-seq2seq-tiny", {**SHORT, **LEARNED}, "generation"),
    "longformer": ("longformer-tiny", {
        **SHORT, **LEARNED, "sampling.num_predict": 8, "sampling.global_stride": 16, "model.attention_windows": "6:6; 4:2:2"}),
    "longformer's causal model": ("longformer-char-tiny", {
        **SHORT, "model.attention_windows": "8:0; 12:0 / 12:0:2", "model.mem_len": 16}),
}


def by_lane(facts, name, lanes, content):
    """An array of all rows, content rows of all lanes first, as [lanes, rows of a lane]."""
    values = facts[name]
    first, rest = values[:lanes * content], values[lanes * content:]
    return torch.cat([first.reshape(lanes, -1), rest.reshape(lanes, -1)], 1)


def states_of(hidden, rows, content):
    """The states of rows that are numbered as `by_lane` takes them."""
    lanes, total, dim = hidden.shape
    flat = torch.cat([hidden[:, :content].reshape(-1, dim), hidden[:, content:].reshape(-1, dim)])
    return flat[rows.long()]


def inputs_of(facts, memory):
    """What the loader is asked: the batch's own rows, keys, positions and segments."""
    tokens = facts["input"].long()
    lanes, content = tokens.shape
    rows = {name: by_lane(facts, f"row_{name}", lanes, content) for name in ("pos", "seg", "glob")}
    total = rows["pos"].shape[1]
    seen = [masks.keys_of_rows(facts, 0, content)]
    if total > content:
        seen.append(masks.keys_of_rows(facts, lanes * content, total - content))
    return {"tokens": tokens, "visible": torch.cat(seen, 1), "positions": rows["pos"].long(),
            "segments": rows["seg"].long(), "global_slots": rows["glob"].bool() if rows["glob"].any() else None,
            "next_positions": by_lane(facts, "row_next", lanes, content).long() if "row_next" in facts else None,
            "memory": memory, "backward": facts["backward"].bool()}


def readout_logits(model, facts):
    """Of a network without memory."""
    hidden, _ = model(**inputs_of(facts, None))
    return model.logits(states_of(hidden, facts["readout_rows"], facts["input"].shape[1]))


def compare_step(model, facts, memory, measures):
    inputs = inputs_of(facts, memory)
    content = inputs["tokens"].shape[1]
    hidden, states = model(**inputs)
    logits = model.logits(states_of(hidden, facts["readout_rows"], content))
    weights = (facts["weights"] != 0).float()
    if "logits" in facts:
        hf_model.add_logits(measures, "logits", facts, logits)
    labels = facts["labels"].long() * weights.long()
    if labels.numel() > 0:
        measures.add("losses", facts["losses"] * weights, hf_model.weighted_losses(logits, labels, weights))
    if "summary_logits" in facts:
        theirs = model.next_sentence_logits(states_of(hidden, facts["summary_rows"], content))
        measures.add("next sentence", facts["summary_logits"], theirs)
    if "task_losses" in facts:
        measures.add("task losses", facts["task_losses"], task_losses(model, facts, hidden, content))
    return states


def task_losses(model, facts, hidden, content):
    states, task = states_of(hidden, facts["task_rows"], content), model.config["task"]
    if task["name"] == "span_extraction":
        return span_losses(model, facts, states)
    if task["name"] == "token_classification":
        return tag_losses(model, facts, states)
    if task["name"] == "multiple_choice":
        scores = model.task_logits(states)[..., 0].masked_fill(facts["task_valid"] == 0, -torch.inf)
    else:
        scores = model.task_logits(states.sum(1))
        if task["outputs"] == 1:
            return (scores[..., 0] - facts["task_scores"]) ** 2
    return torch.nn.functional.cross_entropy(scores, facts["task_labels"].long(), reduction="none")


def tag_losses(model, facts, states):
    """The mean over the words of each lane, whose tags are all known."""
    labels, is_word = facts["task_tags"].long(), facts["task_valid"] != 0
    losses = torch.nn.functional.cross_entropy(model.task_logits(states)[is_word], labels[is_word], reduction="none")
    return torch.zeros(is_word.shape).masked_scatter(is_word, losses).sum(1) / is_word.sum(1)


def span_losses(model, facts, states):
    """The end given the true start; and given all starts by their probabilities, whether there is an answer."""
    def valid(logits):
        return logits.masked_fill(facts["task_valid"] == 0, -torch.inf)

    def loss(logits, labels):
        return torch.nn.functional.cross_entropy(valid(logits), labels.long(), reduction="none")

    def rows(slots):
        return states[torch.arange(len(states)), slots.long()]

    starts = rows(facts["task_starts"])
    start_logits = model.start_logits(states)
    total = (loss(start_logits, facts["task_starts"]) +
             loss(model.end_logits(states, starts), facts["task_ends"])) / 2
    if model.config["task"]["answer_class"]:
        likely = (valid(start_logits).softmax(-1)[..., None] * states).sum(1)
        logits = model.answer_logits(likely, rows(facts["task_classifiers"]))
        total += torch.nn.functional.binary_cross_entropy_with_logits(
            logits, facts["task_labels"].float(), reduction="none") / 2
    return total


def memory_after(model, memory, states, advance):
    """As README.md tells: the newest states of [memory, what the step has read]."""
    length = model.network["mem_len"]
    return [torch.cat([old, new[:, :advance]], 1)[:, -length:] for old, new in zip(memory, states)]


def export(run_dir, output, *options):
    run_programs.export(run_dir, output, "safetensors", *options)


def other_files_faults(run_dir, work):
    """The same tensors from several files; and rounded to bf16."""
    export(run_dir, work / "parts", "--max-shard-size", "20KB")
    export(run_dir, work / "bf16", "--dtype", "bf16", "--max-shard-size", "1GB")
    whole, parts, rounded = (load_anyorder.read_tensors(work / name) for name in ("weights", "parts", "bf16"))
    index = json.loads((work / "parts/model.safetensors.index.json").read_text())
    if len(set(index["weight_map"].values())) < 3 or set(index["weight_map"]) != set(whole):
        yield "the index of the parts is wrong"
    if index["metadata"]["total_size"] != sum(4 * tensor.numel() for tensor in whole.values()):
        yield "the index has another size"
    if set(parts) != set(whole) or any(not torch.equal(parts[name], whole[name]) for name in whole):
        yield "the parts hold other tensors"
    if any(not torch.equal(rounded[name], whole[name].bfloat16()) for name in whole):
        yield "bf16 is not the rounded tensor"
    if json.loads((work / "bf16/config.json").read_text())["torch_dtype"] != "bfloat16":
        yield "config.json does not say bfloat16"


@torch.no_grad()
def compare(name, objectives, work, shards):
    """Adds the objective's name to `objectives`."""
    config, differences, *task = CASES[name]
    run_dir = work / "run"
    run_programs.launch(run_dir, {**SMALL, "data.shards": shards[task[0] if task else "text"], **differences}, config)
    export(run_dir, work / "weights")
    run_programs.dump(run_dir, STEPS, work / "dump", "--forward-only")
    model, measures, memory = load_anyorder.Anyorder(work / "weights"), hf_model.Measures(), None
    for facts in hf_model.read_steps(work / "dump", STEPS):
        if memory is None and "memory" in facts:  # before the first step: zeros, which are hidden
            memory = [torch.zeros_like(facts["memory"][:, 0])] * model.network["num_layers"]
        states = compare_step(model, facts, memory, measures)
        if memory is not None:
            advance = differences.get("sampling.reuse_len", states[0].shape[1])
            memory = memory_after(model, memory, states, advance)
            measures.add("memory", facts["memory"], torch.stack(memory, 1))
    objectives.add(model.config["objective"])
    return measures, list(other_files_faults(run_dir, work)) if name in ("gpt", "adaptive softmax, projected") else []


def main():
    torch.set_num_threads(1)
    objectives = set()
    status = cases.compare_each({name: partial(compare, name, objectives) for name in sys.argv[1:] or CASES}, TOLERANCE)
    missing = set(run_programs.anyorder("show", "--list").split()) - objectives
    if missing and not sys.argv[1:]:
        return run_programs.conclude([f"CASES: no line for {sorted(missing)}"], "")
    return status


if __name__ == "__main__":
    sys.exit(main())
