#!/usr/bin/env python3
"""Generation by transformers' GPT2LMHeadModel with its key cache on a CPU, at the shape of `generate_bench`, for beside_peer.py.

Greedy, prompts of 64 tokens, 64 new ones a text, reading the prompt included.

Usage: gpt2_generate.py --preset generate --dtype fp32|bf16 --threads N --batch TEXTS --steps N --repeats N --warmup N --json FILE
"""
import argparse
import json
import resource
import statistics
import time

import torch
import transformers

PROMPT, TOKENS = 64, 64
SHAPE = {"n_embd": 256, "n_layer": 4, "n_head": 4, "n_inner": 1024, "vocab_size": 32000, "n_positions": PROMPT + TOKENS + 2}


def generate(arguments, model):
    tokens = torch.arange(11, 11 + PROMPT).repeat(arguments.batch, 1)
    mask = torch.ones_like(tokens)

    def once():
        model.generate(tokens, attention_mask=mask, do_sample=False, num_beams=1, use_cache=True, min_new_tokens=TOKENS,
                       max_new_tokens=TOKENS, pad_token_id=0)

    for _ in range(arguments.warmup):
        once()
    speeds = []
    for _ in range(arguments.repeats):
        begin = time.perf_counter()
        for _ in range(arguments.steps):
            once()
        speeds.append(arguments.steps * arguments.batch * TOKENS / (time.perf_counter() - begin))
    return speeds


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--preset", choices=["generate"], default="generate")
    parser.add_argument("--dtype", choices=["fp32", "bf16"], default="fp32")
    for name, default in (("threads", 2), ("batch", 8), ("steps", 2), ("repeats", 3), ("warmup", 1)):
        parser.add_argument("--" + name, type=int, default=default)
    parser.add_argument("--dropout", type=float, default=0.0, help="ignored: generation has none")
    parser.add_argument("--json", required=True)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(1)
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(**SHAPE)).eval()
    if arguments.dtype == "bf16":
        model = model.to(torch.bfloat16)
    with torch.inference_mode():
        speeds = generate(arguments, model)
    with open(arguments.json, "w", encoding="utf-8") as file:
        json.dump({"median": statistics.median(speeds), "all": speeds, "torch": torch.__version__,
                   "peak_rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
                   "impl": f"transformers {transformers.__version__}, generate"}, file)


if __name__ == "__main__":
    main()
