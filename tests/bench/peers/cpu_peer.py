"""What the CPU peers of beside_peer.py share: their command line, timing and the file that they write."""
import argparse
import json
import resource
import statistics
import time

import torch


def command_line(doc, preset, batch):
    parser = argparse.ArgumentParser(description=doc.split("\n")[0])
    parser.add_argument("--preset", choices=[preset], default=preset)
    parser.add_argument("--dtype", choices=["fp32", "bf16"], default="fp32")
    for name, default in (("threads", 2), ("batch", batch), ("steps", 2), ("repeats", 3), ("warmup", 1)):
        parser.add_argument("--" + name, type=int, default=default)
    parser.add_argument("--json", required=True)
    return parser


def parsed(parser):
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(1)
    return arguments


def measure(arguments, model, step_of, tokens, implementation):
    """Writes the speeds of step_of(model in the asked dtype), a function of no arguments that does `tokens` tokens a text."""
    step = step_of(model.to(torch.bfloat16) if arguments.dtype == "bf16" else model)
    for _ in range(arguments.warmup):
        step()
    speeds = []
    for _ in range(arguments.repeats):
        begin = time.perf_counter()
        for _ in range(arguments.steps):
            step()
        speeds.append(arguments.steps * arguments.batch * tokens / (time.perf_counter() - begin))
    with open(arguments.json, "w", encoding="utf-8") as file:
        json.dump({"median": statistics.median(speeds), "all": speeds, "torch": torch.__version__,
                   "peak_rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, "impl": implementation}, file)
