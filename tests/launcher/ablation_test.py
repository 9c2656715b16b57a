#!/usr/bin/env python3
"""configs/ablation/run_ablation.py with a stand-in for anyorder that notes what it is asked and scores by seed: which commands are
issued, that none is issued twice, and the table. Real runs of the rows: objectives.sh, case ablations."""
import json
import os
import re
import subprocess
import sys
import tempfile
import tomllib
import unittest
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[2] / "configs/ablation"
SCRIPT = FOLDER / "run_ablation.py"
STAND_IN = """#!%s -IS
import json, os, pathlib, sys
command, run, *words = sys.argv[1:]
with open(os.environ["CALLS"], "a") as file:
    file.write(json.dumps(sys.argv[1:]) + "\\n")
if os.environ.get("FAILS_AT") and os.environ["FAILS_AT"] in run:
    sys.exit(75)
if command == "launch":
    config = words[words.index("--config") + 1]
    text = open(config).read()
    steps = [word.split("=")[1] for word in words if word.startswith("train.steps=")][-1]
    (pathlib.Path(run) / "checkpoints" / f"step-{int(steps):%s}").mkdir(parents=True)
    (pathlib.Path(run) / "config.toml").write_text(text)
elif command == "eval":
    seed = int(run.rsplit("-", 1)[1])
    harder = "mismatched" in words[words.index("--data") + 1]
    print(json.dumps({"task": {"accuracy": [0, 0.7, 0.9, 0.81][seed] - 0.1 * harder}}))
elif command == "score":
    metrics = {"exact": 60.0, "f1": 70.5}
    if words[0].endswith("dev2"):
        metrics |= {"best_exact": 61.0, "best_f1": 71.5}
    print(json.dumps({"results": [{"metrics": metrics}]}))
""" % (sys.executable, "09d")


class AblationTest(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = Path(temporary.name)
        self.output, self.calls_file = self.folder / "out", self.folder / "calls"
        self.program = self.folder / "anyorder"
        self.program.write_text(STAND_IN)
        self.program.chmod(0o755)
        self.dataset("mnli", "entailment", ["contradiction", "entailment", "neutral"])
        self.dataset("race", "multiple_choice", [], parts=5)
        self.dataset("squad", "span_extraction", [], parts=2)
        self.dataset("stsb", "similarity", [], parts=2)
        self.dataset("sst2", "classification", ["0", "1"], parts=1)
        (self.folder / "text").mkdir()
        (self.folder / "text/dataset.json").write_text('{"settings": {}}')
        self.mnli = ["--task", f"mnli={self.folder}/mnli,{self.folder}/matched,{self.folder}/mismatched"]

    def dataset(self, name, task, classes, parts=2):
        (self.folder / name).mkdir()
        examples = {"task": task, "classes": classes, "num_examples": 10, "num_parts": 10 * parts}
        (self.folder / name / "dataset.json").write_text(json.dumps({"examples": examples, "settings": {"task": name}}))

    def ablation(self, *words, fails=False, fails_at=""):
        self.calls_file.write_text("")
        done = subprocess.run([sys.executable, SCRIPT, "--anyorder", self.program, "--shards", self.folder / "text",
                               "--output", self.output, *map(str, words)], capture_output=True, text=True,
                              env={**os.environ, "CALLS": str(self.calls_file), "FAILS_AT": fails_at})
        self.assertEqual(done.returncode != 0, fails or bool(fails_at), (words, done.stderr))
        self.calls = [json.loads(line) for line in self.calls_file.read_text().splitlines()]
        return done

    def settings(self, call):
        return dict(word.split("=", 1) for before, word in zip(call, call[1:]) if before == "--set")

    def test_every_row_is_a_file_and_every_file_a_row(self):
        done = self.ablation("--dry-run")
        named = re.findall(r"--config \S+/(\S+)\.toml", done.stdout)
        self.assertEqual(sorted(named), sorted(path.stem for path in FOLDER.glob("*.toml")))
        self.assertEqual(len(named), 8)

    def test_a_dry_run_prints_what_a_run_issues_and_writes_nothing(self):
        options = ["--rows", "base-dae,base-no-memory", "--seeds", "1,2", "--steps", 7, "--finetune-steps", 5, *self.mnli]
        dry = self.ablation(*options, "--dry-run")
        self.assertEqual(self.calls, [])
        self.assertFalse(self.output.exists())
        # Of each row: pretraining, and with each seed fine-tuning and two scores.
        self.assertEqual(len(dry.stdout.splitlines()), 2 * (1 + 2 * 3))
        self.ablation(*options)
        self.assertEqual([" ".join(call) for call in self.calls],
                         [line.split(" ", 1)[1] for line in dry.stdout.splitlines()])

    def test_the_table_has_medians_and_nothing_is_run_twice(self):
        options = ["--rows", "base-k6,base-bert", "--seeds", "1,2,3", "--steps", 7, "--finetune-steps", 5, *self.mnli,
                   "--task", f"squad={self.folder}/squad,{self.folder}/dev,{self.folder}/dev2"]
        first = self.ablation(*options)
        rows = [line for line in first.stdout.splitlines() if line.startswith("|")]
        self.assertEqual(rows, ["| Model | mnli matched/mismatched | squad dev F1/dev EM/dev2 F1/dev2 EM |", "| --- | --- | --- |",
                                "| XLNet-Base (K = 6) | 81.00/71.00 | 70.50/60.00/71.50/61.00 |",
                                "| BERT-Base | 81.00/71.00 | 70.50/60.00/71.50/61.00 |"])
        again = self.ablation(*options)
        self.assertEqual(self.calls, [])
        self.assertEqual([line for line in again.stdout.splitlines() if line.startswith("|")], rows)
        # What was trained and not scored is scored; what was neither is both.
        (self.output / "base-k6/mnli/seed-2.json").unlink()
        self.ablation(*options)
        self.assertEqual([call[0] for call in self.calls], ["eval", "eval"])
        other = self.ablation(*options, "--finetune-steps", 6, fails=True)
        self.assertIn("is of 5 steps, not of 6; name another --output", other.stderr)

    def test_a_failure_stops_it_and_the_same_command_goes_on(self):
        options = ["--rows", "base-k7", "--seeds", "1,2", "--steps", 7, "--finetune-steps", 5, *self.mnli]
        stopped = self.ablation(*options, fails_at="mnli/seed-2")
        self.assertIn("ended with 75; the same command goes on", stopped.stderr)
        self.assertNotIn("|", stopped.stdout)
        self.ablation(*options)
        self.assertEqual([(call[0], "seed-2" in call[1]) for call in self.calls], [("launch", True), ("eval", True), ("eval", True)])

    def test_fine_tuning_begins_with_the_rows_weights_and_its_network(self):
        names = ("race", "squad", "stsb", "sst2")
        tasks = [word for name in names for word in ("--task", f"{name}={self.folder}/{name},{self.folder}/dev")]
        done = self.ablation("--rows", "base-no-span,base-bert", "--seeds", "4", "--steps", 7, "--set", "train.seed=9", *self.mnli, *tasks,
                             "--finetune-set", "race:train.steps=40", "--finetune-set", "cpu.threads=1", "--dry-run")
        launches = [line.split() for line in done.stdout.splitlines() if " launch " in line]
        found = {tuple(Path(call[2]).parts[-3:]): self.settings(call) for call in launches}
        self.assertEqual(self.settings(launches[0])["train.seed"], "9")
        for row, objective in (("base-no-span", "xlnet_finetuning"), ("base-bert", "bert_finetuning")):
            expected = {"mnli": ("entailment", "3"), "race": ("multiple_choice", "4"), "squad": ("span_extraction", None),
                        "stsb": ("similarity", "1"), "sst2": ("classification", "2")}
            for name, (kind, classes) in expected.items():
                settings = found[(row, name, "seed-4")]
                self.assertEqual((settings["objective.name"], settings["objective.task"], settings.get("objective.num_classes")),
                                 (objective, kind, classes))
                self.assertEqual(settings["train.init_from"], str(self.output / row / "pretrained"))
                self.assertEqual((settings["train.seed"], settings["model.mem_len"], settings["cpu.threads"]), ("4", "0", "1"))
                self.assertEqual(settings["train.steps"], {"race": "40", "squad": "8000"}.get(name, "10000"))
                self.assertEqual(settings["train.global_batch_size"], {"race": "32", "squad": "48", "sst2": "32"}.get(name, "128"))
                self.assertEqual(settings["optimizer.bias_correction"], "true")

    def test_fine_tunings_model_is_the_pretrained_one(self):
        self.ablation("--rows", "base-bert", "--seeds", "1", "--steps", 7, "--finetune-steps", 5, *self.mnli)
        model = tomllib.loads((self.output / "base-bert/model.toml").read_text())
        self.assertEqual(model, {"model": tomllib.loads((FOLDER / "base-bert.toml").read_text())["model"]})

    def test_what_cannot_be_run_is_refused(self):
        for words, reason in [(["--rows", "base-k5"], "'base-k5' is not one of base-bert"),
                              (["--task", "a=b"], "'a=b' is not NAME=TRAINING,HELD-OUT"),
                              (["--task", f"a={self.folder}/text,b"], "is plain text"),
                              (["--task", f"a={self.folder}/none,b"], "none/dataset.json: "),
                              ([*self.mnli, *self.mnli], "two --task have one name"),
                              (["--finetune-set", "race:a.b=1"], "--finetune-set race: no --task")]:
            self.assertIn(reason, self.ablation(*words, fails=True).stderr)
            self.assertEqual(self.calls, [])


if __name__ == "__main__":
    unittest.main()
