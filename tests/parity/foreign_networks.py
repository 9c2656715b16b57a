"""Llama's relatives, A3's two streams and the diffusion transformer of MDLM and BD3-LM in plain torch, from their config.json and the tensors of
their files by name; hand-written, so that they need neither a new transformers nor the code that comes with some weights."""
import math

import torch
import torch.nn.functional as F

# What LLaDA calls Llama's modules.
LLADA = {"model.embed_tokens": "model.transformer.wte", "model.norm": "model.transformer.ln_f", "lm_head": "model.transformer.ff_out"}
LLADA_LAYER = {"input_layernorm": "attn_norm", "post_attention_layernorm": "ff_norm", "self_attn.o_proj": "attn_out",
               "mlp.gate_proj": "ff_proj", "mlp.up_proj": "up_proj", "mlp.down_proj": "ff_out", "self_attn.q_proj": "q_proj",
               "self_attn.k_proj": "k_proj", "self_attn.v_proj": "v_proj"}


def named(config, module, layer=None):
    """The module's name in the file, of a layer if there is one."""
    if config["model_type"] == "llada":
        return LLADA[module] if layer is None else f"model.transformer.blocks.{layer}.{LLADA_LAYER[module]}"
    return module if layer is None else f"model.layers.{layer}.{module}"


def frequencies(config, head_dim):
    """Of rotary positions, [head_dim / 2]; Llama 3.1 slows down the low ones (Dubey et al. 2024)."""
    rope = config.get("rope_parameters") or {**(config.get("rope_scaling") or {}), "rope_theta": config.get("rope_theta", 1e4)}
    rates = rope["rope_theta"] ** (-torch.arange(0, head_dim, 2, dtype=torch.float64) / head_dim)
    if rope.get("rope_type", rope.get("type", "default")) == "default":
        return rates
    wavelength, original = 2 * math.pi / rates, rope["original_max_position_embeddings"]
    low, high = original / rope["low_freq_factor"], original / rope["high_freq_factor"]
    part = (original / wavelength - rope["low_freq_factor"]) / (rope["high_freq_factor"] - rope["low_freq_factor"])
    slow = rates / rope["factor"]
    mixed = torch.where(wavelength > low, slow, (1 - part) * slow + part * rates)
    return torch.where(wavelength < high, rates, mixed)


def rotate(x, rates):
    """x [batch, heads, slots, head_dim]: pairs (f, f + head_dim / 2) turn."""
    angles = torch.arange(x.shape[2], dtype=torch.float64)[:, None] * rates
    cos, sin, (a, b) = angles.cos().to(x.dtype), angles.sin().to(x.dtype), x.chunk(2, -1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


def wide(x):
    """What the classes compute norms and softmax of: fp32 where x is narrower."""
    return x.float() if x.dtype == torch.bfloat16 else x


def rms_norm(x, weight, epsilon):
    y = wide(x)
    return weight * (y * torch.rsqrt(y.square().mean(-1, keepdim=True) + epsilon)).to(x.dtype)


def attend(q, k, v, seen):
    """[batch, heads, slots, head_dim] each; fewer heads of k and v are shared by neighbours. `seen`: the keys that each row sees,
    [slots, slots] or [batch, slots, slots]; a row that sees none gets zeros."""
    shared = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(shared, 1), v.repeat_interleave(shared, 1)
    scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    seen = seen if seen.dim() == 2 else seen[:, None]
    sees_any = seen.any(-1, keepdim=True)
    scores = scores.masked_fill(~seen & sees_any, -math.inf)
    return ((wide(scores).softmax(-1) * sees_any).to(v.dtype) @ v).transpose(1, 2).flatten(2)


def text_order(slots, causal):
    """Keys that are seen where everybody sees everybody, or those before."""
    seen = torch.ones(slots, slots, dtype=torch.bool)
    return seen.tril() if causal else seen


def llama_sizes(config):
    """Layers, heads, heads of keys and values, and a head's width, by either's names."""
    layers, heads = config.get("num_hidden_layers", config.get("n_layers")), config.get("num_attention_heads", config.get("n_heads"))
    dim = config.get("hidden_size", config.get("d_model"))
    keys = config.get("num_key_value_heads", config.get("n_kv_heads")) or heads
    return layers, heads, keys, config.get("head_dim") or dim // heads


class LlamaLayer:
    def __init__(self, config, weights, layer):
        self.config, self.weights, self.layer = config, weights, layer
        _, self.heads, self.keys, self.head_dim = llama_sizes(config)

    def dense(self, x, part):
        at = named(self.config, part, self.layer)
        return F.linear(x, self.weights[at + ".weight"], self.weights.get(at + ".bias"))

    def norm(self, x, part):
        return rms_norm(x, self.weights[named(self.config, part, self.layer) + ".weight"], self.config["rms_norm_eps"])

    def project(self, y, kind, count):
        """q, k or v, the first two turned."""
        y = self.dense(y, f"self_attn.{kind}_proj").unflatten(-1, (count, self.head_dim)).transpose(1, 2)
        if kind == "v":
            return y
        if self.config["model_type"] == "qwen3":
            y = self.norm(y, f"self_attn.{kind}_norm")
        return rotate(y, frequencies(self.config, self.head_dim))

    def read(self, y):
        return self.project(y, "k", self.keys), self.project(y, "v", self.keys)

    def advance(self, x, y, read, seen):
        """x after the layer, with y = norm(x, "input_layernorm"). A3's released layer adds the feed-forward part to its normalised input."""
        x = x + self.dense(attend(self.project(y, "q", self.heads), *read, seen), "self_attn.o_proj")
        y = self.norm(x, "post_attention_layernorm")
        part = self.dense(F.silu(self.dense(y, "mlp.gate_proj")) * self.dense(y, "mlp.up_proj"), "mlp.down_proj")
        return (y if is_a3(self.config) and self.config.get("ffn_residual") != "input" else x) + part


def llama_logits(config, weights, states):
    states = rms_norm(states, weights[named(config, "model.norm") + ".weight"], config["rms_norm_eps"])
    return F.linear(states, weights[named(config, "model.embed_tokens" if is_tied(config) else "lm_head") + ".weight"])


def is_tied(config):
    return config["weight_tying" if config["model_type"] == "llada" else "tie_word_embeddings"]


def llama(config, weights, tokens, causal):
    """Logits of Llama, Qwen2, Qwen3, Dream and LLaDA."""
    x, seen = weights[named(config, "model.embed_tokens") + ".weight"][tokens], text_order(tokens.shape[1], causal)
    for number in range(llama_sizes(config)[0]):
        layer = LlamaLayer(config, weights, number)
        y = layer.norm(x, "input_layernorm")
        x = layer.advance(x, y, layer.read(y), seen)
    return llama_logits(config, weights, x)


def is_a3(config):
    return config["architectures"] == ["LlamaTwoStreamForCausalLM"]


def a3(config, weights, tokens, groups):
    """Logits of A3's queries. A token sees the tokens of its group and of those before it, a query of those before alone."""
    later = groups[:, None, :] > groups[:, :, None]
    same = groups[:, None, :] == groups[:, :, None]
    content = weights["model.embed_tokens.weight"][tokens]
    queries = weights["model.query_embed"].expand_as(content)
    for number in range(llama_sizes(config)[0]):
        layer = LlamaLayer(config, weights, number)
        of_content, of_queries = layer.norm(content, "input_layernorm"), layer.norm(queries, "input_layernorm")
        read = layer.read(of_content)
        content, queries = layer.advance(content, of_content, read, ~later), layer.advance(queries, of_queries, read, ~later & ~same)
    return llama_logits(config, weights, queries)


def modulation(weights, at, parts, dim):
    """Of noise level 0: cosines of 1, sines of 0."""
    level = torch.cat([torch.ones(128), torch.zeros(128)]).to(weights["backbone.sigma_map.mlp.0.weight"].dtype)
    level = F.silu(F.linear(level, weights["backbone.sigma_map.mlp.0.weight"], weights["backbone.sigma_map.mlp.0.bias"]))
    level = F.silu(F.linear(level, weights["backbone.sigma_map.mlp.2.weight"], weights["backbone.sigma_map.mlp.2.bias"]))
    return F.linear(level, weights[at + "adaLN_modulation.weight"], weights[at + "adaLN_modulation.bias"]).view(parts, dim)


def dit(config, weights, tokens, causal):
    """Logits of MDLM and BD3-LM."""
    assert not causal
    dim, heads, is_modulated = config["hidden_dim"], config["n_heads"], config.get("adaln", True)
    rates = frequencies({}, dim // heads)

    def norm(y, name, shift, scale):
        return (F.layer_norm(wide(y), (dim,)) * weights[name + ".weight"] * (1 + scale) + shift).to(y.dtype)

    x, seen = weights["backbone.vocab_embed.embedding"][tokens], text_order(tokens.shape[1], False)
    for layer in range(config["n_blocks"]):
        p, parts = f"backbone.blocks.{layer}.", torch.tensor([0.0, 0, 1, 0, 0, 1], dtype=x.dtype)[:, None]
        if is_modulated:
            parts = modulation(weights, p, 6, dim)
        y = F.linear(norm(x, p + "norm1", parts[0], parts[1]), weights[p + "attn_qkv.weight"])
        q, k, v = (z.unflatten(-1, (heads, dim // heads)).transpose(1, 2) for z in y.chunk(3, -1))
        x = x + parts[2] * F.linear(attend(rotate(q, rates), rotate(k, rates), v, seen), weights[p + "attn_out.weight"])
        y = F.linear(norm(x, p + "norm2", parts[3], parts[4]), weights[p + "mlp.0.weight"], weights[p + "mlp.0.bias"])
        y = F.gelu(y, approximate="tanh")
        x = x + parts[5] * F.linear(y, weights[p + "mlp.2.weight"], weights[p + "mlp.2.bias"])
    parts = modulation(weights, "backbone.output_layer.", 2, dim) if is_modulated else torch.zeros(2, 1)
    x = norm(x, "backbone.output_layer.norm_final", parts[0], parts[1])
    return F.linear(x, weights["backbone.output_layer.linear.weight"], weights["backbone.output_layer.linear.bias"])


def network(config):
    return dit if config["model_type"] in ("mdlm", "bd3lm") else llama


def shapes(config):
    """{name: shape} of the tensors of such a model's file, in which the classes store them."""
    vocab, found = config.get("embedding_size") or config["vocab_size"], {}

    def add(name, *shape, bias=False):
        found[name + ".weight"] = shape
        if bias:
            found[name + ".bias"] = shape[:1]

    if config["model_type"] in ("mdlm", "bd3lm"):
        dim, cond, is_modulated = config["hidden_dim"], config["cond_dim"], config.get("adaln", True)
        found["backbone.vocab_embed.embedding"] = (vocab, dim)
        for layer in range(config["n_blocks"]):
            p = f"backbone.blocks.{layer}."
            add(p + "norm1", dim), add(p + "norm2", dim), add(p + "attn_qkv", 3 * dim, dim), add(p + "attn_out", dim, dim)
            add(p + "mlp.0", 4 * dim, dim, bias=True), add(p + "mlp.2", dim, 4 * dim, bias=True)
            if is_modulated:
                add(p + "adaLN_modulation", 6 * dim, cond, bias=True)
        add("backbone.output_layer.norm_final", dim), add("backbone.output_layer.linear", vocab, dim, bias=True)
        if is_modulated:
            add("backbone.output_layer.adaLN_modulation", 2 * dim, cond, bias=True)
            add("backbone.sigma_map.mlp.0", cond, 256, bias=True), add("backbone.sigma_map.mlp.2", cond, cond, bias=True)
        return found
    layers, heads, keys, head_dim = llama_sizes(config)
    kind = config["model_type"]
    dim = config.get("hidden_size", config.get("d_model"))
    ffn = config.get("intermediate_size", config.get("mlp_hidden_size")) or config["mlp_ratio"] * dim
    add(named(config, "model.embed_tokens"), vocab, dim)
    if is_a3(config):
        found["model.query_embed"] = (1, 1, dim)
    qkv = kind in ("qwen2", "Dream") or config.get("attention_bias", config.get("include_qkv_bias", False))
    for layer in range(layers):
        for part, shape, bias in (
                ("input_layernorm", (dim,), False), ("post_attention_layernorm", (dim,), False),
                ("self_attn.q_proj", (heads * head_dim, dim), qkv), ("self_attn.k_proj", (keys * head_dim, dim), qkv),
                ("self_attn.v_proj", (keys * head_dim, dim), qkv),
                ("self_attn.o_proj", (dim, heads * head_dim), config.get("attention_bias", False)),
                *((f"mlp.{name}_proj", (ffn, dim), config.get("mlp_bias", False)) for name in ("gate", "up")),
                ("mlp.down_proj", (dim, ffn), config.get("mlp_bias", False))):
            add(named(config, part, layer), *shape, bias=bias)
        if kind == "qwen3":
            add(named(config, "self_attn.q_norm", layer), head_dim), add(named(config, "self_attn.k_norm", layer), head_dim)
    add(named(config, "model.norm"), dim)
    if not is_tied(config):
        add(named(config, "lm_head"), vocab, dim)
    return found
