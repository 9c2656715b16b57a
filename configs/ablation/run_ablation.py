#!/usr/bin/env python3
"""XLNet's ablation (Yang et al. 2019, table 6) on any text and tasks: pretrains the eight rows of this folder, fine-tunes each on every
task with several seeds, and prints the table, each number the median over seeds.

   run_ablation.py --anyorder PROGRAM --shards TEXT --output DIR [--task NAME=TRAINING,HELD-OUT[,HELD-OUT...]]... [--rows ROW,...]
                   [--seeds 1,2,3,4,5] [--steps N] [--finetune-steps N] [--ranks R] [--set SECTION.KEY=VALUE]...
                   [--finetune-set [NAME:]SECTION.KEY=VALUE]... [--tiny] [--dry-run]

Tasks are datasets that `anyorder prep --task` or `--examples` made by the vocabulary of TEXT; with several held-out ones, as MNLI's
matched and mismatched, a cell has a number for each. --set is for pretraining, --finetune-set for fine-tuning, of one task or of all.
The pretraining's seed is its file's; fine-tuning begins with the same weights for all seeds. Row 1, BERT-Base, is pretrained
here, too, and fine-tuned with the same settings as the other rows, but with BERT's head for SQuAD; the paper has the published model's
scores. What DIR has finished is not run again, so the same command goes on after a crash. --dry-run prints the commands that are left,
a line each, and writes nothing. --tiny: an eighth of every shape, to see that all of it runs.
"""

import argparse
import json
import shlex
import statistics
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
ROWS = {  # a file of this folder each, in the order of the paper
    "base-bert": "BERT-Base", "base-dae": "DAE + Transformer-XL", "base-k7": "XLNet-Base (K = 7)", "base-k6": "XLNet-Base (K = 6)",
    "base-no-memory": "- memory", "base-no-span": "- span-based pred", "base-no-bidirectional": "- bidirectional data",
    "base-next-sentence": "+ next-sent pred",
}
# RACE, SQuAD, MNLI (Yang et al. 2019, table of fine-tuning) and SST-2 (an author's numbers for
# XLNet-Large, zihangdai/xlnet issue 96) for whatever is of their kind.
CHOICES = {"sampling.seq_len": 512, "train.global_batch_size": 32, "train.steps": 12000, "optimizer.learning_rate": 2e-5}
SPANS = {"sampling.seq_len": 512, "train.global_batch_size": 48, "train.steps": 8000, "optimizer.learning_rate": 3e-5,
         "optimizer.layer_decay": 0.75}
TEXTS = {"sampling.seq_len": 128, "train.global_batch_size": 32, "train.steps": 10000, "optimizer.learning_rate": 2e-5}
OTHERS = {"sampling.seq_len": 128, "train.global_batch_size": 128, "train.steps": 10000, "optimizer.learning_rate": 3e-5}
PUBLISHED = {"multiple_choice": CHOICES, "span_extraction": SPANS, "classification": TEXTS}
# Without weight decay the released code has TensorFlow's Adam, which corrects the bias.
ALL_TASKS = {
    "model.mem_len": 0, "sampling.bidirectional": False, "optimizer.decay": "linear", "optimizer.min_learning_rate_ratio": 0.0,
    "optimizer.weight_decay": 0.0, "optimizer.adam_epsilon": 1e-6, "optimizer.bias_correction": True, "optimizer.max_grad_norm": 1.0,
    "checkpoint.every": 0,
}
TINY_MODEL = {"model.num_layers": 2, "model.model_dim": 64, "model.num_heads": 2, "model.head_dim": 32, "model.ffn_dim": 128,
              "model.dtype": "fp32"}
TINY_BATCH = {"train.global_batch_size": 8, "train.micro_batch_size": 1}


def stop(message):
    sys.exit(f"run_ablation.py: {message}")


def read_toml(path):
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, tomllib.TOMLDecodeError) as error:
        stop(f"{path}: {error}")


@dataclass
class Task:
    name: str
    training: Path
    held_out: list

    def __post_init__(self):
        path = self.training / "dataset.json"
        try:
            dataset = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError) as error:
            stop(f"--task {self.name}: {path}: {error}")
        if "examples" not in dataset:
            stop(f"--task {self.name}: {self.training} is plain text; name a dataset of `anyorder prep --examples` or `--task`")
        examples = dataset["examples"]
        self.kind = examples["task"]
        # 1, a score, where labels are no classes. Where examples have different numbers of choices
        # --finetune-set NAME:objective.num_classes=MOST names the most.
        self.num_classes = examples["num_parts"] // examples["num_examples"] - 1 if self.kind == "multiple_choice" \
            else len(examples["classes"]) or 1


class Commands:
    """Every command that is issued, and the settings that it is given."""

    def __init__(self, options):
        self.options = options

    def anyorder(self, *words):
        return [str(word) for word in (self.options.anyorder, *words)]

    def launch(self, run, config, settings, given):
        words = [word for key, value in settings.items() for word in ("--set", f"{key}={plain(value)}")]
        words += [word for assignment in given for word in ("--set", assignment)]
        return self.anyorder("launch", run, "--config", config, "--ranks", self.options.ranks, *words)

    def pretrain(self, row, run):
        config = read_toml(FOLDER / f"{row}.toml")
        settings = {"data.shards": self.options.shards}
        if self.options.tiny:
            sampling = config["sampling"]
            settings |= TINY_MODEL | TINY_BATCH | {
                "model.mem_len": config["model"]["mem_len"] // 8, "sampling.seq_len": 64, "sampling.reuse_len": 32,
                "sampling.num_predict": -(-sampling["num_predict"] // 8), "optimizer.warmup_steps": 0, "checkpoint.every": 0}
            settings |= {"sampling.perm_size": 32} if "perm_size" in sampling else {}
        if self.options.steps:
            settings["train.steps"] = self.options.steps
        return self.launch(run, FOLDER / f"{row}.toml", settings, self.options.set)

    def finetuning(self, task):
        """The settings of a task, whatever the row."""
        settings = ALL_TASKS | PUBLISHED.get(task.kind, OTHERS)
        settings |= {"objective.task": task.kind, "data.shards": task.training}
        if task.kind == "span_extraction":
            settings["objective.answer_class"] = True
        else:
            settings |= {"objective.num_classes": task.num_classes, "objective.pooler": True}
        if self.options.tiny:
            settings |= TINY_BATCH | {"sampling.seq_len": 64, "optimizer.learning_rate": 1e-3}
        if self.options.finetune_steps:
            settings["train.steps"] = self.options.finetune_steps
        # Eight microbatches, for up to eight ranks; the released scripts' warm-up.
        settings["train.micro_batch_size"] = max(1, settings["train.global_batch_size"] // 8)
        settings["optimizer.warmup_steps"] = min(1000, settings["train.steps"] // 10)
        return settings

    def finetune(self, row, task, seed, run, config):
        settings = {"objective.name": "bert_finetuning" if row == "base-bert" else "xlnet_finetuning"} | self.finetuning(task) | {
            "train.seed": seed, "train.init_from": self.options.output / row / "pretrained"}
        if row == "base-bert" and task.kind == "span_extraction":
            settings |= {"objective.span_head": "simple", "objective.answer_class": False}
        given = [value for name, value in self.options.finetune_set if name in (None, task.name)]
        return self.launch(run, config, settings, given)

    def score(self, task, run, held_out, predictions):
        """Two commands at most; the last one prints JSON."""
        if task.kind != "span_extraction":
            return [self.anyorder("eval", run, "--data", held_out, "--batches", 0, "--json")]
        return [self.anyorder("predict", run, "--data", held_out, "--output", predictions),
                self.anyorder("score", "--gold", held_out, "--predictions", predictions, "--json")]


def scores_of(task, report):
    """What a cell shows of the last command's report, in percent."""
    if task.kind == "span_extraction":
        metrics = report["results"][0]["metrics"]
        # SQuAD 2.0: by the thresholds that are best on the held-out data, as in the released code.
        return [metrics.get("best_f1", metrics["f1"]), metrics.get("best_exact", metrics["exact"])]
    return [100 * (report["scores"]["pearson"] if "scores" in report else report["task"]["accuracy"])]


def plain(value):
    """As `--set` and TOML want it; text without quotes."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def is_finished(run, steps):
    return (run / "checkpoints" / f"step-{steps:09d}").is_dir()


def steps_of(command):
    """The steps that a launch names last, else those of its configuration."""
    named = [word.partition("=")[2] for word in command if word.startswith("train.steps=")]
    if named:
        return int(named[-1])
    return read_toml(Path(command[command.index("--config") + 1]))["train"]["steps"]


class Ablation:
    def __init__(self, options):
        self.options = options
        self.commands = Commands(options)

    def run(self, command, output=None):
        if self.options.dry_run:
            print(shlex.join(command))
            return ""
        print(shlex.join(command), flush=True)
        done = subprocess.run(command, stdout=output, text=True)
        if done.returncode != 0:
            stop(f"`{shlex.join(command[:3])}` ended with {done.returncode}; the same command goes on where this one stopped")
        return done.stdout

    def pretrain(self, row):
        run = self.options.output / row / "pretrained"
        command = self.commands.pretrain(row, run)
        if not is_finished(run, steps_of(command)):
            self.run(command)
        return run

    def write_model(self, pretrained, path):
        """[model] as the pretraining had it, for fine-tuning runs, which differ from its file in every other section."""
        model = read_toml(pretrained / "config.toml")["model"]
        lines = [f"{key} = {json.dumps(value)}" for key, value in model.items()]
        path.write_text("\n".join(["[model]", *lines, ""]), encoding="utf-8")

    def finetune(self, row, task, seed):
        """Scores of one run: a list for each held-out dataset; [] of a dry run."""
        folder = self.options.output / row / task.name
        run, record = folder / f"seed-{seed}", folder / f"seed-{seed}.json"
        command = self.commands.finetune(row, task, seed, run, self.options.output / row / "model.toml")
        steps = steps_of(command)
        if record.exists():
            found = json.loads(record.read_text(encoding="utf-8"))
            if found["steps"] != steps:
                stop(f"{record} is of {found['steps']} steps, not of {steps}; name another --output")
            return found["scores"]
        if not is_finished(run, steps):
            self.run(command)
        scores = []
        for part, held_out in enumerate(task.held_out):
            for command in self.commands.score(task, run, held_out, folder / f"seed-{seed}-{part}.jsonl"):
                text = self.run(command, subprocess.PIPE)
            if text:
                scores.append(scores_of(task, json.loads(text)))
        if not self.options.dry_run:
            record.write_text(json.dumps({"row": row, "task": task.name, "seed": seed, "steps": steps, "scores": scores}) + "\n",
                              encoding="utf-8")
        return scores

    def row(self, row):
        """The cells of a row."""
        pretrained = self.pretrain(row)
        if self.options.task and not self.options.dry_run:
            self.write_model(pretrained, self.options.output / row / "model.toml")
        cells = []
        for task in self.options.task:
            seeds = [self.finetune(row, task, seed) for seed in self.options.seeds]
            flat = [[score for part in scores for score in part] for scores in seeds]
            cells.append("/".join(f"{statistics.median(column):.2f}" for column in zip(*flat)))
        return cells


def table(options, rows):
    heads = []
    for task in options.task:
        names = ["F1", "EM"] if task.kind == "span_extraction" else [""]
        parts = [path.name for path in task.held_out] if len(task.held_out) > 1 else [""]
        heads.append(" ".join([task.name, "/".join(f"{part} {name}".strip() for part in parts for name in names)]).strip())
    lines = [["Model", *heads], ["---"] * (1 + len(heads)), *([ROWS[row], *cells] for row, cells in rows.items())]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def parse_task(text):
    name, equals, paths = text.partition("=")
    training, *held_out = (Path(path) for path in paths.split(","))
    if not name or not equals or not held_out or "/" in name:
        raise argparse.ArgumentTypeError(f"'{text}' is not NAME=TRAINING,HELD-OUT")
    return Task(name, training, held_out)


def parse_rows(text):
    rows = text.split(",")
    for row in rows:
        if row not in ROWS:
            raise argparse.ArgumentTypeError(f"'{row}' is not one of {', '.join(ROWS)}")
    return rows


def parse_finetune_set(text):
    """(task or None, assignment)"""
    name, colon, assignment = text.partition(":")
    return (name, assignment) if colon and "=" not in name else (None, text)


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--anyorder", required=True)
    parser.add_argument("--shards", required=True, type=Path)
    parser.add_argument("--output", required=True, type=Path)
    parser.add_argument("--task", action="append", default=[], type=parse_task)
    parser.add_argument("--rows", type=parse_rows, default=list(ROWS))
    parser.add_argument("--seeds", type=lambda text: [int(seed) for seed in text.split(",")], default=[1, 2, 3, 4, 5])
    parser.add_argument("--steps", type=int)
    parser.add_argument("--finetune-steps", type=int)
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--set", action="append", default=[])
    parser.add_argument("--finetune-set", action="append", default=[], type=parse_finetune_set)
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--dry-run", action="store_true")
    options = parser.parse_args()
    names = [task.name for task in options.task]
    if len(set(names)) < len(names):
        parser.error("two --task have one name")
    for name, _ in options.finetune_set:
        if name is not None and name not in names:
            parser.error(f"--finetune-set {name}: no --task has this name")
    return options


def main():
    options = parse_options()
    ablation = Ablation(options)
    rows = {row: ablation.row(row) for row in options.rows}
    if options.task and not options.dry_run:
        print("\n" + table(options, rows))


if __name__ == "__main__":
    main()
