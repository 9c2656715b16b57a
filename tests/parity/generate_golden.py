#!/usr/bin/env python3
"""Makes, or checks, golden/*.safetensors: what transformers computes for two small networks on made-up batches.

Usage: generate_golden.py [--check] DIR
With --check nothing is written: the files of DIR must hold what this transformers computes, up to rounding.
golden/FORMAT.md says what is in them.
"""
import random
import sys
from pathlib import Path

import hf_model
import masks
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from transformers import XLNetConfig, XLNetLMHeadModel

STEPS = 3
TOLERANCE = 2e-5  # as in xlnet_parity.py, for smaller networks
GRADIENT_TOLERANCE = 10 * TOLERANCE

# Every value goes to the file's metadata; golden_test.cc reads the same names. "seed" is that of
# the batches.
NETWORKS = {
    "untied": dict(seed=1, lanes=4, num_layers=2, num_heads=4, head_dim=4, ffn_dim=32, vocab_size=31, mem_len=20,
                   seq_len=24, num_predict=5, perm_size=6, untie_r=1, clamp_len=-1, activation="gelu"),
    "shared_odd": dict(seed=2, lanes=2, num_layers=3, num_heads=3, head_dim=6, ffn_dim=19, vocab_size=29, mem_len=7,
                       seq_len=18, num_predict=4, perm_size=9, untie_r=0, clamp_len=6, activation="relu"),
    "odd_head": dict(seed=6, lanes=2, num_layers=2, num_heads=2, head_dim=7, ffn_dim=23, vocab_size=17, mem_len=0,
                     seq_len=14, num_predict=3, perm_size=7, untie_r=1, clamp_len=-1, activation="gelu_erf"),
}
# Our names and theirs.
ACTIVATIONS = {"gelu": "gelu_new", "gelu_erf": "gelu", "relu": "relu"}


def hashed_weights(name, shape):
    """The weights of a parameter, from its name and each element's number: golden/FORMAT.md."""
    key = 2166136261
    for byte in name.encode():
        key = (key ^ byte) * 16777619 & 0xFFFFFFFF
    x = (torch.arange(shape.numel(), dtype=torch.int64) * 0x9E3779B9 + key) & 0xFFFFFFFF
    for shift, factor in ((16, 0x7FEB352D), (15, 0x846CA68B)):
        x = ((x ^ (x >> shift)) * factor) & 0xFFFFFFFF
    x = x ^ (x >> 16)
    unit = (x >> 8).double() / 2**23 - 1
    scaled = 1 + unit / 4 if name.endswith("layer_norm.weight") else unit / 2
    return scaled.float().reshape(shape)


def our_name(name, network):
    """Biases that our layers share are a copy in each of theirs."""
    shared = not network["untie_r"] and name.endswith(("r_w_bias", "r_r_bias", "r_s_bias"))
    return "transformer." + name.rsplit(".", 1)[1] if shared else name


def make_model(network):
    width = network["num_heads"] * network["head_dim"]
    config = XLNetConfig(
        vocab_size=network["vocab_size"], d_model=width, n_layer=network["num_layers"], n_head=network["num_heads"],
        d_inner=network["ffn_dim"], ff_activation=ACTIVATIONS[network["activation"]], untie_r=bool(network["untie_r"]),
        attn_type="bi", bi_data=True, clamp_len=network["clamp_len"], mem_len=network["mem_len"] or None,
        reuse_len=network["seq_len"] // 2, layer_norm_eps=1e-12, dropout=0.0)
    model = XLNetLMHeadModel(config).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(hashed_weights(our_name(name, network), parameter.shape))
    return model


def draw_half(rng, length, perm_size):
    block = rng.sample(range(perm_size), perm_size)
    return [begin + rank for begin in range(0, length, perm_size) for rank in block]


def draw_lane(rng, network, hit_separator):
    """Tokens, segments, masked positions and order of one lane: [reuse | A SEP B SEP CLS]."""
    length, half = network["seq_len"], network["seq_len"] // 2
    tokens = [rng.randrange(7, network["vocab_size"]) for _ in range(length)]
    first = half + rng.randrange(1, half - 4)
    tokens[first] = tokens[-2] = masks.SEP
    tokens[-1] = masks.CLS
    segment = [0] * (first + 1) + [1] * (length - first - 2) + [2]
    plain = [i for i in range(length) if tokens[i] not in (masks.SEP, masks.CLS)]
    chosen = set(rng.sample(plain, network["num_predict"]))
    if hit_separator:  # then it is no target, and a query slot is left over
        chosen = chosen - {min(chosen)} | {first}
    order = draw_half(rng, half, network["perm_size"]) + draw_half(rng, half, network["perm_size"])
    return tokens, segment, [int(i in chosen) for i in range(length)], order


def draw_batch(rng, network, step):
    lanes = [draw_lane(rng, network, hit_separator=lane == step) for lane in range(network["lanes"])]
    facts = {name: torch.tensor([lane[index] for lane in lanes], dtype=torch.int32)
             for index, name in enumerate(("tokens", "segment", "masked", "order"))}
    # model_inputs takes the number of target slots from here.
    facts["labels"] = torch.zeros(network["lanes"], network["num_predict"], dtype=torch.int32)
    return facts


def make_tensors(network):
    """All tensors of a file: inputs, and what transformers makes of them."""
    rng = random.Random(network["seed"])
    model = make_model(network)
    tensors, mems = {}, None
    for step in range(STEPS):
        facts = draw_batch(rng, network, step)
        inputs, labels, weights = masks.model_inputs(facts, network["seq_len"] // 2)
        result = model(**inputs, mems=mems, use_mems=network["mem_len"] > 0, output_hidden_states=True)
        losses = hf_model.weighted_losses(result.logits, labels, weights)
        values = {name: facts[name] for name in ("tokens", "segment", "masked", "order")}
        values.update(logits=result.logits, losses=losses)
        states = result.hidden_states
        for level in range(network["num_layers"] + 1):
            if level < network["num_layers"]:
                values[f"content/{level}"] = states[2 * level]
            values[f"query/{level}"] = states[2 * level + 1].expand(network["lanes"], network["num_predict"], -1)
        if network["mem_len"] > 0:
            mems = [layer.detach() for layer in result.mems]
            values["memory"] = torch.stack(mems).permute(2, 0, 1, 3)
        if step == STEPS - 1:
            losses.sum().backward()
            values.update(gradients_by_our_names(model, network))
        tensors.update({f"{step}.{name}": value.detach().contiguous() for name, value in values.items()})
    return tensors


def gradients_by_our_names(model, network):
    gradients = {}
    for name, parameter in model.named_parameters():
        key = "gradient/" + our_name(name, network)
        gradient = parameter.grad if parameter.grad is not None else torch.zeros_like(parameter)
        gradients[key] = gradients.get(key, 0) + gradient
    return gradients


def check(path, tensors, vanishes):
    """Whether the file holds these tensors, up to rounding. Gradients that vanish in exact arithmetic must be nothing beside the
    largest one of the network, here and in the file: what is left of them is rounding, which differs."""
    measures, wrong = hf_model.Measures(), []
    largest = max((float(value.abs().max()) for name, value in tensors.items() if "gradient" in name), default=0.0)
    with safe_open(path, "pt") as file:
        if set(file.keys()) != set(tensors):
            wrong.append(f"tensors {sorted(set(file.keys()) ^ set(tensors))}")
        for name in sorted(set(file.keys()) & set(tensors)):
            stored = file.get_tensor(name)
            if not stored.is_floating_point():
                wrong += [name] * (not torch.equal(stored, tensors[name]))
            elif vanishes(name):
                wrong += [name] * (float(torch.maximum(stored.abs(), tensors[name].abs()).max()) > TOLERANCE * largest)
            else:
                measures.add("gradients" if "gradient" in name else "values", stored, tensors[name])
    for quantity, _, relative, _ in measures.table():
        print(f"{path.name}: {quantity} within {relative:.1e}")
        wrong += [quantity] * (relative > (GRADIENT_TOLERANCE if quantity == "gradients" else TOLERANCE))
    if wrong:
        print(f"FAULT in {path.name}: differs in {', '.join(wrong)}; if that is meant, make the files again")
    return not wrong


def make_or_check(names, make_tensors, metadata_of, vanishes=lambda network, name: False):
    """For each of `names` its file, which holds make_tensors(name), or a check of it; the exit
    status."""
    arguments = [argument for argument in sys.argv[1:] if argument != "--check"]
    if len(arguments) != 1:
        sys.exit(f"usage: {Path(sys.argv[0]).name} [--check] DIR")
    torch.set_num_threads(1)
    print(hf_model.versions())
    agree = True
    for name in names:
        path = Path(arguments[0]) / f"{name}.safetensors"
        tensors = make_tensors(name)
        if "--check" in sys.argv:
            agree &= check(path, tensors, lambda key: vanishes(name, key))
        else:
            save_file(tensors, path, {**metadata_of(name), "made_by": hf_model.versions()})
    return 0 if agree else 1


def metadata_of(name):
    return {**{key: str(value) for key, value in NETWORKS[name].items()}, "steps": str(STEPS)}


if __name__ == "__main__":
    sys.exit(make_or_check(NETWORKS, lambda name: make_tensors(NETWORKS[name]), metadata_of))
