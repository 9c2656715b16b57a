"""Clients that ask a server at the same time; each answer must be the right one, and none may be lost.

Usage: serve_load.py PROGRAM [--run RUN] [--clients 1,8,32] [--seconds 20] [--tokens 64]
PROGRAM is `anyorder`, with --run, or the tests' `fake_serve`. Each client streams one text after the
other, of 1 to --tokens tokens at most. Prints a JSON line for each number of clients: requests and
tokens a second, milliseconds to the first piece of a text and to its end, how many were answered,
refused because the queue was full (429, asked again) and lost.
"""
import argparse
import http.client
import json
import random
import statistics
import sys
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "launcher/serve"))
from serve_client import Server  # noqa: E402


class Client(threading.Thread):
    def __init__(self, server, number, until, tokens, is_fake):
        super().__init__()
        self.server, self.until, self.most, self.is_fake = server, until, tokens, is_fake
        self.random = random.Random(number)
        self.number = number
        self.firsts, self.latencies, self.tokens, self.refused, self.lost = [], [], 0, 0, []

    def run(self):
        count = 0
        while time.monotonic() < self.until:
            count += 1
            words = [f"c{self.number}n{count}w{i}" for i in range(self.random.randint(1, 8))]
            body = {"prompt": " ".join(words), "max_tokens": self.random.randint(1, self.most), "stream": True,
                    "stream_options": {"include_usage": True}}
            begin = time.monotonic()
            try:
                while not self.ask(body, words, begin):
                    self.refused += 1
                    time.sleep(0.05)
            except Exception as error:  # whatever it is, the answer is lost
                self.lost.append(repr(error)[:200])

    def ask(self, body, words, begin):
        connection = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=120)
        try:
            connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
            response = connection.getresponse()
            if response.status == 429:
                return False
            assert response.status == 200, (response.status, response.read())
            text, first, event = "", None, b""
            for line in response:
                if not line.startswith(b"data: {"):
                    event = line if line.strip() else event
                    continue
                piece = json.loads(line[6:])
                assert "error" not in piece, piece
                if piece.get("usage"):
                    self.tokens += piece["usage"]["completion_tokens"]
                for choice in piece["choices"]:
                    first = first or time.monotonic() - begin
                    text += choice["text"]
            assert event == b"data: [DONE]\n", event
        finally:
            connection.close()
        if self.is_fake:  # whose answer is the prompt backwards
            assert text.split() == words[::-1][:body["max_tokens"]], (text, words)
        self.firsts.append(first)
        self.latencies.append(time.monotonic() - begin)
        return True


def milliseconds(times):
    cuts = statistics.quantiles(times, n=100) if len(times) > 1 else times * 99
    return {"p50": round(1000 * cuts[49], 1), "p99": round(1000 * cuts[98], 1)}


def load(program, seconds, clients, tokens, run=None, options=(), environment=None):
    with Server(program, *options, run=run, environment=environment) as server:
        begin = time.monotonic()
        threads = [Client(server, n, begin + seconds, tokens, run is None) for n in range(clients)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        wall = time.monotonic() - begin
        memory = server.resident_mib()
    latencies = [x for thread in threads for x in thread.latencies]
    return {"clients": clients, "seconds": round(wall, 1), "answered": len(latencies),
            "refused": sum(thread.refused for thread in threads),
            "lost": sum(len(thread.lost) for thread in threads),
            "faults": [fault for thread in threads for fault in thread.lost][:5],
            "requests_per_second": round(len(latencies) / wall, 1),
            "tokens_per_second": round(sum(thread.tokens for thread in threads) / wall, 1),
            "ms_to_first": milliseconds([x for thread in threads for x in thread.firsts]),
            "ms_to_end": milliseconds(latencies),
            "fewest_of_a_client": min(len(t.latencies) for t in threads), "resident_mib": round(memory)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--run")
    parser.add_argument("--clients", default="1,8,32")
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--tokens", type=int, default=64)
    options = parser.parse_args()
    lost = 0
    for clients in map(int, options.clients.split(",")):
        figures = load(options.program, options.seconds, clients, options.tokens, options.run)
        print(json.dumps(figures), flush=True)
        lost += figures["lost"]
    return 1 if lost else 0


if __name__ == "__main__":
    sys.exit(main())
