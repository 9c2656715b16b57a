"""What experiments with text files share: their command line, calls of `anyorder` (prep, launch, eval), and the table of seeds.
"args" are those of the command line."""
import argparse
import json
import resource
import statistics
import subprocess
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[3]


def command_line(doc, trains=True):
    """A parser with the options of all experiments: the program, where to work, the seeds, and keys of every run that it trains."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--anyorder", required=True)
    parser.add_argument("--work", required=True, type=Path)
    parser.add_argument("--seeds", default="1,2,3")
    if trains:
        parser.add_argument("--set", action="append", default=[], help="SECTION.KEY=VALUE of every run")
    return parser


def parsed(parser):
    """The arguments, with the seeds as a list and an existing directory to work in."""
    args = parser.parse_args()
    args.seeds = [int(seed) for seed in args.seeds.split(",")]
    args.work.mkdir(parents=True, exist_ok=True)
    return args


def run(command, log):
    """What the command prints. What it says besides is added to `log`."""
    with open(log, "a", encoding="utf-8") as out:
        print("$", *command, file=out, flush=True)
        done = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, stderr=out, text=True)
    if done.returncode != 0:
        said = Path(log).read_text(encoding="utf-8")
        raise SystemExit(f"'{' '.join(map(str, command))}' ended with {done.returncode}: {said[-2000:]}")
    return done.stdout


def settings(values):
    return [word for key, value in values.items() for word in ("--set", f"{key}={value}")]


def prepare(args, *options):
    """The datasets train and held-out in args.work, with one vocabulary, which is made of the training text."""
    for name, path, more in (("train", args.text, ["--vocab-size", args.vocab_size]),
                             ("held-out", args.held_out, ["--vocab", args.work / "train" / "spiece.model"])):
        if not (args.work / name / "dataset.json").exists():
            run([args.anyorder, "prep", "--input", path, "--output", args.work / name, *more, *options], args.work / "prep.log")


def cpu_seconds():
    """Of all programs that were started and have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def train(args, config, name, seed, values, fixed={}):
    """The run directory, of a configuration with these keys. --set changes `values`, but not `fixed`. Its file `done` holds the CPU
    seconds of a step."""
    run_dir = args.work / f"{name.replace(',', '').replace(' ', '-')}-{seed}"
    if not (run_dir / "done").exists():
        given = dict(one.split("=", 1) for one in args.set)
        keys = {"data.shards": args.work / "train", "train.seed": seed, "checkpoint.every": 0, **values, **given, **fixed}
        before = cpu_seconds()
        run([args.anyorder, "launch", run_dir, "--config", SOURCE / "configs" / config, "--ranks", 1, *settings(keys)], log_of(run_dir))
        (run_dir / "done").write_text(f"{(cpu_seconds() - before) / int(keys['train.steps']):.4f}\n")
    return run_dir


def log_of(run_dir):
    return run_dir.with_name(f"{run_dir.name}.log")


def evaluate(args, run_dir, data, values, *options):
    """The report on a dataset in args.work."""
    return json.loads(run([args.anyorder, "eval", run_dir, "--data", args.work / data, "--json", *options, *settings(values)],
                          log_of(run_dir)))


def kept(path, make):
    """What is in the JSON file, which make() makes once."""
    if not path.exists():
        path.write_text(json.dumps(make()), encoding="utf-8")
    return json.loads(path.read_text(encoding="utf-8"))


def metrics_of(run_dir):
    """The lines of metrics.jsonl, one a step."""
    return [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]


def print_header(what, args):
    """The head of a table with medians, whose first columns are `what`."""
    print(f"| {what} | median | {' | '.join(f'seed {seed}' for seed in args.seeds)} |")
    print("|---" * (what.count("|") + 2 + len(args.seeds)) + "|", flush=True)


def print_row(what, values, digits=3):
    """`values`: a number of each seed."""
    print("|", " | ".join([what, *(f"{value:.{digits}f}" for value in [statistics.median(values), *values])]), "|", flush=True)


def print_seeds(what, args, rows):
    """A table of {name: a number of each seed}."""
    print_header(what, args)
    for name, values in rows.items():
        print_row(name, values)
