#!/usr/bin/env python3
"""Attention by torch's SDPA, and training steps of transformers' networks, on this machine's GPU at the shapes of check.sh's part `networks`.

Usage: networks_gpu.py attention [--head-dims D...] [--lengths T...] [--tokens N]
       networks_gpu.py step NETWORK --batch N [--forms eager compile]     NETWORK: a key of SHAPES

One JSON line a case, as gpu_bench prints them. `attention` times each of SDPA's kernels that runs here, forward and backward, with 32 heads
of queries on 8 of keys, which are written out for kernels that do not share heads; backward is counted as five products, as gpu_bench counts
it. In a step, weights, gradients and AdamW's state are bf16 and there are no fp32 master weights, which favours this side; attention is
SDPA, and the loss of a masked network is taken at the same number of targets. `compile` compiles each layer, not the whole model.
Ends with one line and status 77 where there is no torch with CUDA, no transformers, or no GPU.
"""
import argparse
import functools
import json
import statistics
import sys
import time

from xlnet_gpu import attempt, load_torch

HEADS, KV_HEADS = 32, 8
LLAMA = {"hidden_act": "silu", "rms_norm_eps": 1e-5, "tie_word_embeddings": False, "use_cache": False, "attention_dropout": 0.0}
# Length of a sequence, tokens of the vocabulary, targets of a sequence (0: every token predicts
# the next one).
SHAPES = {"gpt-base": (512, 32000, 0), "bert-base": (512, 32000, 77), "llama-1.1b": (2048, 32000, 0), "qwen3-0.6b": (1024, 151936, 512),
          "llada-8b-4-layers": (4096, 126464, 2048), "tiny": (16, 100, 4)}


def config_of(transformers, network):
    length, vocab, _ = SHAPES[network]
    if network == "gpt-base":
        return transformers.GPT2Config(vocab_size=vocab, n_positions=length, n_embd=768, n_layer=12, n_head=12, use_cache=False)
    if network == "bert-base":
        return transformers.BertConfig(vocab_size=vocab, max_position_embeddings=length)
    if network == "llama-1.1b":
        return transformers.LlamaConfig(**LLAMA, vocab_size=vocab, hidden_size=2048, num_hidden_layers=22, num_attention_heads=32,
                                        num_key_value_heads=4, intermediate_size=5632, max_position_embeddings=length)
    if network == "qwen3-0.6b":
        return transformers.Qwen3Config(vocab_size=vocab, hidden_size=1024, num_hidden_layers=28, num_attention_heads=16, num_key_value_heads=8,
                                        head_dim=128, intermediate_size=3072, max_position_embeddings=length, tie_word_embeddings=True,
                                        use_cache=False)
    if network == "tiny":
        return transformers.LlamaConfig(**LLAMA, vocab_size=vocab, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=24)
    return transformers.LlamaConfig(**LLAMA, vocab_size=vocab, hidden_size=4096, num_hidden_layers=4, num_attention_heads=32,
                                    intermediate_size=12288, max_position_embeddings=length)


def layers_of(model):
    """The layers of the network without its head."""
    body = getattr(model, model.base_model_prefix)
    return body.encoder.layer if hasattr(body, "encoder") else body.h if hasattr(body, "h") else body.layers


class Network:
    def __init__(self, torch, transformers, network, form, batch, device):
        self.torch, self.network = torch, network
        config = config_of(transformers, network)
        config._attn_implementation = "sdpa"
        self.is_masked = SHAPES[network][2] > 0
        kind = transformers.BertForMaskedLM if network == "bert-base" else transformers.AutoModelForCausalLM
        torch.manual_seed(1)
        with torch.device(device):
            model = kind(config) if kind is transformers.BertForMaskedLM else kind.from_config(config)
        self.model = model.to(torch.bfloat16).train()
        if self.is_masked:  # every token sees every other
            for module in self.model.modules():
                if hasattr(module, "is_causal"):
                    module.is_causal = False
        if form == "compile":
            for layer in layers_of(self.model):
                layer.compile()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-5, weight_decay=0.01, fused=device == "cuda")
        self.head = self.model.get_output_embeddings()
        length, vocab, self.targets = SHAPES[network]
        draw = torch.Generator().manual_seed(1)
        self.tokens = torch.randint(5, vocab, (batch, length), generator=draw).to(device)
        self.rows = torch.stack([torch.randperm(length, generator=draw)[:self.targets] for _ in range(batch)]).to(device)

    def loss(self):
        if not self.is_masked:
            return self.model(input_ids=self.tokens, labels=self.tokens).loss
        body = getattr(self.model, self.model.base_model_prefix)
        states = body(input_ids=self.tokens).last_hidden_state
        chosen = states.gather(1, self.rows[..., None].expand(-1, -1, states.shape[-1]))
        logits = self.model.cls(chosen) if hasattr(self.model, "cls") else self.head(chosen)
        return self.torch.nn.functional.cross_entropy(logits.flatten(0, 1).float(), self.tokens.gather(1, self.rows).flatten())

    def step(self):
        loss = self.loss()
        loss.backward()
        self.torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return loss.detach()


def measure_step(torch, transformers, options, form):
    network = Network(torch, transformers, options.network, form, options.batch, options.device)
    wait = torch.cuda.synchronize if options.device == "cuda" else lambda: None
    seconds = []
    for number in range(options.warm_up + options.steps):
        wait()
        begin = time.perf_counter()
        loss = network.step()
        wait()
        if number >= options.warm_up:
            seconds.append(time.perf_counter() - begin)
    median = statistics.median(seconds)
    length, vocab, _ = SHAPES[options.network]
    return {"name": f"peer_{options.network}_{form}", "shape": f"B{options.batch} T{length} V{vocab}", "value": round(options.batch * length / median, 1),
            "unit": "tokens/s", "ms": round(median * 1e3, 3), "spread": round((max(seconds) - min(seconds)) / median, 4), "samples": len(seconds),
            "loss": round(float(loss), 4), "gib": round(torch.cuda.max_memory_allocated() / 2**30, 1) if options.device == "cuda" else None, "torch": torch.__version__,
            "transformers": transformers.__version__}


def milliseconds(torch, operation, samples=7):
    times = []
    for number in range(2 + samples):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        operation()
        end.record()
        torch.cuda.synchronize()
        if number >= 2:
            times.append(begin.elapsed_time(end))
    return statistics.median(times)


def measure_attention(torch, head_dim, length, batch, is_causal, backend, is_deterministic):
    """Lines of forward and backward."""
    sdpa = torch.nn.functional.scaled_dot_product_attention
    torch.use_deterministic_algorithms(is_deterministic)
    q = torch.randn(batch, HEADS, length, head_dim, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    k, v = (torch.randn(batch, KV_HEADS, length, head_dim, device="cuda", dtype=torch.bfloat16, requires_grad=True) for _ in range(2))
    product = 2 * batch * HEADS * head_dim * (length * (length + 1) / 2 if is_causal else length * length)
    with torch.nn.attention.sdpa_kernel(getattr(torch.nn.attention.SDPBackend, backend)):
        def forward(shares=True):
            keys, values = (k, v) if shares else (each.repeat_interleave(HEADS // KV_HEADS, 1) for each in (k, v))
            return sdpa(q, keys, values, is_causal=is_causal, enable_gqa=shares)
        try:
            forward()
        except RuntimeError:
            forward = functools.partial(forward, shares=False)
        forward_ms = milliseconds(torch, forward)
        out = forward()
        dout = torch.randn_like(out)
        backward_ms = milliseconds(torch, lambda: torch.autograd.grad(out, (q, k, v), dout, retain_graph=True))
    name = f"sdpa_{backend.split('_')[0].lower()}{'_deterministic' if is_deterministic else ''}_d{head_dim}_t{length}_{'causal' if is_causal else 'both'}"
    return [{"name": f"{name}_{what}", "shape": f"B{batch} H{HEADS} KV{KV_HEADS} D{head_dim} T{length}", "value": round(products * product / ms * 1e-9, 1),
             "unit": "TFLOP/s", "ms": round(ms, 4)} for what, ms, products in (("forward", forward_ms, 2), ("backward", backward_ms, 5))]


def parse(arguments):
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parts = parser.add_subparsers(dest="what", required=True)
    attention = parts.add_parser("attention")
    attention.add_argument("--head-dims", nargs="+", type=int, default=[64, 128])
    attention.add_argument("--lengths", nargs="+", type=int, default=[512, 1024, 2048, 4096])
    attention.add_argument("--tokens", type=int, default=16384, help="of all sequences")
    step = parts.add_parser("step")
    step.add_argument("network", choices=sorted(SHAPES))
    step.add_argument("--batch", type=int, required=True)
    step.add_argument("--forms", nargs="+", choices=["eager", "compile"], default=["eager"])
    step.add_argument("--steps", type=int, default=8, help="timed ones")
    step.add_argument("--warm-up", type=int, default=3)
    step.add_argument("--device", choices=["cuda", "cpu"], default="cuda", help="cpu: to try this script, not to compare")
    return parser.parse_args(arguments)


def main(arguments):
    options = parse(arguments)
    device = getattr(options, "device", "cuda")
    torch, transformers = load_torch(device)
    out_of_memory = getattr(torch, "OutOfMemoryError", torch.cuda.OutOfMemoryError)  # of torch before 2.5
    failed = 0

    def report(what, measurement):
        measured, error = attempt(measurement, out_of_memory)
        if device == "cuda":
            torch.cuda.empty_cache()  # here, not above: as long as the exception lives, so does what did not fit
        for line in measured or []:
            print(json.dumps(line), flush=True)
        if not measured:
            print(f"networks_gpu: {what}: {error or 'does not fit this GPU'}", file=sys.stderr, flush=True)
        return 0 if measured else 1

    if options.what == "step":
        for form in options.forms:
            failed += report(f"{options.network} {form}", lambda: [measure_step(torch, transformers, options, form)])
        return 1 if failed == len(options.forms) else 0
    cases = [(head_dim, length, options.tokens // length, is_causal, backend, is_deterministic) for backend in ("FLASH_ATTENTION", "CUDNN_ATTENTION")
             for is_deterministic in (False, True) for head_dim in options.head_dims for length in options.lengths for is_causal in (True, False)]
    for case in cases:
        failed += report(f"attention {case}", lambda: measure_attention(torch, *case))
    return 1 if failed == len(cases) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
