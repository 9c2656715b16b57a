"""What experiments with text files share: their command line, calls of `anyorder` (prep, launch, eval), and the table of seeds."""
import argparse
import resource
import statistics
import subprocess
from pathlib import Path


def command_line(doc):
    """A parser with the options of all experiments: the program, where to work, the seeds, and keys of every run."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--anyorder", required=True)
    parser.add_argument("--work", required=True, type=Path)
    parser.add_argument("--seeds", default="1,2,3")
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--set", action="append", default=[], help="SECTION.KEY=VALUE of every run")
    return parser


def parsed(parser):
    """The arguments, with the seeds as a list and an existing directory to work in."""
    args = parser.parse_args()
    args.seeds = [int(seed) for seed in args.seeds.split(",")]
    args.work.mkdir(parents=True, exist_ok=True)
    return args


def run(command, log):
    with open(log, "a", encoding="utf-8") as out:
        print("$", *command, file=out, flush=True)
        return subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, stderr=out, check=True, text=True).stdout


def settings(values):
    return [word for key, value in values.items() for word in ("--set", f"{key}={value}")]


def overrides(args):
    """The keys of --set."""
    return dict(one.split("=", 1) for one in args.set)


def prepare(args):
    """The datasets train and held-out in args.work, with one vocabulary, which is made of the training text."""
    for name, path, more in (("train", args.text, ["--vocab-size", args.vocab_size]),
                             ("held-out", args.held_out, ["--vocab", args.work / "train" / "spiece.model"])):
        if not (args.work / name / "dataset.json").exists():
            run([args.anyorder, "prep", "--input", path, "--output", args.work / name, *more], args.work / "prep.log")


def cpu_seconds():
    """Of all programs that were started and have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def train(args, config, name, seed, values):
    """The run directory. Its file `done` holds the CPU seconds of a step."""
    run_dir = args.work / f"{name.replace(',', '').replace(' ', '-')}-{seed}"
    if not (run_dir / "done").exists():
        keys = {"data.shards": args.work / "train", "train.seed": seed, **values, **overrides(args)}
        before = cpu_seconds()
        run([args.anyorder, "launch", run_dir, "--config", config, "--ranks", args.ranks, *settings(keys)],
            args.work / f"{run_dir.name}.log")
        (run_dir / "done").write_text(f"{(cpu_seconds() - before) / values['train.steps']:.4f}\n")
    return run_dir


def print_seeds(what, args, rows):
    """A table of {name: a number of each seed}, with the medians."""
    print(f"| {what} | median | {' | '.join(f'seed {seed}' for seed in args.seeds)} |")
    print("|---|---|" + "---|" * len(args.seeds))
    for name, values in rows.items():
        print(f"| {name} | {statistics.median(values):.3f} | {' | '.join(f'{value:.3f}' for value in values)} |")
