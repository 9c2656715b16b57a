"""What slurm/doctor does on each node of its job: it answers questions that come as lines on standard input.

One process a node, started by srun and fed through it: srun sends standard input to all tasks and brings their lines back, so
neither a shared directory nor an open port is needed to find out that one of them is missing. A question is one JSON
object a line (`id`, `op`, `nodes`, arguments); an answer is cut into lines short enough for srun to keep whole.
"""
import errno
import fcntl
import hashlib
import json
import mmap
import os
import platform
import re
import resource
import shutil
import socket
import struct
import subprocess
import sys
import threading
import time

# srun forwards at most 1024 bytes in one piece; longer lines of two nodes could mix.
LINE_BYTES = 800
POLL_SECONDS = 0.005
BLOCK = 4096


class Agent:
    def __init__(self):
        self.node = int(os.environ.get("SLURM_NODEID", "0"))
        self.name = os.environ.get("SLURMD_NODENAME") or socket.gethostname()
        self.held = []
        self.listener = None

    def serve(self):
        while True:
            # Not `for line in stdin`: that reads ahead and would leave a question in the buffer.
            line = sys.stdin.readline()
            if not line:
                return
            question = json.loads(line)
            if question["op"] == "quit":
                return
            if question.get("nodes") is not None and self.node not in question["nodes"]:
                continue
            try:
                answer = {"ok": getattr(self, "op_" + question["op"])(**question.get("args", {}))}
            except OSError as error:
                answer = {"errno": errno.errorcode.get(error.errno, str(error.errno)), "error": str(error)}
            except Exception as error:  # an answer is owed whatever happens, or the others wait for nothing
                answer = {"errno": "", "error": "%s: %s" % (type(error).__name__, error)}
            self.send(question["id"], json.dumps(answer))

    def send(self, number, text):
        pieces = [text[i:i + LINE_BYTES] for i in range(0, len(text), LINE_BYTES)]
        for i, piece in enumerate(pieces):
            os.write(1, ("@%d %d %d/%d %s\n" % (self.node, number, i, len(pieces), piece)).encode())

    # ---- facts about this node

    def op_hello(self):
        return {"name": self.name, "python": platform.python_version(), "kernel": platform.release(),
                "machine": platform.machine(), "promised": os.environ.get("SLURM_STEP_NUM_NODES")}

    def op_clock(self):
        return time.time()

    def op_limits(self):
        kinds = {"open_files": resource.RLIMIT_NOFILE, "memlock": resource.RLIMIT_MEMLOCK,
                 "stack": resource.RLIMIT_STACK, "processes": resource.RLIMIT_NPROC}
        return {name: list(resource.getrlimit(kind)) for name, kind in kinds.items()}  # -1: unlimited

    def op_machine(self):
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            text = file.read()
        flags = re.search(r"^(?:flags|Features)\s*: (.*)$", text, re.M)
        model = re.search(r"^model name\s*: (.*)$", text, re.M)
        with open("/proc/meminfo", encoding="utf-8") as file:
            memory = {key: int(value) * 1024 for key, value in re.findall(r"^(\w+):\s+(\d+) kB", file.read(), re.M)}
        wanted = {"avx2", "fma", "bmi2", "avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512cd", "avx512_bf16",
                  "avx512_vnni", "avx512_fp16", "amx_tile", "amx_bf16", "avx_vnni"}
        return {"model": model.group(1) if model else platform.machine(),
                "flags": sorted(wanted & set(flags.group(1).split())) if flags else [],
                "cores": len(os.sched_getaffinity(0)), "memory": memory.get("MemAvailable", 0),
                "infiniband": os.path.isdir("/sys/class/infiniband") and bool(os.listdir("/sys/class/infiniband"))}

    def op_places(self, directory):
        """The places that a trainer or Open MPI writes to on the node itself, and the run directory."""
        places = {}
        for name, path in (("shm", "/dev/shm"), ("tmp", os.environ.get("TMPDIR") or "/tmp"), ("run", directory)):
            place = {"path": path, "exists": os.path.isdir(path)}
            if place["exists"]:
                space = os.statvfs(path)
                place.update(size=space.f_blocks * space.f_frsize, free=space.f_bavail * space.f_frsize,
                             files=space.f_favail, total_files=space.f_files,
                             writable=os.access(path, os.W_OK | os.X_OK), type=self.mount_type(path))
            places[name] = place
        return places

    def mount_type(self, path):
        path, best, kind = os.path.realpath(path), "", "?"
        with open("/proc/self/mounts", encoding="utf-8", errors="replace") as file:
            for words in (line.split() for line in file):
                at = words[1].replace("\\040", " ")
                # Of two mounts at one place the later one covers the earlier.
                if len(at) >= len(best) and (path + "/").startswith(at.rstrip("/") + "/"):
                    best, kind = at, words[2]
        return kind

    def op_programs(self, paths):
        result = {}
        for path in paths:
            try:
                with open(path, "rb") as file:
                    digest = hashlib.sha256(file.read()).hexdigest()[:16]
            except OSError as error:
                result[path] = {"error": error.strerror}
                continue
            result[path] = {"sha256": digest, "missing": self.missing_libraries(path)}
        return result

    def missing_libraries(self, path):
        ldd = shutil.which("ldd")
        if ldd is None:
            return []
        done = subprocess.run([ldd, path], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, universal_newlines=True,
                              stdin=subprocess.DEVNULL)
        lines = [line.strip() for line in done.stdout.splitlines()]
        missing = [line.split(" => ")[0] for line in lines if line.endswith("not found")]
        # "version `GLIBC_2.38' not found (required by ...)": built on a newer system
        missing += [line for line in lines if "not found (required by" in line]
        broken = done.returncode != 0 and not missing and lines and "not a dynamic executable" not in done.stdout
        return [lines[-1].replace(path + ": ", "")] if broken else missing

    def op_gpus(self):
        smi = shutil.which("nvidia-smi")
        listed, error = [], "nvidia-smi is not on PATH"
        if smi:
            done = subprocess.run([smi, "-L"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                  universal_newlines=True, stdin=subprocess.DEVNULL, timeout=60)
            listed = [line for line in done.stdout.splitlines() if line.startswith("GPU ")]
            error = "" if done.returncode == 0 else done.stdout.strip()[:200]
        return {"listed": len(listed), "error": error, "visible": os.environ.get("CUDA_VISIBLE_DEVICES")}

    # ---- network

    def op_interfaces(self):
        found = []
        control = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        # Not from /sys/class/net, which in a container may be the host's.
        for _, name in sorted(socket.if_nameindex(), key=lambda entry: entry[1]):
            request = struct.pack("256s", name[:15].encode())
            try:
                address = fcntl.ioctl(control.fileno(), 0x8915, request)[20:24]  # SIOCGIFADDR
                netmask = fcntl.ioctl(control.fileno(), 0x891b, request)[20:24]  # SIOCGIFNETMASK
            except OSError:
                continue  # no IPv4 address
            bits = bin(struct.unpack("!I", netmask)[0]).count("1")
            network = bytes(a & m for a, m in zip(address, netmask))
            found.append({"name": name, "address": socket.inet_ntoa(address),
                          "network": "%s/%d" % (socket.inet_ntoa(network), bits),
                          "speed": self.read_number("/sys/class/net/%s/speed" % name),
                          "infiniband": self.read_number("/sys/class/net/%s/type" % name) == 32})
        control.close()
        return found

    def read_number(self, path):
        try:
            with open(path, encoding="utf-8") as file:
                return int(file.read())
        except (OSError, ValueError):
            return -1

    def op_listen(self):
        """Opens a port on all addresses; whoever connects is told the node's name, since private bridges of several nodes may
        have one address, and a connection to it ends at home."""
        self.listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self.listener.bind(("", 0))
        self.listener.listen(256)
        threading.Thread(target=self.answer_callers, daemon=True).start()
        return self.listener.getsockname()[1]

    def answer_callers(self):
        while True:
            caller, _ = self.listener.accept()
            try:
                caller.sendall(("%d\n" % self.node).encode())
            except OSError:
                pass
            caller.close()

    def op_connect(self, targets, within):
        results = [[node, address, "no answer in %g s" % within] for node, address, _ in targets]

        def call(i, node, address, port):
            try:
                line = socket.create_connection((address, port), timeout=within)
                line.settimeout(within)
                who = line.recv(16).decode().strip()
                line.close()
                results[i][2] = "" if who == str(node) else "reaches another machine"
            except OSError as error:
                results[i][2] = str(error.strerror or error)
        threads = [threading.Thread(target=call, args=(i,) + tuple(target), daemon=True)
                   for i, target in enumerate(targets)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(2 * within)
        return results

    def op_resolve(self, names):
        result = {}
        for name in names:
            try:
                result[name] = sorted({entry[4][0] for entry in socket.getaddrinfo(name, None, socket.AF_INET)})
            except OSError as error:
                result[name] = str(error.strerror or error)
        return result

    # ---- the run directory as this node sees it

    def op_has_directory(self, path, within):
        return self.wait_until(lambda: os.path.isdir(path), within)

    def op_make_directory(self, path):
        os.mkdir(path)

    def op_write(self, path, text):
        """A new file as the checkpoint service writes one: created exclusively, synced, its directory synced."""
        self.write_synced(path, text)
        self.sync_directory(os.path.dirname(path))

    def write_synced(self, path, text):
        fd = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o644)
        try:
            os.write(fd, text.encode())
            os.fdatasync(fd)
        finally:
            os.close(fd)

    def sync_directory(self, path):
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def op_rename(self, old, new):
        os.rename(old, new)
        self.sync_directory(os.path.dirname(new))

    def op_remove(self, path):
        os.unlink(path)

    def read(self, path):
        """Text, or None where there is no such file. Opens anew each time, as the service does."""
        try:
            with open(path, encoding="utf-8") as file:
                return file.read()
        except FileNotFoundError:
            return None

    def op_read(self, path):
        return self.read(path)

    def op_wait(self, paths, text, within):
        """Waits until `paths[0]` can be opened, then tells whether all have `text` at that moment. None: not `within` seconds."""
        deadline = time.monotonic() + within
        while self.read(paths[0]) is None:
            if time.monotonic() > deadline:
                return None
            time.sleep(POLL_SECONDS)
        return all(self.read(path) == text for path in paths)

    def op_wait_listed(self, directory, name, within):
        return self.wait_until(lambda: name in os.listdir(directory), within)

    def op_wait_gone(self, path, within):
        return self.wait_until(lambda: self.read(path) is None, within)

    def wait_until(self, is_true, within):
        deadline = time.monotonic() + within
        while not is_true():
            if time.monotonic() > deadline:
                return None
            time.sleep(POLL_SECONDS)
        return True

    def op_replace(self, path, rounds, pause):
        """Replaces a file again and again by renaming, as the lease is renewed."""
        for i in range(1, rounds + 1):
            temporary = "%s.%d.tmp" % (path, i)
            self.write_synced(temporary, beat_text(i))
            os.rename(temporary, path)
            self.sync_directory(os.path.dirname(path))
            time.sleep(pause)

    def op_watch(self, path, rounds, within):
        """Reads the file while it is replaced, until the last content is seen."""
        seen = {"reads": 0, "missing": 0, "torn": 0, "stale": 0, "backwards": 0, "last": False}
        newest, deadline = 0, time.monotonic() + within
        while not seen["last"] and time.monotonic() < deadline:
            seen["reads"] += 1
            try:
                text = self.read(path)
            except OSError as error:
                if error.errno != errno.ESTALE:
                    raise
                seen["stale"] += 1
                continue
            if text is None:
                seen["missing"] += 1
                continue
            number = beat_number(text)
            seen["torn"] += number is None
            if number is not None:
                seen["backwards"] += number < newest
                newest = max(newest, number)
            seen["last"] = newest == rounds
            time.sleep(POLL_SECONDS)
        return seen

    def op_exclusive(self, prefix, rounds):
        """Which of these names this node could create; the other nodes try the same names at the same time."""
        won = []
        for i in range(rounds):
            try:
                os.close(os.open("%s%d" % (prefix, i), os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644))
                won.append(i)
            except FileExistsError:
                pass
        return won

    def op_lock(self, path, kind):
        """True: got the lock and keeps it; False: another node has it."""
        fd = os.open(path, os.O_CREAT | os.O_RDWR, 0o644)
        take = fcntl.flock if kind == "flock" else fcntl.lockf
        try:
            take(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(fd)
            if error.errno in (errno.EAGAIN, errno.EACCES):
                return False
            raise
        self.held.append(fd)
        return True

    def op_unlock(self):
        while self.held:
            os.close(self.held.pop())

    def op_memory_map(self, path, text):
        """Writes through shared memory, as heartbeats are written. The mapping stays."""
        fd = os.open(path, os.O_CREAT | os.O_RDWR, 0o644)
        os.ftruncate(fd, BLOCK)
        page = mmap.mmap(fd, BLOCK)
        page[:len(text)] = text.encode()
        self.held.append(fd)
        self.page = page

    def op_wait_mapped(self, path, text, within):
        def has_text():
            found = self.read(path)
            return found is not None and found.startswith(text)
        return self.wait_until(has_text, within)

    def op_disk(self, directory, mebibytes, syncs):
        """How this node's writes to the run directory go: times in seconds, errors by name."""
        path = os.path.join(directory, "disk.%d" % self.node)
        result = {"sync": [], "fallocate": "", "direct": ""}
        fd = os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o644)
        try:
            try:
                os.posix_fallocate(fd, 0, mebibytes << 20)
            except OSError as error:
                result["fallocate"] = errno.errorcode.get(error.errno, str(error))
            block = mmap.mmap(-1, 1 << 20)  # page-aligned, as O_DIRECT wants it
            block[:] = os.urandom(BLOCK) * ((1 << 20) // BLOCK)
            for i in range(syncs):
                os.pwrite(fd, block[:BLOCK], i * BLOCK)
                start = time.monotonic()
                os.fdatasync(fd)
                result["sync"].append(time.monotonic() - start)
            result["direct"] = self.write_direct(path, block)
            start = time.monotonic()
            for i in range(mebibytes):
                os.pwrite(fd, block, i << 20)
            os.fdatasync(fd)
            result["write"] = time.monotonic() - start
        finally:
            os.close(fd)
            os.unlink(path)
        start = time.monotonic()
        self.sync_directory(directory)
        result["directory_sync"] = time.monotonic() - start
        return result

    def write_direct(self, path, block):
        try:
            fd = os.open(path, os.O_WRONLY | os.O_DIRECT)
        except OSError as error:
            return errno.errorcode.get(error.errno, str(error))
        try:
            os.pwrite(fd, block, 0)
            return ""
        except OSError as error:
            return errno.errorcode.get(error.errno, str(error))
        finally:
            os.close(fd)


def beat_text(number):
    """Several blocks long, so that half of it can be told from all of it."""
    return "%08d" % number * 2048


def beat_number(text):
    """None if `text` is not one whole beat_text()."""
    number = text[:8]
    return int(number) if number.isdigit() and text == number * 2048 else None


if __name__ == "__main__":
    Agent().serve()
