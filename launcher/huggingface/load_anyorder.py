#!/usr/bin/env python3
"""Loads what `anyorder export --format safetensors` wrote, in plain PyTorch: weights by name, hidden states, logits.

    tokens = AutoTokenizer.from_pretrained("exported")(text, return_tensors="pt", add_special_tokens=False).input_ids  # of transformers
    model = load_anyorder.Anyorder("exported")                       # fp32; .to("cuda"), .parameters() as any module
    hidden, _ = model(tokens)                                        # [batch, slots] -> [batch, slots, model_dim]
    logits = model.logits(hidden)                                    # [batch, slots, vocab_size]

Without `visible` a slot sees the slots up to its own if the objective reads from left to right, else all. README.md in this
directory says how to ask a two-stream network for the tokens of certain positions, and what memory is.
"""
import json
import math
import mmap
import struct
from pathlib import Path

import torch
import torch.nn.functional as F

TYPES = {"F32": torch.float32, "BF16": torch.bfloat16}
ACTIVATIONS = {"gelu": lambda x: 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x ** 3))),
               "gelu_erf": F.gelu, "relu": F.relu, "silu": F.silu}


def read_tensors(directory):
    """{name: tensor} of all files, mapped, not copied."""
    tensors = {}
    for path in sorted(Path(directory).glob("model*.safetensors")):
        with open(path, "rb") as file:
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
        begin = 8 + struct.unpack("<Q", data[:8])[0]
        for name, entry in json.loads(data[8:begin]).items():
            if name != "__metadata__":
                size, offset = math.prod(entry["shape"]), begin + entry["data_offsets"][0]
                tensors[name] = torch.frombuffer(data, dtype=TYPES[entry["dtype"]], count=size, offset=offset).view(entry["shape"])
    return tensors


def t5_bucket(net, ahead):
    """The row of T5's table for a key that stands `ahead` slots further on."""
    both = net["position_bias"] == "t5"
    buckets, far = net["position_buckets"] // (1 + both), abs(ahead) if both else max(-ahead, 0)
    if far >= buckets // 2:
        octaves = math.log(far / (buckets // 2)) / math.log(net["position_bias_max_distance"] / (buckets // 2))
        far = min(buckets - 1, buckets // 2 + int(octaves * (buckets - buckets // 2) + 1e-9))
    return far + (buckets if both and ahead > 0 else 0)


class Anyorder(torch.nn.Module):
    def __init__(self, directory, dtype=torch.float32):
        super().__init__()
        self.config = json.loads((Path(directory) / "config.json").read_text())
        if self.config.get("model_type") != "anyorder":
            raise ValueError(f"{directory} is a model of type {self.config.get('model_type')!r}, which transformers loads; this "
                             "loads what `anyorder export --format safetensors` writes")
        self.network, self.clusters = self.config["network"], self.config["clusters"] or []
        self.act = ACTIVATIONS[self.network["activation"]]
        self.weights = torch.nn.ParameterDict(
            {name.replace(".", "/"): torch.nn.Parameter(tensor.to(dtype)) for name, tensor in read_tensors(directory).items()})

    def get(self, name):
        """The tensor of that name, or None."""
        name = name.replace(".", "/")
        return self.weights[name] if name in self.weights else None

    def dense(self, x, name):
        return F.linear(x, self.get(name + ".weight"), self.get(name + ".bias"))

    def rms_norm(self, x, name):
        """Rounded to x's type before it is multiplied, as the released Llama code does."""
        square = x.float().pow(2).mean(-1, keepdim=True)
        return self.get(name + ".weight") * (x.float() * torch.rsqrt(square + self.network["layer_norm_epsilon"])).to(x)

    def norm(self, x, name):
        if self.network["norm"] == "rms_norm":
            return self.rms_norm(x, name)
        return F.layer_norm(x, x.shape[-1:], self.get(name + ".weight"), self.get(name + ".bias"), self.network["layer_norm_epsilon"])

    def embed(self, tokens):
        if not self.clusters:
            return self.get("transformer.word_embedding.weight")[tokens]
        x = self.get("transformer.mask_emb").new_zeros(*tokens.shape, self.network["model_dim"])
        for i, (begin, end) in enumerate(self.clusters):
            rows, projection = (tokens >= begin) & (tokens < end), self.get(f"transformer.word_emb.emb_projs.{i}")
            found = self.get(f"transformer.word_emb.emb_layers.{i}.weight")[tokens[rows] - begin]
            x[rows] = found if projection is None else found @ projection.T
        return x

    def turn(self, x, positions):
        """Rotary positions: x [batch, slots, heads, head_dim] by angles of its slots."""
        half = x.shape[-1] // 2
        rates = self.network["rope_base"] ** (-torch.arange(half, dtype=torch.float64, device=x.device) / half)
        if self.network["rope_scaling"] == "llama3":
            low, high = self.network["rope_low_freq_factor"], self.network["rope_high_freq_factor"]
            turns = self.network["rope_original_positions"] * rates / (2 * math.pi)
            kept = ((turns - low) / (high - low)).clamp(0, 1)
            rates = rates * (kept + (1 - kept) / self.network["rope_factor"])
        angles = (positions[..., None].double() * rates)[:, :, None]
        cos, sin, (a, b) = angles.cos().to(x), angles.sin().to(x), x.split(half, -1)
        return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)

    def attend(self, p, x, keys, rows, cols, same, visible, kind=""):
        """[batch, rows, heads, head_dim]: rows x at positions `rows` see keys at `cols`; kind: by whose projections."""
        def project(y, name):
            z = torch.einsum("bid,dhe->bihe", y, self.get(p + kind + name))
            return z + self.get(p + kind + name + "_bias").view(z.shape[2:]) if self.network["attention_biases"] else z

        def with_bias(name):
            return q + self.get((p if self.network["untie_r"] else "transformer.") + name)

        q, k, v = project(x, "q"), project(keys, "k"), project(keys, "v")
        if self.network["qk_norm"]:
            q, k = self.rms_norm(q, p + "q_norm"), self.rms_norm(k, p + "k_norm")
        if self.network["positions"] == "rope":
            q, k = self.turn(q, rows), self.turn(k, cols)
        k, v = (y.repeat_interleave(q.shape[2] // y.shape[2], 2) for y in (k, v))
        relative, table = self.network["positions"] == "relative", self.get("transformer.relative_attention_bias.weight")
        scores = torch.einsum("bihe,bjhe->bhij", with_bias("r_w_bias") if relative else q, k)
        distance = rows[:, :, None] - cols[:, None, :]
        steps = torch.arange(int(distance.min()), int(distance.max()) + 1, device=x.device)
        place = (distance - steps[0])[:, None].expand_as(scores)
        if relative:
            clamp, rates = self.network["clamp_len"], torch.arange(0, x.shape[-1], 2, device=x.device).double() / x.shape[-1]
            angles = (steps.clamp(-clamp, clamp) if clamp > 0 else steps)[:, None] * 10000 ** -rates
            r = torch.einsum("td,dhe->the", torch.cat([angles.sin(), angles.cos()], -1).to(x), self.get(p + "r"))
            scores = scores + torch.einsum("bihe,the->bhit", with_bias("r_r_bias"), r).gather(-1, place)
        if self.network["segments"] == "relative":
            alike, other = torch.einsum("bihe,she->bhis", with_bias("r_s_bias"), self.get(p + "seg_embed")).split(1, -1)
            scores = scores + torch.where(same[:, None], alike, other)
        scores = scores / math.sqrt(q.shape[-1])
        if table is not None and not kind:
            scores = scores + table[[t5_bucket(self.network, -step) for step in steps.tolist()]][place[:, 0]].permute(0, 3, 1, 2)
        weights = scores.masked_fill(~visible, -math.inf).softmax(-1).nan_to_num(0)  # a row that sees nothing gets 0
        return torch.einsum("bhij,bjhe->bihe", weights, v)

    def in_window(self, layer, distance):
        """[batch, heads, rows, keys]: what the layer's windows leave visible."""
        return torch.stack([((distance <= left * stride) | (left < 0)) & ((distance >= -right * stride) | (right < 0)) &
                            (distance % stride == 0) for left, right, stride in self.config["windows"][layer]], 1)

    def forward(self, tokens, visible=None, positions=None, segments=None, global_slots=None, memory=None, backward=None,
                next_positions=None):
        """tokens [batch, slots]. Optional: positions and segments [batch, rows] of the slots and of as many query rows behind
        them as are wanted; visible [batch, rows, keys] bool, keys being memory, slots and, if given, query rows; global_slots
        [batch, rows] bool; memory, [batch, length, model_dim] of each layer; backward [batch] bool: texts in reverse;
        next_positions [batch, rows], where positions are in pairs: those that rows predict, else the ones that follow. Returns
        the states of all rows [batch, rows, model_dim], and of each layer the states of the slots that it read, which the next
        step's memory is cut from."""
        (batch, slots), device, pre = tokens.shape, tokens.device, self.network["layer_norm"] == "pre"
        held = 0 if memory is None else memory[0].shape[1]
        positions = torch.arange(slots, device=device).expand(batch, -1) if positions is None else positions
        segments = torch.zeros_like(positions) if segments is None else segments
        if visible is None:
            visible = torch.ones(batch, positions.shape[1], held + slots, dtype=torch.bool, device=device)
            # Exports that were written before the key was have none.
            causal = self.config.get("causal", self.config["objective"] in ("causal_lm", "gpt", "gpt_finetuning", "sigma_gpt"))
            visible = visible.tril(held) if causal else visible
        keys, old = visible.shape[2] - held, torch.arange(-held, 0, device=device).expand(batch, -1)
        cols = torch.cat([old, positions[:, :keys]], 1)
        distance, sign = positions[:, :, None] - cols[:, None, :], 1 if backward is None else 1 - 2 * backward.long()[:, None]
        same = segments[:, :, None] == torch.cat([torch.zeros_like(old), segments[:, :keys]], 1)[:, None, :]

        x = self.embed(tokens) * (math.sqrt(self.network["model_dim"]) if self.network["scale_embedding"] else 1)
        x = torch.cat([x, self.get("transformer.mask_emb").expand(batch, positions.shape[1] - slots, -1)], 1)
        for kind, rows in (("position", positions), ("segment", segments)):
            table = self.get(f"transformer.{kind}_embedding.weight")
            if kind == "position" and self.network["positions"] == "learned_pairs":
                ahead = (rows + 1).clamp(max=len(table) - 1) if next_positions is None else next_positions
                x = x + torch.cat([table[rows], table[ahead]], -1)
            elif table is not None:
                x = x + table[rows]
        x = self.norm(x, "transformer.embedding_layer_norm") if self.network["embedding_layer_norm"] else x
        states = []
        for layer in range(self.network["num_layers"]):
            p, a = f"transformer.layer.{layer}.", f"transformer.layer.{layer}.rel_attn."
            states.append(x[:, :slots])
            read = x[:, :keys] if memory is None else torch.cat([memory[layer], x[:, :keys]], 1)
            inner, read = (self.norm(y, a + "layer_norm") if pre else y for y in (x, read))
            seen, places = visible[:, None], (sign * positions, sign * cols, same)
            if self.config["windows"] is not None:
                inside = self.in_window(layer, distance)
                if global_slots is not None:  # windows do not bind them, as rows or as keys
                    inside = inside | (global_slots[:, :, None] | F.pad(global_slots[:, :keys], (held, 0))[:, None, :])[:, None]
                seen = seen & inside
            attended = self.attend(a, inner, read, *places, seen)
            if self.network["global_projections"] and global_slots is not None:
                theirs = self.attend(a, inner, read, *places, visible[:, None], "global_")
                attended = torch.where(global_slots[:, :, None, None], theirs, attended)
            branch = torch.einsum("bihe,dhe->bid", attended, self.get(a + "o"))
            bias = self.get(a + "o_bias")
            x = x + (branch if bias is None else branch + bias)
            x = x if pre else self.norm(x, a + "layer_norm")
            inner = self.norm(x, p + "ff.layer_norm") if pre else x
            x = inner if self.network["ffn_residual"] == "normed" else x
            hidden = self.dense(inner, p + "ff.layer_1")
            hidden = self.act(self.dense(inner, p + "ff.gate")) * hidden if self.network["gated_ffn"] else self.act(hidden)
            x = x + self.dense(hidden, p + "ff.layer_2")
            x = x if pre else self.norm(x, p + "ff.layer_norm")
        return (self.norm(x, "transformer.layer_norm") if pre else x), states

    def logits(self, hidden):
        """[..., model_dim] -> [..., vocab_size]; of an adaptive softmax log-probabilities."""
        if self.network["mlm_head"]:
            hidden = self.norm(self.act(self.dense(hidden, "lm_head.dense")), "lm_head.layer_norm")
        if not self.clusters:
            matrix = "transformer.word_embedding.weight" if self.network["tie_embeddings"] else "lm_loss.weight"
            return F.linear(hidden, self.get(matrix), self.get("lm_loss.bias"))
        parts = []
        for i in range(len(self.clusters)):
            table, bias = self.get(f"transformer.word_emb.emb_layers.{i}.weight"), self.get(f"crit.out_layers.{i}.bias")
            if i == 0:  # the head's words compete with the other clusters
                table = torch.cat([table, self.get("crit.cluster_weight")])
                bias = None if bias is None else torch.cat([bias, self.get("crit.cluster_bias")])
            projection = self.get(f"crit.out_projs.{i}")
            projection = self.get(f"transformer.word_emb.emb_projs.{i}") if projection is None else projection
            parts.append(F.linear(hidden if projection is None else hidden @ projection, table, bias).log_softmax(-1))
        head, rare = parts[0].split([self.clusters[0][1], len(self.clusters) - 1], -1)
        return torch.cat([head] + [rare[..., i:i + 1] + part for i, part in enumerate(parts[1:])], -1)

    def task_logits(self, states):
        """Classes, a score, or that of one choice, from the state of a sequence's <cls> (of GPT's similarity pair: their sum); or the
        classes of a word, from the state of its first token."""
        if self.get("sequence_summary.summary.weight") is not None:
            states = torch.tanh(self.dense(states, "sequence_summary.summary"))
        return self.dense(states, "task_head")

    def start_logits(self, states):
        """[B, S], of each token as a span's first, from [B, S, d]."""
        if self.config["task"]["span_head"] == "simple":
            return self.dense(states, "qa_outputs")[..., 0]
        return self.dense(states, "start_logits.dense")[..., 0]

    def end_logits(self, states, starts):
        """[B, S], of each token as the last of a span that begins with the state `starts` [B, d], which a simple head ignores."""
        if self.config["task"]["span_head"] == "simple":
            return self.dense(states, "qa_outputs")[..., 1]
        inner = torch.tanh(self.dense_pair(states, starts[:, None], "end_logits.dense_0"))
        return self.dense(self.norm(inner, "end_logits.LayerNorm"), "end_logits.dense_1")[..., 0]

    def answer_logits(self, starts, classifiers):
        """[B], positive where no span is likely to be the answer, from the states of the start and of <cls>, [B, d]."""
        inner = torch.tanh(self.dense_pair(starts, classifiers, "answer_class.dense_0"))
        return self.dense(inner, "answer_class.dense_1")[..., 0]

    def dense_pair(self, first, second, name):
        """A dense layer on two inputs side by side; its matrices are stored one behind the other."""
        a, b = self.get(name + ".weight")
        return F.linear(first, a, self.get(name + ".bias")) + F.linear(second, b)

    def next_sentence_logits(self, states):
        """[not next, next] from the state of <cls>."""
        return self.dense(torch.tanh(self.dense(states, "sequence_summary.summary")), "logits_proj")
