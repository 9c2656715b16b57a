"""Exported networks in transformers, and how far their numbers are from ours.

Importing this ends the program with 77 (CTest: skipped) where torch, transformers or safetensors is missing.
"""
import math
import sys
from unittest import mock

try:
    import torch
    import transformers
    from safetensors import safe_open
    from transformers import XLNetConfig, XLNetLMHeadModel
except ImportError as missing:
    print(f"SKIPPED: {missing}; name an interpreter that has torch and transformers in ANYORDER_PARITY_PYTHON")
    sys.exit(77)

try:  # gone from transformers 5
    from transformers.models.deprecated.transfo_xl import TransfoXLConfig, TransfoXLLMHeadModel
except ImportError:
    TransfoXLConfig, TransfoXLLMHeadModel = (getattr(transformers, name, None) for name in ("TransfoXLConfig", "TransfoXLLMHeadModel"))

transformers.utils.logging.disable_progress_bar()


def versions():
    return f"torch {torch.__version__}, transformers {transformers.__version__}"


def loaded(kind, directory, **arguments):
    """A model, and a list of parameters that did not match."""
    model, info = kind.from_pretrained(directory, output_loading_info=True, **arguments)
    return model.eval(), [f"{key}: {value}" for key, value in info.items() if value]


def load_model(export, both_directions=True):
    """The exported network in fp32 without dropout, and a list of parameters that did not match.

    With both directions in its batches, the first half of the rows reads forward, the second backward.
    """
    model, faults = loaded(XLNetLMHeadModel, export, config=XLNetConfig.from_pretrained(export, bi_data=both_directions))
    return model.float(), faults


def read_steps(dump, steps):
    """The tensors of each step of a file that parity_dump wrote, by name."""
    with safe_open(dump, "pt") as file:
        return [{name.split(".", 1)[1]: file.get_tensor(name) for name in file.keys() if name.startswith(f"{t}.")}
                for t in range(steps)]


def torchs_type_as():
    """A context for Transformer-XL: transformers 4.41 hands type_as() a dtype, which no torch takes."""
    return mock.patch.object(torch.Tensor, "type_as", lambda x, other=None, dtype=None: x.to(dtype or other.dtype))


def weighted_losses(logits, labels, weights):
    """Cross entropy of each target, [lanes, targets]; 0 where the weight is."""
    return torch.nn.functional.cross_entropy(logits.transpose(1, 2), labels, reduction="none") * weights


def readout(everywhere, facts):
    """Of the logits of all rows those of the batch's targets."""
    return everywhere.reshape(-1, everywhere.shape[-1])[facts["readout_rows"].long()]


def add_logits(measures, quantity, facts, theirs):
    """Of the targets that count."""
    used = (facts["weights"] != 0)[..., None]
    measures.add(quantity, facts["logits"] * used, theirs * used)


def gradients_of(facts):
    """Ours, by parameter."""
    return {name.removeprefix("gradient/"): value for name, value in facts.items() if name.startswith("gradient/")}


def gradient_pairs(facts, model):
    """(name, ours, theirs) of each of our parameters after backward. Biases that all our layers share are copied to
    every layer there, so that their gradients add up."""
    theirs = {name: parameter.grad for name, parameter in model.named_parameters()}
    for name, gradient in gradients_of(facts).items():
        if name in theirs:
            yield name, gradient, theirs[name]
        else:
            copies = [theirs[other] for other in theirs if other.endswith(name[len("transformer."):])]
            yield name, gradient, sum(copies)


def exact_position_tables(model, dtype=torch.float32):
    """Makes the model's sinusoids in double and rounds them once to `dtype`, as ours are. Transformers, like the original, rounds
    distance * frequency to fp32 first, which within 900 positions moves a sinusoid by up to 7.4e-5."""
    transformer = model.transformer

    def encode(qlen, klen, bsz=None, device=None):
        frequencies = 10000.0 ** (-torch.arange(0, transformer.d_model, 2, dtype=torch.float64) / transformer.d_model)
        tables = []
        for sign in (1, -1) if transformer.bi_data else (1,):
            distances = sign * torch.arange(klen, -qlen, -1, dtype=torch.float64)
            if transformer.clamp_len > 0:
                distances = distances.clamp(-transformer.clamp_len, transformer.clamp_len)
            angles = distances[:, None] * frequencies
            tables.append(torch.cat([angles.sin(), angles.cos()], dim=-1).to(dtype))
        lanes = bsz // len(tables)
        return torch.cat([table[:, None].expand(-1, lanes, -1) for table in tables], dim=1)

    transformer.relative_positional_encoding = encode


class Measures:
    """The largest difference, the largest difference over the largest value of its tensor, and the relative L2 norm of all
    differences, of every quantity that was added."""

    def __init__(self):
        self.rows = {}

    def add(self, quantity, ours, theirs):
        ours, theirs = ours.detach().double(), theirs.detach().double()
        if ours.shape != theirs.shape:
            raise ValueError(f"{quantity}: ours is {tuple(ours.shape)}, theirs {tuple(theirs.shape)}")
        largest, relative, error, norm = self.rows.get(quantity, (0.0, 0.0, 0.0, 0.0))
        difference = float((ours - theirs).abs().max())
        # Not a number must not compare as small.
        difference = math.inf if math.isnan(difference) else difference
        scale = float(theirs.abs().max())
        self.rows[quantity] = (
            max(largest, difference), max(relative, difference / scale if scale > 0 else difference and math.inf),
            error + float((ours - theirs).square().sum()), norm + float(theirs.square().sum()))

    def table(self):
        """(quantity, max abs, max relative, relative L2) in the order of adding."""
        return [(quantity, largest, relative, math.sqrt(error / norm) if norm > 0 else math.sqrt(error))
                for quantity, (largest, relative, error, norm) in self.rows.items()]

    def exceeding(self, tolerance, gradient_tolerance):
        """The quantities that differ by more than rounding."""
        return [f"{quantity}: {max(relative, norm):.1e} is over {limit:.1e}"
                for quantity, _, relative, norm in self.table()
                for limit in (gradient_tolerance if quantity == "gradients" else tolerance,)
                if not max(relative, norm) <= limit]


def print_header():
    print("| network | quantity | max abs | max relative | relative L2 |\n|---|---|---|---|---|")


def print_table(network, measures):
    for quantity, largest, relative, norm in measures.table():
        print(f"| {network} | {quantity} | {largest:.1e} | {relative:.1e} | {norm:.1e} |", flush=True)
