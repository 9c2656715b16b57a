#!/usr/bin/env python3
"""Generation by transformers' GPT2LMHeadModel with its key cache on a CPU, at the shape of `generate_bench`, for beside_peer.py.

Greedy, prompts of 64 tokens, 64 new ones a text, reading the prompt included.

Usage: gpt2_generate.py --preset generate --dtype fp32|bf16 --threads N --batch TEXTS --steps N --repeats N --warmup N --json FILE
"""
import torch
import transformers

from cpu_peer import command_line, measure, parsed

PROMPT, TOKENS = 64, 64
SHAPE = {"n_embd": 256, "n_layer": 4, "n_head": 4, "n_inner": 1024, "vocab_size": 32000, "n_positions": PROMPT + TOKENS + 2}


def step_of(arguments, model):
    tokens = torch.arange(11, 11 + PROMPT).repeat(arguments.batch, 1)
    mask = torch.ones_like(tokens)
    return lambda: model.generate(tokens, attention_mask=mask, do_sample=False, num_beams=1, use_cache=True, min_new_tokens=TOKENS,
                                  max_new_tokens=TOKENS, pad_token_id=0)


def main():
    parser = command_line(__doc__, "generate", batch=8)
    parser.add_argument("--dropout", type=float, default=0.0, help="ignored: generation has none")
    arguments = parsed(parser)
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(**SHAPE)).eval()
    with torch.inference_mode():
        measure(arguments, model, lambda ready: step_of(arguments, ready), TOKENS, f"transformers {transformers.__version__}, generate")


if __name__ == "__main__":
    main()
