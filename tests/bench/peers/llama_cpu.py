#!/usr/bin/env python3
"""Training steps of transformers' LlamaForCausalLM on a CPU, at the shape of `step_bench --preset llama`, for beside_peer.py.

A step is forward, backward, clipping of the gradient norm and AdamW. bf16 holds the weights in bf16, as step_bench's network has
them, with AdamW's master weights in fp32 left out, which favours this side.

Usage: llama_cpu.py --preset llama --dtype fp32|bf16 --threads N --batch N --steps N --repeats N --warmup N --json FILE
"""
import torch
import transformers

from cpu_peer import command_line, measure, parsed

SHAPE = {"hidden_size": 512, "num_hidden_layers": 4, "num_attention_heads": 8, "num_key_value_heads": 4, "intermediate_size": 1408,
         "vocab_size": 32000, "rms_norm_eps": 1e-5, "tie_word_embeddings": False, "use_cache": False}
SEQ_LEN = 512


def step_of(arguments, model):
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.01, foreach=True)
    generator = torch.Generator().manual_seed(1)

    def step():
        tokens = torch.randint(10, SHAPE["vocab_size"], (arguments.batch, SEQ_LEN), generator=generator)
        optimizer.zero_grad(set_to_none=True)
        model(input_ids=tokens, labels=tokens).loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    return step


def main():
    parser = command_line(__doc__, "llama", batch=4)
    parser.add_argument("--dropout", type=float, default=0.0, help="of attention probabilities: Llama has no other")
    parser.add_argument("--attention", choices=["sdpa", "eager"], default="eager")
    arguments = parsed(parser)
    config = transformers.LlamaConfig(**SHAPE, attention_dropout=arguments.dropout, attn_implementation=arguments.attention)
    measure(arguments, transformers.LlamaForCausalLM(config).train(), lambda ready: step_of(arguments, ready), SEQ_LEN,
            f"transformers {transformers.__version__}, {arguments.attention}")


if __name__ == "__main__":
    main()
