"""What `anyorder doctor` runs on the batch host of its job: it leads the agents and prints facts.

A fact is one JSON object a line: {"fact": NAME, ...}. Facts say what was seen; doctor_verdicts.py
decides on the login node what is good or bad. PAYLOAD, a dict, comes from doctor_job.py: sources
and options of this run.
"""
import base64
import fcntl
import json
import os
import queue
import shutil
import signal
import socket
import struct
import subprocess
import sys
import threading
import time

# A network file system may hide a new name for its directory cache time, 60 s by default on NFS.
VISIBLE_LIMIT = 75.0
ANSWER_LIMIT = 60.0
HELLO_LIMIT = 120.0
# A node that lacks the run directory itself is not waited for as long as for a new file in it.
ABSENT_LIMIT = 5.0
EXCLUSIVE_ROUNDS = 40
# Crashes in MPI_Init at a few percent of starts were seen from three nodes on, with several ranks
# on each: there more starts are tried.
MPI_STARTS, FEW_MPI_STARTS = 6, 2
MPI_SECONDS = 90.0


def tell(fact, **values):
    print(json.dumps(dict(values, fact=fact)), flush=True)


class Agents:
    """The step with one agent a node. Late answers and silent nodes are left out."""

    def __init__(self, command, source, count):
        self.errors, self.answers, self.pieces, self.number = [], queue.Queue(), {}, 0
        # Not more than one line: the agent reads the rest of standard input itself.
        start = ("import base64,sys;exec(base64.b64decode(sys.stdin.readline()).decode(),"
                 "{'__name__':'__main__'})")
        self.process = subprocess.Popen(
            command + ["python3", "-c", start], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, errors="surrogateescape")
        for stream, take in ((self.process.stdout, self.take_line),
                             (self.process.stderr, self.errors.append)):
            threading.Thread(target=self.read_lines, args=(stream, take), daemon=True).start()
        self.write(base64.b64encode(source.encode()).decode())
        hello = self.ask("hello", nodes=list(range(count)), limit=HELLO_LIMIT)
        self.names = {node: answer["ok"]["name"] for node, answer in hello.items()}
        self.hello = {self.names[node]: answer["ok"] for node, answer in hello.items()}

    def read_lines(self, stream, take):
        for line in stream:
            take(line.rstrip("\n"))

    def take_line(self, line):
        if not line.startswith("@"):
            self.errors.append(line)
            return
        node, number, place, piece = line[1:].split(" ", 3)
        index, count = place.split("/")
        key = (int(node), int(number))
        pieces = self.pieces.setdefault(key, {})
        pieces[int(index)] = piece
        if len(pieces) == int(count):
            text = "".join(pieces[i] for i in range(int(count)))
            self.answers.put((time.time(), key, json.loads(text)))
            del self.pieces[key]

    def write(self, line):
        try:
            self.process.stdin.write(line + "\n")
            self.process.stdin.flush()
        except OSError:
            pass  # the step is gone; the missing answers tell

    def send(self, op, nodes, **args):
        self.number += 1
        self.write(json.dumps({"id": self.number, "op": op, "nodes": nodes, "args": args}))
        return self.number

    def collect(self, wanted, limit):
        """{(node, question): (time, answer)} of the wanted pairs that came in time."""
        got, deadline = {}, time.monotonic() + limit
        while len(got) < len(wanted) and time.monotonic() < deadline:
            try:
                when, key, answer = self.answers.get(timeout=0.2)
            except queue.Empty:
                if self.process.poll() is not None and self.answers.empty():
                    break
                continue
            if key in wanted:
                got[key] = (when, answer)
        return got

    def ask(self, op, nodes=None, limit=ANSWER_LIMIT, **args):
        nodes = sorted(self.names) if nodes is None else nodes
        number = self.send(op, nodes, **args)
        got = self.collect({(node, number) for node in nodes}, limit)
        return {node: answer for (node, _), (_, answer) in got.items()}

    def by_name(self, answers):
        return {self.names[node]: answer for node, answer in sorted(answers.items())}

    def close(self):
        self.write(json.dumps({"op": "quit"}))
        try:
            self.process.stdin.close()
            self.process.wait(timeout=20)
        except OSError:
            pass
        except subprocess.TimeoutExpired:
            self.process.kill()


def probe_clocks(agents):
    """For each node bounds of its clock's lead over this one: it read its clock between question
    and answer."""
    bounds = {}
    for node in sorted(agents.names):
        low, high = -1e18, 1e18
        for _ in range(10):
            asked = time.time()
            number = agents.send("clock", [node])
            got = agents.collect({(node, number)}, 10)
            if (node, number) not in got:
                break
            answered, answer = got[(node, number)]
            low, high = max(low, answer["ok"] - answered), min(high, answer["ok"] - asked)
        else:
            bounds[agents.names[node]] = [low, high]
    tell("clocks", bounds=bounds)


class SharedDirectory:
    """Questions about one directory of ours in the run directory: one node leads, others watch."""

    def __init__(self, agents, path):
        self.agents, self.path = agents, path
        self.leader = min(agents.names)
        self.watchers = [node for node in sorted(agents.names) if node != self.leader]

    def at(self, name):
        return os.path.join(self.path, name)

    def lead(self, op, **args):
        answers = self.agents.ask(op, nodes=[self.leader], **args)
        return answers.get(self.leader, {"error": "no answer"})

    def probe(self):
        parent = os.path.dirname(self.path)
        found = self.agents.ask("has_directory", self.watchers, path=parent, within=ABSENT_LIMIT)
        absent = {self.agents.names[node]: "'%s' does not exist" % parent for node in self.watchers
                  if found.get(node, {}).get("ok") is None}
        self.watchers = [node for node in self.watchers if self.agents.names[node] not in absent]
        made = self.lead("make_directory", path=self.path)
        if "error" in made:
            tell("shared", error=made["error"], node=self.agents.names[self.leader])
            return
        delays = self.see("shared", [self.at("token")],
                          ("write", {"path": self.at("token"), "text": "whole"}), absent)
        # Nodes that do not see the directory would make each later question wait for its limit.
        self.watchers = [node for node in self.watchers
                         if delays[self.agents.names[node]] is not None]
        tell("space", free=self.lead("free_space", path=self.path).get("ok", 0))
        if self.watchers:
            self.probe_between_nodes()

    def see(self, fact, paths, act, errors=()):
        """The watchers wait for `paths`, then the leader acts. Seconds by node from the end of the
        act until the watcher's answer, by the clock of this host; None: not within the limit."""
        # A write may be seen at work; a rename shows everything at once.
        watching = self.agents.send("wait", self.watchers, paths=paths, text="whole",
                                    within=VISIBLE_LIMIT, at_once=act[0] == "rename")
        time.sleep(0.1)  # so that the absence of paths[0] is in the watchers' caches
        acting = self.agents.send(act[0], [self.leader], **act[1])
        keys = {(node, watching) for node in self.watchers} | {(self.leader, acting)}
        got = self.agents.collect(keys, VISIBLE_LIMIT + ANSWER_LIMIT)
        done, acted = got.get((self.leader, acting), (0.0, {"error": "no answer"}))
        errors, incomplete = dict(errors), []
        delays = dict.fromkeys(errors)
        for node in self.watchers:
            name = self.agents.names[node]
            when, answer = got.get((node, watching), (0.0, {"error": "no answer"}))
            if "error" in answer:
                errors[name] = answer["error"]
            delays[name] = max(0.0, when - done) if answer.get("ok") is not None else None
            if answer.get("ok") is False:
                incomplete.append(name)
        tell(fact, delays=delays, errors=errors, incomplete=incomplete, error=acted.get("error"),
             node=self.agents.names[self.leader])
        return delays

    def probe_between_nodes(self):
        # A commit in small: a directory with two files gets its name by one rename.
        self.lead("make_directory", path=self.at("step.tmp"))
        for name in ("a", "b"):
            self.lead("write", path=self.at("step.tmp/" + name), text="whole")
        self.see("renamed", [self.at("step/b"), self.at("step/a")],
                 ("rename", {"old": self.at("step.tmp"), "new": self.at("step")}))
        everyone = [self.leader] + self.watchers
        answers = self.agents.by_name(self.agents.ask(
            "exclusive", everyone, prefix=self.at("only."), rounds=EXCLUSIVE_ROUNDS))
        winners = [sum(i in answer.get("ok", ()) for answer in answers.values())
                   for i in range(EXCLUSIVE_ROUNDS)]
        tell("exclusive", winners=winners, errors={
            node: answer["error"] for node, answer in answers.items() if "error" in answer})
        mine = self.lead("lock", path=self.at("lock"))
        others = self.agents.ask("lock", self.watchers, path=self.at("lock"))
        tell("lock", leader=mine, nodes=self.agents.by_name(others))


# ---- MPI


def run_group(command, env, limit):
    """Exit status, or None after `limit` seconds; output. The whole process group is ended, since
    mpirun and srun have helpers."""
    process = subprocess.Popen(command, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                               stderr=subprocess.STDOUT, errors="surrogateescape",
                               start_new_session=True)
    for patience, number in ((limit, signal.SIGTERM), (20, signal.SIGKILL)):
        try:
            output, _ = process.communicate(timeout=patience)
            return (process.returncode if number == signal.SIGTERM else None), output
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, number)
    return None, process.communicate()[0]


def host_network():
    """What a run tells Open MPI: the network of the batch host's own name
    (launcher/start/open_mpi.cc). "" if none fits."""
    try:
        own = {entry[4][0] for entry in socket.getaddrinfo(os.uname()[1], None, socket.AF_INET)}
    except OSError:
        return ""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        for _, name in socket.if_nameindex():
            request = struct.pack("256s", name[:15].encode())
            try:
                address = fcntl.ioctl(control.fileno(), 0x8915, request)[20:24]  # SIOCGIFADDR
                netmask = fcntl.ioctl(control.fileno(), 0x891b, request)[20:24]  # SIOCGIFNETMASK
            except OSError:
                continue  # no IPv4 address
            if name != "lo" and socket.inet_ntoa(address) in own:
                network = bytes(a & m for a, m in zip(address, netmask))
                bits = bin(struct.unpack("!I", netmask)[0]).count("1")
                return "%s/%d" % (socket.inet_ntoa(network), bits)
    return ""


def mpi_environment(library):
    """That of a run's ranks (launcher/start/open_mpi.cc); what the user has set wins."""
    wanted = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
              "SLURM_PMIX_FENCE": "ring", "OMPI_MCA_btl_vader_single_copy_mechanism": "none",
              "OMPI_MCA_smsc": "^cma,knem,xpmem",
              "OMPI_MCA_mpi_yield_when_idle": "1", "OMPI_MCA_plm_slurm_args": "--overlap"}
    infiniband = "/sys/class/infiniband"
    if not os.path.isdir(infiniband) or not os.listdir(infiniband):
        wanted.update(OMPI_MCA_pml="ob1", OMPI_MCA_btl="self,vader,tcp")
        network = host_network()
        if network:
            wanted.update(OMPI_MCA_btl_tcp_if_include=network,
                          OMPI_MCA_oob_tcp_if_include=network)
    wanted.update(os.environ, ANYORDER_DOCTOR_MPI=library)
    # Open MPI 5 has its own names for what starts ranks.
    prrte = {"PRTE" + name[4:].replace("MCA_plm_rsh_", "MCA_plm_ssh_"): value
             for name, value in wanted.items() if name.startswith(("OMPI_MCA_oob_", "OMPI_MCA_plm_"))}
    return dict(prrte, **wanted)


def probe_mpi(options, source):
    env = mpi_environment(options["mpi_library"])
    code = base64.b64encode(source.encode()).decode()
    command = options["mpi_command"] + [
        "python3", "-c",
        "import base64;exec(base64.b64decode('%s').decode(),{'__name__':'__main__'})" % code]
    if shutil.which(command[0]) is None:
        tell("mpi", starts=[], error=command[0] + " is not on PATH of the batch host")
        return
    starts, begin = [], time.monotonic()
    is_large = options["nodes"] > 2 and options["ranks_per_node"] > 1
    count = MPI_STARTS if is_large else FEW_MPI_STARTS
    while len(starts) < count and (not starts or time.monotonic() - begin < MPI_SECONDS):
        start = time.monotonic()
        status, output = run_group(command, env, 120)
        lines = [line for line in output.splitlines() if line.startswith("MPI ")]
        other = [line for line in output.splitlines() if line.strip() and line not in lines]
        starts.append({"status": status, "seconds": time.monotonic() - start,
                       "lines": sorted(set(lines))[:4096], "output": other[:12]})
        hangs = status is None or any(line.startswith("MPI hangs") for line in lines)
        if hangs or (status != 0 and len(starts) >= 2):
            break
    tell("mpi", starts=starts)


def probe_signal():
    """Whether a signal that Slurm sends to the batch shell arrives, as that of --signal=B: does."""
    arrived = threading.Event()
    signal.signal(signal.SIGUSR1, lambda *_: arrived.set())
    start = time.monotonic()
    done = subprocess.run(["scancel", "--batch", "--signal=USR1", os.environ["SLURM_JOB_ID"]],
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          errors="surrogateescape")
    while not arrived.is_set() and time.monotonic() - start < 15:
        time.sleep(0.05)  # not Event.wait without a limit: the handler runs in this very thread
    tell("signal", arrived=arrived.is_set(), seconds=time.monotonic() - start,
         output=done.stdout.strip()[:300])


def main(payload):
    options = payload["options"]
    # doctor may be stopped: then scancel comes, and what was written is removed all the same.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    tell("begin")
    agents = Agents(options["agent_command"], payload["agent"], options["nodes"])
    tell("agents", nodes=agents.hello, expected=options["nodes"], errors=agents.errors[:20])
    path = os.path.join(options["run_dir"], ".doctor-%s-%d" % (
        os.environ.get("SLURM_JOB_ID", "local"), os.getpid()))
    try:
        if agents.names:
            if options["gpus"]:
                tell("gpus", nodes=agents.by_name(agents.ask("gpus", limit=90)))
            probe_clocks(agents)
            SharedDirectory(agents, path).probe()
        # While the agents' step still runs: ranks run next to the checkpoint service's step, too.
        probe_mpi(options, payload["mpi"])
        if options["signal"]:
            probe_signal()
    finally:
        agents.close()
        shutil.rmtree(path, ignore_errors=True)
    tell("end")


if __name__ == "__main__":
    main(PAYLOAD)  # set by the batch script that doctor_job.py writes
