"""`serve` and `chat` as whole programs, with a service whose answers are known.

Usage: serve_test.py FAKE_SERVE CASE
  stdio    lines in, lines out, whatever the lines are
  http     every endpoint; who may ask; limits; the end by a signal
  openai   completions and conversations in OpenAI's form, whole and as events
  hostile  a thousand random and broken requests, after which the server answers as before
  busy     a full queue, answers that are too late, clients that leave
  load     32 clients for 3 seconds: no answer is lost
  chat     turns from a pipe
"""
import json
import os
import pty
import random
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import termios
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "bench"))
from serve_client import Server, events_of  # noqa: E402

PROGRAM = sys.argv[1]
TOKEN = "0123456789abcdef0123456789abcdef"
TEXT = "the ___ fox saw the ___ dog"


class Hold(tempfile.TemporaryDirectory):
    """Keeps the service from computing until `release`."""

    def __enter__(self):
        self.file = Path(super().__enter__()) / "hold"
        self.file.touch()
        self.environment = {**os.environ, "ANYORDER_FAKE_HOLD": str(self.file)}
        return self

    def await_begin(self):
        until(self.file.with_name("hold.begun").exists)

    def release(self):
        self.file.unlink()


def until(is_so):
    begin = time.monotonic()
    while not is_so():
        assert time.monotonic() - begin < 60, "it did not come to that in a minute"
        time.sleep(0.01)


def run(*words, text="", **options):
    return subprocess.run([PROGRAM, *map(str, words)], input=text, capture_output=True, text=True, timeout=120, **options)


def refuses(status, words, *command, **options):
    done = run(*command, **options)
    assert done.returncode == status and words in done.stderr and done.stderr.count("\n") == 1, (command, done)


def has_pending(pid, number):
    """Whether the process has not taken that signal yet."""
    text = Path(f"/proc/{pid}/status").read_text()
    return any(int(line.split()[1], 16) >> (number - 1) & 1 for line in text.splitlines() if line.startswith(("SigPnd", "ShdPnd")))


def check_lines_at_the_end(folder):
    """Each line that was read when the signal comes gets an answer, computed or not."""
    with Hold() as hold:
        process = subprocess.Popen([PROGRAM, "serve", folder, "--stdio", "--max-batch", "2"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=hold.environment)
        # In one piece, so that all are read before any is computed; the last line has no end yet.
        lines = [json.dumps({"id": n, "op": "complete", "prompt": f"a{n} b"}) for n in range(9)] + ["nonsense", '{"id": 10, "op":']
        process.stdin.write("\n".join(lines).encode())
        process.stdin.flush()
        hold.await_begin()
        process.send_signal(signal.SIGTERM)
        until(lambda: not has_pending(process.pid, signal.SIGTERM))
        hold.release()
        out = process.stdout.read()
        assert process.wait(60) == 0
        process.stdin.close()
    answers = [json.loads(line) for line in out.splitlines()]
    assert [answer["id"] for answer in answers] == [*range(9), None], answers
    assert [answer["completions"][0]["text"] for answer in answers[:2]] == [" b a0", " b a1"], answers
    # The signal may have come to the program a moment later.
    refused = [answer for answer in answers if "completions" not in answer]
    assert {answer["error"]["code"] for answer in refused} <= {"unavailable", "invalid_request"}, answers


def random_of_a_seed():
    """Random numbers that the printed seed gives again."""
    seed = int(os.environ.get("ANYORDER_TEST_SEED") or random.randrange(1 << 30))
    print("seed", seed, flush=True)
    return random.Random(seed)


def check_stdio(folder):
    lines = [{"id": n, "op": "complete", "prompt": f"a{n} b"} for n in range(20)]
    lines += [{"id": "f", "op": "fill", "text": TEXT}, {"id": 1.5, "op": "score", "continuation": "a b"}, {"op": "facts"}]
    text = [json.dumps(line) for line in lines]
    text[3:3] = ["", "nonsense", "[1]", '{"op": "fill"}', "x" * 3000, '{"id": 9, "op": "complete", "prompt": "a fault"}']
    done = run("serve", folder, "--stdio", "--max-body", 2, text="\n".join(text))
    assert done.returncode == 0 and "serving" in done.stderr, done
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(answers) == len(text) == 29
    codes = [(answer["id"], answer["error"]["code"]) for answer in answers if "error" in answer]
    assert codes == [(None, "invalid_request")] * 4 + [(None, "too_long"), (9, "invalid_request")], codes
    good = [answer for answer in answers if "error" not in answer]
    assert [answer["id"] for answer in good] == [*range(20), "f", 1.5, None]
    assert good[7]["completions"][0]["text"] == " b a7" and good[20]["alternatives"][0]["text"] == "the fill1 fox saw the fill2 dog"
    # A line is answered when it comes, before the next; a signal ends it.
    process = subprocess.Popen([PROGRAM, "serve", folder, "--stdio"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    for n in range(3):
        process.stdin.write(json.dumps({"id": n, "op": "tokens", "text": "a b"}) + "\n")
        process.stdin.flush()
        assert json.loads(process.stdout.readline()) == {"id": n, "tokens": 2}
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 0
    process.stdin.close()
    check_lines_at_the_end(folder)
    # Random bytes get a line each.
    noise = random_of_a_seed()
    data = [bytes(noise.choice(b'{}[]":,0123abcopfill\\\xff\x00 ') for _ in range(noise.randint(0, 80))) for _ in range(1000)]
    done = subprocess.run([PROGRAM, "serve", folder, "--stdio"], input=b"\n".join(data) + b"\n", capture_output=True, timeout=120)
    assert done.returncode == 0 and len(done.stdout.splitlines()) == 1000
    for line in done.stdout.splitlines():
        assert "error" in json.loads(line)
    refuses(64, "pass --stdio or --http [ADDRESS]", "serve", folder)
    refuses(64, "--http", "serve", folder, "--stdio", "--http")
    refuses(64, "--max-batch", "serve", folder, "--stdio", "--max-batch", 0)


def check_http(folder):
    token_file = folder / "token"
    token_file.write_text(TOKEN + "\n")
    token_file.chmod(0o644)
    refuses(65, f"other users may read or change this file; run: chmod 600 {token_file}", "serve", folder, "--http", "--token-file", token_file)
    token_file.chmod(0o600)
    for address, words in (("nonsense:x", "is no address"), ("0.0.0.0:0", "pass --token-file")):
        refuses(64, words, "serve", folder, "--http", address)
    refuses(64, "does not exist", "serve", folder, "--http", "--token-file", folder / "none")
    with Server(PROGRAM, "--max-body", 64) as server:
        busy = run("serve", folder, "--http", f"127.0.0.1:{server.port}")
        assert busy.returncode == 74 and "Address already in use; name another port" in busy.stderr, busy
        assert server.expect("/health") == {"status": "ok", "waiting": 0}
        model = server.expect("/v1/models")["data"][0]
        assert model["methods"] == ["left-to-right", "llada"] and model["seq_len"] == 64 and "run" not in model, model
        status, headers, page = server.request("GET", "/")
        assert status == 200 and b"___" in page and "default-src 'none'" in headers["content-security-policy"]
        filled = server.expect("/v1/infill", {"text": TEXT, "alternatives": 2, "show_written": True})
        assert [one["blanks"] for one in filled["alternatives"]] == [["fill1", "fill2"], ["fill1x", "fill2x"]]
        assert server.expect("/v1/score", {"continuation": "a b c"})["log_prob"] == -3
        rolling = server.expect("/v1/score", {"text": "w " * 100})
        assert rolling["log_prob"] == -100 and rolling["windows"] > 1, rolling
        check_http_refusals(server)
        assert not [line for line in server.log if "warning" in line], server.log
    check_token(token_file)
    check_names(folder)
    check_pages(folder, token_file)
    check_end()


def check_http_refusals(server):
    for path, body, status, key, words in (
            ("/v1/infill", {}, 400, "text", "is missing"),
            ("/v1/infill", {"text": TEXT, "op": "score"}, 400, "op", "the path says"),
            ("/v1/infill", {"text": "no blank"}, 400, None, "has no blank"),
            ("/v1/infill", b"{", 400, None, "not valid JSON (column 2:"),
            ("/v1/score", {"continuation": "a fault"}, 400, None, "the word fault"),
            ("/v1/nothing", {}, 404, None, "there is no such path"),
            ("/v1/infill", None, 405, None, "takes POST"),
            ("/health", {}, 405, None, "takes GET"),
            ("/v1/infill", b"x" * 70000, 413, None, "may have 65536"),
            ("/v1/infill", b"x" * 5000000, 413, None, "may have 65536")):
        got, answer = server.ask(path, body)
        assert got == status and answer["error"]["param"] == key and words in answer["error"]["message"], (path, body, got, answer)
    for headers, status in (({"Content-Type": "text/plain"}, 415), ({"Origin": "http://evil.example"}, 403), ({"Host": "evil.example"}, 421),
                            ({"Origin": f"http://127.0.0.1:{server.port}"}, 200)):
        got, answer = server.ask("/v1/infill", {"text": TEXT}, headers)
        assert got == status, (headers, got, answer)
    chunked = server.raw(b"POST /v1/infill HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n{\r\n0\r\n\r\n")
    assert chunked.startswith(b"HTTP/1.1 411 "), chunked


def check_names(folder):
    """The model has the run's name, however the run is written."""
    (folder / "runs/a").mkdir(parents=True)
    (folder / "link").symlink_to("runs/a")
    before = os.getcwd()
    os.chdir(folder / "runs/a")
    try:
        for path, name in ((f"{folder}/runs/a/", "a"), (f"{folder}/runs/a/.", "a"), (".", "a"), ("..", "runs"), (f"{folder}/link/", "link"), (f"{folder}/link/..", "runs")):
            with Server(PROGRAM, run=path) as server:
                assert server.expect("/v1/models")["data"][0]["id"] == name, path
                assert server.expect("/v1/completions", {"model": name, "prompt": "a"})["choices"][0]["text"] == " a"
    finally:
        os.chdir(before)


def check_pages(folder, token_file):
    """Pages of other origins; a proxy before the server, below a path."""
    for option, value, words in (("--cors", "app.example", "'app.example' is no SCHEME://HOST[:PORT]"), ("--cors", "https://app.example/x", "has a path"),
                                 ("--public-url", "models", "'models' is no SCHEME://HOST[:PORT]")):
        refuses(64, words, "serve", folder, "--http", option, value)
    with Server(PROGRAM, "--cors", "https://app.example", "--cors", "https://other.example", "--public-url", "https://models.example/llm/v1", "--token-file", token_file) as server:
        asked = {"Origin": "https://other.example", "Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization,x-stainless-os"}
        status, headers, data = server.request("OPTIONS", "/v1/completions", None, asked)
        assert status == 204 and data == b"" and headers["access-control-allow-origin"] == "https://other.example" and headers["vary"] == "Origin", (status, headers)
        assert headers["access-control-allow-methods"] == "GET, POST" and headers["access-control-allow-headers"] == "Authorization, *", headers
        assert server.request("OPTIONS", "/v1/completions", None, {**asked, "Origin": "https://evil.example"})[0] == 403
        bearer = {"Authorization": "bearer " + TOKEN}
        for origin, token, status in (("https://other.example", bearer, 200), ("https://other.example", {}, 401), ("https://models.example", bearer, 200), ("https://evil.example", bearer, 403)):
            got, headers, _ = server.request("POST", "/v1/completions", {"prompt": "a"}, {"Origin": origin, **token})
            assert got == status and headers.get("access-control-allow-origin") == (origin if "other" in origin else None), (origin, got, headers)
        # With the path and without it, by either name.
        for path, status in (("/llm/v1/models", 200), ("/v1/models", 200), ("/llm", 200), ("/llm/", 200), ("/llm/?a", 200), ("/llmv1/models", 404), ("/llm/llm/v1/models", 404)):
            for host in ("models.example", f"127.0.0.1:{server.port}"):
                got = server.request("GET", path, None, {**bearer, "Host": host})[0]
                assert got == status, (path, host, got)
        for method, path, allowed in (("DELETE", "/v1/models", "GET, HEAD"), ("GET", "/v1/infill", "POST"), ("HEAD", "/v1/infill", "POST")):
            got, headers, _ = server.request(method, path, None, bearer)
            assert got == 405 and headers["allow"] == allowed, (method, path, got, headers)
        for path in ("/", "/health", "/v1/models"):
            lengths = [server.request(method, path, None, bearer)[1]["content-length"] for method in ("HEAD", "GET")]
            assert lengths[0] == lengths[1] and server.request("HEAD", path, None, bearer)[2] == b"", (path, lengths)
    with Server(PROGRAM, "--cors", "*") as server:
        assert server.request("GET", "/v1/models", None, {"Origin": "https://any.example"})[1]["access-control-allow-origin"] == "*"


def check_token(token_file):
    with Server(PROGRAM, "--token-file", token_file, address="0.0.0.0:0") as server:
        bearer = {"Authorization": "Bearer " + TOKEN}
        status, headers, _ = server.request("GET", "/v1/models")
        assert status == 401 and headers["www-authenticate"] == "Bearer"
        assert server.ask("/v1/models", None, {"Authorization": "Bearer x" + TOKEN[1:]})[0] == 401
        assert server.ask("/v1/infill", {"text": TEXT})[0] == 401
        assert server.ask("/v1/infill", {"text": TEXT}, bearer)[0] == 200
        assert server.ask("/v1/models", None, {**bearer, "Host": "gpu7.example"})[0] == 200
        assert server.expect("/health") == {"status": "ok"} and server.request("GET", "/")[0] == 200
        assert server.expect("/health", headers=bearer) == {"status": "ok", "waiting": 0}


def check_end():
    """What is computed when the signal comes is answered; what waits is told."""
    with Hold() as hold, Server(PROGRAM, "--max-batch", 1, environment=hold.environment) as server, ThreadPoolExecutor() as pool:
        first = pool.submit(server.ask, "/v1/completions", {"prompt": "first"})
        hold.await_begin()
        second = pool.submit(server.ask, "/v1/completions", {"prompt": "second"})
        until(lambda: server.expect("/health")["waiting"] == 1)
        server.end()
        status, answer = second.result()
        assert status == 503 and "being stopped" in answer["error"]["message"], answer
        hold.release()
    status, answer = first.result()
    assert status == 200 and answer["choices"][0]["text"] == " first", answer
    assert any("asked to stop by SIGTERM" in line for line in server.log), server.log


def check_openai(_):
    with Server(PROGRAM) as server:
        answer = server.expect("/v1/completions", {"prompt": ["a b c", "d"], "n": 2, "max_tokens": 2, "temperature": 0, "logprobs": 1})
        assert [choice["text"] for choice in answer["choices"]] == [" c b", " b a", " d", ""], answer
        assert [choice["finish_reason"] for choice in answer["choices"]] == ["length", "stop", "stop", "stop"]
        assert answer["choices"][0]["logprobs"]["token_logprobs"] == [-0.5, -0.5] and answer["usage"]["total_tokens"] == 4 + 5
        assert answer["object"] == "text_completion" and answer["id"].startswith("cmpl-")
        echoed = server.expect("/v1/completions", {"prompt": ["a b", "c"], "n": 2, "echo": True})
        texts = ["a b b a", "a b a", "c c", "c"]
        for prompt, text in (("", ""), ("a ", "a"), (" ", "")):
            check_spaces(server, prompt, text)
        assert echoed["choices"] == [{"text": text, "index": n, "logprobs": None, "finish_reason": "stop"} for n, text in enumerate(texts)], echoed
        assert echoed["usage"] == {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}, echoed
        assert server.expect("/v1/completions", {"prompt": "a b c d", "stop": ["c", "b"]})["choices"][0]["text"] == " d "
        for body, status in (({"prompt": "a", "model": "other"}, 404), ({"prompt": "a", "suffix": "b"}, 400), ({"prompt": "a", "max_tokens": 5000}, 400)):
            assert server.ask("/v1/completions", body)[0] == status, body
        status, headers, data = server.request("POST", "/v1/completions", {"prompt": "a b c", "stream": True, "stream_options": {"include_usage": True}})
        assert status == 200 and headers["content-type"] == "text/event-stream", headers
        events = events_of(data)
        assert [event["choices"][0]["text"] for event in events[:-1]] == [" c", " b", " a", ""]
        assert events[-1]["usage"]["completion_tokens"] == 3 and events[-2]["choices"][0]["finish_reason"] == "stop"
        check_scored(server)
        check_conversations(server)
        check_models(server)
        # Too many prompts are refused before there is a request of each.
        status, answer = server.ask("/v1/completions", {"prompt": [[]] * 250000})
        assert status == 400 and "has 250000 texts but may have" in answer["error"]["message"], answer
        assert server.resident_mib("VmHWM") < 250, server.resident_mib("VmHWM")
        # What goes wrong before anything is told has a status of its own.
        status, _, data = server.request("POST", "/v1/completions", {"prompt": "a fault", "stream": True})
        assert status == 400 and "the word fault" in json.loads(data)["error"]["message"]


def check_spaces(server, prompt, text):
    """A space that the prompt ends with is not written once more, whole or in pieces."""
    assert server.expect("/v1/completions", {"prompt": prompt})["choices"][0]["text"] == text
    assert "".join(server.streamed("/v1/completions", {"prompt": prompt})) == text


def check_scored(server):
    """What lm-evaluation-harness asks of local-completions (lm_eval/models/openai_completions.py), and how it reads the answers."""
    asked = {"model": server.model, "prompt": [[5, 6, 7], [8, 9]], "temperature": 0, "max_tokens": 1, "logprobs": 1, "seed": 1234, "echo": True}
    answer = server.expect("/v1/completions", asked, {"Authorization": "Bearer "})
    assert [choice["text"] for choice in answer["choices"]] == ["t5 t6 t7 t7", "t8 t9 t9"], answer
    for choice, context, number in zip(answer["choices"], (1, 1), (2, 1)):
        found = choice["logprobs"]
        assert found["token_logprobs"][0] is None and found["top_logprobs"][0] is None, found
        assert found["token_logprobs"][context:-1] == [-0.5] * number, found
        assert [max(top.values()) for top in found["top_logprobs"][context:-1]] == [-0.25] * number, found
        assert [choice["text"][offset:offset + len(token)] for offset, token in zip(found["text_offset"], found["tokens"])] == found["tokens"], found
    # Scores alone.
    for body in ({**asked, "max_tokens": 0}, {**asked, "max_tokens": 0, "prompt": "caf\u00e9 au lait", "logprobs": 5}):
        choice = server.expect("/v1/completions", body)["choices"][0]
        assert choice["finish_reason"] == "length" and "".join(choice["logprobs"]["tokens"]) == choice["text"], choice
    assert choice["logprobs"]["text_offset"] == [0, 4, 7] and choice["logprobs"]["top_logprobs"][1] == {" other": -0.25, " au": -0.5}, choice
    assert server.expect("/v1/completions", {"prompt": "a", "max_tokens": 0})["choices"][0]["text"] == ""
    # Texts to write.
    until = {"prompt": [[5, 6, 7]], "model": server.model, "max_tokens": 256, "temperature": 0, "stop": ["t6", "\n\n", "Question:", "</s>", "<|im_end|>"],
             "seed": 1234, "top_p": 0, "num_beams": 1}
    assert server.expect("/v1/completions", until)["choices"][0]["text"] == " t7 "


def check_conversations(server):
    """As the client openai asks; the answers are the prompt's words backwards."""
    asked = {"messages": [{"role": "user", "content": "one two"}], "model": server.model}
    headers = {"Accept": "application/json", "Authorization": "Bearer none", "User-Agent": "OpenAI/Python 3.57.0", "X-Stainless-Lang": "python",
               "X-Stainless-Async": "false", "x-stainless-retry-count": "0", "x-stainless-read-timeout": "600"}
    answer = server.expect("/v1/chat/completions", {**asked, "n": 2}, headers)
    assert answer["object"] == "chat.completion" and answer["id"].startswith("chatcmpl-"), answer
    assert answer["choices"][0] == {"message": {"content": "<|im_start|>assistant two", "role": "assistant"}, "index": 0, "logprobs": None,
                                    "finish_reason": "stop"}, answer
    assert answer["usage"] == {"prompt_tokens": 4, "completion_tokens": 3, "total_tokens": 7}, answer
    status, _, data = server.request("POST", "/v1/chat/completions", {**asked, "n": 2, "stream": True, "stream_options": {"include_usage": True}}, headers)
    *events, usage = events_of(data)
    assert status == 200 and usage["choices"] == [] and usage["usage"] == answer["usage"], usage
    for n in range(2):
        deltas = [event["choices"][0] for event in events if event["choices"][0]["index"] == n]
        assert [delta["delta"].get("role") for delta in deltas] == ["assistant"] + [None] * (len(deltas) - 1), deltas
        assert "".join(delta["delta"]["content"] for delta in deltas) == answer["choices"][n]["message"]["content"], deltas
        assert deltas[-1]["finish_reason"] == "stop" and events[0]["object"] == "chat.completion.chunk", deltas
    for body, status, param in (({}, 400, "messages"), ({**asked, "model": "gpt-4"}, 404, None), ({**asked, "tools": [{"type": "function"}]}, 400, "tools")):
        got, fault = server.ask("/v1/chat/completions", body)
        assert got == status and fault["error"]["param"] == param, (body, got, fault)
    with Server(PROGRAM, environment={**os.environ, "ANYORDER_FAKE_NO_TEMPLATE": "1"}) as other:
        got, fault = other.ask("/v1/chat/completions", {"messages": asked["messages"]})
        assert got == 422 and "pass --chat-template" in fault["error"]["message"], fault
    with Server(PROGRAM, "--chat-template", "{role}:{content} ", environment={**os.environ, "ANYORDER_FAKE_NO_TEMPLATE": "1"}) as other:
        answer = other.expect("/v1/chat/completions", {"messages": asked["messages"]})
        assert answer["choices"][0]["message"]["content"] == "assistant: two user:one", answer


def check_models(server):
    model, = server.expect("/v1/models")["data"]
    assert server.expect("/v1/models/" + server.model) == model and model["object"] == "model", model
    for name in ("gpt-4", "", server.model + "x", "a" * 9000, "(" * 2000):
        status, answer = server.ask("/v1/models/" + name)
        assert status in (404, 414) and answer["error"], (name[:20], status, answer)
    assert server.ask("/v1/models/" + server.model, {})[0] == 405


def random_request(noise, port):
    """Bytes that are not, or not quite, a request."""
    def word(letters, most):
        return bytes(noise.choice(letters) for _ in range(noise.randint(0, most)))
    any_bytes = bytes(range(256))
    method = noise.choice([b"POST"] * 20 + [b"GET"] * 3 + [ b"HEAD", b"PUT", b"DELETE", b"OPTIONS", b"TRACE", b"PRI", b"CONNECT", b"get", word(any_bytes, 9)])
    path = noise.choice([b"/v1/completions", b"/v1/infill", b"/v1/score"] * 8 + [b"/", b"/health", b"/v1/models", b"*", b"//", b"/..%2f..", b"/%", b"/?a=%zz&b", b"/" + word(any_bytes, 40), b"/" + b"a" * 9000])
    version = noise.choice([b"HTTP/1.1"] * 6 + [b"HTTP/1.0", b"HTTP/9.9", b"HTTP", b"", word(any_bytes, 9)])
    values = {"prompt": "a b", "text": TEXT, "continuation": "a", "max_tokens": 3, "n": 1, "stream": True, "stop": ["x"], "temperature": 1, "logprobs": 1, "seed": 5}
    odd = [None, True, -1, 0, 1.5, 1e308, 10 ** 30, "", "\x00", "\ud800", "a" * 3000, [], [[]], {}, {"a": {}}, [1, "a"]]
    kind = noise.randrange(5)
    if kind == 0:
        body = word(any_bytes, 200)
    elif kind == 1:
        body = b"[" * noise.randint(1, 50000)
    else:
        chosen = {key: values[key] for key in values if noise.random() < 0.5}
        for _ in range(noise.randint(0, 2)):
            chosen[noise.choice([*values, "steps", "method", "top_p", "op", "id", "zzz"])] = noise.choice(odd)
        body = json.dumps(chosen).encode()
        if kind == 4:
            body = bytearray(body)
            for _ in range(noise.randint(1, 4)):
                body[noise.randrange(len(body))] = noise.randrange(256)
            body = bytes(body)
    length = noise.choice([str(len(body)).encode()] * 8 + [b"-1", b"0", b"1", b"99999999999999999999999", b"1e3", b"", b"1000000"])
    headers = [b"Host: " + noise.choice([b"localhost"] * 9 + [b"evil.example"]), b"Content-Type: " + noise.choice([b"application/json"] * 8 + [b"text/plain", b"multipart/form-data; boundary=x", b"application/x-www-form-urlencoded"]), b"Content-Length: " + length]
    headers += noise.sample([b"Accept: */*"] * 9 + [b"Transfer-Encoding: chunked", b"Range: bytes=" + b"0-," * noise.randint(1, 2500), b"Expect: 100-continue", b"Connection: keep-alive", b"Content-Encoding: gzip",
                             b"Content-Length: 7", b"Authorization: " + word(any_bytes, 50), b"X: " + b"y" * noise.choice([10, 9000, 40000]), b"no colon", b": no name", b"Origin: null",
                             word(any_bytes, 60), b"Accept-Encoding: gzip, br"] + [b"H%d: x" % i for i in range(3)], noise.choice([0, 0, 0, 1, 2, 5]))
    noise.shuffle(headers)
    end = noise.choice([b"\r\n"] * 9 + [b"\n", b"\r"])
    data = method + b" " + path + b" " + version + end + end.join(headers) + end + end + body
    if noise.random() < 0.1:
        data = data[:noise.randrange(len(data))]
    return word(any_bytes, 400) if noise.random() < 0.05 else data


def check_hostile(_):
    noise = random_of_a_seed()
    with Server(PROGRAM, "--max-body", 64) as server:
        statuses = {}
        for n in range(1000):
            data = random_request(noise, server.port)
            answer = server.raw(data)
            assert server.process.poll() is None, f"request {n} ended the server: {data[:300]}"
            if answer.startswith(b"HTTP/1.1 100 "):
                answer = answer.split(b"\r\n\r\n", 1)[1]
            line = answer.split(b"\r\n")[0]
            assert not answer or line.startswith(b"HTTP/1.1 "), (n, line)
            status = int(line.split()[1]) if answer else 0
            assert status != 500, (n, data[:500], answer[:500])
            statuses[status] = statuses.get(status, 0) + 1
        print(statuses)
        assert len(statuses) > 6 and statuses.get(400, 0) > 100 and statuses.get(200, 0) > 0, statuses
        # Heads without end, slow heads, many ranges, requests one behind the other.
        begin = b"POST /v1/infill HTTP/1.1\r\nHost: localhost\r\n"
        for data in (b"A" * 10000000, begin + b"X: y\r\n" * 300000, begin + b"X: " + b"y" * 5000000):
            answer = server.raw(data)
            assert not answer or answer.split()[1] in (b"400", b"414"), answer[:100]
        body = json.dumps({"text": TEXT}).encode()
        good = begin + b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body
        assert server.raw(good * 2).count(b"HTTP/1.1 200 OK") == 1
        many = server.raw(b"GET / HTTP/1.1\r\nHost: localhost\r\nRange: bytes=" + b"0-," * 2600 + b"0-\r\n\r\n")
        assert len(many) < 100000, len(many)
        # Where this head ends depends on the version of the library.
        assert server.raw(b"GET /health HTTP/1.1\nHost: localhost\r\nX: y\n\r\n").startswith(b"HTTP/1.1 200")
        # Connections that say little keep nobody else from being answered.
        idle = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(60)]
        for connection in idle[::2]:
            connection.sendall(begin)
        assert server.expect("/v1/infill", {"text": TEXT})["alternatives"][0]["blanks"] == ["fill1", "fill2"]
        for connection in idle:
            connection.close()
        assert server.raw(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n", pause=0.002).startswith(b"HTTP/1.1 200")
        assert server.resident_mib() < 400, server.resident_mib()
        assert server.expect("/health")["waiting"] == 0
        # What the library parses by recursion.
        begin = b"GET /health HTTP/1.1\r\n"
        long = b"1" * 8100
        for data in (begin + b"Range: bytes=" + long + b"-\r\n", begin + b"rAnge:bytes=" + b"0-," * 2600 + b"0-\r\n", begin + b"Range : " + long + b"\r\n",
                     begin + b"Content-Disposition: form-data; name=" + long + b"\r\n", begin + b"Accept: " + b"a/b;q=0.1," * 800 + b"\r\n",
                     b"GET /" + b"a" * 8100 + b" HTTP/1.1\r\n", b"GET /v1/models/" + b"a" * 8000 + b" HTTP/1.1\r\n", b"POST /v1/infill HTTP/1.1\r\nContent-Type: multipart/form-data; boundary=" + long + b"\r\n"):
            answer = server.raw(data + b"Host: localhost\r\nContent-Length: 0\r\n\r\n")
            assert answer.split()[1] in (b"200", b"404", b"415") and server.process.poll() is None, (data[:60], answer[:100])


def fill_queue(server, hold):
    """One is computed and two wait: others are refused at once."""
    def ask(prompt):
        status, headers, answer = server.request("POST", "/v1/completions", {"prompt": prompt})
        return status, headers, json.loads(answer)
    with ThreadPoolExecutor() as pool:
        taken = [pool.submit(ask, "p0")]
        hold.await_begin()
        taken += [pool.submit(ask, prompt) for prompt in ("p1", "p2")]
        until(lambda: server.expect("/health")["waiting"] == 2)
        for n in range(3):
            status, headers, answer = ask(f"more{n}")
            assert status == 429 and headers["retry-after"] == "1" and answer["error"]["code"] == "queue_full", (status, headers, answer)
        hold.release()
    assert [one.result()[0] for one in taken] == [200] * 3, taken


def http_post(path, body, version="1.1"):
    data = json.dumps(body).encode()
    head = f"POST {path} HTTP/{version}\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n"
    return head.encode() + data


def check_half_closed():
    """A client that has said all, and ends its sending, gets its answer."""
    for version in ("1.1", "1.0"):
        for streams in (False, True):
            with Hold() as hold, Server(PROGRAM, environment=hold.environment) as server, socket.create_connection(("127.0.0.1", server.port)) as connection:
                connection.sendall(http_post("/v1/completions", {"prompt": "a b", "stream": streams}, version))
                connection.shutdown(socket.SHUT_WR)
                hold.await_begin()
                if version == "1.1":
                    # The server asks the connection whether there is still somebody, once.
                    interim = b"HTTP/1.1 100 Continue\r\n\r\n"
                    assert connection.recv(len(interim), socket.MSG_WAITALL) == interim
                hold.release()
                answer = connection.makefile("rb").read()
                assert answer.startswith(b"HTTP/1.1 200 OK\r\n") and b'"text":" b' in answer and b" a" in answer, answer
                head, body = answer.split(b"\r\n\r\n", 1)
                # HTTP/1.0 has no chunks: there the closed connection ends the stream.
                assert (b"transfer-encoding: chunked" in head.lower()) == (streams and version == "1.1"), answer
                if streams and version == "1.1":
                    assert body.endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n"), answer
                elif streams:
                    assert b"content-length" not in head.lower() and [event["choices"][0]["text"] for event in events_of(body)] == [" b", " a", ""], answer


def check_left():
    """Clients that leave free their places at once, also those that read a stream."""
    with Hold() as hold, Server(PROGRAM, "--max-batch", 1, "--max-queue", 2, environment=hold.environment) as server:
        def begin(body):
            connection = socket.create_connection(("127.0.0.1", server.port))
            connection.sendall(http_post("/v1/completions", body))
            return connection
        running = begin({"prompt": "running"})
        hold.await_begin()
        for streams in (False, True):
            gone = [begin({"prompt": "gone", "stream": streams}) for _ in range(2)]
            until(lambda: server.expect("/health")["waiting"] == 2)
            for connection in gone:
                connection.close()
            # While the first is still being computed.
            until(lambda: server.expect("/health")["waiting"] == 0)
        running.close()
        hold.release()
        assert server.expect("/v1/completions", {"prompt": "a"})["choices"][0]["text"] == " a"


def check_interim():
    """Who asks whether to send the body is told to; a body that does not come then is refused."""
    interim = b"HTTP/1.1 100 Continue\r\n\r\n"
    whole = http_post("/v1/completions", {"prompt": "a b"}).replace(b"\r\n\r\n", b"\r\nExpect: 100-continue\r\n\r\n", 1)
    with Server(PROGRAM) as server:
        for body, status in ((whole, b"200 OK"), (whole[:-3], b"400 Bad Request")):
            with socket.create_connection(("127.0.0.1", server.port)) as connection:
                head = body.index(b"{")
                connection.sendall(body[:head])
                assert connection.recv(len(interim), socket.MSG_WAITALL) == interim
                connection.sendall(body[head:])
                connection.shutdown(socket.SHUT_WR)
                answer = connection.makefile("rb").read().removeprefix(interim)
                assert answer.startswith(b"HTTP/1.1 " + status), answer


def check_places():
    """What a server lacks shows at its start."""
    limit = (64, 64)
    refuses(74, "may open 64 files, but a server of", "serve", "run", "--http", "127.0.0.1:0",
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, limit))
    refuses(64, "set TMPDIR to one that is there", "serve", "run", "--http", "127.0.0.1:0", env={**os.environ, "TMPDIR": "/gone"})


def check_late():
    """Who has waited for too long is told so, while the request is still being computed."""
    with Hold() as hold, Server(PROGRAM, "--max-batch", 1, "--max-wait", 1, environment=hold.environment) as server:
        status, answer = server.ask("/v1/completions", {"prompt": "late"})
        hold.release()
        assert status == 504 and answer["error"]["code"] == "deadline_exceeded", (status, answer)


def check_busy(_):
    check_places()
    check_interim()
    check_half_closed()
    with Hold() as hold, Server(PROGRAM, "--max-batch", 1, "--max-queue", 2, environment=hold.environment) as server:
        fill_queue(server, hold)
    check_left()
    check_late()


def check_load(_):
    from serve_load import load
    figures = load(PROGRAM, 3, 32, 16, options=("--max-queue", 16), environment={**os.environ, "ANYORDER_FAKE_MS": "5"})
    print(figures)
    assert figures["lost"] == 0 and figures["fewest_of_a_client"] > 0 and figures["answered"] >= 32, figures


def read_all(terminal):
    data = b""
    while True:
        try:
            part = os.read(terminal, 4096)
        except OSError:  # nobody has the other side open any more
            return data
        if not part:
            return data
        data += part


def talk(command, typed, types, reads):
    """What is printed of what is typed, on a terminal that does not show it or through a pipe, each way."""
    own, other = pty.openpty()
    attributes = termios.tcgetattr(other)
    attributes[3] &= ~termios.ECHO
    termios.tcsetattr(other, termios.TCSANOW, attributes)
    process = subprocess.Popen([PROGRAM, *map(str, command)], stdin=other if types else subprocess.PIPE,
                               stdout=other if reads else subprocess.PIPE, stderr=subprocess.DEVNULL)
    os.close(other)
    if types:
        os.write(own, typed)
    else:
        process.stdin.write(typed)
        process.stdin.close()
    shown = read_all(own) if reads else process.stdout.read()
    assert process.wait(60) == 0
    os.close(own)
    return shown


def check_chat_terminals(command):
    """On a terminal what the model writes is no command; prompts are for people who type and read."""
    words = "a\x1b[31mb\rc\x9bd\u202ee\x07f"
    as_written = subprocess.run([PROGRAM, *map(str, command)], input=words.encode() + b"\n", capture_output=True, timeout=120).stdout
    assert as_written == f"assistant: user:{words}\n".encode(), as_written
    shown = talk(command, words.encode() + b"\n", types=False, reads=True).decode()
    assert shown == "assistant: user:a\u241b[31mb\u240dc\ufffdd\ufffde\u2407f\r\n", shown
    assert talk(command, b"one\n/quit\n", types=True, reads=False) == b"assistant: user:one\n"
    shown = talk(command, b"one\n/quit\n", types=True, reads=True)
    assert b"/quit ends it." in shown and b"> assistant: user:one\r\n> \r\n" in shown, shown


def check_chat(folder):
    refuses(64, "is neither llada, chatml", "serve", folder, "--http", "127.0.0.1:0", "--chat-template", "nonsense")
    # The answers are the prompt's words backwards, up to what closes a message.
    done = run("chat", folder, "--system", "S", text="one two\n\n/reset\nthree\n/quit\nfour\n")
    assert done.returncode == 0 and done.stderr == "", done
    assert done.stdout == "<|im_start|>assistant two\n<|im_start|>assistant three\n", done.stdout
    plain = ("chat", folder, "--chat-template", "{role}:{content} ")
    assert run(*plain, text="one\ntwo\n").stdout == "assistant: user:one\nassistant: user:two user:one assistant:assistant: user:one\n"
    assert run(*plain, text="one\n/reset\ntwo\n").stdout == "assistant: user:one\nassistant: user:two\n"
    file = folder / "template"
    file.write_text("{role} {content} STOP\\n\n")
    done = run("chat", folder, "--chat-template", file, text="one two\nthree\n")
    assert done.stdout == "assistant \nassistant \n", done.stdout
    check_chat_terminals(plain)
    long = run(*plain, "--max-tokens", 8, text="w " * 30 + "\n" + "w " * 30 + "\n")
    assert long.returncode == 0 and "1 turn forgotten" in long.stderr, long
    refuses(64, "is neither llada, chatml", "chat", folder, "--chat-template", "nonsense")
    refuses(64, "--method", "chat", folder, "--method", "nonsense")
    refuses(65, "no chat template is known", "chat", folder, env={**os.environ, "ANYORDER_FAKE_NO_TEMPLATE": "1"})
    fault = run("chat", folder, text="a fault\nmore\n")
    assert fault.returncode == 64 and "the word fault" in fault.stderr and fault.stdout == "", fault


def main():
    case = sys.argv[2]
    with tempfile.TemporaryDirectory(prefix="anyorder-serve-") as folder:
        globals()["check_" + case](Path(folder))


if __name__ == "__main__":
    main()
