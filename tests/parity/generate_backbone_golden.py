#!/usr/bin/env python3
"""Makes, or checks, golden/backbones/*.safetensors: what transformers computes, in fp64, for small networks that are not XLNet's.

Usage: generate_backbone_golden.py [--check] DIR
With --check nothing is written: the files of DIR must hold what this transformers computes, up to rounding.
golden/FORMAT.md says what is in them.
"""
import inspect
import random
import sys
from unittest import mock

import hf_model
import torch
from generate_golden import hashed_weights, make_or_check
from hf_model import TransfoXLConfig, TransfoXLLMHeadModel
from torch.nn.functional import cross_entropy
from transformers import (BertConfig, BertForPreTraining, GPTNeoXConfig, GPTNeoXForCausalLM, LongformerConfig,
                          LongformerForMaskedLM, MPNetConfig, MPNetForMaskedLM, OpenAIGPTConfig, OpenAIGPTLMHeadModel)

VOCAB, LENGTH, LANES, LAYERS, HEADS, HEAD_DIM = 31, 24, 2, 2, 2, 8
DIM = HEADS * HEAD_DIM
FFN = 4 * DIM  # GPT's is fixed to that
WINDOWS = [4, 8]  # Longformer's, both sides together, a layer
GLOBAL_SLOTS = [[0, 7], [0, 13]]
CUTOFFS = [12, 20]  # of both Transformer-XL


class Names(dict):
    """{our name: (their parameter, the view of it that is ours)}."""

    def put(self, name, parameter, view=lambda x: x):
        self[name] = (parameter, view)

    def put_turned(self, name, module):
        self.put(name, module.weight, lambda x: x.transpose(0, 1))

    def put_module(self, name, module):
        """y = x W^T + b, as theirs; or a LayerNorm."""
        self.put(f"{name}.weight", module.weight)
        self.put(f"{name}.bias", module.bias)

    def put_attention(self, number, **projections):
        """q, k, v of a layer: linear modules, turned; o: one that is not."""
        for name, module in projections.items():
            place = f"transformer.layer.{number}.rel_attn.{name}"
            if name == "o":
                self.put(place, module.weight)
            else:
                self.put_turned(place, module)
            self.put(f"{place}_bias", module.bias)

    def put_rest(self, number, attention_norm, norm, layer_1, layer_2):
        """A layer's norms and feed-forward."""
        prefix = f"transformer.layer.{number}."
        self.put_module(f"{prefix}rel_attn.layer_norm", attention_norm)
        self.put_module(f"{prefix}ff.layer_norm", norm)
        self.put_module(f"{prefix}ff.layer_1", layer_1)
        self.put_module(f"{prefix}ff.layer_2", layer_2)

    def put_embeddings(self, words, positions=None, first_position=0, norm=None):
        self.put("transformer.word_embedding.weight", words.weight)
        if positions is not None:
            self.put("transformer.position_embedding.weight", positions.weight, lambda x: x[first_position:])
        if norm is not None:
            self.put_module("transformer.embedding_layer_norm", norm)

    def put_head(self, dense, norm, bias):
        self.put_module("lm_head.dense", dense)
        self.put_module("lm_head.layer_norm", norm)
        self.put("lm_loss.bias", bias)


def gpt():
    config = OpenAIGPTConfig(vocab_size=VOCAB, n_positions=LENGTH, n_embd=DIM, n_layer=LAYERS, n_head=HEADS,
                             layer_norm_epsilon=1e-5, embd_pdrop=0, attn_pdrop=0, resid_pdrop=0)
    model, ours = OpenAIGPTLMHeadModel(config), Names()
    ours.put_embeddings(model.transformer.tokens_embed, model.transformer.positions_embed)
    for number, layer in enumerate(model.transformer.h):
        prefix = f"transformer.layer.{number}."
        for part, name in enumerate("qkv"):
            columns = slice(part * DIM, (part + 1) * DIM)
            ours.put(f"{prefix}rel_attn.{name}", layer.attn.c_attn.weight, lambda x, c=columns: x[:, c])
            ours.put(f"{prefix}rel_attn.{name}_bias", layer.attn.c_attn.bias, lambda x, c=columns: x[c])
        ours.put_turned(f"{prefix}rel_attn.o", layer.attn.c_proj)
        ours.put(f"{prefix}rel_attn.o_bias", layer.attn.c_proj.bias)
        ours.put_rest(number, layer.ln_1, layer.ln_2, layer.mlp.c_fc, layer.mlp.c_proj)
        for name, theirs in (("layer_1", layer.mlp.c_fc), ("layer_2", layer.mlp.c_proj)):
            ours.put_turned(f"{prefix}ff.{name}.weight", theirs)
    return model, ours


def put_bert_layers(layers, ours):
    """BERT's names, which Longformer's layers share."""
    for number, layer in enumerate(layers):
        attention = layer.attention.self
        ours.put_attention(number, q=attention.query, k=attention.key, v=attention.value,
                           o=layer.attention.output.dense)
        if hasattr(attention, "query_global"):
            ours.put_attention(number, global_q=attention.query_global, global_k=attention.key_global,
                               global_v=attention.value_global)
        ours.put_rest(number, layer.attention.output.LayerNorm, layer.output.LayerNorm, layer.intermediate.dense,
                      layer.output.dense)


def put_bert_embeddings(embeddings, first_position, ours):
    ours.put_embeddings(embeddings.word_embeddings, embeddings.position_embeddings, first_position,
                        embeddings.LayerNorm)
    ours.put("transformer.segment_embedding.weight", embeddings.token_type_embeddings.weight)


# Of the configurations that follow BERT's.
BERT_LIKE = dict(vocab_size=VOCAB, hidden_size=DIM, num_hidden_layers=LAYERS,
                 num_attention_heads=HEADS, intermediate_size=FFN)


def bert():
    config = BertConfig(max_position_embeddings=LENGTH, hidden_act="gelu_new", hidden_dropout_prob=0,
                        attention_probs_dropout_prob=0, **BERT_LIKE)
    model, ours = BertForPreTraining(config), Names()
    put_bert_embeddings(model.bert.embeddings, 0, ours)
    put_bert_layers(model.bert.encoder.layer, ours)
    head = model.cls.predictions
    ours.put_head(head.transform.dense, head.transform.LayerNorm, head.bias)
    ours.put_module("sequence_summary.summary", model.bert.pooler.dense)
    ours.put_module("logits_proj", model.cls.seq_relationship)
    return model, ours


def longformer():
    # Two position rows are reserved: tokens stand from row 2 on.
    config = LongformerConfig(max_position_embeddings=LENGTH + 2, type_vocab_size=1, attention_window=WINDOWS,
                              hidden_dropout_prob=0, attention_probs_dropout_prob=0, layer_norm_eps=1e-5, pad_token_id=1,
                              **BERT_LIKE)
    model, ours = LongformerForMaskedLM(config), Names()
    put_bert_embeddings(model.longformer.embeddings, 2, ours)
    put_bert_layers(model.longformer.encoder.layer, ours)
    ours.put_head(model.lm_head.dense, model.lm_head.layer_norm, model.lm_head.bias)
    return model, ours


def neox():
    """Rotary positions in a pre-LN network."""
    rotary = {"rotary_pct": 1.0, "rotary_emb_base": 100.0}  # transformers 4
    if "rope_parameters" in inspect.signature(GPTNeoXConfig.__init__).parameters:
        rotary = {"rope_parameters": {"rope_type": "default", "rope_theta": 100.0, "partial_rotary_factor": 1.0}}
    config = GPTNeoXConfig(tie_word_embeddings=True, use_parallel_residual=False, **BERT_LIKE, **rotary)
    model, ours = GPTNeoXForCausalLM(config), Names()
    ours.put_embeddings(model.gpt_neox.embed_in)
    for number, layer in enumerate(model.gpt_neox.layers):
        prefix, theirs = f"transformer.layer.{number}.", layer.attention.query_key_value
        for part, name in enumerate("qkv"):
            ours.put(f"{prefix}rel_attn.{name}", theirs.weight,
                     lambda x, p=part: x.view(HEADS, 3, HEAD_DIM, DIM)[:, p].permute(2, 0, 1))
            ours.put(f"{prefix}rel_attn.{name}_bias", theirs.bias, lambda x, p=part: x.view(HEADS, 3, HEAD_DIM)[:, p])
        ours.put_attention(number, o=layer.attention.dense)
        ours.put_rest(number, layer.input_layernorm, layer.post_attention_layernorm, layer.mlp.dense_h_to_4h,
                      layer.mlp.dense_4h_to_h)
    ours.put_module("transformer.layer_norm", model.gpt_neox.final_layer_norm)
    return model, ours


def mpnet():
    """T5's bias by distance beside learned positions, as in UniLMv2; no segments."""
    # 32 buckets up to distance 128, which transformers does not let one change.
    config = MPNetConfig(max_position_embeddings=LENGTH + 2, hidden_dropout_prob=0, attention_probs_dropout_prob=0,
                         layer_norm_eps=1e-5, pad_token_id=1, **BERT_LIKE)
    model, ours = MPNetForMaskedLM(config), Names()
    embeddings, encoder = model.mpnet.embeddings, model.mpnet.encoder
    ours.put_embeddings(embeddings.word_embeddings, embeddings.position_embeddings, 2,
                        embeddings.LayerNorm)
    ours.put("transformer.relative_attention_bias.weight", encoder.relative_attention_bias.weight)
    for number, layer in enumerate(encoder.layer):
        ours.put_attention(number, **{name: getattr(layer.attention.attn, name) for name in "qkvo"})
        ours.put_rest(number, layer.attention.LayerNorm, layer.output.LayerNorm,
                      layer.intermediate.dense, layer.output.dense)
    ours.put_head(model.lm_head.dense, model.lm_head.layer_norm, model.lm_head.bias)
    return model, ours


def transfo_xl(div_val):
    """Adaptive softmax and input. Clusters of one size share one table there, not here; of several, they are projected."""
    projected = div_val > 1
    config = TransfoXLConfig(vocab_size=VOCAB, cutoffs=CUTOFFS, d_model=DIM, d_embed=DIM, n_head=HEADS, d_head=HEAD_DIM,
                             d_inner=FFN, n_layer=LAYERS, mem_len=0, clamp_len=-1, div_val=div_val, untie_r=projected,
                             tie_projs=[False, True, True], same_length=False, layer_norm_epsilon=1e-5, dropout=0, dropatt=0)
    model, ours = TransfoXLLMHeadModel(config), Names()
    body, crit = model.transformer, model.crit
    for cluster, (begin, end) in enumerate(zip([0] + CUTOFFS, CUTOFFS + [VOCAB])):
        rows = slice(None) if projected else slice(begin, end)
        place = cluster if projected else 0
        ours.put(f"transformer.word_emb.emb_layers.{cluster}.weight",
                 body.word_emb.emb_layers[place].weight, lambda x, r=rows: x[r])
        ours.put(f"crit.out_layers.{cluster}.bias", crit.out_layers[place].bias, lambda x, r=rows: x[r])
        if projected:
            ours.put(f"transformer.word_emb.emb_projs.{cluster}", body.word_emb.emb_projs[cluster])
    if projected:
        ours.put("crit.out_projs.0", crit.out_projs[0])
    for name in ("cluster_weight", "cluster_bias"):
        ours.put(f"crit.{name}", getattr(crit, name))
    for number, layer in enumerate(body.layers):
        prefix, attention = f"transformer.layer.{number}.", layer.dec_attn
        for part, name in enumerate("qkv"):
            columns = slice(part * DIM, (part + 1) * DIM)
            ours.put(f"{prefix}rel_attn.{name}", attention.qkv_net.weight, lambda x, c=columns: x[c].transpose(0, 1))
        ours.put(f"{prefix}rel_attn.o", attention.o_net.weight)
        ours.put_turned(f"{prefix}rel_attn.r", attention.r_net)
        for name in ("r_w_bias", "r_r_bias"):
            ours.put((prefix + "rel_attn." if projected else "transformer.") + name, getattr(attention, name))
        ours.put_rest(number, attention.layer_norm, layer.pos_ff.layer_norm,
                      layer.pos_ff.CoreNet[0], layer.pos_ff.CoreNet[3])
    return model, ours


# In the order of their seeds.
MAKERS = {"gpt": gpt, "bert": bert, "longformer": longformer, "neox": neox, "mpnet": mpnet,
          "transfo_xl": lambda: transfo_xl(1), "transfo_xl_projected": lambda: transfo_xl(2)}


def transfo_xl_losses(model, tokens, labels):
    """Of each slot. Their head shifts labels by one, and forgets the order of losses unless it is told not to."""
    # It masks fp64 scores as fp32, where its mask overflows.
    with hf_model.torchs_type_as(), mock.patch.object(torch.Tensor, "float", lambda x: x):
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
    rng = random.Random(list(MAKERS).index(name))
    model, ours = MAKERS[name]()
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


def vanishes(name, key):
    """Without rotation a key's bias moves all scores of a row alike, and softmax does not see it."""
    return key.endswith("k_bias") and name != "neox"


def names():
    for name in MAKERS:
        if name.startswith("transfo_xl") and TransfoXLConfig is None:
            print(f"{name}: left out, this transformers has no Transformer-XL")
        else:
            yield name


if __name__ == "__main__":
    sys.exit(make_or_check(names(), make_tensors, lambda name: {}, vanishes))
