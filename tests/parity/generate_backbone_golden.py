#!/usr/bin/env python3
"""Makes, or checks, golden/backbones/*.safetensors: what transformers computes, in fp64, for small networks that are not XLNet's.

Usage: generate_backbone_golden.py [--check] DIR
With --check nothing is written: the files of DIR must hold what this transformers computes, up to rounding.
golden/FORMAT.md says what is in them.
Exit status: 0 done, or they agree; 1 they do not; 77 torch or transformers is missing.
"""
import inspect
import random
import sys
from pathlib import Path
from unittest import mock

import hf_model
import torch
from generate_golden import check, hashed_weights
from safetensors.torch import save_file
from torch.nn.functional import cross_entropy
from transformers import (BertConfig, BertForPreTraining, GPTNeoXConfig, GPTNeoXForCausalLM, LongformerConfig,
                          LongformerForMaskedLM, MPNetConfig, MPNetForMaskedLM, OpenAIGPTConfig, OpenAIGPTLMHeadModel)

try:  # gone from transformers 5
    from transformers.models.deprecated.transfo_xl import TransfoXLConfig, TransfoXLLMHeadModel
except ImportError:
    TransfoXLConfig = None

VOCAB, LENGTH, LANES, LAYERS, HEADS, HEAD_DIM = 31, 24, 2, 2, 2, 8
DIM = HEADS * HEAD_DIM
FFN = 4 * DIM  # GPT's is fixed to that
WINDOWS = [4, 8]  # Longformer's, both sides together, a layer
GLOBAL_SLOTS = [[0, 7], [0, 13]]
NAMES = ("gpt", "bert", "longformer", "neox", "mpnet", "transfo_xl", "transfo_xl_projected")
CUTOFFS = [12, 20]  # of both Transformer-XL


def linear(module):
    """Names of ours: y = x W^T + b, as theirs."""
    return {"weight": (module.weight, lambda x: x), "bias": (module.bias, lambda x: x)}


def turned(parameter):
    return parameter, lambda x: x.transpose(0, 1)


def norm(prefix, module):
    return {f"{prefix}layer_norm.weight": (module.weight, lambda x: x),
            f"{prefix}layer_norm.bias": (module.bias, lambda x: x)}


def gpt():
    config = OpenAIGPTConfig(vocab_size=VOCAB, n_positions=LENGTH, n_embd=DIM, n_layer=LAYERS, n_head=HEADS,
                             layer_norm_epsilon=1e-5, embd_pdrop=0, attn_pdrop=0, resid_pdrop=0)
    model = OpenAIGPTLMHeadModel(config)
    ours = {"transformer.word_embedding.weight": (model.transformer.tokens_embed.weight, lambda x: x),
            "transformer.position_embedding.weight": (model.transformer.positions_embed.weight, lambda x: x)}
    for number, layer in enumerate(model.transformer.h):
        prefix = f"transformer.layer.{number}."
        for part, name in enumerate("qkv"):
            columns = slice(part * DIM, (part + 1) * DIM)
            ours[f"{prefix}rel_attn.{name}"] = (layer.attn.c_attn.weight, lambda x, c=columns: x[:, c])
            ours[f"{prefix}rel_attn.{name}_bias"] = (layer.attn.c_attn.bias, lambda x, c=columns: x[c])
        ours[f"{prefix}rel_attn.o"] = turned(layer.attn.c_proj.weight)
        ours[f"{prefix}rel_attn.o_bias"] = (layer.attn.c_proj.bias, lambda x: x)
        ours.update(norm(f"{prefix}rel_attn.", layer.ln_1) | norm(f"{prefix}ff.", layer.ln_2))
        for name, theirs in (("layer_1", layer.mlp.c_fc), ("layer_2", layer.mlp.c_proj)):
            ours[f"{prefix}ff.{name}.weight"] = turned(theirs.weight)
            ours[f"{prefix}ff.{name}.bias"] = (theirs.bias, lambda x: x)
    return model, ours


def bert_layers(layers, ours):
    """BERT's names, which Longformer's layers share."""
    for number, layer in enumerate(layers):
        prefix = f"transformer.layer.{number}."
        attention = layer.attention.self
        for suffix, start in (("", ""), ("_global", "global_")):
            for name, theirs in (("q", "query"), ("k", "key"), ("v", "value")):
                module = getattr(attention, theirs + suffix, None)
                if module is None:
                    continue
                ours[f"{prefix}rel_attn.{start}{name}"] = turned(module.weight)
                ours[f"{prefix}rel_attn.{start}{name}_bias"] = (module.bias, lambda x: x)
        output = layer.attention.output
        ours[f"{prefix}rel_attn.o"] = (output.dense.weight, lambda x: x)
        ours[f"{prefix}rel_attn.o_bias"] = (output.dense.bias, lambda x: x)
        ours.update(norm(f"{prefix}rel_attn.", output.LayerNorm) | norm(f"{prefix}ff.", layer.output.LayerNorm))
        for name, module in (("layer_1", layer.intermediate.dense), ("layer_2", layer.output.dense)):
            ours.update({f"{prefix}ff.{name}.{key}": value for key, value in linear(module).items()})


def bert_embeddings(embeddings, first_position):
    return {"transformer.word_embedding.weight": (embeddings.word_embeddings.weight, lambda x: x),
            "transformer.position_embedding.weight": (embeddings.position_embeddings.weight,
                                                      lambda x: x[first_position:]),
            "transformer.segment_embedding.weight": (embeddings.token_type_embeddings.weight, lambda x: x),
            **norm("transformer.embedding_", embeddings.LayerNorm)}


def bert():
    config = BertConfig(vocab_size=VOCAB, hidden_size=DIM, num_hidden_layers=LAYERS, num_attention_heads=HEADS,
                        intermediate_size=FFN, max_position_embeddings=LENGTH, hidden_act="gelu_new",
                        hidden_dropout_prob=0, attention_probs_dropout_prob=0)
    model = BertForPreTraining(config)
    ours = bert_embeddings(model.bert.embeddings, 0)
    bert_layers(model.bert.encoder.layer, ours)
    head = model.cls.predictions
    ours.update({f"lm_head.dense.{key}": value for key, value in linear(head.transform.dense).items()})
    ours.update(norm("lm_head.", head.transform.LayerNorm))
    ours["lm_loss.bias"] = (head.bias, lambda x: x)
    for name, module in (("sequence_summary.summary", model.bert.pooler.dense), ("logits_proj", model.cls.seq_relationship)):
        ours.update({f"{name}.{key}": value for key, value in linear(module).items()})
    return model, ours


def longformer():
    # Two position rows are reserved: tokens stand from row 2 on.
    config = LongformerConfig(vocab_size=VOCAB, hidden_size=DIM, num_hidden_layers=LAYERS, num_attention_heads=HEADS,
                              intermediate_size=FFN, max_position_embeddings=LENGTH + 2, type_vocab_size=1,
                              attention_window=WINDOWS, hidden_dropout_prob=0, attention_probs_dropout_prob=0,
                              layer_norm_eps=1e-5, pad_token_id=1)
    model = LongformerForMaskedLM(config)
    ours = bert_embeddings(model.longformer.embeddings, 2)
    bert_layers(model.longformer.encoder.layer, ours)
    ours.update({f"lm_head.dense.{key}": value for key, value in linear(model.lm_head.dense).items()})
    ours.update(norm("lm_head.", model.lm_head.layer_norm))
    ours["lm_loss.bias"] = (model.lm_head.bias, lambda x: x)
    return model, ours


def neox():
    """Rotary positions in a pre-LN network."""
    rotary = {"rotary_pct": 1.0, "rotary_emb_base": 100.0}  # transformers 4
    if "rope_parameters" in inspect.signature(GPTNeoXConfig.__init__).parameters:
        rotary = {"rope_parameters": {"rope_type": "default", "rope_theta": 100.0, "partial_rotary_factor": 1.0}}
    config = GPTNeoXConfig(vocab_size=VOCAB, hidden_size=DIM, num_hidden_layers=LAYERS, num_attention_heads=HEADS,
                           intermediate_size=FFN, tie_word_embeddings=True, use_parallel_residual=False, **rotary)
    model = GPTNeoXForCausalLM(config)
    ours = {"transformer.word_embedding.weight": (model.gpt_neox.embed_in.weight, lambda x: x)}
    for number, layer in enumerate(model.gpt_neox.layers):
        prefix = f"transformer.layer.{number}."
        theirs = layer.attention.query_key_value
        for part, name in enumerate("qkv"):
            ours[f"{prefix}rel_attn.{name}"] = (
                theirs.weight, lambda x, p=part: x.view(HEADS, 3, HEAD_DIM, DIM)[:, p].permute(2, 0, 1))
            ours[f"{prefix}rel_attn.{name}_bias"] = (
                theirs.bias, lambda x, p=part: x.view(HEADS, 3, HEAD_DIM)[:, p])
        ours[f"{prefix}rel_attn.o"] = (layer.attention.dense.weight, lambda x: x)
        ours[f"{prefix}rel_attn.o_bias"] = (layer.attention.dense.bias, lambda x: x)
        ours.update(norm(f"{prefix}rel_attn.", layer.input_layernorm) | norm(f"{prefix}ff.", layer.post_attention_layernorm))
        for name, module in (("layer_1", layer.mlp.dense_h_to_4h), ("layer_2", layer.mlp.dense_4h_to_h)):
            ours.update({f"{prefix}ff.{name}.{key}": value for key, value in linear(module).items()})
    ours.update(norm("transformer.", model.gpt_neox.final_layer_norm))
    return model, ours


def mpnet():
    """T5's bias by distance beside learned positions, as in UniLMv2; no segments."""
    # 32 buckets up to distance 128, which transformers does not let one change.
    config = MPNetConfig(vocab_size=VOCAB, hidden_size=DIM, num_hidden_layers=LAYERS, num_attention_heads=HEADS,
                         intermediate_size=FFN, max_position_embeddings=LENGTH + 2, hidden_dropout_prob=0,
                         attention_probs_dropout_prob=0, layer_norm_eps=1e-5, pad_token_id=1)
    model = MPNetForMaskedLM(config)
    embeddings, encoder = model.mpnet.embeddings, model.mpnet.encoder
    ours = {"transformer.word_embedding.weight": (embeddings.word_embeddings.weight, lambda x: x),
            "transformer.position_embedding.weight": (embeddings.position_embeddings.weight, lambda x: x[2:]),
            **norm("transformer.embedding_", embeddings.LayerNorm),
            "transformer.relative_attention_bias.weight": (encoder.relative_attention_bias.weight, lambda x: x)}
    for number, layer in enumerate(encoder.layer):
        prefix = f"transformer.layer.{number}."
        for name in "qkv":
            module = getattr(layer.attention.attn, name)
            ours[f"{prefix}rel_attn.{name}"] = turned(module.weight)
            ours[f"{prefix}rel_attn.{name}_bias"] = (module.bias, lambda x: x)
        ours[f"{prefix}rel_attn.o"] = (layer.attention.attn.o.weight, lambda x: x)
        ours[f"{prefix}rel_attn.o_bias"] = (layer.attention.attn.o.bias, lambda x: x)
        ours.update(norm(f"{prefix}rel_attn.", layer.attention.LayerNorm) | norm(f"{prefix}ff.", layer.output.LayerNorm))
        for name, module in (("layer_1", layer.intermediate.dense), ("layer_2", layer.output.dense)):
            ours.update({f"{prefix}ff.{name}.{key}": value for key, value in linear(module).items()})
    ours.update({f"lm_head.dense.{key}": value for key, value in linear(model.lm_head.dense).items()})
    ours.update(norm("lm_head.", model.lm_head.layer_norm))
    ours["lm_loss.bias"] = (model.lm_head.bias, lambda x: x)
    return model, ours


def transfo_xl(div_val):
    """Adaptive softmax and input. Clusters of one size share one table there, not here; of several, they are projected."""
    projected = div_val > 1
    config = TransfoXLConfig(vocab_size=VOCAB, cutoffs=CUTOFFS, d_model=DIM, d_embed=DIM, n_head=HEADS, d_head=HEAD_DIM,
                             d_inner=FFN, n_layer=LAYERS, mem_len=0, clamp_len=-1, div_val=div_val, untie_r=projected,
                             tie_projs=[False, True, True], same_length=False, layer_norm_epsilon=1e-5, dropout=0, dropatt=0)
    model = TransfoXLLMHeadModel(config)
    body, crit = model.transformer, model.crit
    ours = {}
    for cluster, (begin, end) in enumerate(zip([0] + CUTOFFS, CUTOFFS + [VOCAB])):
        rows = slice(None) if projected else slice(begin, end)
        place = cluster if projected else 0
        ours[f"transformer.word_emb.emb_layers.{cluster}.weight"] = (body.word_emb.emb_layers[place].weight, lambda x, r=rows: x[r])
        ours[f"crit.out_layers.{cluster}.bias"] = (crit.out_layers[place].bias, lambda x, r=rows: x[r])
        if projected:
            ours[f"transformer.word_emb.emb_projs.{cluster}"] = (body.word_emb.emb_projs[cluster], lambda x: x)
    if projected:
        ours["crit.out_projs.0"] = (crit.out_projs[0], lambda x: x)
    for name in ("cluster_weight", "cluster_bias"):
        ours[f"crit.{name}"] = (getattr(crit, name), lambda x: x)
    for number, layer in enumerate(body.layers):
        prefix = f"transformer.layer.{number}."
        for part, name in enumerate("qkv"):
            columns = slice(part * DIM, (part + 1) * DIM)
            ours[f"{prefix}rel_attn.{name}"] = (layer.dec_attn.qkv_net.weight, lambda x, c=columns: x[c].transpose(0, 1))
        ours[f"{prefix}rel_attn.o"] = (layer.dec_attn.o_net.weight, lambda x: x)
        ours[f"{prefix}rel_attn.r"] = turned(layer.dec_attn.r_net.weight)
        for name in ("r_w_bias", "r_r_bias"):
            place = prefix + "rel_attn." if projected else "transformer."
            ours[place + name] = (getattr(layer.dec_attn, name), lambda x: x)
        ours.update(norm(f"{prefix}rel_attn.", layer.dec_attn.layer_norm) | norm(f"{prefix}ff.", layer.pos_ff.layer_norm))
        for name, part in (("layer_1", 0), ("layer_2", 3)):
            ours.update({f"{prefix}ff.{name}.{key}": value for key, value in linear(layer.pos_ff.CoreNet[part]).items()})
    return model, ours


def transfo_xl_losses(model, tokens, labels):
    """Of each slot. Their head shifts labels by one, and forgets the order of losses unless it is told not to."""
    # transformers 4.41 hands type_as() a dtype, which no torch takes, and masks fp64 scores as
    # fp32, where their mask overflows.
    with mock.patch.object(torch.Tensor, "type_as", lambda x, other=None, dtype=None: x.to(dtype or other.dtype)), \
            mock.patch.object(torch.Tensor, "float", lambda x: x):
        hidden = model.transformer(tokens).last_hidden_state
    losses = model.crit(torch.cat([hidden, torch.zeros_like(hidden[:, :1])], 1),
                        torch.cat([torch.zeros_like(labels[:, :1]), labels], 1), keep_order=True)
    check_torch_head(model.crit, hidden.detach())
    return losses.reshape(LANES, LENGTH)


@torch.no_grad()
def check_torch_head(crit, hidden):
    """torch.nn's adaptive softmax is the same function of the same weights; it has no biases within clusters."""
    if crit.div_val == 1:
        return
    theirs = torch.nn.AdaptiveLogSoftmaxWithLoss(DIM, VOCAB, CUTOFFS, div_value=crit.div_val, head_bias=True).double()
    theirs.head.weight.copy_(torch.cat([crit.out_layers[0].weight, crit.cluster_weight]) @ crit.out_projs[0].T)
    theirs.head.bias.copy_(torch.cat([crit.out_layers[0].bias, crit.cluster_bias]))
    for tail, projection, layer in zip(theirs.tail, list(crit.out_projs)[1:], list(crit.out_layers)[1:]):
        tail[0].weight.copy_(projection.T)
        tail[1].weight.copy_(layer.weight)
    biases = [layer.bias.clone() for layer in crit.out_layers]
    for layer in list(crit.out_layers)[1:]:
        layer.bias.zero_()
    difference = float((crit(hidden) - theirs.log_prob(hidden.reshape(-1, DIM))).abs().max())
    for layer, bias in zip(crit.out_layers, biases):
        layer.bias.copy_(bias)
    print(f"torch.nn.AdaptiveLogSoftmaxWithLoss: log-probabilities within {difference:.1e}")
    if not difference < 1e-12:
        raise ValueError("torch.nn.AdaptiveLogSoftmaxWithLoss is another function")


def draw(rng, shape, low, high):
    return torch.tensor([rng.randrange(low, high) for _ in range(shape[0] * shape[1])]).reshape(shape)


def make_tensors(name):
    rng = random.Random(NAMES.index(name))
    makers = {"gpt": gpt, "bert": bert, "longformer": longformer, "neox": neox, "mpnet": mpnet,
              "transfo_xl": lambda: transfo_xl(1), "transfo_xl_projected": lambda: transfo_xl(2)}
    model, ours = makers[name]()
    model = model.double().eval()
    covered = {id(parameter) for parameter, _ in ours.values()}
    missing = [key for key, parameter in model.named_parameters() if id(parameter) not in covered]
    if missing:
        raise ValueError(f"{name}: no name of ours for {missing}")
    with torch.no_grad():
        for key, (parameter, view) in ours.items():
            part = view(parameter)
            part.copy_(hashed_weights(key, part.shape))
    tokens = draw(rng, (LANES, LENGTH), 7, VOCAB)
    labels = draw(rng, (LANES, LENGTH), 0, VOCAB)
    segment = torch.zeros_like(tokens)
    inputs, follows = {"input_ids": tokens}, torch.tensor([1, 0])
    if name == "bert":
        segment[:, LENGTH // 2:] = 1
        inputs["token_type_ids"] = segment
    if name == "longformer":
        inputs["attention_mask"] = torch.ones_like(tokens)
        inputs["global_attention_mask"] = torch.zeros_like(tokens)
        for lane, slots in enumerate(GLOBAL_SLOTS):
            inputs["global_attention_mask"][lane, slots] = 1
    if name.startswith("transfo_xl"):
        losses = transfo_xl_losses(model, tokens, labels)
    else:
        result = model(**inputs)
        logits = result.prediction_logits if name == "bert" else result.logits
        losses = cross_entropy(logits.reshape(-1, VOCAB), labels.reshape(-1), reduction="none").reshape(LANES, LENGTH)
    total = losses.sum()
    tensors = {"tokens": tokens.int(), "labels": labels.int(), "segment": segment.int(), "losses": losses}
    if name == "bert":
        summary = cross_entropy(result.seq_relationship_logits, follows, reduction="none")
        tensors.update(follows=follows.int(), summary_loss=summary.sum().reshape(1))
        total = total + summary.sum()
    total.backward()
    for key, (parameter, view) in ours.items():
        tensors["gradient/" + key] = view(parameter.grad)
    return {key: (value.float() if value.is_floating_point() else value).detach().contiguous()
            for key, value in tensors.items()}


def main():
    arguments = [argument for argument in sys.argv[1:] if argument != "--check"]
    if len(arguments) != 1:
        sys.exit("usage: generate_backbone_golden.py [--check] DIR")
    torch.set_num_threads(1)
    print(hf_model.versions())
    agree = True
    for name in NAMES:
        if name.startswith("transfo_xl") and TransfoXLConfig is None:
            print(f"{name}: left out, this transformers has no Transformer-XL")
            continue
        path = Path(arguments[0]) / f"{name}.safetensors"
        tensors = make_tensors(name)
        if "--check" in sys.argv:
            # Without rotation a key's bias moves all scores of a row alike, and softmax does not
            # see it.
            agree &= check(path, tensors, lambda key, name=name: key.endswith("k_bias") and name != "neox")
        else:
            save_file(tensors, path, {"made_by": hf_model.versions()})
    return 0 if agree else 1


if __name__ == "__main__":
    sys.exit(main())
