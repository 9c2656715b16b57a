"""What `anyorder doctor` does on each node of its job: it answers questions that come on standard input.

One process a node, started by srun and fed through it: srun sends standard input to all tasks and
brings their lines back, so a missing shared directory or a closed port is a finding and not a
crash. A question is one JSON object a line (`id`, `op`, `nodes`, `args`); an answer is cut into
lines short enough for srun to keep whole.
"""
import errno
import fcntl
import json
import os
import platform
import re
import shutil
import socket
import subprocess
import sys
import time

# srun forwards at most 1024 bytes in one piece; longer lines of two nodes could mix.
LINE_BYTES = 800
POLL_SECONDS = 0.005


class Agent:
    def __init__(self):
        self.node = int(os.environ.get("SLURM_NODEID", "0"))
        self.name = os.environ.get("SLURMD_NODENAME") or socket.gethostname()
        self.held = []

    def serve(self):
        # Not `for line in stdin`: that reads ahead and would leave a question in the buffer.
        for line in iter(sys.stdin.readline, ""):
            question = json.loads(line)
            if question["op"] == "quit":
                return
            if self.node not in question["nodes"]:
                continue
            try:
                answer = {"ok": getattr(self, "op_" + question["op"])(**question["args"])}
            except Exception as error:  # without an answer the others would wait
                answer = {"error": "%s: %s" % (type(error).__name__, error)}
            self.send(question["id"], json.dumps(answer))

    def send(self, number, text):
        pieces = [text[i:i + LINE_BYTES] for i in range(0, len(text), LINE_BYTES)]
        for i, piece in enumerate(pieces):
            os.write(1, ("@%d %d %d/%d %s\n" % (self.node, number, i, len(pieces), piece)).encode())

    # ---- facts about this node

    def op_hello(self):
        with open("/proc/meminfo", encoding="utf-8") as file:
            found = dict(re.findall(r"(\w+):\s+(\d+) kB", file.read()))
        available, *installed = (int(found.get(name, 0)) << 10
                                 for name in ("MemAvailable", "MemTotal", "SwapTotal"))
        return {"name": self.name, "python": platform.python_version(),
                "cores": len(os.sched_getaffinity(0)),
                "memory": available,
                "inventory": {"partition": os.environ.get("SLURM_JOB_PARTITION", ""),
                              "host_bytes": sum(installed)}}

    def op_clock(self):
        return time.time()

    def op_gpus(self):
        smi = shutil.which("nvidia-smi")
        listed, error = [], "nvidia-smi is not on PATH"
        if smi:
            done = subprocess.run(
                [smi, "--query-gpu=memory.total,name", "--format=csv,noheader,nounits"],
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, errors="surrogateescape",
                stdin=subprocess.DEVNULL, timeout=60)
            listed = re.findall(r"^(\d+|\[N/A\]), (.+)$", done.stdout, re.M)
            error = "" if done.returncode == 0 else done.stdout.strip()[:200]
        smallest = min((int(mib) if mib.isdigit() else 0 for mib, _ in listed), default=0)
        return {"listed": len(listed), "error": error,
                "visible": os.environ.get("CUDA_VISIBLE_DEVICES"),
                "inventory": {"gpus": len(listed), "gpu_bytes": smallest << 20,
                              "gpu_name": listed[0][1] if listed else ""}}

    # ---- the run directory as this node sees it

    def op_has_directory(self, path, within):
        return self.wait_until(lambda: os.path.isdir(path), within)

    def op_make_directory(self, path):
        os.mkdir(path)

    def op_free_space(self, path):
        space = os.statvfs(path)
        return space.f_bavail * space.f_frsize

    def op_write(self, path, text):
        """A new file as the checkpoint service writes one: created exclusively, all synced."""
        fd = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o644)
        try:
            os.write(fd, text.encode())
            os.fdatasync(fd)
        finally:
            os.close(fd)
        self.sync_directory(os.path.dirname(path))

    def sync_directory(self, path):
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def op_rename(self, old, new):
        os.rename(old, new)
        self.sync_directory(os.path.dirname(new))

    def read(self, path):
        """Text, or None where there is no such file."""
        try:
            with open(path, encoding="utf-8") as file:
                return file.read()
        except FileNotFoundError:
            return None

    def op_wait(self, paths, text, within, at_once):
        """Waits until all `paths` have `text`; None: `within` seconds passed and paths[0] is absent.
        False: it is there without that: at the end, or, with `at_once`, when it is first seen."""
        def is_whole():
            return all(self.read(path) == text for path in paths)

        def is_there():
            return self.read(paths[0]) is not None

        if at_once:
            return is_whole() if self.wait_until(is_there, within) else None
        return self.wait_until(is_whole, within) or (False if is_there() else None)

    def wait_until(self, is_true, within):
        deadline = time.monotonic() + within
        while not is_true():
            if time.monotonic() > deadline:
                return None
            time.sleep(POLL_SECONDS)
        return True

    def op_exclusive(self, prefix, rounds):
        """Which of these names this node could create; the others try them at the same time."""
        won = []
        for i in range(rounds):
            try:
                os.close(os.open("%s%d" % (prefix, i), os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644))
                won.append(i)
            except FileExistsError:
                pass
        return won

    def op_lock(self, path):
        """True: got the lock and keeps it; False: another node has it."""
        fd = os.open(path, os.O_CREAT | os.O_RDWR, 0o644)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(fd)
            if error.errno in (errno.EAGAIN, errno.EACCES):
                return False
            raise
        self.held.append(fd)
        return True


if __name__ == "__main__":
    Agent().serve()
