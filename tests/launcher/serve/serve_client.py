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

    def resident_mib(self):
        text = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(r"VmRSS:\s+(\d+)", text).group(1)) / 1024
