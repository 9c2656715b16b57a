#!/usr/bin/env python3
"""Models of transformers that are not XLNet's: imported, run by our network, exported again (README.md)."""
import sys
from functools import partial

import cases
import hf_model
import masks
import run_programs
import torch
import transformers

TOLERANCE = 1e-5
VOCAB = 300  # of run_programs.prepare_text
SETTINGS = {"model.dropout": 0, "model.attention_dropout": 0, "train.global_batch_size": 4, "train.micro_batch_size": 1,
            "cpu.threads": 1}


def bert(**changes):
    """Settings of a BertConfig, or of one that follows it."""
    return dict(vocab_size=VOCAB, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=48,
                max_position_embeddings=64, pad_token_id=5, layer_norm_eps=1e-5) | changes


def roberta(**changes):
    return bert(max_position_embeddings=70, type_vocab_size=1, **changes)


# Family: class, {shape: (settings of its config, settings of the run)}.
SHAPES = {
    "bert": ("BertForMaskedLM", {
        "small": (bert(), {}),
        "tanh GELU, 3 layers": (bert(hidden_act="gelu_new", num_hidden_layers=3, layer_norm_eps=1e-12), {}),
        "relu, wide": (bert(hidden_act="relu", hidden_size=96, num_attention_heads=12, intermediate_size=64), {}),
        "4 types, long": (bert(type_vocab_size=4, max_position_embeddings=160, num_attention_heads=1), {}),
        "coarse epsilon": (bert(layer_norm_eps=1e-2, hidden_size=40, num_attention_heads=4), {})}),
    "bert, next sentence": ("BertForPreTraining", {"small": (bert(), {"objective.next_sentence": "true"})}),
    "bert, bare": ("BertModel", {"small": (bert(), {})}),
    "roberta": ("RobertaForMaskedLM", {
        "small": (roberta(), {}),
        "3 layers": (roberta(num_hidden_layers=3, layer_norm_eps=1e-12), {}),
        "wide": (roberta(hidden_size=96, num_attention_heads=12), {}),
        "two types": (roberta() | {"type_vocab_size": 2}, {"objective.name": "bert", "sampling.seq_len": 48,
                                                           "sampling.reuse_len": 24}),
        "padding first, long": (roberta(num_attention_heads=1) | {"max_position_embeddings": 165, "pad_token_id": 0}, {})}),
    "roberta, bare": ("RobertaModel", {"small": (roberta(), {})}),
    "longformer": ("LongformerForMaskedLM", {
        "small": (roberta(attention_window=16), {}),
        "windows of layers": (roberta(attention_window=[4, 16, 8], num_hidden_layers=3), {"sampling.global_stride": 9}),
        "wide": (roberta(attention_window=8, hidden_size=96, num_attention_heads=12),
                 {"sampling.global_classifiers": 3, "sampling.seq_len": 60}),
        "two types, odd length": (roberta(attention_window=8, layer_norm_eps=1e-12) | {"type_vocab_size": 2},
                                  {"sampling.seq_len": 52}),
        "long": (roberta(attention_window=[32, 8]) | {"max_position_embeddings": 262}, {"sampling.global_stride": 50})}),
    "longformer, bare": ("LongformerModel", {"small": (roberta(attention_window=16), {})}),
}
SMALL = {"model.num_layers": 2, "model.model_dim": 32, "model.num_heads": 2, "model.head_dim": 16, "model.ffn_dim": 48,
         "model.max_positions": 64, "model.init_range": 0.2, "train.steps": 3, "optimizer.warmup_steps": 1,
         "optimizer.learning_rate": 3e-3, "checkpoint.every": 0}
PAIRS = {"sampling.seq_len": 48, "sampling.reuse_len": 24, "sampling.num_predict": 8}
# Our configuration, what differs from SMALL, and the class that its export is of.
RUNS = {
    "bert": [("bert-tiny", PAIRS, "BertForPreTraining"),
             ("bert-tiny", PAIRS | {"objective.next_sentence": "false", "model.num_segments": 3}, "BertForMaskedLM"),
             ("unilm-tiny", PAIRS, "BertForPreTraining")],
    "longformer": [("longformer-tiny", {"sampling.seq_len": 50, "sampling.num_predict": 8, "sampling.global_stride": 16,
                                        "model.attention_windows": "6:6; 3:3"}, "LongformerForMaskedLM")],
}


@torch.no_grad()
def compare_logits(model, dump, measures):
    facts, = hf_model.read_steps(dump, 1)
    tokens = facts["input"].long()
    lanes, slots = tokens.shape
    inputs = {"input_ids": tokens, "token_type_ids": facts["row_seg"].reshape(lanes, slots).long()}
    if model.config.model_type == "longformer":
        inputs["global_attention_mask"] = facts["row_glob"].reshape(lanes, slots).long()
        assert inputs["global_attention_mask"].any() and min(model.config.attention_window) < slots
    else:
        seen = masks.keys_of_rows(facts, 0, slots)
        inputs["attention_mask"] = seen.float() if transformers.__version__[0] == "4" else seen.bool()[:, None]
    result = model(**inputs)
    logits = result.prediction_logits if hasattr(result, "prediction_logits") else result.logits
    used = facts["weights"].reshape(-1) != 0
    theirs = logits.reshape(lanes * slots, -1)[facts["readout_rows"].reshape(-1)[used].long()]
    measures.add("logits", facts["logits"].reshape(-1, logits.shape[-1])[used], theirs)
    if "summary_logits" in facts:  # class 1: B follows A; theirs is the other way round
        measures.add("next sentence", facts["summary_logits"], result.seq_relationship_logits.flip(-1))


def compare_shape(architecture, settings, changes, work, shards):
    kind = getattr(transformers, architecture)
    model = cases.random_model(lambda: kind(kind.config_class(**settings)), seed=7)
    cases.save(model, work / "hf", shards["text"])
    back = run_programs.returned(work / "hf", work, "back", SETTINGS | {"data.shards": shards["text"]} | changes)
    before, after = cases.read_weights(work / "hf"), cases.read_weights(back)
    said, again = cases.read_config(work / "hf"), cases.read_config(back)
    cases.blank_unused_positions(before, said)
    measures, is_bare = hf_model.Measures(), architecture.endswith("Model")
    if is_bare:  # heads are new
        pooler = ("pooler.", "embeddings.position_ids")
        before = {f"{model.base_model_prefix}.{name}": tensor for name, tensor in before.items() if not name.startswith(pooler)}
    # Without the second name this version of transformers would leave a random bias there.
    new = set(after) - set(before) if is_bare else {"lm_head.decoder.bias"} - set(before)
    faults = cases.tensor_faults(before, {name: tensor for name, tensor in after.items() if name not in new})
    if not is_bare:
        run_programs.dump(work / "back-run", 1, work / "dump", "--forward-only")
        compare_logits(model, work / "dump", measures)
    del said["architectures"]
    return measures, faults + cases.config_faults(said, again)


def compare_run(config, changes, architecture, work, shards):
    settings = SETTINGS | SMALL | {"data.shards": shards["text"]} | changes
    export, dump = run_programs.dumped_run(work, settings, 1, "--forward-only", config=config)
    model, faults = cases.load_run(architecture, export)
    measures = hf_model.Measures()
    compare_logits(model, dump, measures)
    heads = {"objective.next_sentence": "true"} if architecture == "BertForPreTraining" else {}
    back = run_programs.returned(export, work, "back", heads | {"data.shards": shards["text"]})
    return measures, faults + cases.tensor_faults(cases.read_weights(export), cases.read_weights(back))


def main():
    wanted = sys.argv[1:] or [*SHAPES, *RUNS]
    torch.set_num_threads(1)
    found = {f"{family}: {shape}": partial(compare_shape, architecture, *settings) for family, (architecture, shapes) in SHAPES.items()
             for shape, settings in shapes.items() if family.split(",")[0] in wanted}
    found |= {f"{config} as {architecture}": partial(compare_run, config, changes, architecture) for family, runs in RUNS.items()
              for config, changes, architecture in runs if family in wanted}
    return cases.compare_each(found, TOLERANCE)


if __name__ == "__main__":
    sys.exit(main())
