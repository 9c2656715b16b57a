"""Clients that ask a server at the same time; each answer must be the right one, and none may be lost.

Usage: serve_load.py PROGRAM [--run RUN] [--clients 32] [--seconds 60] [--tokens 16]
PROGRAM is `anyorder`, with --run, or the tests' `fake_serve`. Prints one JSON line: requests a
second, latencies, how many were answered, refused because the queue was full (429, asked again) and lost.
"""
import argparse
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
        self.server, self.until, self.tokens, self.is_fake = server, until, tokens, is_fake
        self.random = random.Random(number)
        self.number = number
        self.latencies, self.refused, self.lost = [], 0, []

    def run(self):
        count = 0
        while time.monotonic() < self.until:
            count += 1
            words = [f"c{self.number}n{count}w{i}" for i in range(self.random.randint(1, 8))]
            begin = time.monotonic()
            try:
                self.ask(words)
            except Exception as error:  # whatever it is, the answer is lost
                self.lost.append(repr(error)[:200])
                continue
            self.latencies.append(time.monotonic() - begin)

    def ask(self, words):
        stream = self.random.random() < 0.25
        body = {"prompt": " ".join(words), "max_tokens": self.tokens, "stream": stream}
        while True:
            status, _, answer = self.server.request("POST", "/v1/completions", body)
            if status != 429:
                break
            self.refused += 1
            time.sleep(0.05)
        assert status == 200, (status, answer)
        if stream:
            assert answer.endswith(b"data: [DONE]\n\n"), answer[-80:]
            events = [json.loads(event[6:]) for event in answer.decode().split("\n\n")[:-2]]
            text = "".join(event["choices"][0]["text"] for event in events)
        else:
            text = json.loads(answer)["choices"][0]["text"]
        if self.is_fake:  # whose answer is the prompt backwards
            assert text.split() == words[::-1][:self.tokens], (text, words)


def load(program, seconds, clients=32, tokens=16, run=None, options=(), environment=None):
    with Server(program, *options, run=run, environment=environment) as server:
        begin = time.monotonic()
        threads = [Client(server, n, begin + seconds, tokens, run is None) for n in range(clients)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        wall = time.monotonic() - begin
        memory = server.resident_mib()
    latencies = sorted(x for thread in threads for x in thread.latencies)
    cuts = statistics.quantiles(latencies, n=100)
    return {"clients": clients, "seconds": round(wall, 1), "answered": len(latencies),
            "refused": sum(thread.refused for thread in threads),
            "lost": sum(len(thread.lost) for thread in threads),
            "faults": [fault for thread in threads for fault in thread.lost][:5],
            "requests_per_second": round(len(latencies) / wall, 1),
            "ms_median": round(1000 * cuts[49], 1), "ms_p95": round(1000 * cuts[94], 1),
            "ms_max": round(1000 * latencies[-1], 1), "fewest_of_a_client": min(len(t.latencies) for t in threads),
            "resident_mib": round(memory)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--run")
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--tokens", type=int, default=16)
    options = parser.parse_args()
    figures = load(options.program, options.seconds, options.clients, options.tokens, options.run)
    print(json.dumps(figures))
    return 1 if figures["lost"] else 0


if __name__ == "__main__":
    sys.exit(main())
