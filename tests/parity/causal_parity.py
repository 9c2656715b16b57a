#!/usr/bin/env python3
"""GPT, GPT-2 and Transformer-XL of transformers with random weights: imported, and exported (README.md).

All words' log-probabilities of an adaptive softmax come from load_anyorder.py.
"""
import sys
from functools import partial

import cases
import families_parity
import hf_model
import masks
import run_programs
import torch
import weights_parity
from hf_model import TransfoXLConfig, TransfoXLLMHeadModel
from transformers import GPT2Config, GPT2LMHeadModel, OpenAIGPTConfig, OpenAIGPTLMHeadModel

VOCAB = families_parity.VOCAB
STEPS = 3  # of Transformer-XL: no memory, then what one and two segments left
# Two fp32 implementations sum in different orders: 4 layers of some 10 rounded operations on sums
# of up to 256 products may differ by 4 * 10 * sqrt(256) * 2^-24 = 4e-5; half of the figures that
# xlnet_parity.py allows are enough for these.
TOLERANCE = families_parity.TOLERANCE
LENGTH = 40
SETTINGS = {**families_parity.SETTINGS, "sampling.seq_len": LENGTH}
TRAINED = {**SETTINGS, **families_parity.SMALL}
# Not a parameter: made in fp32 there, rounded once from double here.
BUFFERS = ("transformer.pos_emb.inv_freq",)


def gpt(layers, dim, heads, **other):
    return OpenAIGPTLMHeadModel(OpenAIGPTConfig(
        vocab_size=VOCAB, n_layer=layers, n_embd=dim, n_head=heads, **{"n_positions": 64, **other}))


def gpt2(layers, dim, heads, **other):
    return GPT2LMHeadModel(GPT2Config(
        vocab_size=VOCAB, n_layer=layers, n_embd=dim, n_head=heads, bos_token_id=1, eos_token_id=2, **{"n_positions": 64, **other}))


def transformer_xl(layers, dim, heads, head_dim, ffn, cutoffs, div_val, memory, **other):
    options = {"same_length": False, "clamp_len": -1, **other}
    return TransfoXLLMHeadModel(TransfoXLConfig(
        vocab_size=VOCAB, n_layer=layers, d_model=dim, d_embed=dim, n_head=heads, d_head=head_dim, d_inner=ffn, cutoffs=cutoffs,
        div_val=div_val, mem_len=memory, **options))


MODELS = {
    "gpt": lambda: gpt(2, 32, 2),
    "gpt, relu, heads of 16": lambda: gpt(1, 48, 3, afn="relu"),
    "gpt, one head": lambda: gpt(3, 24, 1, layer_norm_epsilon=1e-3),
    "gpt, positions just enough": lambda: gpt(4, 64, 8, n_positions=LENGTH),
    "gpt, odd width": lambda: gpt(2, 50, 5),
    "gpt2": lambda: gpt2(2, 32, 2),
    "gpt2, narrow feed-forward, exact gelu": lambda: gpt2(1, 48, 3, n_inner=20, activation_function="gelu"),
    "gpt2, relu, one head": lambda: gpt2(3, 24, 1, activation_function="relu", layer_norm_epsilon=1e-3),
    "gpt2, positions just enough": lambda: gpt2(4, 64, 8, n_positions=LENGTH, reorder_and_upcast_attn=True),
    "gpt2, odd width": lambda: gpt2(2, 50, 5, activation_function="gelu_pytorch_tanh"),
    "transformer-xl": lambda: transformer_xl(2, 32, 2, 16, 64, [100, 200], 1, 40),
    "transformer-xl, projected": lambda: transformer_xl(3, 48, 3, 16, 40, [60, 120, 200], 2, 80, clamp_len=50),
    "transformer-xl, same length": lambda: transformer_xl(2, 32, 4, 10, 64, [150], 4, 60, same_length=True, clamp_len=30),
    "transformer-xl, own projections": lambda: transformer_xl(
        2, 32, 2, 16, 64, [100, 200], 2, 24, proj_share_all_but_first=False),
    "transformer-xl, one softmax": lambda: transformer_xl(4, 64, 4, 16, 96, [], 1, 40),
}
# name: class, configuration, and what differs from TRAINED.
RUNS = {
    "run of gpt": (OpenAIGPTLMHeadModel, "gpt-tiny", {"model.ffn_dim": 128}),
    "run of gpt2": (GPT2LMHeadModel, "gpt-tiny", {"model.layer_norm": "pre"}),
    "run of transformer-xl": (TransfoXLLMHeadModel, "transformer-xl-tiny", {"model.mem_len": 40}),
    "run of transformer-xl, shared biases": (TransfoXLLMHeadModel, "transformer-xl-words-tiny", {
        "model.cutoffs": "100,200", "model.mem_len": 60, "model.untie_r": "false", "model.initial_memory": "zeros"}),
}


def is_recurrent(model):
    return TransfoXLLMHeadModel is not None and isinstance(model, TransfoXLLMHeadModel)


def recurrent_logits(model, tokens, memory):
    with hf_model.torchs_type_as():
        result = model(tokens, mems=memory)
    return result.prediction_scores, result.mems


def all_words(adaptive, facts, memory):
    """Of an adaptive softmax, as load_anyorder.py makes them of our weights; and the memory that follows."""
    content = facts["input"].shape[1]
    if memory is None:
        memory = [torch.zeros_like(facts["memory"][:, 0])] * adaptive.network["num_layers"]
    hidden, states = adaptive(**weights_parity.inputs_of(facts, memory))
    logits = adaptive.logits(weights_parity.states_of(hidden, facts["readout_rows"], content))
    return logits, weights_parity.memory_after(adaptive, memory, states, content)


@torch.no_grad()
def compare_steps(model, dump, memory, adaptive=None):
    """Each step of the dump. `memory`: of the first, as theirs; None where they have zeros, or none at all. `adaptive`: our
    weights in load_anyorder.py, for what the dump does not have."""
    measures, words = hf_model.Measures(), None
    for facts in hf_model.read_steps(dump, STEPS):
        tokens = facts["input"].long()
        if is_recurrent(model):
            logits, memory = recurrent_logits(model, tokens, memory)
            measures.add("memory", facts["memory"], torch.stack(memory).permute(2, 0, 1, 3))
        else:
            masks.expect_text_order(facts)
            logits = model(tokens).logits
        logits = hf_model.readout(logits, facts)
        if "logits" in facts:
            ours = facts["logits"] if not is_recurrent(model) else facts["logits"].log_softmax(-1)
            measures.add("logits", ours, logits)
        elif adaptive is not None:
            ours, words = all_words(adaptive, facts, words)
            measures.add("log-probabilities of all words", ours, logits)
        measures.add("losses", facts["losses"], hf_model.weighted_losses(logits, facts["labels"].long(), facts["weights"]))
    return measures


def difference(ours, theirs):
    """Of the tensors of two directories."""
    ours, theirs = cases.read_weights(ours), cases.read_weights(theirs)
    for name in BUFFERS:
        if name in ours and name in theirs:
            torch.testing.assert_close(ours.pop(name), theirs.pop(name), rtol=3e-7, atol=0)
    return cases.tensor_faults(ours, theirs)


def compare_model(name, work, shards):
    """Theirs, imported."""
    model = cases.random_model(MODELS[name], seed=list(MODELS).index(name))
    cases.save(model, work / "hf", shards["text"])
    run_programs.import_model(work / "hf", work / "run", {**SETTINGS, "data.shards": shards["text"]})
    run_programs.dump(work / "run", STEPS, work / "dump", "--forward-only")
    run_programs.export(work / "run", work / "again")
    again, faults = hf_model.loaded(type(model), work / "again")
    if any(not torch.equal(value, again.state_dict()[key]) for key, value in model.state_dict().items() if key not in BUFFERS):
        faults.append("the model that comes back is another")
    adaptive = None
    if is_recurrent(model) and model.config.cutoffs:
        weights_parity.export(work / "run", work / "ours")
        adaptive = weights_parity.load_anyorder.Anyorder(work / "ours")
    return compare_steps(model, work / "dump", None, adaptive), faults + difference(work / "again", work / "hf")


def compare_run(name, work, shards):
    """Ours, exported."""
    kind, config, other = RUNS[name]
    settings = {**TRAINED, "data.shards": shards["text"], **other}
    export, dump = run_programs.dumped_run(work, settings, STEPS, "--forward-only", config=config)
    model, faults = hf_model.loaded(kind, export)
    memory = None
    if is_recurrent(model) and "model.initial_memory" not in other:
        memory = [torch.zeros(0, TRAINED["train.global_batch_size"], model.config.d_model)] * model.config.n_layer
    measures = compare_steps(model, dump, memory)
    return measures, faults + difference(run_programs.returned(export, work, "back", {}), export)


def main():
    names = sys.argv[1:] or [*MODELS, *RUNS]
    if TransfoXLLMHeadModel is None:
        print("this transformers has no Transformer-XL: left out")
        names = [name for name in names if "transformer-xl" not in name]
    torch.set_num_threads(1)
    found = {name: partial(compare_model if name in MODELS else compare_run, name) for name in names}
    return cases.compare_each(found, TOLERANCE, vocab_size=VOCAB)


if __name__ == "__main__":
    sys.exit(main())
