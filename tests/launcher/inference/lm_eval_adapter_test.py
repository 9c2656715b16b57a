#!/usr/bin/env python3
"""launcher/inference/lm_eval_adapter.py with stand-ins for lm_eval and for `anyorder serve --stdio`: what is asked, in which order
answers come back, what is said of failures, and when the program ends. The harness itself: tests/parity/harness_parity.py."""
import contextlib
import gc
import io
import json
import os
import random
import subprocess
import sys
import tempfile
import types
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
ADAPTER = Path(__file__).resolve().parents[3] / "launcher/inference/lm_eval_adapter.py"
HARNESS = {
    "lm_eval/__init__.py": "", "lm_eval/api/__init__.py": "",
    "lm_eval/api/registry.py": """
known = {}
def register_model(name):
    return lambda kind: known.setdefault(name, kind)
""",
    "lm_eval/api/model.py": """
class Hook:
    def __init__(self):
        self.kept = []
    def add_partial(self, *what):
        self.kept.append(what)
class LM:
    def __init__(self):
        self.cache_hook = Hook()
""",
    "lm_eval/__main__.py": """
import sys
from lm_eval.api.registry import known
def cli_evaluate():
    words = dict(zip(sys.argv[1::2], sys.argv[2::2]))
    model = known[words["--model"]](**dict(word.split("=") for word in words["--model_args"].split(",")))
    print("evaluates", words["--tasks"], "at step", model.get_model_info()["step"])
""",
    "tqdm.py": "def tqdm(numbers, desc, disable): return numbers\n",
}
# Answers with what it was asked, in batches as the real one; MODE says what it does wrong.
PROGRAM = """#!%s
import json, os, select, sys
mode, log = os.environ.get("MODE", ""), open(os.environ["ASKED"], "a")
print("serving", *sys.argv[1:], file=sys.stderr, flush=True)
if mode == "refuse":
    print("anyorder serve: 'nowhere' is not a run directory", file=sys.stderr)
    sys.exit(64)
def answer(asked):
    if asked["op"] == "facts":
        return {"run": sys.argv[2], "step": 7, "objective": "fake", "can_score_exactly": False, "chat_template": "chatml"}
    if mode == "fault" and asked.get("continuation") == " bad":
        return {"error": {"code": "invalid_request", "message": "it has 70 tokens; shorten it"}}
    if mode == "nan":
        return {"log_prob": None, "is_greedy": False}
    if mode == "less" and asked["op"] in ("score", "rolling", "complete"):
        return {"score": {"op": asked["op"], "log_prob": -1.0}, "rolling": {"log_prob": "-1"}, "complete": {"completions": []}}[asked["op"]]
    if mode == "die" and asked.get("continuation") == " bad":
        print("anyorder serve: the disk is full", file=sys.stderr)
        sys.exit(74)
    if asked["op"] == "complete":
        return {"completions": [{"text": asked["prompt"][::-1]}]}
    if asked["op"] == "render":
        return {"prompt": "".join(f"<{m['role']}>{m['content'] if m is not asked['messages'][-1] else ''}" for m in asked["messages"])}
    text = asked.get("text", asked.get("continuation"))
    return {"log_prob": -float(len(text)), "is_greedy": len(text) %% 2 == 0, "echo": text}
for line in sys.stdin:
    asked = json.loads(line)
    log.write(line)
    log.flush()
    if mode == "babble" and asked["op"] != "facts":
        print("hello", flush=True)
    else:
        print(json.dumps({"id": asked["id"] + (mode == "shift" and asked["op"] != "facts"), **answer(asked)}), flush=True)
print("ended", file=log)
"""


class AdapterTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory()
        cls.folder = Path(cls.scratch.name)
        for name, text in HARNESS.items():
            (cls.folder / name).parent.mkdir(parents=True, exist_ok=True)
            (cls.folder / name).write_text(text)
        cls.program = cls.folder / "anyorder"
        cls.program.write_text(PROGRAM % sys.executable)
        cls.program.chmod(0o755)
        sys.path[:0] = [str(cls.folder), str(ADAPTER.parent)]
        import lm_eval_adapter
        cls.adapter = lm_eval_adapter

    @classmethod
    def tearDownClass(cls):
        cls.scratch.cleanup()

    def setUp(self):
        self.log = self.folder / self.id()
        os.environ.update(ASKED=str(self.log), MODE="")
        self.said = io.StringIO()  # the program's log
        self.enterContext(contextlib.redirect_stderr(self.said))

    def asked(self):
        return [json.loads(line) for line in self.log.read_text().splitlines() if line.startswith("{")]

    def model(self, mode="", **options):
        os.environ["MODE"] = mode
        return self.adapter.AnyorderLM("runs/a", anyorder=self.program, **options)

    def request(self, kind, *args, task="quiz", doc=0, idx=0):
        return types.SimpleNamespace(request_type=kind, args=args, task_name=task, doc_id=doc, idx=idx)

    def score(self, context, continuation, **where):
        return self.request("loglikelihood", context, continuation, **where)

    def test_answers_come_in_order_however_many_are_in_flight(self):
        for batch in (1, 3, "auto", "64"):
            rng = random.Random(str(batch))
            requests = [self.score("c" * rng.randint(0, 9), " " + "w" * rng.randint(1, 50), doc=i) for i in range(101)]
            found = self.model(batch_size=batch).loglikelihood(requests)
            self.assertEqual(found, [(-float(len(r.args[1])), len(r.args[1]) % 2 == 0) for r in requests])
        self.assertEqual(self.model().loglikelihood([]), [])

    def test_so_many_lines_are_in_flight(self):
        model, waiting, most = self.model(batch_size=3), 0, 0
        send, take = model.server.send, model.server.take

        def sent(*what):
            nonlocal waiting, most
            waiting, most = waiting + 1, max(most, waiting + 1)
            send(*what)

        def taken(*what):
            nonlocal waiting
            waiting -= 1
            return take(*what)
        model.server.send, model.server.take = sent, taken
        model.loglikelihood([self.score("a", " b", doc=i) for i in range(40)])
        self.assertEqual((most, waiting), (3 * self.adapter.LINES_A_TEXT, 0))

    def test_long_lines_block_neither_side(self):
        texts = [chr(97 + i) * 300_000 for i in range(12)]
        found = self.model(batch_size=8).generate_until([self.request("generate_until", text, {}, doc=i) for i, text in enumerate(texts)])
        self.assertEqual(found, texts)  # of one letter each, so backwards the same

    def test_trailing_spaces_of_the_context_are_the_continuations(self):
        self.model().loglikelihood([self.score("a b \n", "c", doc=0), self.score("a", " c", doc=1), self.score("  ", "c", doc=2)])
        self.assertEqual([(a["context"], a["continuation"]) for a in self.asked()[1:]], [("a b", " \nc"), ("a", " c"), ("", "  c")])
        self.assertTrue(all(a["wants_greedy"] and a["cut_context"] for a in self.asked()[1:]))

    def test_choices_share_draws_and_repeats_do_not(self):
        choices = [self.score("q", f" {i}", doc=4, idx=i) for i in range(3)]
        repeated = [r for r in choices for _ in range(2)]
        others = [self.score("q", " 0", doc=5), self.score("q", " 0", doc=4, task="other")]
        self.model(samples=9, seed=3).loglikelihood(repeated + others)
        first = self.asked()[1:]
        seeds = [a["seed"] for a in first]
        self.assertEqual(seeds[:6], [seeds[0], seeds[1]] * 3)
        self.assertEqual(len(set(seeds)), 4)
        self.assertTrue(all(0 <= seed < 2**63 for seed in seeds))
        self.assertEqual({a["bound_samples"] for a in first}, {9})
        self.log.unlink()
        self.model(seed=4).loglikelihood(repeated)
        self.assertFalse({a["seed"] for a in self.asked()[1:]} & set(seeds))
        self.log.unlink()
        self.model(samples=9, seed=3).loglikelihood(repeated + others)
        self.assertEqual(self.asked()[1:], first)

    def test_rolling_gives_numbers(self):
        model = self.model()
        requests = [self.request("loglikelihood_rolling", "some text", doc=i) for i in (0, 0, 1)]
        self.assertEqual(model.loglikelihood_rolling(requests), [-9.0] * 3)
        self.assertEqual(len({a["seed"] for a in self.asked()[1:]}), 3)
        self.assertEqual(model.cache_hook.kept, [("loglikelihood_rolling", ("some text",), -9.0)] * 3)

    def test_options_of_writing(self):
        cases = [({}, {"max_tokens": 256, "stop": [], "temperature": 0}),
                 ({"until": "\n"}, {"stop": ["\n"]}),
                 ({"until": ["a", "", "b"], "max_gen_toks": 5}, {"stop": ["a", "b"], "max_tokens": 5}),
                 ({"until": None, "max_new_tokens": 6}, {"stop": [], "max_tokens": 6}),
                 ({"do_sample": False, "temperature": 0.7}, {"temperature": 0}),
                 ({"temperature": 0.7}, {"temperature": 0.7}),
                 ({"do_sample": True}, {"temperature": 1}),
                 ({"do_sample": True, "temperature": 0.2, "top_p": 0.9}, {"temperature": 0.2, "top_p": 0.9}),
                 ({"method": "dream", "steps": 8, "num_beams": 1, "seed": 5}, {"method": "dream", "steps": 8, "seed": 5}),
                 ({"num_beams": 4}, {"num_beams": 4}),  # which is refused there
                 ({"max_gen_toks": 10**9}, {"max_tokens": 1 << 20})]
        texts = self.model(seed=2).generate_until([self.request("generate_until", f"abc{i}", options, doc=i) for i, (options, _) in enumerate(cases)])
        self.assertEqual(texts, [f"{i}"[::-1] + "cba" for i in range(len(cases))])
        asked = self.asked()[1:]
        plain = {"op": "complete", "cut_context": True, "max_tokens": 256, "stop": [], "temperature": 0, "seed": 2}
        for number, (one, (options, wanted)) in enumerate(zip(asked, cases)):
            self.assertEqual(one, {**plain, "prompt": f"abc{number}", "id": number, "first_stream": one["first_stream"], **wanted}, options)
        self.assertEqual(len({one["first_stream"] for one in asked}), len(cases))
        self.assertEqual(cases[1][0], {"until": "\n"})  # the task's own options stay
        self.model(max_gen_toks=3).generate_until([self.request("generate_until", "", {})])
        self.assertEqual(self.asked()[-1]["max_tokens"], 3)

    def test_conversations(self):
        model = self.model()
        turns = [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}]
        self.assertEqual(model.apply_chat_template(turns), "<system>s<user>u<assistant>")
        begun = turns + [{"role": "assistant", "content": "Well"}]
        self.assertEqual(model.apply_chat_template(begun, add_generation_prompt=False), "<system>s<user>u<assistant>Well")
        self.assertEqual(model.chat_template(True), "chatml")
        self.assertRegex(model.tokenizer_name, r"^anyorder-\d+$")

    def test_the_command(self):
        self.model(checkpoint=30, raw_weights=True, threads=2, device="cuda:0", batch_size=4, max_batch_size=None).server.ended()
        self.assertEqual(self.said.getvalue().split("\n")[0], "serving serve runs/a --stdio --max-batch 4 --max-tokens 1048576 --max-body 65536"
                         " --step 30 --threads 2 --device auto --raw-weights")

    def test_failures_say_what_and_where(self):
        requests = [self.score("Which one", " good", doc=i) for i in range(3)] + [self.score("Which one", " bad", doc=8)]
        failures = {
            "fault": "loglikelihood of task quiz, document 8, which begins 'Which one': it has 70 tokens; shorten it",
            "die": r"'\S+anyorder serve runs/a' ended with status 74: anyorder serve: the disk is full",
            "nan": "document 0, which begins 'Which one': its probability is no number",
            "less": "document 0, which begins 'Which one': the answer has no 'is_greedy'; check that lm_eval_adapter.py and anyorder have the same version",
            "babble": r"anyorder serve runs/a' wrote 'hello\\n' as answer 0; check that lm_eval_adapter.py and anyorder have the same version",
            "shift": "as answer 0; check that lm_eval_adapter.py and anyorder"}
        for mode, text in failures.items():
            with self.subTest(mode), self.assertRaisesRegex(self.adapter.ServeError, text):
                self.model(mode).loglikelihood(requests)
        rolling, written = self.request("loglikelihood_rolling", "text", doc=2), self.request("generate_until", "text", {}, doc=3)
        for mode, text in (("nan", "document 2, .*: its probability is no number"), ("less", "document 2, .*: the answer has no 'log_prob'")):
            with self.subTest(mode), self.assertRaisesRegex(self.adapter.ServeError, text):
                self.model(mode).loglikelihood_rolling([rolling])
        with self.assertRaisesRegex(self.adapter.ServeError, "document 3, which begins 'text': the answer has no 'text'"):
            self.model("less").generate_until([written])
        with self.assertRaisesRegex(self.adapter.ServeError, "ended with status 64: anyorder serve: 'nowhere' is not a run directory"):
            self.model("refuse")
        with self.assertRaisesRegex(self.adapter.ServeError, r"nothing/here: No such file or directory; build it, or say where it is"):
            self.adapter.AnyorderLM("runs/a", anyorder="nothing/here")
        with self.assertRaisesRegex(TypeError, "sampels"):
            self.model(sampels=3)

    def test_the_program_ends_with_its_last_user(self):
        model = self.model()
        child = model.server.child
        self.assertIsNone(child.poll())
        del model
        gc.collect()
        self.assertEqual(child.returncode, 0)
        self.assertEqual(self.log.read_text().splitlines()[-1], "ended")

    def start(self, *words, path=None):
        return subprocess.run([sys.executable, ADAPTER, *words], capture_output=True, text=True,
                              env={**os.environ, "PYTHONPATH": str(self.folder if path is None else path)})

    def test_started_as_a_program(self):
        arguments = ("--model_args", f"run=runs/b,anyorder={self.program}", "--tasks", "quiz")
        done = self.start(*arguments)
        self.assertEqual((done.returncode, done.stdout), (0, "evaluates quiz at step 7\n"), done.stderr)
        self.assertEqual(self.log.read_text().splitlines()[-1], "ended")
        os.environ["MODE"] = "refuse"
        failed = self.start(*arguments)
        self.assertEqual(failed.returncode, 1)
        self.assertRegex(failed.stderr.splitlines()[-1], "^lm_eval_adapter.py: '.*' ended with status 64: .* is not a run directory$")
        alone = self.start(path=self.folder / "nothing")
        self.assertEqual((alone.returncode, alone.stderr.count("\n")), (1, 1))
        self.assertIn("it needs the Python package lm_eval: pip install lm_eval", alone.stderr)


if __name__ == "__main__":
    unittest.main()
