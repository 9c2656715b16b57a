#!/usr/bin/env python3
"""Low-rank adapters here and in peft: 50 optimizer steps, and what is exported (README.md). Judged as in train_parity.py."""
import contextlib
import json
import math
import subprocess
import sys
import types
import typing
from functools import partial
from unittest import mock

import cases
import families_parity
import finetuning_parity
import heads_parity
import hf_model
import llama_parity
import masks
import run_programs
import torch
import train_parity as comparison
import train_parity_reference as reference
import transformers
import weights_parity
from safetensors.torch import load_file

try:
    import peft
except ImportError as missing:
    print(f"SKIPPED: {missing}; name an interpreter that has peft in ANYORDER_PARITY_PYTHON")
    sys.exit(77)

STEPS = 50
VOCAB = families_parity.VOCAB
EVALUATED = 4  # batches
# Relative; what fp32 makes of losses (finetuning_parity.py), and of logits (llama_parity.py).
LOSS_BOUND, LOGITS_BOUND = 1e-6, llama_parity.TOLERANCE
UNIT = 2.0 ** -24  # of rounding to fp32
PREFIX = "base_model.model."  # of names in peft's files
RANK, ALPHA = 4, 8
OPTIMIZER = {**reference.OPTIMIZER, "learning_rate": 3e-3, "warmup_steps": 5, "bias_correction": True, "adam_form": "torch"}
SETTINGS = {
    "model.dtype": "fp32", "optimizer.decay": "linear", "train.steps": STEPS, "checkpoint.every": 0, "train.lora.rank": RANK,
    "train.lora.alpha": ALPHA, **reference.settings(OPTIMIZER)}


class Case(typing.NamedTuple):
    saved: str  # class that transformers saves
    config: dict
    changes: dict = {}  # of SETTINGS
    dtype: torch.dtype = torch.float32  # of the saved weights
    architecture: str = ""  # of what is trained, if it is another class
    task: str = ""  # "": language model
    options: dict = {}  # of the import, and of transformers, which makes a class of the saved one
    arguments: dict = {}

    @property
    def kind(self):
        return getattr(transformers, self.architecture or self.saved)


GROUPED = llama_parity.llama(num_key_value_heads=2)
CLASSES = {"objective.name": "bert_finetuning", "objective.num_classes": 3, "objective.pooler": "true", "objective.classifier_dropout": 0,
           "objective.next_sentence": "false", "sampling.reuse_len": 256, "sampling.num_predict": 85, "sampling.spans": "subword"}
CASES = {
    "llama: all projections": Case("LlamaForCausalLM", GROUPED),
    "qwen2 in bf16: q, v, norms and softmax": Case(
        "Qwen2ForCausalLM", GROUPED, {"train.lora.targets": "q, v", "train.lora.tensors": "layer_norm, lm_loss"}, torch.bfloat16),
    # Here names of modules end others' names.
    "bert, classes: v, down, norms of feed-forward": Case(
        "BertForMaskedLM", families_parity.bert(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0),
        {**CLASSES, "train.lora.targets": "v, down", "train.lora.tensors": "ff.layer_norm"}, architecture="BertForSequenceClassification",
        task="classification", options={"sampling.reuse_len": 24}, arguments={"num_labels": 3}),
}


class Shared(typing.NamedTuple):
    """A network with tensors that are tied, repeated, or stored otherwise there, each of which is trained whole or has an adapter."""
    kind: str  # class of transformers
    config: typing.Union[dict, str]  # of a model that is saved; or a configuration of ours
    targets: str = "all"
    tensors: str = "word_embedding"
    changes: dict = {}  # of the run
    data: str = "text"
    refused: str = ""  # what the export to peft says


OWN = {**families_parity.SETTINGS, **families_parity.SMALL}
LONG = {**OWN, "sampling.seq_len": 50, "sampling.num_predict": 8, "sampling.global_stride": 16, "model.attention_windows": "6:6; 3:3",
        "model.global_projections": "false"}
WHOLE = "word_embedding, position_embedding, lm_loss, lm_head, layer_norm"
GPT = heads_parity.gpt()
SHARED = {
    "llama, tied": Shared("LlamaForCausalLM", GROUPED | {"tie_word_embeddings": True}, tensors="word_embedding, layer_norm"),
    "llama, untied": Shared("LlamaForCausalLM", GROUPED, "q", "word_embedding, lm_loss"),
    "qwen2, tied": Shared("Qwen2ForCausalLM", GROUPED | {"tie_word_embeddings": True}),
    "bert": Shared("BertForMaskedLM", families_parity.bert(), tensors=WHOLE, changes={"sampling.reuse_len": 24}),
    "bert, output's bias": Shared("BertForMaskedLM", families_parity.bert(), tensors="lm_loss", changes={"sampling.reuse_len": 24}),
    "roberta": Shared("RobertaForMaskedLM", families_parity.roberta(), tensors=WHOLE),
    "roberta, more types": Shared("RobertaForMaskedLM", families_parity.roberta(), tensors="segment_embedding", changes={
        "objective.name": "bert", "sampling.seq_len": 48}, refused="trains 2 token types, but peft keeps the size of the base's table, 1"),
    "longformer": Shared("LongformerForMaskedLM", families_parity.roberta(attention_window=16), tensors=WHOLE),
    "longformer, repeated projections": Shared("LongformerForMaskedLM", "longformer-tiny", tensors=WHOLE, changes=LONG),
    "bert of classes": Shared("BertForSequenceClassification", "finetune/bert-classify-tiny", changes={
        **heads_parity.SMALL, "objective.num_classes": 3}, data="classification"),
    "gpt": Shared("OpenAIGPTLMHeadModel", GPT, "o, up, down", "word_embedding, position_embedding, layer_norm"),
    "gpt2": Shared("GPT2LMHeadModel", GPT, "o, up, down", "word_embedding, position_embedding, layer_norm"),
    "gpt2 of choices": Shared("GPT2DoubleHeadsModel", "finetune/gpt-classify-tiny", "down", changes={
        **heads_parity.SMALL, **heads_parity.CHOICES, "model.layer_norm": "pre"}, data="multiple_choice"),
    "xlnet": Shared("XLNetLMHeadModel", heads_parity.xlnet(), "up, down", "word_embedding, lm_loss, layer_norm"),
    "transformer-xl": Shared("TransfoXLLMHeadModel", dict(
        vocab_size=VOCAB, n_layer=2, d_model=32, d_embed=32, n_head=2, d_head=16, d_inner=64, cutoffs=[], div_val=1, mem_len=40,
        same_length=False, clamp_len=-1), "o, r, up, down", "word_embedding, lm_loss, layer_norm"),
}


@contextlib.contextmanager
def all_in(dtype):
    """transformers makes positions, norms, softmax and logits in fp32, whatever the type of the weights: in here, in `dtype`."""
    convert = torch.Tensor.double if dtype == torch.float64 else torch.Tensor.float
    torch.set_default_dtype(dtype)
    with mock.patch.object(torch, "float32", dtype), mock.patch.object(torch.Tensor, "float", convert):
        yield
    torch.set_default_dtype(torch.float32)


def trained(model):
    """What peft trains, by the names that it saves it under."""
    return {name.replace(".modules_to_save", "").replace(".default", ""): parameter
            for name, parameter in model.named_parameters() if parameter.requires_grad}


def load_peft(base, adapters, case, dtype=torch.float32):
    """The saved model with adapters; each tensor of the file must be one that peft trains, and all of them."""
    saved = case.kind.from_pretrained(base, torch_dtype=dtype, **case.arguments)
    with all_in(dtype):
        model = case.kind(saved.config)  # with positions of this type
    model.load_state_dict(saved.state_dict())
    model = peft.PeftModel.from_pretrained(model, adapters, is_trainable=True)
    file, parameters = load_file(adapters / "adapter_model.safetensors"), trained(model)
    different = set(file) ^ set(parameters) or {name for name in file if not torch.equal(file[name].to(dtype), parameters[name])}
    assert not different, f"peft has other tensors than {adapters}: {sorted(different)[:5]}"
    return model


def logits_of(model, facts, task):
    """[lanes, targets, vocabulary], or those of classes."""
    if task:
        return model(**heads_parity.inputs_for(model, facts, llama_parity.SETTINGS["sampling.seq_len"])).logits
    masks.expect_text_order(facts)
    return hf_model.readout(model(input_ids=facts["input"].long()).logits, facts)


def loss_of(model, facts, task):
    if task:
        return finetuning_parity.loss_of(model, facts, task)
    logits = logits_of(model, facts, task)
    weights = facts["weights"].to(logits.dtype)
    return hf_model.weighted_losses(logits, facts["labels"].long(), weights).sum() / weights.sum()


def train_peft(model, batches, task, seed=None):
    """What comparison.compare takes."""
    parameters = trained(model)
    _, result = reference.optimize(parameters, OPTIMIZER, batches, lambda facts: loss_of(model, facts, task), seed)
    result["state"] = {f"weights/{name}": value.detach().double() for name, value in parameters.items()}
    result["state"]["losses/all"] = torch.tensor(result["loss"], dtype=torch.float64)
    return result


def judge(work, case, batches):
    """The exact run and the samples."""
    runs = []
    for dtype, seed in [(torch.float64, None)] + [(torch.float32, seed) for seed in range(comparison.SAMPLES)]:
        model = load_peft(work / "hf", work / "initial", case, dtype)
        with all_in(dtype):
            runs.append(train_peft(model, batches, case.task, seed))
    return runs[0], runs[1:]


def compare_training(work, case, batches):
    """Rows of train_parity.py. The losses of all steps also count as one tensor, with its bound."""
    exact, samples = judge(work, case, batches)
    metrics = run_programs.metrics(work / "run")
    weights = load_file(work / "trained/adapter_model.safetensors")
    ours = types.SimpleNamespace(state={f"weights/{name}": value for name, value in weights.items()})
    ours.state["losses/all"] = torch.tensor([line["loss"] for line in metrics], dtype=torch.float64)
    rows = [comparison.series_row(key, [line[key] for line in metrics], exact[key], bound) for key, bound in (
        ("loss", LOSS_BOUND), ("grad_norm", comparison.LOSS_BOUND), ("lr", comparison.RATE_BOUND))]
    rows += [comparison.state_row(kind, ours, exact, samples) for kind in ("losses", "weights")]
    print(f"loss {exact['loss'][0]:.4f} to {exact['loss'][-1]:.4f}, clipped in {exact['clipped']} of {len(metrics)} steps, "
          f"{sum(value.numel() for value in weights.values())} trained weights")
    print("\n".join(str(row) for row in rows))
    faults = [] if len(metrics) == STEPS else [f"{len(metrics)} steps were trained"]
    return faults + [f"training, {row.quantity}: {row.difference:.1e} is over {row.bound:.1e}, {row.where}"
                     for row in rows if not row.ratio <= 1]


def initial_faults(adapters):
    """B is 0, A uniform within 1 / sqrt(in), which is how peft begins."""
    for name, value in load_file(adapters / "adapter_model.safetensors").items():
        if "lora_B" in name and value.any():
            yield f"{name} does not begin with zeros"
        if "lora_A" in name and not 0.9 < float(value.abs().max()) * math.sqrt(value.shape[1]) <= 1:
            yield f"{name} begins with {float(value.abs().max())} at most"


def tensor_faults(work):
    """Tensors of both merged exports: with adapters W + alpha / rank B A, within what summing RANK products and two more roundings
    may do; trained whole, as in the adapters' file; all others, as they were imported. As imported means its type, too."""
    before, after, wide = (cases.read_weights(work / kind) for kind in ("hf", "merged", "wide"))
    adapters = load_file(work / "trained/adapter_model.safetensors")
    whole = {name.removeprefix(PREFIX): value for name, value in adapters.items() if ".lora_" not in name}
    body = {name for name in before if not name.startswith("cls.")}  # what a class without language model has of it
    if set(after) != set(wide) or set(after) not in (set(before), body | set(whole)):
        yield f"the merged export has other tensors: {sorted(set(after) ^ set(before))}"
    for name, value in after.items():
        base, bound = before.get(name, value), torch.zeros(())
        expected, matrices = base.double(), PREFIX + name.removesuffix("weight") + "lora_{}.weight"
        if name in whole:
            expected = whole[name].double()
        elif matrices.format("A") in adapters:
            a, b = (adapters[matrices.format(letter)].double() for letter in "AB")
            expected = expected + ALPHA / RANK * b @ a
            bound = UNIT * (1 + 1e-6) * ((RANK + 1) * ALPHA / RANK * b.abs() @ a.abs() + expected.abs())
        elif not torch.equal(base, value):
            yield f"{name} is not trained, and another tensor after import and export"
        if not ((wide[name].double() - expected).abs() <= bound).all():
            yield f"{name} is {float((wide[name].double() - expected).abs().max()):.1e} away from what was trained"
        if value.dtype != base.dtype or not torch.equal(value, wide[name].to(base.dtype)):
            yield f"{name} is not exported in the type that it was imported in"


@torch.no_grad()
def compare_named(work, batches, theirs, measures):
    """What load_anyorder.py makes of the merged weights under our names."""
    model = weights_parity.load_anyorder.Anyorder(work / "named")
    for facts, logits in zip(batches, theirs):
        measures.add("logits, merged for load_anyorder.py", weights_parity.readout_logits(model, facts), logits)


@torch.no_grad()
def compare_exports(work, case, shards, batches):
    """The network of the trained adapters, by every way that leads to it. Batches have equally many targets."""
    model, measures = load_peft(work / "hf", work / "trained", case).eval(), hf_model.Measures()
    theirs = [logits_of(model, facts, case.task) for facts in batches]
    if not case.task:
        compare_named(work, batches, theirs, measures)
    merged_here, merged_there = case.kind.from_pretrained(work / "wide").eval(), model.merge_and_unload()
    for facts, logits in zip(batches, theirs):
        measures.add("logits, merged for transformers", logits_of(merged_here, facts, case.task), logits)
        measures.add("logits, merged by peft", logits_of(merged_there, facts, case.task), logits)
    exact = load_peft(work / "hf", work / "trained", case, torch.float64).eval()
    with all_in(torch.float64):
        loss = sum(loss_of(exact, facts, case.task) for facts in batches) / len(batches)
    lanes = llama_parity.SETTINGS["train.global_batch_size"]
    said = json.loads(run_programs.anyorder("eval", "--run-dir", work / "run", "--data", shards, "--batches", len(batches),
                                            "--batch-size", lanes, "--seed", 1, "--json"))
    measures.add("loss of anyorder eval", torch.tensor(said["losses"][0]["nats"], dtype=torch.float64), loss)
    return measures


def files_of(directory):
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def moved_faults(work):
    """The base may move: an export is the same, whether train.init_from then names its checkpoint or the run."""
    (work / "base").rename(work / "elsewhere")
    config, expected = work / "run/config.toml", files_of(work / "merged")
    was = config.read_text()
    for place in ("elsewhere", "elsewhere/checkpoints/step-000000000"):
        config.write_text(was.replace(str(work / "base/checkpoints/step-000000000"), str(work / place)))
        output = work / f"moved-{len(place)}"
        run_programs.export(work / "run", output)
        if files_of(output) != expected:
            yield f"with {place} as train.init_from another model is exported"


def train_and_export(work, case, shards):
    """In `work`: hf, the saved model; run; its adapters, initial and trained; merged, as imported, and wide, in fp32; named, merged for
    load_anyorder.py; batches. Returns the data."""
    kind = getattr(transformers, case.saved)
    model = cases.random_model(lambda: kind(kind.config_class(**case.config)), seed=11)
    cases.save(model.to(case.dtype), work / "hf", shards["text"])
    run_programs.import_model(work / "hf", work / "base", {**llama_parity.SETTINGS, **case.options, "data.shards": shards["text"]})
    data = shards[case.task or "text"]
    settings = {**SETTINGS, **case.changes, "train.init_from": work / "base", "data.shards": data}
    run_programs.launch_on_two_ranks(work, settings, work / "base/config", "peft")
    for output, *options in (("trained", "peft"), ("merged", "hf"), ("wide", "hf", "--dtype", "fp32"), ("named", "safetensors")):
        run_programs.export(work / "run", work / output, *options)
    run_programs.dump(work / "run", STEPS, work / "batches", "--batches")
    return data


def check_case(name, work, shards):
    case = CASES[name]
    data = train_and_export(work, case, shards)
    batches = hf_model.read_steps(work / "batches", STEPS)
    print(f"\n{name}: ", end="")
    faults = [*initial_faults(work / "initial"), *compare_training(work, case, batches)]
    measures = compare_exports(work, case, data, batches[:EVALUATED])
    hf_model.print_header()
    hf_model.print_table(name, measures)
    return [*faults, *tensor_faults(work), *moved_faults(work), *measures.exceeding(LOGITS_BOUND, LOGITS_BOUND)]


def kind_of(case):
    return getattr(transformers, case.kind, None) or getattr(hf_model, case.kind)


def make_base(work, case, shards):
    """work/base, a run, and work/hf, what it is there."""
    if isinstance(case.config, str):
        run_programs.launch(work / "base", {**case.changes, "data.shards": shards[case.data]}, case.config)
        return run_programs.export(work / "base", work / "hf")
    kind = kind_of(case)
    cases.save(cases.random_model(lambda: kind(kind.config_class(**case.config)), seed=5), work / "hf", shards["text"])
    run_programs.import_model(work / "hf", work / "base", {**llama_parity.SETTINGS, **case.changes, "data.shards": shards["text"]})


@torch.no_grad()
def check_shared(name, work, shards):
    """Adapters and trained tensors in peft, beside the saved model, are the network of the merged export, and not that of the base."""
    case = SHARED[name]
    kind = kind_of(case)
    make_base(work, case, shards)
    settings = {"train.steps": 3, "optimizer.learning_rate": 0.03, "optimizer.warmup_steps": 1, "checkpoint.every": 0,
                "train.lora.rank": 4, "train.lora.targets": case.targets, "train.lora.tensors": case.tensors}
    run_programs.launch(work / "run", {**settings, "train.init_from": work / "base", "data.shards": shards[case.data]}, work / "base/config")
    if case.refused:
        done = subprocess.run([run_programs.PROGRAMS / "anyorder", "export", work / "run", "--format", "peft", "--output", work / "adapters"],
                              capture_output=True, text=True)
        return [] if done.returncode == 65 and case.refused in done.stderr else [f"refused by {done.returncode}: {done.stderr}"]
    for output, *options in (("adapters", "peft"), ("wide", "hf", "--dtype", "fp32")):
        run_programs.export(work / "run", work / output, *options)
    base, merged = (kind.from_pretrained(work / directory).eval() for directory in ("hf", "wide"))
    adapted = peft.PeftModel.from_pretrained(kind.from_pretrained(work / "hf"), work / "adapters", is_trainable=True).eval()
    file = load_file(work / "adapters/adapter_model.safetensors")
    faults = [f"{name} is in the file or in peft alone" for name in sorted(set(file) ^ set(trained(adapted)))]
    inputs = {"input_ids": torch.randint(6, VOCAB, (3, 48), generator=torch.Generator().manual_seed(1))}
    if base.config.model_type == "longformer":
        inputs["global_attention_mask"] = (torch.arange(48) % 16 == 0).long().expand(3, 48)
    with hf_model.torchs_type_as():
        outputs = [model(**inputs).logits for model in (adapted, merged, base)]
    measures = hf_model.Measures()
    measures.add("logits, peft and merged", *outputs[:2])
    hf_model.print_table(name, measures)
    if (outputs[2] - outputs[1]).abs().max() < 0.05 * outputs[1].abs().max():
        faults.append("training changed nothing, so that nothing is compared")
    return faults + measures.exceeding(LOGITS_BOUND, LOGITS_BOUND)


def main():
    torch.set_num_threads(1)
    transformers.utils.logging.set_verbosity_error()  # it warns of heads that the saved model does not have
    print(f"{hf_model.versions()}, peft {peft.__version__}")
    if hf_model.TransfoXLLMHeadModel is None or tuple(map(int, peft.__version__.split(".")[:2])) < (0, 17):
        SHARED.pop("transformer-xl")  # older ones cannot wrap its output, and say so
    checks = {name: partial(check_case if name in CASES else check_shared, name) for name in sys.argv[1:] or [*CASES, *SHARED]}
    return cases.check_each(checks, f"{STEPS} steps and all exports agree")


if __name__ == "__main__":
    sys.exit(main())
