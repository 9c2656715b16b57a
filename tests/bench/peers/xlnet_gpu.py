#!/usr/bin/env python3
"""Trains Hugging Face's XLNet on this machine's GPU at gpu_bench's shapes: eager, and under torch.compile.

One JSON line a case, as gpu_bench prints them: {"name": "peer_large_eager", "value": tokens/s, ...}. A step is what step_large is:
forward and backward of both streams over 512 tokens, 384 states of memory and 85 targets, dropout 0.1, the norm's clipping and AdamW;
bf16 by autocast over fp32 weights, which is how PyTorch trains in bf16 with fp32 master weights. The batch is the largest of those asked
for that fits; a form begins with the one that fitted the form before, since each attempt under torch.compile takes a minute of compiling.
Ends with one line and status 77 where there is no torch with CUDA, no transformers, or no GPU. A form that PyTorch cannot run here
(torch.compile wants a C compiler) is one line on stderr and left out.
"""
import argparse
import dataclasses
import json
import statistics
import sys
import time

SKIPPED = 77
PEAK, REACHABLE = 989.4e12, 790e12


@dataclasses.dataclass(frozen=True)
class Size:
    layers: int
    model_dim: int
    heads: int
    ffn_dim: int
    vocab: int = 32000
    length: int = 512
    memory: int = 384
    targets: int = 85


SIZES = {"large": Size(24, 1024, 16, 4096), "base": Size(12, 768, 12, 3072), "tiny": Size(2, 16, 2, 32, 60, 16, 8, 4)}


def count_flops(size):
    """What the algorithm needs for one sequence (tests/bench/gpu/counts.h says what counts), not what this implementation spends."""
    rows, keys, d = size.length + size.targets, size.memory + size.length, size.model_dim
    visible = 1 - (size.length // 2) ** 2 / (size.length * keys)
    gemm = 4 * rows * d * d + 4 * keys * d * d + 4 * rows * d * size.ffn_dim
    attention = 9 * 2 * rows * keys * d * visible
    loss = 3 * 2 * size.targets * d * size.vocab
    return size.layers * (3 * gemm - 4 * size.memory * d * d + attention) + loss


def parse(arguments):
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--size", choices=sorted(SIZES), default="large")
    parser.add_argument("--forms", nargs="+", choices=["eager", "compile"], default=["eager", "compile"])
    parser.add_argument("--batches", nargs="+", type=int, default=[64, 48, 32, 24, 16, 8], help="tried in this order until one fits")
    parser.add_argument("--steps", type=int, default=8, help="timed ones")
    parser.add_argument("--warm-up", type=int, default=3)
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda", help="cpu: to try this script, not to compare")
    options = parser.parse_args(arguments)
    if options.steps < 1 or options.warm_up < 0 or min(options.batches) < 1 or not 0 <= options.dropout < 1:
        parser.error("steps and batches are 1 or more, warm-up 0 or more, dropout in [0, 1)")
    return options


def skip(reason):
    print(f"SKIPPED: {reason}")
    sys.exit(SKIPPED)


def load_torch(device):
    try:
        import torch
        import transformers
    except ImportError as error:
        skip(f"no {error.name} for {sys.executable}; install torch with CUDA and transformers to compare with Hugging Face's XLNet")
    if device == "cuda" and not torch.cuda.is_available():
        skip(f"torch {torch.__version__} sees no GPU")
    return torch, transformers


def make_model(torch, transformers, size, dropout, device):
    config = transformers.XLNetConfig(vocab_size=size.vocab, d_model=size.model_dim, n_layer=size.layers, n_head=size.heads,
                                      d_inner=size.ffn_dim, mem_len=size.memory, reuse_len=size.length // 2, use_mems_train=True,
                                      dropout=dropout, ff_activation="gelu", untie_r=True, bi_data=False)
    torch.manual_seed(1)
    return transformers.XLNetLMHeadModel(config).to(device).train()


def make_batch(torch, size, batch, seed):
    """Random text: two halves, each with an order of its masked tokens; the first half never sees the second."""
    draw = torch.Generator().manual_seed(seed)
    tokens = torch.randint(5, size.vocab, (batch, size.length), generator=draw)
    perm_mask = torch.zeros(batch, size.length, size.length)
    mapping = torch.zeros(batch, size.targets, size.length)
    half = torch.arange(size.length) // (size.length // 2)
    for lane in range(batch):
        targets = torch.randperm(size.length, generator=draw)[:size.targets]
        rank = torch.zeros(size.length)
        rank[targets] = torch.arange(1, size.targets + 1).float()
        order = half * size.length + rank
        # 1: row may not see column. A masked token sees neither itself nor what comes after it in
        # the order.
        hidden = (order[None, :] > order[:, None]) | ((order[None, :] == order[:, None]) & (rank[:, None] > 0))
        perm_mask[lane] = hidden.float()
        mapping[lane, torch.arange(size.targets), targets] = 1
    labels = torch.einsum("bpt,bt->bp", mapping, tokens.float()).long()
    return {"input_ids": tokens, "perm_mask": perm_mask, "target_mapping": mapping, "labels": labels}


class Trainer:
    def __init__(self, torch, transformers, options, form, batch):
        size = SIZES[options.size]
        self.torch, self.device = torch, options.device
        self.model = make_model(torch, transformers, size, options.dropout, options.device)
        self.parameters = [p for p in self.model.parameters() if p.requires_grad]
        self.optimizer = torch.optim.AdamW(self.parameters, lr=1e-5, weight_decay=0.01, fused=options.device == "cuda")
        self.run = torch.compile(self.model) if form == "compile" else self.model
        self.batches = [{name: value.to(options.device) for name, value in make_batch(torch, size, batch, seed).items()}
                        for seed in range(2)]
        self.memory = [torch.zeros(size.memory, batch, size.model_dim, device=options.device) for _ in range(size.layers)]

    def step(self, number):
        with self.torch.autocast(self.device, dtype=self.torch.bfloat16):
            output = self.run(**self.batches[number % len(self.batches)], mems=self.memory)
        output.loss.backward()
        self.memory = [state.detach() for state in output.mems]
        self.torch.nn.utils.clip_grad_norm_(self.parameters, 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return output.loss.detach()

    def wait(self):
        if self.device == "cuda":
            self.torch.cuda.synchronize()


def measure(torch, transformers, options, form, batch):
    trainer = Trainer(torch, transformers, options, form, batch)
    for number in range(options.warm_up):
        trainer.step(number)
    trainer.wait()
    seconds = []
    for number in range(options.steps):
        begin = time.perf_counter()
        loss = trainer.step(number)
        trainer.wait()
        seconds.append(time.perf_counter() - begin)
    return sorted(seconds), float(loss)


def line_of(options, form, batch, seconds, loss, versions):
    size = SIZES[options.size]
    median = statistics.median(seconds)
    flops = count_flops(size) * batch / median
    return {"name": f"peer_{options.size}_{form}", "shape": f"B{batch} T{size.length} M{size.memory} P{size.targets}",
            "value": round(batch * size.length / median, 1), "unit": "tokens/s", "ms": round(median * 1e3, 3),
            "spread": round((seconds[-1] - seconds[0]) / median, 4), "samples": len(seconds), "tflops": round(flops * 1e-12, 2),
            "share_of_989": round(flops / PEAK, 4), "share_of_790": round(flops / REACHABLE, 4), "loss": round(loss, 4), **versions}


def attempt(measurement, out_of_memory):
    """(what it returns, None); (None, None) if it did not fit; (None, why) of any other error of PyTorch's own."""
    try:
        return measurement(), None
    except out_of_memory:
        return None, None
    except Exception as error:  # compilers raise whatever they like
        return None, f"{type(error).__name__}: {(str(error).strip().splitlines() or [''])[0]}"


def main(arguments):
    options = parse(arguments)
    torch, transformers = load_torch(options.device)
    versions = {"torch": torch.__version__, "transformers": transformers.__version__}
    out_of_memory = getattr(torch, "OutOfMemoryError", torch.cuda.OutOfMemoryError)  # of torch before 2.5
    batches, failed = options.batches, False
    for form in options.forms:
        for batch in batches:
            measured, error = attempt(lambda: measure(torch, transformers, options, form, batch), out_of_memory)
            # Here, not above: as long as the exception lives, so does the model that did not fit.
            if options.device == "cuda":
                torch.cuda.empty_cache()
            if measured:
                print(json.dumps(line_of(options, form, batch, *measured, versions)), flush=True)
                batches = batches[batches.index(batch):]
            if measured or error:
                break
        reason = error or ("" if measured else f"not even {batches[-1]} sequences fit this GPU")
        if reason:
            print(f"xlnet_gpu: {options.size} {form}: {reason}", file=sys.stderr, flush=True)
        failed = failed or (error and form == "eager")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
