#!/usr/bin/env python3
"""Llama, A3, Qwen2, Qwen3, LLaDA, Dream and the diffusion transformers of MDLM and BD3-LM with random weights, imported (README.md)."""
import json
import shutil
import sys
from functools import partial

import cases
import families_parity
import foreign_networks
import hf_model
import masks
import run_programs
import torch
import transformers
import weights_parity
from safetensors.torch import save_file

TOLERANCE, GRADIENT_TOLERANCE = 1e-5, 1e-4
VOCAB = families_parity.VOCAB
SETTINGS = {**families_parity.SETTINGS, "sampling.seq_len": 48}
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 32}


def llama(**changes):
    return dict(vocab_size=VOCAB, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=4,
                intermediate_size=48, hidden_act="silu", max_position_embeddings=64, rms_norm_eps=1e-5, rope_theta=1e4,
                rope_scaling=None, tie_word_embeddings=False) | changes


def a3(**changes):
    return llama(model_type="llama", architectures=["LlamaTwoStreamForCausalLM"]) | changes


def llada(**changes):
    return dict(vocab_size=VOCAB, embedding_size=VOCAB, d_model=32, n_layers=2, n_heads=4, n_kv_heads=4, mlp_hidden_size=48,
                max_sequence_length=64, rms_norm_eps=1e-5, rope_theta=5e5, rope=True, alibi=False, block_type="llama",
                activation_type="silu", layer_norm_type="rms", include_bias=False, include_qkv_bias=False, weight_tying=False,
                residual_dropout=0.0, attention_dropout=0.0) | changes


def dit(**changes):
    return dict(vocab_size=VOCAB, model_length=48, hidden_dim=32, cond_dim=12, n_blocks=2, n_heads=4, dropout=0.0,
                time_conditioning=False) | changes


# model_type: {shape: config.json}.
SHAPES = {
    "llama": {
        "small": llama(),
        "tied, all biases": llama(attention_bias=True, mlp_bias=True, tie_word_embeddings=True),
        "llama3 frequencies, 3 layers": llama(rope_scaling=LLAMA3, num_hidden_layers=3, rms_norm_eps=1e-6),
        "explicit heads, spelled as in 5": llama(head_dim=12, rope_parameters={**LLAMA3, "rope_theta": 5e5}),
        "grouped keys, wide": llama(hidden_size=96, num_attention_heads=12, num_key_value_heads=3, intermediate_size=64)},
    "A3": {
        "small": a3(),
        "tied, all biases": a3(attention_bias=True, mlp_bias=True, tie_word_embeddings=True),
        "llama3 frequencies, 3 layers": a3(rope_scaling=LLAMA3, num_hidden_layers=3, rms_norm_eps=1e-6),
        "Llama's layers": a3(ffn_residual="input"),
        "grouped keys, wide": a3(hidden_size=96, num_attention_heads=12, num_key_value_heads=3, intermediate_size=64)},
    "qwen2": {
        "small": llama(),
        "tied, one head": llama(num_attention_heads=1, num_key_value_heads=1, tie_word_embeddings=True),
        "far base, 3 layers": llama(rope_theta=1e6, num_hidden_layers=3, rms_norm_eps=1e-6),
        "wide": llama(hidden_size=96, num_attention_heads=12, num_key_value_heads=12, intermediate_size=64),
        "grouped keys, tied": llama(num_key_value_heads=2, tie_word_embeddings=True)},
    "qwen3": {
        "small": llama(),
        "explicit heads": llama(head_dim=16, rope_theta=1e6, rms_norm_eps=1e-6),
        "tied, all biases": llama(attention_bias=True, tie_word_embeddings=True),
        "narrow heads, 3 layers": llama(head_dim=4, num_hidden_layers=3),
        "grouped keys, explicit heads": llama(num_key_value_heads=1, head_dim=12)},
    "Dream": {
        "small": llama(),
        "tied": llama(tie_word_embeddings=True),
        "far base, 3 layers": llama(rope_theta=1e6, num_hidden_layers=3, rms_norm_eps=1e-6),
        "wide": llama(hidden_size=96, num_attention_heads=12, num_key_value_heads=12, intermediate_size=64),
        "grouped keys": llama(num_key_value_heads=2)},
    "llada": {
        "small": llada(),
        "tied": llada(weight_tying=True),
        "biases of q, k, v": llada(include_qkv_bias=True, rope_theta=1e4),
        "3 layers, one head": llada(n_layers=3, n_heads=1, n_kv_heads=None, mlp_hidden_size=None, mlp_ratio=2),
        "grouped keys, wide": llada(d_model=96, n_heads=12, n_kv_heads=4, mlp_hidden_size=64)},
    "mdlm": {
        "small": dit(),
        "3 blocks": dit(n_blocks=3, cond_dim=7),
        "wide": dit(hidden_dim=96, n_heads=12, cond_dim=128),
        "one head": dit(n_heads=1, hidden_dim=24),
        "one block": dit(n_blocks=1, hidden_dim=48, n_heads=2)},
    "bd3lm": {
        "small": dit(adaln=True, block_size=8),
        "3 blocks": dit(adaln=True, n_blocks=3, cond_dim=7),
        "unmodulated": dit(adaln=False, block_size=4, n_heads=2),
        "unmodulated, wide": dit(adaln=False, hidden_dim=96, n_heads=12),
        "one block": dit(adaln=True, n_blocks=1, hidden_dim=48, n_heads=2)},
}


def drawn(config, seed=7):
    """Weights wide enough that attention is sharp; gains around 1."""
    torch.manual_seed(seed)
    weights = {}
    for name, shape in foreign_networks.shapes(config).items():
        is_gain = len(shape) == 1 and name.endswith("weight")
        # A modulation of many terms would make rounding errors grow from block to block.
        spread = 0.2 * min(1, (12 / shape[-1]) ** 0.5) if "adaLN" in name or "sigma_map" in name else 0.2
        weights[name] = torch.randn(shape) * spread + (1 if is_gain else 0)
    return weights


def save_model(directory, config, weights, shards):
    directory.mkdir()
    (directory / "config.json").write_text(json.dumps(config))
    save_file(weights, directory / "model.safetensors", {"format": "pt"})
    shutil.copy(shards / "spiece.model", directory)


def transformers_model(config, weights, dtype=torch.float32):
    """None where this transformers does not have the shape."""
    architecture = {"llama": "LlamaForCausalLM", "qwen2": "Qwen2ForCausalLM"}.get(config["model_type"])
    if architecture is None or foreign_networks.is_a3(config) or config["rope_scaling"] or "head_dim" in config or "rope_parameters" in config:
        return None
    kind = getattr(transformers, architecture)
    if config.get("mlp_bias") and not hasattr(kind.config_class(), "mlp_bias"):
        return None
    model = kind(kind.config_class(**config)).eval().to(dtype)
    tied = {"lm_head.weight": weights["model.embed_tokens.weight"]} if config["tie_word_embeddings"] else {}
    model.load_state_dict({**weights, **tied})
    return model


def swapped(gradient):
    """Of ours [in, heads, width], stored there as [out, in]."""
    return gradient.flatten(1).T


def llama_gradients(config, facts):
    """{name in the file: gradient} from ours."""
    ours, found = hf_model.gradients_of(facts), {}

    def put(mine, module, layer=None, turn=lambda x: x, end=".weight"):
        if mine in ours:
            found[foreign_networks.named(config, module, layer) + end] = turn(ours[mine])

    put("transformer.word_embedding.weight", "model.embed_tokens")
    put("transformer.layer_norm.weight", "model.norm")
    put("lm_loss.weight", "lm_head")
    if foreign_networks.is_a3(config):
        found["model.query_embed"] = ours["transformer.mask_emb"]
    for layer in range(foreign_networks.llama_sizes(config)[0]):
        p = f"transformer.layer.{layer}."
        put(p + "rel_attn.layer_norm.weight", "input_layernorm", layer)
        put(p + "ff.layer_norm.weight", "post_attention_layernorm", layer)
        for kind in "qkvo":
            put(p + f"rel_attn.{kind}", f"self_attn.{kind}_proj", layer, (lambda x: x.flatten(1)) if kind == "o" else swapped)
            put(p + f"rel_attn.{kind}_bias", f"self_attn.{kind}_proj", layer, end=".bias")
            put(p + f"rel_attn.{kind}_norm.weight", f"self_attn.{kind}_norm", layer)
        for mine, theirs in (("gate", "gate"), ("layer_1", "up"), ("layer_2", "down")):
            for end in (".weight", ".bias"):
                put(p + f"ff.{mine}{end}", f"mlp.{theirs}_proj", layer, end=end)
    return found


def dit_gradients(config, facts, weights):
    """The same; ours are those of the folded weights: w (1 + scale), shift, gate times the rows of two matrices."""
    ours, dim, is_modulated, found = hf_model.gradients_of(facts), config["hidden_dim"], config.get("adaln", True), {}

    def unfold_norm(mine, theirs, scale):
        gain = ours[mine + ".weight"]
        found[theirs + ".weight"] = gain * (1 + scale)
        return [ours[mine + ".bias"], gain * weights[theirs + ".weight"]]

    def unfold_gate(gate, *names):
        for mine, theirs in names:
            found[theirs] = (ours[mine].flatten(1) if ours[mine].dim() > 1 else ours[mine][:, None]) * gate[:, None]
            found[theirs] = found[theirs].reshape(weights[theirs].shape)
        return [sum((ours[mine].reshape(dim, -1) * weights[theirs].reshape(dim, -1)).sum(1) for mine, theirs in names)]

    found["backbone.vocab_embed.embedding"] = ours["transformer.word_embedding.weight"]
    for end in ("weight", "bias"):
        found[f"backbone.output_layer.linear.{end}"] = ours[f"lm_loss.{end}"]
    for layer in range(config["n_blocks"]):
        p, q = f"backbone.blocks.{layer}.", f"transformer.layer.{layer}."
        parts = torch.tensor([0.0, 0, 1, 0, 0, 1])[:, None].expand(6, dim)
        if is_modulated:
            parts = foreign_networks.modulation(weights, p, 6, dim)
        changes = unfold_norm(q + "rel_attn.layer_norm", p + "norm1", parts[1])
        changes += unfold_gate(parts[2], (q + "rel_attn.o", p + "attn_out.weight"))
        changes += unfold_norm(q + "ff.layer_norm", p + "norm2", parts[4])
        changes += unfold_gate(parts[5], (q + "ff.layer_2.weight", p + "mlp.2.weight"), (q + "ff.layer_2.bias", p + "mlp.2.bias"))
        found[p + "attn_qkv.weight"] = torch.cat([swapped(ours[q + f"rel_attn.{kind}"]) for kind in "qkv"])
        for end in ("weight", "bias"):
            found[p + f"mlp.0.{end}"] = ours[q + f"ff.layer_1.{end}"]
        if is_modulated:
            found[p + "adaLN_modulation.bias"] = torch.cat(changes)
    scale = foreign_networks.modulation(weights, "backbone.output_layer.", 2, dim)[1] if is_modulated else torch.zeros(dim)
    changes = unfold_norm("transformer.layer_norm", "backbone.output_layer.norm_final", scale)
    if is_modulated:
        found["backbone.output_layer.adaLN_modulation.bias"] = torch.cat(changes)
    return found


def two_stream_logits(config, leaves, facts):
    """Of the queries; the groups are checked to be what the batch's rows see."""
    tokens, groups = facts["input"].long(), facts["key_key"]
    rows = tokens.numel()
    content, queries = (masks.keys_of_rows(facts, first, tokens.shape[1]) for first in (0, rows))
    order = groups[:, None, :] - groups[:, :, None]
    if not torch.equal(content, order <= 0) or not torch.equal(queries, order < 0):
        raise ValueError("the run's groups are seen in another way")
    return foreign_networks.a3(config, leaves, tokens, groups).reshape(-1, VOCAB)[facts["readout_rows"].long() - rows]


def file_gradients(config, facts, weights):
    """{name in the file: gradient} from ours."""
    return dit_gradients(config, facts, weights) if "hidden_dim" in config else llama_gradients(config, facts)


def text_of(config, facts):
    """Tokens, and whether they are read from the left."""
    tokens, causal = facts["input"].long(), config["model_type"] in ("llama", "qwen2", "qwen3")
    masks.expect_text_order(facts, causal)
    return tokens, causal


def one_stream_logits(config, leaves, facts):
    tokens, causal = text_of(config, facts)
    return hf_model.readout(foreign_networks.network(config)(config, leaves, tokens, causal), facts)


def compare_numbers(config, weights, dump, measures):
    facts, = hf_model.read_steps(dump, 1)
    leaves = {name: tensor.clone().requires_grad_() for name, tensor in weights.items()}
    logits = (two_stream_logits if foreign_networks.is_a3(config) else one_stream_logits)(config, leaves, facts)
    hf_model.add_logits(measures, "logits", facts, logits)
    losses, used = hf_model.weighted_losses(logits, facts["labels"].long(), 1), facts["weights"] != 0
    measures.add("losses", facts["losses"] * used, losses * used)
    (losses * facts["weights"]).sum().backward()
    gradients = file_gradients(config, facts, weights)
    for name, leaf in leaves.items():
        if name in gradients:
            measures.add("gradients", gradients[name], leaf.grad)
        elif not name.startswith("backbone.sigma_map.") and not name.endswith("adaLN_modulation.weight"):
            yield f"{name} has no gradient of ours"
    with torch.no_grad():
        theirs = transformers_model(config, weights)
        if theirs is not None:
            logits = hf_model.readout(theirs(facts["input"].long()).logits, facts)
            hf_model.add_logits(measures, "logits of transformers", facts, logits)


@torch.no_grad()
def compare_loader(work, measures):
    """What load_anyorder.py makes of the same run under our names."""
    weights_parity.export(work / "back-run", work / "named")
    facts, = hf_model.read_steps(work / "dump", 1)
    logits = weights_parity.readout_logits(weights_parity.load_anyorder.Anyorder(work / "named"), facts)
    hf_model.add_logits(measures, "logits of load_anyorder.py", facts, logits)


def imported(work, config, weights, shards):
    """The exported directory of a run, work/back-run, that was made by importing such a model."""
    save_model(work / "hf", config, weights, shards["text"])
    objective = {"objective.name": "masked_diffusion", "sampling.block_len": 4} if config["model_type"] == "bd3lm" else {}
    return run_programs.returned(work / "hf", work, "back", {**SETTINGS, "data.shards": shards["text"], **objective})


def compare_shape(config, work, shards):
    weights = drawn(config)
    back = imported(work, config, weights, shards)
    measures, faults = hf_model.Measures(), cases.tensor_faults(weights, cases.read_weights(back))
    if cases.read_config(back) != config:
        faults.append("config.json is another after import and export")
    run_programs.dump(work / "back-run", 1, work / "dump")
    faults += compare_numbers(config, weights, work / "dump", measures)
    compare_loader(work, measures)
    return measures, faults


def configurations(wanted):
    """{family: {shape: config.json}} of the families that are asked for; of all without any."""
    return {family: {shape: {"model_type": family, "architectures": ["made"], **config} for shape, config in shapes.items()}
            for family, shapes in SHAPES.items() if not wanted or family in wanted}


def main():
    torch.set_num_threads(1)
    found = {f"{family}: {shape}": partial(compare_shape, config) for family, shapes in configurations(sys.argv[1:]).items()
             for shape, config in shapes.items()}
    return cases.compare_each(found, TOLERANCE, GRADIENT_TOLERANCE)


if __name__ == "__main__":
    sys.exit(main())
