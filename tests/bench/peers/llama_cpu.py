#!/usr/bin/env python3
"""Training steps of transformers' LlamaForCausalLM on a CPU, at the shape of `step_bench --preset llama`, for beside_peer.py.

A step is forward, backward, clipping of the gradient norm and AdamW. bf16 holds the weights in bf16, as step_bench's network has
them, with AdamW's master weights in fp32 left out, which favours this side.

Usage: llama_cpu.py --preset llama --dtype fp32|bf16 --threads N --batch N --steps N --repeats N --warmup N --json FILE
"""
import argparse
import json
import resource
import statistics
import time

import torch
import transformers

SHAPE = {"hidden_size": 512, "num_hidden_layers": 4, "num_attention_heads": 8, "num_key_value_heads": 4, "intermediate_size": 1408,
         "vocab_size": 32000, "rms_norm_eps": 1e-5, "tie_word_embeddings": False, "use_cache": False}
SEQ_LEN = 512


def train(arguments, model):
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.01, foreach=True)
    generator = torch.Generator().manual_seed(1)

    def step():
        tokens = torch.randint(10, SHAPE["vocab_size"], (arguments.batch, SEQ_LEN), generator=generator)
        optimizer.zero_grad(set_to_none=True)
        model(input_ids=tokens, labels=tokens).loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    for _ in range(arguments.warmup):
        step()
    speeds = []
    for _ in range(arguments.repeats):
        begin = time.perf_counter()
        for _ in range(arguments.steps):
            step()
        speeds.append(arguments.steps * arguments.batch * SEQ_LEN / (time.perf_counter() - begin))
    return speeds


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--preset", choices=["llama"], default="llama")
    parser.add_argument("--dtype", choices=["fp32", "bf16"], default="fp32")
    for name, default in (("threads", 2), ("batch", 4), ("steps", 2), ("repeats", 3), ("warmup", 1)):
        parser.add_argument("--" + name, type=int, default=default)
    parser.add_argument("--dropout", type=float, default=0.0, help="of attention probabilities: Llama has no other")
    parser.add_argument("--attention", choices=["sdpa", "eager"], default="eager")
    parser.add_argument("--json", required=True)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(1)
    config = transformers.LlamaConfig(**SHAPE, attention_dropout=arguments.dropout, attn_implementation=arguments.attention)
    model = transformers.LlamaForCausalLM(config).train()
    if arguments.dtype == "bf16":
        model = model.to(torch.bfloat16)
    speeds = train(arguments, model)
    with open(arguments.json, "w", encoding="utf-8") as file:
        json.dump({"median": statistics.median(speeds), "all": speeds, "torch": torch.__version__,
                   "peak_rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
                   "impl": f"transformers {transformers.__version__}, {arguments.attention}"}, file)


if __name__ == "__main__":
    main()
