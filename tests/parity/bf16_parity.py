#!/usr/bin/env python3
"""What rounding to bf16 costs our network, beside what it costs the other implementation (README.md).

Errors are distances to double, relative to the largest value of the tensor. The ratio of ours to theirs is a geometric mean over
networks. A second peer is reported alone: torch.autocast, which keeps weights and the sum of layers in fp32.
"""
import math
import statistics
import sys
import tempfile
from pathlib import Path

import cases
import foreign_networks
import hf_model
import llama_parity
import run_programs
import torch

DRAWS = 3
MEASURES = [(quantity, measure) for quantity in ("logits", "losses", "gradients") for measure in ("rms", "largest")]


def results(logits, losses, gradients, facts):
    """[{tensor: values in double}] of logits, losses of targets, and gradients; zeros where the batch has no target."""
    used = facts["weights"] != 0
    return [{"": (logits * used[..., None]).detach().double()}, {"": (losses * used).detach().double()},
            {name: gradient.detach().double() for name, gradient in gradients.items()}]


def computed(config, weights, facts, dtype, model=None, autocast=False):
    """Results of `model`, or of foreign_networks in this dtype."""
    tokens, causal = llama_parity.text_of(config, facts)
    if model is not None:
        leaves, logits = dict(model.named_parameters()), model(tokens).logits
    else:
        leaves = {name: tensor.to(dtype).requires_grad_() for name, tensor in weights.items()}
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
            logits = foreign_networks.network(config)(config, leaves, tokens, causal)
    logits = hf_model.readout(foreign_networks.wide(logits), facts)
    losses = hf_model.weighted_losses(logits, facts["labels"].long(), torch.ones_like(facts["weights"]))
    (losses * facts["weights"]).sum().backward()
    return results(logits, losses, {name: leaf.grad for name, leaf in leaves.items() if leaf.grad is not None}, facts)


def errors(found, truth):
    """[root mean square, largest] of each quantity, one after the other: as MEASURES."""
    answers = []
    for ours, exact in zip(found, truth):
        relative = [(ours[name] - exact[name]).abs() / exact[name].abs().max() for name in ours]
        answers += [math.sqrt(statistics.mean(float(error.square().mean()) for error in relative)),
                    max(float(error.max()) for error in relative)]
    return answers


def compare(folder, config, shards, seed):
    """Errors of ours, of the peer, and of autocast."""
    work = Path(tempfile.mkdtemp(dir=folder))
    weights = {name: tensor.bfloat16().float() for name, tensor in llama_parity.drawn(config, seed).items()}
    llama_parity.imported(work, config, weights, shards)
    run_programs.dump(work / "back-run", 1, work / "dump", "--bf16")
    facts, = hf_model.read_steps(work / "dump", 1)
    gradients = llama_parity.file_gradients(config, facts, weights)
    truth = computed(config, weights, facts, torch.float64)
    model = llama_parity.transformers_model(config, weights, torch.bfloat16)
    peers = [computed(config, weights, facts, torch.bfloat16, model), computed(config, weights, facts, torch.float32, autocast=True)]
    ours = results(facts["logits"], facts["losses"], gradients, facts)
    # A diffusion transformer's noise level has weights that we fold away: tensors are ours.
    return [errors([{name: found[name] for name in mine} for mine, found in zip(ours, side)], truth) for side in (ours, *peers)]


def ratios(networks, peer, index):
    """Geometric mean of ours over the peer's, and what it may be."""
    logs = [math.log(errors[0][index] / errors[peer][index]) for errors in networks]
    spread = statistics.stdev(logs) / math.sqrt(len(logs))
    return math.exp(statistics.mean(logs)), math.exp(3 * spread)


def report(name, networks, may_exceed):
    """Prints a line; what is over its limit."""
    faults, cells = [], []
    for index, (quantity, measure) in enumerate(MEASURES):
        ratio, limit = ratios(networks, 1, index)
        limit = limit if may_exceed or measure == "largest" else 1
        cells.append(f"{statistics.median(errors[0][index] for errors in networks):.1e}, {ratio:.2f} (up to {limit:.2f})")
        cells[-1] += f", {ratios(networks, 2, index)[0]:.2f}"
        if not ratio <= limit:
            faults.append(f"{name}, {quantity}: {measure} is {ratio:.2f} times the other's, over {limit:.2f}")
    print(f"| {name} | {' | '.join(cells)} |", flush=True)
    return faults


def main():
    torch.set_num_threads(1)
    print(f"{hf_model.versions()}; each cell: our median error, its ratio to bf16 there (limit), to autocast there")
    print(f"| network | {' | '.join(f'{quantity}, {measure}' for quantity, measure in MEASURES)} |")
    print("|---" * (1 + len(MEASURES)) + "|")
    faults, everything = [], []
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        shards = cases.Shards(folder)
        for family, shapes in llama_parity.configurations(sys.argv[1:]).items():
            if family == "A3":  # which has Llama's products and norms, in two streams
                continue
            networks = [compare(folder, config, shards, seed) for config in shapes.values() for seed in range(DRAWS)]
            faults += report(family, networks, True)
            everything += networks
        faults += report("all", everything, False)
    return run_programs.conclude(faults, "bf16 costs ours no more")


if __name__ == "__main__":
    sys.exit(main())
