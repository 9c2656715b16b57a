"""Calls of `anyorder` that experiments with text files share: prep, launch, eval."""
import resource
import subprocess


def run(command, log):
    with open(log, "a", encoding="utf-8") as out:
        print("$", *command, file=out, flush=True)
        return subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, stderr=out, check=True, text=True).stdout


def settings(values):
    return [word for key, value in values.items() for word in ("--set", f"{key}={value}")]


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
        keys = {"data.shards": args.work / "train", "train.seed": seed, **values, **dict(one.split("=", 1) for one in args.set)}
        before = cpu_seconds()
        run([args.anyorder, "launch", run_dir, "--config", config, "--ranks", args.ranks, *settings(keys)],
            args.work / f"{run_dir.name}.log")
        (run_dir / "done").write_text(f"{(cpu_seconds() - before) / values['train.steps']:.4f}\n")
    return run_dir
