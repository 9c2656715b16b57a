"""A server of `serve --http` and what asks it; Python's standard library only."""
import http.client
import json
import re
import socket
import subprocess
import tempfile
import threading
import time
from pathlib import Path


def answers_of(program, run, requests, *options):
    """What `PROGRAM serve RUN --stdio` answers to these requests."""
    done = subprocess.run([program, "serve", run, "--stdio", *options], input="".join(json.dumps(request) + "\n" for request in requests),
                          capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def events_of(data):
    """What the events of a stream hold, which ends as it should."""
    assert data.endswith(b"data: [DONE]\n\n"), data[-200:]
    return [json.loads(event[6:]) for event in data.decode().split("\n\n")[:-2]]


def check_streams(server, noise, prompts, rounds=60, keeps_spaces=False):
    """The pieces of a stream are the plain text, whatever is asked; `keeps_spaces`: the tokenizer encodes all spaces of a prompt."""
    methods = server.expect("/v1/models")["data"][0]["methods"]
    texts = [""]
    for n in range(rounds):
        prompt = noise.choice(prompts) + noise.choice(["", "", " ", "  ", "\n"])
        # What such a model writes makes the best stop words: they come again.
        word = noise.choice(texts)
        begin = noise.randrange(len(word) + 1)
        body = {"prompt": prompt, "seed": noise.randrange(1 << 30), "temperature": noise.choice([0.5, 1, 3, 50]), "max_tokens": noise.randint(1, 16),
                "method": "left-to-right" if "left-to-right" in methods else methods[0], "echo": noise.random() < 0.5,
                "stop": [text for text in [word[begin:begin + noise.randint(1, 4)], noise.choice("aeio ")][:noise.randint(0, 2)] if text]}
        plain = server.expect("/v1/completions", body)["choices"][0]["text"]
        told = "".join(server.streamed("/v1/completions", body))
        assert told == plain, (body, told, plain)
        written = plain[len(prompt):] if body["echo"] else plain
        texts.append(written.replace("\ufffd", "").replace("\0", ""))
        if not keeps_spaces and (prompt == "" or prompt[-1].isspace()):
            again = server.expect("/v1/completions", {**body, "prompt": (prompt.strip() or "") , "echo": False, "stop": []})["choices"][0]["text"]
            whole = server.expect("/v1/completions", {**body, "echo": False, "stop": []})["choices"][0]["text"]
            # The model does not see the space at the end: it writes the same.
            assert whole == again.removeprefix(" ") or not prompt.strip() and whole == again, (body, whole, again)


def check_prompts(server, noise, prompts, rounds=20):
    """Scores of prompts, as texts and as tokens: for every token its part of the text, its place in characters and its probability."""
    model = server.expect("/v1/models")["data"][0]
    any_order = [method for method in model["methods"] if method != "left-to-right"]
    for n in range(rounds):
        is_text = n % 2 == 0
        method = any_order[0] if any_order and n % 4 < 2 else model["methods"][0]
        tokens = [noise.randrange(model["vocab_size"]) for _ in range(noise.randint(0, 8))]
        body = {"prompt": noise.choice(prompts) if is_text else [tokens], "echo": True, "method": method,
                "logprobs": noise.randint(0, 5 if method == "left-to-right" else 1), "max_tokens": noise.choice([0, 1, 4]),
                "temperature": noise.choice([0, 1, 50]), "top_p": noise.choice([0, 1])}
        answer = server.expect("/v1/completions", body)
        choice, = answer["choices"]
        found = choice["logprobs"]
        text, sizes = choice["text"], {len(found[key] or found["tokens"]) for key in ("tokens", "token_logprobs", "top_logprobs", "text_offset")}
        # One entry a token; the end token has one that `usage` does not count.
        read, written = answer["usage"]["prompt_tokens"], answer["usage"]["completion_tokens"]
        assert is_text or read == max(len(tokens), read if not tokens else 0), (body, answer)
        begin = read if found["token_logprobs"][:1] == [None] else 0
        assert begin == (read if body["prompt"] not in ("", [[]]) else 0) and 0 <= len(found["tokens"]) - begin - written <= 1, (body, answer)
        for i, (token, offset, log_prob) in enumerate(zip(found["tokens"], found["text_offset"], found["token_logprobs"])):
            assert "\ufffd" in token or text[offset:offset + len(token)] == token, (body, choice, i)
            assert (log_prob is None) <= (i == 0), (body, choice, i)
            if log_prob is None or body["logprobs"] == 0 or (i >= begin and method != "left-to-right"):
                continue
            top = found["top_logprobs"][i]
            assert top, (body, choice, i)
            best = sorted(top.values())[-body["logprobs"]:]
            assert log_prob <= 0 and top[token] >= log_prob and len(best) <= body["logprobs"] + 1 and top[token] <= best[-1], (body, choice, i)
            if i >= begin and (body["temperature"] == 0 or body["top_p"] == 0):
                # What is no text is never written, however likely it is.
                assert top[token] == best[-1] or max(top, key=top.get)[:1] == "<", (body, choice, i)


class Server:
    """`PROGRAM serve RUN --http` on a free port, for a `with` statement."""

    def __init__(self, program, *options, environment=None, run=None, address="127.0.0.1:0"):
        self.folder = tempfile.TemporaryDirectory(prefix="anyorder-serve-")
        self.command = [program, "serve", run or self.folder.name, "--http", address, *map(str, options)]
        self.environment = environment
        self.log = []
        self.is_ending = False

    def __enter__(self):
        self.process = subprocess.Popen(self.command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True, env=self.environment)
        for line in self.process.stderr:
            self.log.append(line)
            match = re.search(r" at http://(\S+):(\d+)/", line)
            if match:
                self.port = int(match.group(2))
                break
        else:
            raise AssertionError("the server did not start: " + "".join(self.log))
        self.model = Path(self.command[2]).name
        self.reader = threading.Thread(target=self._read_log, daemon=True)
        self.reader.start()
        return self

    def _read_log(self):
        # Not list.extend, during which other threads may not see what has come so far.
        for line in self.process.stderr:
            self.log.append(line)

    def end(self):
        """Asks the server to end, once: a second signal would end it at once, with another status."""
        if not self.is_ending:
            self.process.terminate()
        self.is_ending = True

    def __exit__(self, kind, *unused):
        self.end()
        status = self.process.wait(120)
        self.reader.join(10)
        self.folder.cleanup()
        if kind is None:
            assert status == 0, f"exit status {status}: {''.join(self.log)}"

    def request(self, method, path, body=None, headers=None, timeout=120):
        """Status, headers in lower case and body."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        try:
            data = None if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
            sent = {} if data is None else {"Content-Type": "application/json"}
            connection.request(method, path, data, {**sent, **(headers or {})})
            response = connection.getresponse()
            return response.status, {key.lower(): value for key, value in response.getheaders()}, response.read()
        finally:
            connection.close()

    def ask(self, path, body=None, headers=None):
        status, _, answer = self.request("GET" if body is None else "POST", path, body, headers)
        return status, json.loads(answer)

    def expect(self, path, body=None, headers=None):
        status, answer = self.ask(path, body, headers)
        assert status == 200, (status, answer)
        return answer

    def streamed(self, path, body):
        """The pieces of the first choice."""
        status, _, data = self.request("POST", path, {**body, "stream": True})
        assert status == 200, (status, data)
        return [event["choices"][0]["text"] for event in events_of(data)]

    def raw(self, data, pause=0, timeout=30):
        """What comes back for these bytes, of whatever is sent before the other side closes."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=timeout) as connection:
            try:
                if pause:
                    for byte in data:
                        connection.sendall(bytes([byte]))
                        time.sleep(pause)
                else:
                    connection.sendall(data)
                connection.shutdown(socket.SHUT_WR)
            except OSError:
                pass
            answer = b""
            try:
                while True:
                    part = connection.recv(65536)
                    if not part:
                        return answer
                    answer += part
            except OSError:
                return answer

    def resident_mib(self, key="VmRSS"):
        text = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(key + r":\s+(\d+)", text).group(1)) / 1024
