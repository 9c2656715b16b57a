"""What comparisons of models share: a table of cases on made-up data, random weights, and files that must come back as they were."""
import json
import re
import shutil
import tempfile
from functools import partial
from pathlib import Path

import hf_model  # first: it ends the program where something is missing
import run_programs
import torch
import transformers
from safetensors.torch import load_file


class Shards(dict):
    """{"text" or a task: dataset} in a folder; examples of a task are made when they are first asked for."""

    def __init__(self, folder, **text):
        super().__init__(text=run_programs.prepare_text(folder, **text))
        self.folder = folder

    def __missing__(self, task):
        self[task] = run_programs.prepare_examples(self.folder, task, self["text"])
        return self[task]


def check_each(cases, verdict, **text):
    """The exit status of {title: check}. check(work, shards) has a folder of its own, and gives what is wrong; `verdict` if nothing is."""
    faults = []
    with tempfile.TemporaryDirectory() as temporary:
        shards = Shards(Path(temporary), **text)
        for title, check in cases.items():
            with tempfile.TemporaryDirectory(dir=temporary) as work:
                faults += [f"{title}: {fault}" for fault in check(Path(work), shards)]
    return run_programs.conclude(faults, verdict)


def compare_each(cases, tolerance, gradient_tolerance=None, **text):
    """Prints a table of {title: compare}; the exit status. compare(work, shards) returns measures, which may not exceed the tolerances,
    and a list of what is simply wrong."""
    gradient_tolerance = gradient_tolerance or tolerance

    def check(title, compare, work, shards):
        measures, found = compare(work, shards)
        hf_model.print_table(title, measures)
        return found + measures.exceeding(tolerance, gradient_tolerance)

    print(hf_model.versions())
    hf_model.print_header()
    return check_each({title: partial(check, title, compare) for title, compare in cases.items()},
                      f"all agree within {tolerance:g}, gradients within {gradient_tolerance:g}", **text)


@torch.no_grad()
def random_model(make, seed):
    """make(), with weights wide enough that attention is sharp; nothing is 0 or 1, as biases and gains begin, so that no part is without
    effect."""
    torch.manual_seed(seed)
    model = make()
    for name, parameter in model.named_parameters():
        is_gain = name.endswith("weight") and re.search("ln_|norm", name.lower())
        parameter.normal_(1.0 if is_gain else 0.0, 0.2)
    return model.eval()


def save(model, directory, text):
    """As transformers does, with the vocabulary of the dataset `text`."""
    # Not the default before 4.35, and nothing else from 5 on.
    model.save_pretrained(directory, **({"safe_serialization": True} if transformers.__version__[0] == "4" else {}))
    shutil.copy(text / "spiece.model", directory)


def load_run(architecture, export):
    """Our export as the class of transformers that it should be of, and what is wrong with that."""
    model, faults = hf_model.loaded(getattr(transformers, architecture), export)
    named = read_config(export)["architectures"]
    return model, faults if named == [architecture] else [*faults, f"the export says that it is {named}"]


def read_config(directory):
    return json.loads((directory / "config.json").read_text())


def read_weights(directory):
    return load_file(directory / "model.safetensors")


def blank_unused_positions(tensors, config):
    """Rows that stand for no position are zeros in an export."""
    for name, tensor in tensors.items():
        if name.endswith("position_embeddings.weight") and config["model_type"] in ("roberta", "longformer"):
            tensor[:config["pad_token_id"] + 1] = 0


def tensor_faults(before, after):
    """Tensors that are not the same after import and export, bit for bit."""
    names = set(before) ^ set(after) or {name for name in before if not torch.equal(before[name], after[name])}
    return [f"{name} is another tensor after import and export" for name in sorted(names)]


def config_faults(before, after):
    """What two config.json do not say alike."""
    return [f"config.json: {key} is {after.get(key)!r}, not {value!r}" for key, value in before.items()
            if key not in after or value != after[key]]
