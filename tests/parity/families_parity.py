#!/usr/bin/env python3
"""Models of transformers that are not XLNet's: imported, run by our network, exported again.

For each shape of SHAPES: a model with random weights is saved by transformers, comes in by `anyorder import`, and our network's
logits on the first batch of the run's own data (parity_dump) must be those of the model. The export must hold the same tensors,
bit for bit. For each of RUNS: a run of one of our configurations is trained for a few steps, exported, and loaded by
transformers; the same comparison; and its import and export must give the same files again.

Usage: families_parity.py [FAMILY...], some of them only.
Exit status: 0 they agree, 1 they do not, 77 torch or transformers is missing.
"""
import json
import shutil
import sys
import tempfile
from pathlib import Path

import hf_model
import masks
import run_programs
import torch
import transformers
from measures import Measures, print_header, print_table
from safetensors.torch import load_file

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


def random_model(architecture, settings):
    """Its weights are drawn wide, biases and norms, too, so that no part is without effect."""
    torch.manual_seed(7)
    model = getattr(transformers, architecture)
    model = model(model.config_class(**settings)).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.normal_(0, 0.2)
            if name.endswith("LayerNorm.weight") or name.endswith("layer_norm.weight"):
                parameter.add_(1)
    return model


def options(settings):
    return [part for key, value in settings.items() for part in ("--set", f"{key}={value}")]


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
        inputs["attention_mask"] = masks.keys_of_rows(facts, 0, slots).float()
    result = model(**inputs)
    logits = result.prediction_logits if hasattr(result, "prediction_logits") else result.logits
    used = facts["weights"].reshape(-1) != 0
    theirs = logits.reshape(lanes * slots, -1)[facts["readout_rows"].reshape(-1)[used].long()]
    measures.add("logits", facts["logits"].reshape(-1, logits.shape[-1])[used], theirs)
    if "summary_logits" in facts:  # class 1: B follows A; theirs is the other way round
        measures.add("next sentence", facts["summary_logits"], result.seq_relationship_logits.flip(-1))


def tensors_faults(before, after, first_position):
    """An export holds the tensors of what was imported; but rows of positions that nobody uses are zeros."""
    for name, tensor in before.items():
        if name.endswith("position_embeddings.weight") and first_position:
            tensor = tensor.clone()
            tensor[:first_position] = 0
        if name not in after or not torch.equal(tensor, after[name]):
            yield f"{name} is another tensor after import and export"


def compare_shape(folder, family, shape, shards):
    architecture, shapes = SHAPES[family]
    settings, changes = shapes[shape]
    work = Path(tempfile.mkdtemp(dir=folder))
    model = random_model(architecture, settings)
    model.save_pretrained(work / "hf")
    shutil.copy(shards / "spiece.model", work / "hf")
    run_options = options(SETTINGS | {"data.shards": shards} | changes)
    back = run_programs.returned(work / "hf", work, "back", *run_options)
    measures, before, after = Measures(), load_file(work / "hf/model.safetensors"), load_file(back / "model.safetensors")
    is_bare = architecture.endswith("Model")
    if is_bare:
        pooler = ("pooler.", "embeddings.position_ids")
        before = {f"{model.base_model_prefix}.{name}": tensor for name, tensor in before.items() if not name.startswith(pooler)}
    first_position = 0 if family.startswith("bert") else settings["pad_token_id"] + 1
    faults = list(tensors_faults(before, after, first_position))
    if not is_bare:
        # Without the second name this version of transformers would leave a random bias there.
        faults += [f"{name} is new" for name in set(after) - set(before) - {"lm_head.decoder.bias"}]
        run_programs.dump(work / "back-run", 1, work / "dump", "--forward-only")
        compare_logits(model, work / "dump", measures)
    before, after = (json.loads((path / "config.json").read_text()) for path in (work / "hf", back))
    faults += [f"config.json: {key} is {after.get(key)}" for key, value in before.items()
               if key != "architectures" and value != after.get(key)]
    return measures, faults + measures.exceeding(TOLERANCE, TOLERANCE)


def compare_run(folder, config, changes, architecture, shards):
    settings = SETTINGS | SMALL | {"data.shards": shards} | changes
    export, dump = run_programs.dumped_run(folder, settings, 1, "--forward-only", config=config)
    model, info = getattr(transformers, architecture).from_pretrained(export, output_loading_info=True)
    faults = [f"{key}: {value}" for key, value in info.items() if value]
    named = json.loads((export / "config.json").read_text())["architectures"]
    if named != [architecture]:
        faults.append(f"the export says that it is {named}")
    measures = Measures()
    compare_logits(model.eval(), dump, measures)
    heads = ["--set", "objective.next_sentence=true"] if architecture == "BertForPreTraining" else []
    back = run_programs.returned(export, export.parent, "back", *heads, *options({"data.shards": shards}))
    before, after = (load_file(path / "model.safetensors") for path in (export, back))
    if set(before) != set(after):
        faults.append(f"other tensors after import and export: {set(before) ^ set(after)}")
    return measures, faults + list(tensors_faults(before, after, 0)) + measures.exceeding(TOLERANCE, TOLERANCE)


def main():
    wanted = sys.argv[1:]
    torch.set_num_threads(1)
    print(hf_model.versions())
    print_header()
    faults = []
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        shards = run_programs.prepare_text(folder)
        for family, (_, shapes) in SHAPES.items():
            for shape in shapes if not wanted or family.split(",")[0] in wanted else ():
                measures, found = compare_shape(folder, family, shape, shards)
                print_table(f"{family}: {shape}", measures)
                faults += [f"{family}, {shape}: {fault}" for fault in found]
        for family, runs in RUNS.items():
            for config, changes, architecture in runs if not wanted or family in wanted else ():
                measures, found = compare_run(folder, config, changes, architecture, shards)
                print_table(f"{config} as {architecture}", measures)
                faults += [f"{config} as {architecture}: {fault}" for fault in found]
    return run_programs.conclude(faults, f"all agree within {TOLERANCE:g}")


if __name__ == "__main__":
    sys.exit(main())
