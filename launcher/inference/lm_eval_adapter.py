#!/usr/bin/env python3
"""A run as a model of EleutherAI's lm-evaluation-harness (the Python package lm_eval), computed by `anyorder serve RUN --stdio`.

   lm_eval_adapter.py --model_args run=RUN --tasks lambada_openai,hellaswag [any other option of lm_eval]

--model_args, key=value with commas between:
   run         run directory
   anyorder    the program (default: the one in this file's folder, else in PATH)
   samples     masks or orders that a bound of a probability is the mean of (default: 128)
   seed        of all that is drawn (default: 1)
   checkpoint  step (default: the last one)
   raw_weights true: not their average
   threads     of the CPU (default: all cores)
   max_gen_toks  tokens to write where the task does not say (default: 256)
How texts are written is for --gen_kwargs: method=llada,steps=64,block_length=32 and all that `serve` takes for "complete".

The choices of a question share their draws, so that their differences vary less; repeats of a question and other questions draw
anew. The context's trailing spaces count as the continuation's. What is too long for the model loses the beginning of its context;
a text whose probability is asked as a whole ("rolling") is scored in windows.
"""
import collections
import contextlib
import hashlib
import json
import math
import os
import queue
import shutil
import subprocess
import sys
import threading
import weakref
from pathlib import Path

try:
    from lm_eval.api.model import LM
    from lm_eval.api.registry import register_model
    from tqdm import tqdm
except ImportError as missing:
    if __name__ == "__main__":
        sys.exit(f"lm_eval_adapter.py: {missing}; it needs the Python package lm_eval: pip install lm_eval")
    raise

PATIENCE_S = 20  # for the program to end by itself
MOST_TOKENS, MOST_KIB = 1 << 20, 1 << 16  # what `serve` accepts of its limits at most
LINES_A_TEXT = 4  # lines in flight for each text that is computed at the same time: the next ones wait there already
LENGTH_KEYS = ("max_gen_toks", "max_new_tokens", "max_tokens", "max_completion_tokens")


class ServeError(RuntimeError):
    """One line that says what went wrong, where, and what to do next."""


def end(child):
    """It ends when its input does."""
    with contextlib.suppress(OSError):  # what it has not read is lost with it
        child.stdin.close()
    try:
        child.wait(PATIENCE_S)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()


def follow(stream, take):
    """Has `take` called, in a thread, with each line of `stream`, and with None at its end."""
    def read():
        with stream:
            for line in stream:
                take(line)
        take(None)
    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    return thread


class Server:
    """`anyorder serve --stdio`. Requests and answers are those of launcher/serve/README.md."""

    def __init__(self, command, in_flight):
        self.name, self.in_flight = " ".join(command[:3]), in_flight
        try:
            child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8",
                                     errors="replace")
        except OSError as error:
            raise ServeError(f"{command[0]}: {error.strerror}; build it, or say where it is: --model_args anyorder=PROGRAM") from error
        self.child, self.answers = child, queue.SimpleQueue()
        self.last_words = last_words = collections.deque(maxlen=1)

        def overhear(line):  # knows nothing of the server, which would else live as long as the thread
            if line is not None:
                sys.stderr.write(line)
                last_words.append(line.strip())
        self.close = weakref.finalize(self, end, child)  # when the last user is gone, at the latest when Python ends
        follow(child.stdout, self.answers.put)
        self.listener = follow(child.stderr, overhear)

    def ended(self):
        self.close()
        self.listener.join()
        words = f": {self.last_words[0]}" if self.last_words else ""
        return ServeError(f"'{self.name}' ended with status {self.child.returncode}{words}")

    def send(self, number, request):
        try:
            self.child.stdin.write(json.dumps({"id": number, **request}) + "\n")
            self.child.stdin.flush()
        except OSError:
            raise self.ended() from None

    def take(self, number, name):
        line = self.answers.get()
        if line is None:
            raise self.ended()
        try:
            answer = json.loads(line)
            if answer.pop("id") not in (number, None):  # null: of what it could not even read
                raise ValueError
        except (ValueError, KeyError, AttributeError, TypeError):
            self.close()
            raise ServeError(f"'{self.name}' wrote {line[:80]!r} as answer {number}; check that lm_eval_adapter.py and anyorder have the same version") from None
        if "error" in answer:
            self.close()  # answers to what was asked behind it would be mistaken for later ones
            raise ServeError(f"{name}: {answer['error']['message']}")
        return answer

    def ask(self, requests, names, progress=iter):
        """An answer a request, in their order, which is that of the program. `names` say what a request is, in errors."""
        waiting, sent = iter(enumerate(requests)), 0
        answers = []
        for number in progress(range(len(requests))):
            while sent < min(len(requests), number + self.in_flight):
                self.send(*next(waiting))
                sent += 1
            answers.append(self.take(number, names[number]))
        return answers


def program():
    beside = Path(__file__).resolve().with_name("anyorder")
    return str(beside) if beside.is_file() else shutil.which("anyorder") or "anyorder"


def numbered(*what):
    """A number for what is named: of 63 bits, the same everywhere, another for another name."""
    return int.from_bytes(hashlib.blake2b(json.dumps(what).encode(), digest_size=8).digest(), "little") >> 1


def questions(requests):
    """(task, document, repeat) of each. A repeat is the same request once more."""
    seen = collections.Counter()
    for request in requests:
        key = (request.task_name, request.doc_id, request.idx, repr(request.args))
        yield request.task_name, request.doc_id, seen[key]
        seen[key] += 1


def named(request):
    return f"{request.request_type} of task {request.task_name}, document {request.doc_id}, which begins {request.args[0][:40]!r}"


def split(context, continuation):
    """Trailing spaces begin the next word's token."""
    kept = context.rstrip()
    return kept, context[len(kept):] + continuation


def part(answer, key, kind, name):
    """Returns answer[key] after checking its type."""
    if not isinstance(answer.get(key), kind):
        raise ServeError(f"{name}: the answer has no {key!r}; check that lm_eval_adapter.py and anyorder have the same version")
    return answer[key]


def log_prob(answer, name):
    """Never infinite: a harness takes the mean of it."""
    if answer.get("log_prob", math.nan) is None:  # what `serve` says of a number that is not finite
        raise ServeError(f"{name}: its probability is no number, so weights are broken; 'anyorder inspect RUN --verify' checks them")
    return part(answer, "log_prob", float, name)


def written(options, max_gen_toks):
    """The keys of "complete" for the harness's options of writing."""
    options = dict(options)
    until = options.pop("until", None) or []
    lengths = [options.pop(key) for key in LENGTH_KEYS if key in options]
    temperature = options.pop("temperature", None)
    if not options.pop("do_sample", bool(temperature)):
        temperature = 0
    if options.get("num_beams") == 1:  # no search
        del options["num_beams"]
    return {"max_tokens": min(MOST_TOKENS, int((lengths or [max_gen_toks])[0])),
            "stop": [text for text in ([until] if isinstance(until, str) else until) if text],
            "temperature": 1 if temperature is None else temperature, **options}


@register_model("anyorder")
class AnyorderLM(LM):
    def __init__(self, run, anyorder=None, samples=128, seed=1, checkpoint=None, raw_weights=False, threads=None, max_gen_toks=256,
                 batch_size=None, max_batch_size=None, device=None):
        """Of the harness's own options, `batch_size` is a number or "auto"; `device` "cuda:0", its default, is a GPU if there is one;
        `max_batch_size` has no meaning."""
        super().__init__()
        self.samples, self.seed, self.max_gen_toks = samples, seed, max_gen_toks
        batch = int(batch_size) if str(batch_size).isdigit() else 8
        command = [str(anyorder or program()), "serve", str(run), "--stdio", "--max-batch", str(batch), "--max-tokens", str(MOST_TOKENS),
                   "--max-body", str(MOST_KIB)]
        options = {"--step": checkpoint, "--threads": threads, "--device": device and ("auto" if str(device).startswith("cuda") else device)}
        command += [word for key, value in options.items() if value is not None for word in (key, str(value))]
        self.server = Server(command + ["--raw-weights"] * bool(raw_weights), LINES_A_TEXT * batch)
        self.facts, = self.server.ask([{"op": "facts"}], [str(run)])

    def _results(self, method, requests, asked, result, disable_tqdm):
        """result(answer, name) of each request, as many as requests."""
        def progress(numbers):
            return tqdm(numbers, desc=f"Running {requests[0].request_type} requests", disable=disable_tqdm)
        names = [named(request) for request in requests]
        answers = self.server.ask(asked, names, progress) if requests else []
        results = [result(answer, name) for answer, name in zip(answers, names)]
        for request, one in zip(requests, results):
            self.cache_hook.add_partial(method, request.args, one)
        return results

    def _bound(self, question):
        return {"bound_samples": self.samples, "seed": numbered(self.seed, *question)}

    def loglikelihood(self, requests, disable_tqdm=False):
        asked = []
        for request, question in zip(requests, questions(requests)):
            context, continuation = split(*request.args)
            asked.append({"op": "score", "context": context, "continuation": continuation, "wants_greedy": True, "cut_context": True,
                          **self._bound(question)})
        return self._results("loglikelihood", requests, asked,
                             lambda answer, name: (log_prob(answer, name), part(answer, "is_greedy", bool, name)), disable_tqdm)

    def loglikelihood_rolling(self, requests, disable_tqdm=False):
        asked = [{"op": "rolling", "text": request.args[0], **self._bound(question)} for request, question in zip(requests, questions(requests))]
        return self._results("loglikelihood_rolling", requests, asked, log_prob, disable_tqdm)

    def generate_until(self, requests, disable_tqdm=False):
        asked = []
        for request, question in zip(requests, questions(requests)):
            context, options = request.args
            # One seed for all: those that differ in nothing but prompt and stream are computed
            # together.
            asked.append({"op": "complete", "prompt": context, "cut_context": True, "seed": self.seed, "first_stream": numbered(*question),
                          **written(options, self.max_gen_toks)})
        return self._results("generate_until", requests, asked,
                             lambda answer, name: part((answer.get("completions") or [{}])[0], "text", str, name), disable_tqdm)

    def apply_chat_template(self, chat_history, add_generation_prompt=True):
        """With a last message of the assistant's that is to be gone on with, if no prompt for one is added."""
        messages = [{"role": message["role"], "content": message["content"]} for message in chat_history]
        if add_generation_prompt:
            messages.append({"role": "assistant", "content": ""})
        answer, = self.server.ask([{"op": "render", "messages": messages}], ["--apply_chat_template"])
        return answer["prompt"] + messages[-1]["content"]

    def chat_template(self, chat_template=False):
        return self.facts["chat_template"]

    @property
    def tokenizer_name(self):
        """What the harness keys its cache of prompts by: they depend on nothing but the chat template."""
        return f"anyorder-{numbered(self.facts['chat_template'])}"

    def get_model_info(self):
        """For the harness's results."""
        return {key: self.facts[key] for key in ("run", "step", "objective", "can_score_exactly")} | {"samples": self.samples, "seed": self.seed}


def main():
    from lm_eval.__main__ import cli_evaluate
    sys.argv[1:1] = ["--model", "anyorder"]
    try:
        cli_evaluate()
    except ServeError as error:
        sys.exit(f"lm_eval_adapter.py: {error}")


if __name__ == "__main__":
    main()
