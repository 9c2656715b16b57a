#!/usr/bin/env python3
"""Longformer's staged pretraining (Beltagy et al. 2020, section 4.2): runs that follow one another, each with twice the length and twice
the windows of the one before, half its learning rate, and its weights.

   staged_windows.py --anyorder PROGRAM --config FILE --output DIR --steps N1,N2,... [--global-batch-size B1,B2,...] [--max-length T]
                     [--ranks R] [--set section.key=value]...

Phase p is the run DIR/phase-p. The first one has FILE's model, length and rate; each later one is made by
`anyorder import --format run` from the last checkpoint of the one before, so its Adam moments are new. Every phase has a constant rate
after a warm-up over a tenth of its steps, at most 10,000. A length beyond --max-length becomes that. Learned positions grow with the
length, as copies; relative ones need nothing. What is done already is not done again, so that the same command goes on after a crash.
"""

import argparse
import re
import subprocess
import sys
import tomllib
from pathlib import Path

WINDOW = re.compile(r"(\d+|\*):(\d+|\*)(:\d+)?")


def doubled(windows, times):
    """Both sides of each window, not its stride: "2x 8:0:3" becomes "2x 16:0:3"."""
    def side(text):
        return text if text == "*" else str(int(text) * 2 ** times)
    return WINDOW.sub(lambda m: f"{side(m[1])}:{side(m[2])}{m[3] or ''}", windows)


def phase_settings(config, phase, options):
    """What phase `phase`, 0 the first, says over the configuration."""
    model, sampling, optimizer = (config.get(name, {}) for name in ("model", "sampling", "optimizer"))
    length = min(sampling["seq_len"] * 2 ** phase, options.max_length)
    steps = options.steps[phase]
    settings = {"train.steps": steps, "sampling.seq_len": length, "optimizer.decay": "constant",
                "optimizer.warmup_steps": min(10000, steps // 10),
                "optimizer.learning_rate": repr(optimizer["learning_rate"] / 2 ** phase)}
    if "attention_windows" in model:
        settings["model.attention_windows"] = doubled(model["attention_windows"], phase)
    if model.get("positions") == "learned":
        # As many more as there are slots more: CLS slots before the text do not double.
        settings["model.max_positions"] = model["max_positions"] + max(0, length - sampling["seq_len"])
    if "num_predict" in sampling:
        settings["sampling.num_predict"] = sampling["num_predict"] * 2 ** phase
    if options.global_batch_size:
        settings["train.global_batch_size"] = options.global_batch_size[phase]
    return settings


def run(command):
    status = subprocess.run([str(word) for word in command]).returncode
    if status != 0:
        print(f"staged_windows.py: `{' '.join(map(str, command[:2]))}` ended with {status}; the same command goes on "
              "where this one stopped", file=sys.stderr)
        sys.exit(status)


def numbers(text):
    return [int(part) for part in text.split(",")]


def parse_options():
    parser = argparse.ArgumentParser(description="Longformer's staged windows")
    parser.add_argument("--anyorder", required=True)
    parser.add_argument("--config", required=True, type=Path)
    parser.add_argument("--output", required=True, type=Path)
    parser.add_argument("--steps", required=True, type=numbers)
    parser.add_argument("--global-batch-size", type=numbers)
    parser.add_argument("--max-length", type=int, default=2 ** 24)
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--set", action="append", default=[])
    options = parser.parse_args()
    if options.global_batch_size and len(options.global_batch_size) != len(options.steps):
        parser.error(f"--global-batch-size names {len(options.global_batch_size)} phases, --steps {len(options.steps)}; name as many")
    return options


def resolved(options):
    """The configuration's own values, with --set; only what phases change is looked at."""
    try:
        config = tomllib.loads(options.config.read_text(encoding="utf-8"))
    except (OSError, tomllib.TOMLDecodeError) as error:
        sys.exit(f"staged_windows.py: --config {options.config}: {error}")
    for assignment in options.set:
        key, _, value = assignment.partition("=")
        section, _, name = key.partition(".")
        try:
            parsed = tomllib.loads(f"x = {value}")["x"]
        except tomllib.TOMLDecodeError:
            parsed = value
        config.setdefault(section, {})[name] = parsed
    for section, name in (("sampling", "seq_len"), ("optimizer", "learning_rate")):
        if name not in config.get(section, {}):
            sys.exit(f"staged_windows.py: --config {options.config} has no {section}.{name}, which phases change; add it")
    return config


def main():
    options = parse_options()
    config = resolved(options)
    for phase in range(len(options.steps)):
        directory = options.output / f"phase-{phase + 1}"
        settings = phase_settings(config, phase, options)
        values = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
        given = [word for assignment in options.set for word in ("--set", assignment)]
        launch = [options.anyorder, "launch", "--run-dir", directory, "--ranks", options.ranks]
        print(f"phase {phase + 1}: " + ", ".join(f"{key} = {value}" for key, value in settings.items()), flush=True)
        if phase == 0:
            run([*launch, "--config", options.config, *given, *values])
            continue
        if not (directory / "config.toml").exists():
            run([options.anyorder, "import", "--format", "run", "--input", options.output / f"phase-{phase}",
                 "--output", directory, "--config", options.config, *given, *values])
        run(launch)


if __name__ == "__main__":
    main()
