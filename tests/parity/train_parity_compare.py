"""A run of ours beside the judge's: what is compared, and within which bounds.

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
import struct

import run_programs
import torch
import train_parity_reference as reference

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
        data = path.read_bytes()
        header_bytes = struct.unpack("<Q", data[:8])[0]
        header = json.loads(data[8:8 + header_bytes])
        ranges = header.pop("__metadata__")
        for key, entry in header.items():
            assert entry["dtype"] == "F32", entry
            held = json.loads(ranges[f"range.{key}"])
            flat = tensors.setdefault(held["name"], torch.full((math.prod(held["shape"]),), math.nan))
            begin, end = (8 + header_bytes + offset for offset in entry["data_offsets"])
            flat[held["begin"]:held["end"]] = torch.frombuffer(bytearray(data[begin:end]), dtype=torch.float32)
            filled[held["name"]] += held["end"] - held["begin"]
    assert all(filled[name] == len(flat) for name, flat in tensors.items()), filled
    return tensors


class Ours:
    """What a finished run left in its directory."""

    def __init__(self, run_dir):
        self.metrics = run_programs.metrics(run_dir)
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
