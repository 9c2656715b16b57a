#!/usr/bin/env python3
"""The same 100 optimizer steps here and in torch must end in the same weights (README.md).

Loss and gradient norm of each step: 1e-4, relative. The learning rate: the few roundings of its formula.

Weights, moments and memory after the last step: a bound for each tensor, computed from what rounding alone does to this very run.
Training multiplies rounding errors, most of all where Adam divides a small gradient by its own size, and no bound from operation
counts is both safe and sharp. So the judge measures it: it trains once in double (exact, for our purpose) and SAMPLES times in fp32,
moving each weight to one of its two neighbours at random after each step (stochastic arithmetic: Vignes 1993, "A stochastic
arithmetic for reliable scientific computation"). If ours differs from the exact run by rounding only, its distance is one more draw
like theirs. In the worst case all elements of a tensor err together, along the one direction that training amplifies most: then
distances are absolute values of one normal variable, and ours over the root mean square of the samples has Student's distribution
with SAMPLES degrees of freedom, which exceeds STUDENT with probability 1e-4. Independent elements make the ratio smaller still.
The bound of a tensor is therefore STUDENT times the root mean square of the samples' distances (2-norm).
"""
import collections
import concurrent.futures
import dataclasses
import json
import math
import multiprocessing
import sys
import time
from functools import partial

import cases
import hf_model
import masks
import torch
import train_parity_reference as reference
import xlnet_parity
from run_programs import dump, export, launch_on_two_ranks, metrics
from safetensors import safe_open

STEPS = 100
SETTINGS = {
    **xlnet_parity.SETTINGS,
    "model.num_layers": 2, "model.model_dim": 48, "model.num_heads": 3, "model.ffn_dim": 80,
    "cpu.threads": 1, "train.steps": STEPS, "checkpoint.every": STEPS // 2,
}
# Changes of each variant: of the optimizer, whose rate is one at which training is stable (where it
# is not, fp32 parts from double within 100 steps, whoever computes: README.md), and of other
# settings.
VARIANTS = {
    "published AdamW": ({}, {}),
    "bias correction of TensorFlow, order in blocks": (
        {"bias_correction": True, "max_grad_norm": 2.0}, {"sampling.perm_size": 16, "train.micro_batch_size": 1}),
    # An epsilon as large as the roots of the moments: in TensorFlow's form the weights would be
    # elsewhere.
    "torch.optim.AdamW": ({"bias_correction": True, "adam_form": "torch", "adam_epsilon": 1e-3, "max_grad_norm": 2.0}, {}),
}
# Gradients of one step from equal weights: the bound of xlnet_parity.py, with its reason.
GRADIENT_BOUND = 2e-4
LOSS_BOUND = 1e-4
RATE_BOUND = 8 * 2 ** -52  # a handful of operations in double, in another order
SAMPLES = 4
STUDENT = 15.54  # two-sided 1e-4 quantile, 4 degrees of freedom


def judge(export, steps, optimizer):
    """The exact run and the samples."""
    jobs = [(torch.float64, None)] + [(torch.float32, seed) for seed in range(1, SAMPLES + 1)]
    context = multiprocessing.get_context("fork")  # shares the prepared steps
    with concurrent.futures.ProcessPoolExecutor(2, mp_context=context) as pool:
        running = [pool.submit(reference.train, export, steps, optimizer, *job) for job in jobs]
        exact, *samples = [future.result() for future in running]
    apart = max(series_row("loss", sample["loss"], exact["loss"], LOSS_BOUND).ratio for sample in samples)
    assert apart < 1, "training is unstable: rounding alone moves the loss beyond its bound, choose a smaller learning rate"
    return exact, samples


def read_checkpoint(directory):
    """{name: flat tensor} of a checkpoint, from its safetensors files, by the global element ranges that they state."""
    tensors, filled = {}, collections.Counter()
    for path in sorted(directory.glob("rank-*.safetensors")):
        with safe_open(path, "pt") as file:
            for key in file.keys():
                held, values = json.loads(file.metadata()[f"range.{key}"]), file.get_tensor(key)
                assert values.dtype == torch.float32, key
                flat = tensors.setdefault(held["name"], torch.full((math.prod(held["shape"]),), math.nan))
                flat[held["begin"]:held["end"]] = values
                filled[held["name"]] += held["end"] - held["begin"]
    assert all(filled[name] == len(flat) for name, flat in tensors.items()), filled
    return tensors


class Ours:
    """What a finished run left in its directory."""

    def __init__(self, run_dir):
        self.metrics = metrics(run_dir)
        last = self.metrics[-1]["step"]
        assert [line["step"] for line in self.metrics] == list(range(1, last + 1)), "a step is missing"
        checkpoint = run_dir / "checkpoints" / f"step-{last:09d}"
        manifest = json.loads((checkpoint / "MANIFEST.json").read_text())
        flat = read_checkpoint(checkpoint)
        self.state = {"memory": flat["memory"]}
        for parameter in json.loads(manifest["metadata"])["parameters"]:
            begin, shape = parameter["offset"], parameter["shape"]
            for kind in ("master", "adam_m", "adam_v"):
                values = flat[kind][begin:begin + math.prod(shape)]
                self.state[f"{kind}/{parameter['name']}"] = values.reshape(shape)


@dataclasses.dataclass
class Row:
    """One line of the table: the quantity's largest difference over its bound, and where."""
    quantity: str
    difference: float
    bound: float
    where: str

    @property
    def ratio(self):
        return self.difference / self.bound

    def __str__(self):
        return f"  {self.quantity:<14} {self.difference:8.1e}  bound {self.bound:8.1e}  ratio {self.ratio:8.1e}  {self.where}"


def series_row(quantity, ours, exact, bound):
    """The largest relative difference over all steps; `where` also names the first step beyond the bound."""
    # The first learning rate is 0. Metrics hold null for what is not a number.
    differences = [math.inf if a is None else abs(a - b) / (abs(b) or 1) for a, b in zip(ours, exact)]
    worst = max(range(len(differences)), key=differences.__getitem__)
    beyond = next((f", beyond from step {i + 1} on" for i, value in enumerate(differences) if value > bound), "")
    return Row(quantity, differences[worst], bound, f"step {worst + 1}{beyond}")


def state_row(kind, ours, exact, samples):
    """The tensor of `kind` whose distance is largest beside its bound; both relative to the exact tensor's 2-norm."""
    rows = []
    for name, value in exact["state"].items():
        if name.split("/")[0] != kind:
            continue
        size = float(value.norm())
        squares = [float((sample["state"][name] - value).square().sum()) for sample in samples]
        bound = STUDENT * math.sqrt(sum(squares) / SAMPLES)
        distance = float((ours.state[name].reshape(value.shape).double() - value).norm())
        rows.append(Row(kind, distance / size, bound / size, name.split("/", 1)[-1]))
    return max(rows, key=lambda row: row.ratio)


def compare(ours, exact, samples):
    """The rows of the table; the runs agree if no ratio is above 1."""
    assert len(ours.metrics) == len(exact["loss"]), f"{len(ours.metrics)} and {len(exact['loss'])} steps"
    rows = [series_row(key, [line[key] for line in ours.metrics], exact[key], bound)
            for key, bound in (("loss", LOSS_BOUND), ("grad_norm", LOSS_BOUND), ("lr", RATE_BOUND))]
    return rows + [state_row(kind, ours, exact, samples) for kind in ("master", "adam_m", "adam_v", "memory")]


def total_distance(kind, state, exact):
    """Relative distance of all tensors of `kind` together, and the largest difference of an element."""
    pairs = [(state[name].reshape(value.shape).double(), value)
             for name, value in exact["state"].items() if name.split("/")[0] == kind]
    squares = sum(float((a - b).square().sum()) for a, b in pairs)
    size = sum(float(b.square().sum()) for _, b in pairs)
    return math.sqrt(squares / size), max(float((a - b).abs().max()) for a, b in pairs)


def train_ours(folder, optimizer, settings):
    """On two ranks: a run of one step, one of all steps, and the prepared batches."""
    launch_on_two_ranks(folder, {**SETTINGS, **settings, **reference.settings(optimizer)})
    export(folder / "run", folder / "trained")
    dump(folder / "run", STEPS, folder / "batches", "--batches")
    batches = hf_model.read_steps(folder / "batches", STEPS)
    faults = []
    prepared = [masks.checked_inputs(step, facts, SETTINGS["sampling.reuse_len"], faults)
                for step, facts in enumerate(batches)]
    return Ours(folder / "first"), Ours(folder / "run"), prepared, faults


def first_gradient_row(first, exact):
    """Gradients of the first step, which are the first moments after it but for a factor."""
    differences = {name: float((first.state[f"adam_m/{name}"].double() - value).abs().max() / value.abs().max())
                   for name, value in exact["first"].items()}
    worst = max(differences, key=differences.get)
    return Row("first gradient", differences[worst], GRADIENT_BOUND, worst)


def export_faults(folder, run_state):
    """The exported weights are the checkpoint's, bit for bit."""
    exported = cases.read_weights(folder)
    for name, value in run_state.items():
        kind, _, parameter = name.partition("/")
        if kind == "master" and not exported[parameter].equal(value):
            yield f"{parameter} was exported with other values than the checkpoint has"


def check_variant(name, folder, shards):
    """Prints the table of one variant; what does not hold."""
    changes, settings = VARIANTS[name]
    optimizer, started = {**reference.OPTIMIZER, **changes}, time.monotonic()
    first, ours, prepared, faults = train_ours(folder, optimizer, {**settings, "data.shards": shards["text"]})
    exact, samples = judge(folder / "initial", prepared, optimizer)
    faults += list(export_faults(folder / "initial", first.state)) + list(export_faults(folder / "trained", ours.state))
    if not 0 < exact["clipped"] < STEPS:
        faults.append(f"clipping acts in {exact['clipped']} of {STEPS} steps: the comparison needs both kinds")
    rows = [first_gradient_row(first, exact)] + compare(ours, exact, samples)
    print(f"{name}: loss {exact['loss'][0]:.3f} to {exact['loss'][-1]:.3f}, clipped in {exact['clipped']} steps, "
          f"{time.monotonic() - started:.0f} s")
    print(*rows, sep="\n")
    for who, state in [("ours", ours.state)] + [("fp32 torch", sample["state"]) for sample in samples[:1]]:
        distance, largest = total_distance("master", state, exact)
        print(f"  all weights, {who}: relative distance {distance:.1e}, largest difference {largest:.1e}")
    return faults + [row for row in rows if not row.ratio <= 1]


def main():
    print(hf_model.versions())
    return cases.check_each({name: partial(check_variant, name) for name in VARIANTS}, f"{STEPS} steps agree")


if __name__ == "__main__":
    sys.exit(main())
