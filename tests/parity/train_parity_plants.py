#!/usr/bin/env python3
"""The comparison of training must notice mistakes: each plant is one, and the comparison with torch has to fail for it.

Plants live in planted_backend.cc and, as changes of our configuration, in CONFIGURED. The run without a plant must agree with torch,
and must end in the same state as `anyorder launch` on two ranks, so that the planted program trains what the product trains.

Exit status: 0 all are noticed, 1 one is not, 77 torch or transformers is missing.
"""
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import hf_model
import train_parity
import train_parity_compare as comparison
from run_programs import PROGRAMS, prepare_text, run

STEPS = 12  # memory is full from the third on, the learning rate at its peak from the third
OPTIMIZER = {**train_parity.OPTIMIZER, "warmup_steps": 2, "weight_decay": 0.1}
# A mistake must be this many times a bound away, so that no bound's width decides.
FAR = 10
# Mistakes that are a line of configuration on our side: the line, and what it becomes.
CONFIGURED = {
    "erf-gelu": ('activation = "gelu"', 'activation = "gelu_erf"'),
    "no-clipping": ("max_grad_norm = 1.0", "max_grad_norm = 0.0"),
    "bias-corrected": ("bias_correction = false", "bias_correction = true"),
}


def plant_names():
    """What train_parity_planted says that it has."""
    usage = subprocess.run([PROGRAMS / "train_parity_planted"], capture_output=True, text=True).stderr
    return usage.split("plants:")[1].split()


def train_planted(control, folder, plant):
    """The run of `control` with `plant` in it."""
    folder.mkdir()
    config = (control / "config.toml").read_text()
    if plant in CONFIGURED:
        line, planted = CONFIGURED[plant]
        if config.count(line) != 1:
            sys.exit(f"config.toml has no line '{line}' to plant {plant} into")
        config = config.replace(line, planted)
        plant = "none"
    (folder / "config.toml").write_text(config)
    run(PROGRAMS / "train_parity_planted", folder, plant)
    return comparison.Ours(folder)


def describe(rows):
    """One line of the table: loss and gradient norm, each with the first step beyond its bound, and the worst tensor."""
    loss, norm = rows[0], rows[1]
    state = max(rows[3:], key=lambda row: row.ratio)
    return (f"{loss.difference:8.1e} {first_step(loss):>5} {norm.difference:9.1e} {first_step(norm):>5}  "
            f"{state.ratio:9.1e}  {state.quantity}{'' if state.quantity == 'memory' else ' of ' + state.where}")


def first_step(row):
    return row.where.split("beyond from step ")[1].split()[0] if "beyond" in row.where else "-"


def main():
    print(hf_model.versions())
    failures = []
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        shards = prepare_text(folder)
        _, control, prepared, faults = train_parity.train_ours(
            folder, STEPS, OPTIMIZER, {"data.shards": shards})
        exact, samples = comparison.judge(folder / "initial", prepared, OPTIMIZER)
        failures += faults
        print(f"{'plant':<20} {'loss':>8} {'from':>5} {'grad norm':>9} {'from':>5}  state/bound  worst tensor")
        for plant in plant_names() + list(CONFIGURED):
            ours = train_planted(folder / "run", folder / plant, plant)
            rows = comparison.compare(ours, exact, samples)
            print(f"{plant:<20} {describe(rows)}")
            worst = max(row.ratio for row in rows)
            if plant == "none":
                if worst > 1:
                    failures += ["the run without a plant does not agree with torch"] + [str(row) for row in rows]
                if ours.digest() != control.digest():
                    failures.append("the planted program does not train what anyorder launch trains")
            elif worst <= FAR:
                failures.append(f"{plant} is not noticed: at most {worst:.1e} times a bound")
            shutil.rmtree(folder / plant)
    for failure in failures:
        print(f"  {failure}")
    print("FAILED" if failures else f"every plant is at least {FAR} times beyond a bound; without one, all agree")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
