#!/usr/bin/env python3
"""What slurm/doctor makes of facts, and of what Slurm says: among them what no test machine can show. Usage: doctor_test.py ROOT"""
import ast
import os
import re
import socket
import subprocess
import sys
import tempfile
import unittest

ROOT = os.path.abspath(sys.argv.pop(1))
sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(ROOT, "slurm"))

import doctor_agent
import doctor_job
import doctor_site
import doctor_storage
import doctor_verdicts

JOB = {"run_dir": "/run", "nodes": 2, "ranks_per_node": 4, "gpus": 0, "programs": ["/bin/a"], "digests": {"/bin/a": "d1"},
       "mpi_command": ["srun"], "checkpoint_bytes": 0}


def levels(findings):
    return {entry["check"]: entry["level"] for entry in findings}


def only(findings):
    assert len(findings) == 1, findings
    return findings[0]


class Clocks(unittest.TestCase):
    def level(self, bounds):
        return only(doctor_verdicts.clocks({"bounds": bounds}, JOB))["level"]

    def test_overlapping_bounds_prove_no_difference(self):
        self.assertEqual(self.level({"n1": [-0.1, 0.1], "n2": [-5.0, 8.0]}), "PASS")

    def test_bounds_that_are_apart_prove_the_gap_between_them(self):
        entry = only(doctor_verdicts.clocks({"bounds": {"n1": [-0.1, 0.1], "n2": [3.0, 4.0], "n3": [0.0, 1.0]}}, JOB))
        self.assertEqual(entry["level"], "WARN")
        # n2 leads by 3.0 at least, n1 by 0.1 at most.
        self.assertIn("n2 is ahead of n1 by at least 2.9 s", entry["seen"])

    def test_a_minute_fails_in_either_direction(self):
        for offset in (-70.0, 70.0):
            self.assertEqual(self.level({"n1": [0.0, 0.0], "n2": [offset, offset + 1]}), "FAIL")


class Storage(unittest.TestCase):
    def lease(self, **changes):
        result = dict({"reads": 90, "missing": 0, "torn": 0, "stale": 0, "backwards": 0, "last": True, "delay": 0.01}, **changes)
        return only(doctor_storage.lease({"nodes": {"n2": result}}, JOB))["level"]

    def test_a_lease_must_never_be_missing_or_half(self):
        self.assertEqual(self.lease(), "PASS")
        for fault in ("missing", "torn", "backwards"):
            self.assertEqual(self.lease(**{fault: 1}), "FAIL", fault)
        self.assertEqual(self.lease(stale=1), "WARN")

    def test_a_lease_must_be_seen_before_others_take_it(self):
        self.assertEqual(self.lease(delay=4.0), "WARN")
        self.assertEqual(self.lease(delay=10.5), "FAIL")
        self.assertEqual(self.lease(last=False), "FAIL")

    def test_half_a_replaced_file_is_told_from_a_whole_one(self):
        text = doctor_agent.beat_text(7)
        self.assertEqual(doctor_agent.beat_number(text), 7)
        for torn in (text[:-1], text[:4096], "", text[:4096] + doctor_agent.beat_text(8)[4096:]):
            self.assertIsNone(doctor_agent.beat_number(torn))

    def seen(self, what, **changes):
        fact = dict({"what": what, "delays": {"n2": 0.1}, "errors": {}, "incomplete": [], "error": None, "node": "n1"}, **changes)
        return only(doctor_storage.seen(fact, JOB))["level"]

    def test_changes_must_be_seen_and_whole(self):
        self.assertEqual(self.seen("renamed"), "PASS")
        self.assertEqual(self.seen("renamed", delays={"n2": 30.0}), "WARN")
        self.assertEqual(self.seen("renamed", delays={"n2": None}), "FAIL")
        self.assertEqual(self.seen("renamed", incomplete=["n2"]), "FAIL")
        self.assertEqual(self.seen("mapped", delays={"n2": None}), "WARN")

    def test_a_name_has_one_creator(self):
        def level(winners):
            return only(doctor_storage.exclusive({"winners": winners, "errors": {}}, JOB))["level"]
        self.assertEqual(level([1, 1]), "PASS")
        self.assertEqual(level([1, 2]), "FAIL")
        self.assertEqual(level([0, 1]), "FAIL")

    def test_a_lock_that_two_nodes_hold_is_named(self):
        fact = {"kind": "flock", "leader": {"ok": True}, "nodes": {"n2": {"ok": True}, "n3": {"ok": False}}}
        entry = only(doctor_storage.lock(fact, JOB))
        self.assertEqual(entry["level"], "WARN")
        self.assertIn("n2 got", entry["seen"])

    def test_a_disk_that_cannot_sync_fails(self):
        fine = {"sync": [0.001], "write": 0.1, "directory_sync": 0.001, "direct": "", "fallocate": ""}
        self.assertEqual(set(levels(doctor_storage.disk({"nodes": {"n1": {"ok": fine}}}, JOB)).values()), {"PASS"})
        self.assertEqual(levels(doctor_storage.disk({"nodes": {"n1": {"error": "EINVAL"}}}, JOB))["sync"], "FAIL")
        for key, value, check, level in (("sync", [2.0], "sync", "WARN"), ("write", 10.0, "write speed", "WARN"),
                                         ("direct", "EINVAL", "O_DIRECT", "WARN"), ("fallocate", "ENOSPC", "fallocate", "FAIL"),
                                         ("fallocate", "EOPNOTSUPP", "fallocate", "PASS")):
            found = doctor_storage.disk({"nodes": {"n1": {"ok": dict(fine, **{key: value})}}}, JOB)
            self.assertEqual(levels(found)[check], level, (key, value))


class Nodes(unittest.TestCase):
    def test_processors_that_differ_are_named(self):
        avx2 = ["avx2", "bmi2", "fma"]
        avx512 = sorted(doctor_verdicts.AVX512)

        def find(**flags):
            nodes = {name: {"ok": {"flags": value, "model": "m", "cores": 4, "memory": 1 << 30}} for name, value in flags.items()}
            return doctor_verdicts.machine({"nodes": nodes}, JOB)[0]
        self.assertEqual(find(n1=avx512, n2=avx512)["level"], "PASS")
        entry = find(n1=avx512, n2=avx2)
        self.assertEqual(entry["level"], "WARN")
        self.assertIn("n2: AVX2", entry["seen"])
        self.assertEqual(find(n1=avx512, n2=sorted(avx512 + ["avx512_vnni"]))["level"], "WARN")

    def test_memory_for_two_shares_of_a_checkpoint(self):
        nodes = {"n1": {"ok": {"flags": [], "model": "m", "cores": 4, "memory": 3 << 30}}}
        for total, level in ((3, "PASS"), (4, "FAIL")):  # on two nodes: a share is half of it, staged twice
            found = doctor_verdicts.machine({"nodes": nodes}, dict(JOB, checkpoint_bytes=total << 30))
            self.assertEqual(levels(found)["memory"], level, total)

    def test_the_instruction_sets_are_those_of_the_kernels(self):
        with open(os.path.join(ROOT, "kernels/cpu/vector_kernels.cc"), encoding="utf-8") as file:
            asked = set(re.findall(r'__builtin_cpu_supports\("(\w+)"\)', file.read()))
        self.assertEqual(asked, doctor_verdicts.AVX512)

    def test_the_time_limits_are_those_of_the_programs(self):
        with open(os.path.join(ROOT, "launcher/start/launch.cc"), encoding="utf-8") as file:
            lease = re.search(r"kLeaseLifetime = absl::Seconds\((\d+)\)", file.read())
        self.assertEqual(float(lease.group(1)), doctor_verdicts.LEASE_SECONDS)

    def test_limits_count_the_ranks(self):
        def level(key, value, ranks=4):
            limit = {name: [-1, -1] for name in ("open_files", "processes", "stack", "memlock")}
            limit[key] = [value, -1]
            return levels(doctor_verdicts.limits({"nodes": {"n1": {"ok": limit}}}, dict(JOB, ranks_per_node=ranks)))
        self.assertEqual(level("open_files", -1)["open files"], "PASS")
        self.assertEqual(level("open_files", 1000)["open files"], "WARN")
        self.assertEqual(level("open_files", 1000, ranks=256)["open files"], "FAIL")
        self.assertEqual(level("stack", 1 << 16)["stack"], "FAIL")
        self.assertEqual(level("processes", 100)["processes"], "FAIL")

    def test_a_program_that_differs_from_the_login_nodes_is_named(self):
        nodes = {"n1": {"ok": {"/bin/a": {"sha256": "d1", "missing": []}}}, "n2": {"ok": {"/bin/a": {"sha256": "d2", "missing": []}}}}
        self.assertEqual(levels(doctor_verdicts.programs({"nodes": nodes}, JOB))["same programs"], "FAIL")
        nodes["n2"] = {"ok": {"/bin/a": {"sha256": "d1", "missing": ["libmpi.so.40"]}}}
        self.assertEqual(levels(doctor_verdicts.programs({"nodes": nodes}, JOB))["libraries"], "FAIL")
        nodes["n2"]["ok"]["/bin/anyorder-prep"] = {"sha256": "d1", "missing": ["libsentencepiece.so.0"]}
        self.assertEqual(doctor_verdicts.programs({"nodes": nodes}, JOB)[2]["seen"], "n2: libmpi.so.40")
        nodes["n2"]["ok"]["/bin/a"]["missing"] = []  # training does not need what prep lacks
        self.assertEqual(levels(doctor_verdicts.programs({"nodes": nodes}, JOB))["libraries"], "WARN")
        nodes["n2"] = {"ok": {"/bin/a": {"error": "No such file"}}}
        self.assertEqual(levels(doctor_verdicts.programs({"nodes": nodes}, JOB))["programs"], "FAIL")

    def test_gpus_are_counted_against_the_promise(self):
        def level(listed, visible, is_local=False):
            fact = {"nodes": {"n1": {"ok": {"listed": listed, "error": "", "visible": visible}}}}
            return only(doctor_verdicts.gpus(fact, dict(JOB, gpus=4, is_local=is_local)))["level"]
        self.assertEqual(level(8, "0,1,2,3"), "PASS")
        self.assertEqual(level(8, None, is_local=True), "PASS")
        for bad in ((0, None), (2, "0,1"), (8, "0,1"), (8, None)):
            self.assertEqual(level(*bad), "FAIL", bad)

    def test_space_for_one_more_checkpoint_than_is_kept(self):
        place = {"path": "/x", "exists": True, "size": 1 << 40, "free": 10 << 30, "files": 9999999, "total_files": 9999999,
                 "writable": True, "type": "nfs4"}
        fact = {"nodes": {"n1": {"ok": {"shm": place, "tmp": place, "run": place}}}}
        self.assertEqual(levels(doctor_verdicts.places(fact, dict(JOB, checkpoint_bytes=3 << 30)))["free space"], "PASS")
        self.assertEqual(levels(doctor_verdicts.places(fact, dict(JOB, checkpoint_bytes=4 << 30)))["free space"], "FAIL")


    def test_a_node_that_does_not_answer_is_not_fine(self):
        facts = [{"fact": "agents", "nodes": {"n1": {}, "n2": {}}}, {"fact": "limits", "nodes": {"n1": {"ok": {}}, "n2": {"error": "EIO"}}},
                 {"fact": "machine", "nodes": {"n2": {"ok": {}}}}]
        self.assertEqual(only(doctor_verdicts.unanswered(facts))["seen"], "n2: limits: EIO; n1: machine: no answer in time")
        self.assertEqual(doctor_verdicts.unanswered(facts[:1]), [])


class Network(unittest.TestCase):
    def find(self, calls, chosen, second="10.1.0"):
        def entry(name, address, speed):
            return {"name": name, "address": address, "network": address.rsplit(".", 1)[0] + ".0/24", "speed": speed, "infiniband": False}
        interfaces = {"n1": [entry("eth0", "10.0.0.1", 1000), entry("fast", second + ".1", 100000)],
                      "n2": [entry("eth0", "10.0.0.2", 1000), entry("fast", second + ".2", 100000)]}
        return only(doctor_verdicts.network({"interfaces": interfaces, "calls": calls, "chosen": chosen}, JOB))

    def test_the_fastest_network_that_connects_all_is_advised(self):
        calls = [["n1", "n2", "10.0.0.2", ""], ["n1", "n2", "10.1.0.2", ""]]
        self.assertEqual(self.find(calls, "10.1.0.0/24")["level"], "PASS")
        entry = self.find(calls, "10.0.0.0/24")
        self.assertEqual(entry["level"], "WARN")
        self.assertIn("btl_tcp_if_include=10.1.0.0/24", entry["fix"])

    def test_a_network_that_leads_home_is_avoided(self):
        calls = [["n1", "n2", "10.0.0.2", ""], ["n1", "n2", "10.1.0.2", "reaches another machine"]]
        self.assertEqual(self.find(calls, "10.0.0.0/24")["level"], "PASS")
        entry = self.find(calls, "10.1.0.0/24")
        self.assertEqual(entry["level"], "FAIL")
        self.assertIn("btl_tcp_if_include=10.0.0.0/24", entry["fix"])

    def test_a_network_that_connects_only_some_is_avoided(self):
        calls = [["n1", "n2", "10.0.0.2", ""], ["n2", "n1", "10.0.0.1", ""], ["n1", "n2", "10.1.0.2", ""], ["n2", "n1", "10.1.0.1", "refused"]]
        self.assertEqual(self.find(calls, "10.1.0.0/24")["level"], "FAIL")

    def test_a_firewall_fails(self):
        self.assertEqual(self.find([["n1", "n2", "10.0.0.2", "no answer in 3 s"]], "")["level"], "FAIL")

    def test_a_name_that_leads_home_is_named(self):
        fact = {"nodes": {"n1": {"ok": {"n1": ["127.0.1.1"], "n2": ["127.0.1.1"]}}}}
        self.assertIn("n2 is 127.0.1.1", only(doctor_verdicts.names(fact, JOB))["seen"])


class Mpi(unittest.TestCase):
    def find(self, lines, status=0, output=()):
        start = {"status": status, "seconds": 1.0, "lines": lines, "output": list(output)}
        return only(doctor_verdicts.mpi({"starts": [start]}, dict(JOB, nodes=1, ranks_per_node=2)))

    WORLD = ["MPI world %d 2 n1 0.1" % rank for rank in (0, 1)] + ["MPI sum %d right 0.01" % rank for rank in (0, 1)]

    def test_a_world_as_large_as_promised_passes(self):
        self.assertEqual(self.find(self.WORLD)["level"], "PASS")

    def test_every_other_outcome_fails_with_its_name(self):
        for lines, status, text in ((["MPI world 0 1 n1 0.1"] * 2, 0, "singletons"), (["MPI world 0 2 n1 0.1"], 139, "1 of 2 ranks"),
                                    (self.WORLD[:2] + ["MPI hangs MPI_Allreduce n1"], 1, "hangs in MPI_Allreduce"),
                                    (self.WORLD[:2], None, "hangs"), (["MPI world 0 3 n1 0.1"], 0, "MPI sees [3]"),
                                    (self.WORLD[:3] + ["MPI sum 1 wrong 0.01"], 0, "wrong sum")):
            entry = self.find(lines, status)
            self.assertEqual(entry["level"], "FAIL", lines)
            self.assertIn(text, entry["seen"])


CONFIG = """Configuration data as of 2026-11-21T15:14:30
JobRequeue              = 1
KillWait                = 30 sec
PreemptMode             = REQUEUE
PreemptType             = preempt/partition_prio
RequeueExit             = 85
SlurmdTimeout           = 300 sec

MPI Plugins Configuration:
PMIxCollFence           = ring
"""
PARTITIONS = """PartitionName=main AllowGroups=ALL Default=YES GraceTime=0 MaxNodes=UNLIMITED MaxTime=1-00:00:00 PreemptMode=REQUEUE State=UP TotalNodes=4 OverTimeLimit=NONE
PartitionName=short Default=NO MaxNodes=1 MaxTime=00:20:00 PreemptMode=CANCEL State=UP TotalNodes=4 OverTimeLimit=NONE
"""
LIST = "MPI plugin types are...\n\tpmix\n\tnone\n\tpmi2\nspecific pmix plugin versions available: pmix_v4\n"


class Site(unittest.TestCase):
    def site(self, **changes):
        site = {"sbatch": (0, "slurm-wlm 22.05.8\n"), "srun": (0, ""), "scontrol": (0, ""), "mpirun": (0, "mpirun (Open MPI) 4.1.4\n"),
                "ompi_info": (0, "MCA pmix: ext3x (MCA v2.1.0)\n"), "mpi_list": (0, LIST), "config": (0, CONFIG), "partitions": (0, PARTITIONS)}
        return dict(site, **changes)

    def judge(self, environment=None, partition=None, nodes=2, mpi="auto", **changes):
        findings, flavour = doctor_site.judge(self.site(**changes), {"partition": partition, "nodes": nodes, "mpi": mpi}, environment or {})
        return levels(findings), flavour

    def changed(self, old, new):
        self.assertIn(old, CONFIG)
        return {"config": (0, CONFIG.replace(old, new))}

    def test_a_good_site_passes(self):
        found, flavour = self.judge()
        self.assertEqual(set(found.values()), {"PASS"}, found)
        self.assertEqual(flavour, ("srun", "pmix"))

    def test_settings_that_end_runs_are_found(self):
        for old, new, check in (("JobRequeue              = 1", "JobRequeue = 0", "requeue"),
                                ("KillWait                = 30", "KillWait = 5", "time to stop"),
                                ("= 85", "= 1,93", "exit statuses"), ("= 300 sec", "= 0 sec", "lost nodes"),
                                ("= ring", "= mixed", "PMIx fence")):
            self.assertEqual(self.judge(**self.changed(old, new))[0][check], "WARN", check)
        self.assertEqual(self.judge({"SLURM_PMIX_FENCE": "ring"}, **self.changed("= ring", "= tree"))[0]["PMIx fence"], "PASS")

    def test_partitions_that_cannot_take_the_job_fail(self):
        self.assertEqual(self.judge(partition="nope")[0]["partition"], "FAIL")
        self.assertEqual(self.judge(nodes=5)[0]["partition"], "FAIL")
        self.assertEqual(self.judge(partition="short")[0]["partition"], "FAIL")
        found = self.judge(partition="short", nodes=1)[0]
        self.assertEqual((found["partition"], found["preemption"]), ("WARN", "WARN"))
        self.assertEqual(self.judge(partitions=(0, PARTITIONS.replace("State=UP", "State=DOWN")))[0]["partition"], "FAIL")

    def test_the_flavour_is_chosen_by_looking(self):
        none = (0, "MPI plugin types are...\n\tnone\n\tpmi2\n")
        for changes, wanted, flavour, level in (
                ({}, "auto", ("srun", "pmix"), "PASS"), ({}, "mpirun", ("mpirun", ""), "PASS"),
                ({"mpi_list": (0, "\tpmix_v3\n\tpmix_v4\n")}, "auto", ("srun", "pmix_v4"), "PASS"),
                ({"mpi_list": none}, "auto", ("mpirun", ""), "WARN"), ({"mpi_list": none}, "srun", ("srun", "pmix"), "FAIL"),
                ({"mpi_list": none, "mpirun": (127, "")}, "auto", ("mpirun", ""), "FAIL"),
                ({"ompi_info": (0, "MCA pmix: isolated (MCA v2.1.0)\n")}, "auto", ("srun", "pmix"), "FAIL")):
            found, chosen = self.judge(mpi=wanted, **changes)
            self.assertEqual((chosen, found["MPI flavour"]), (flavour, level), changes)

    def test_tools_that_cannot_work_fail(self):
        self.assertEqual(self.judge(sbatch=(0, "slurm 20.02.7"))[0]["Slurm tools"], "FAIL")
        self.assertEqual(self.judge(sbatch=(127, "")), ({"Slurm tools": "FAIL"}, None))
        self.assertEqual(self.judge(config=(1, "Unable to contact slurm controller"))[0]["Slurm tools"], "FAIL")
        self.assertEqual(self.judge(mpirun=(0, "HYDRA build details:\n    Version: 4.0"))[0]["Open MPI"], "FAIL")


class Queue(unittest.TestCase):
    NEVER = ("PartitionNodeLimit", "PartitionTimeLimit", "PartitionConfig", "BadConstraints", "InvalidAccount", "InvalidQOS",
             "AccountNotAllowed", "QOSNotAllowed", "DependencyNeverSatisfied", "ReservationDeleted", "QOSMaxNodePerJobLimit",
             "AssocMaxWallDurationPerJobLimit", "QOSMaxWallDurationPerJobLimit", "AssocMaxGRESPerNode", "QOSMinCpuNotSatisfied")
    ENDS = ("None", "Resources", "Priority", "BeginTime", "Dependency", "Licenses", "PartitionDown", "PartitionInactive", "NodeDown",
            "ReqNodeNotAvail,_UnavailableNodes:n[1-2]", "Reservation", "JobHeldUser", "QOSGrpNodeLimit", "AssocGrpCpuLimit",
            "QOSMaxJobsPerUserLimit", "QOSMaxNodePerUserLimit", "QOSMaxGRESPerAccount", "AssocMaxJobsLimit", "Cleaning")

    def test_only_reasons_that_waiting_does_not_end_are_taken_for_such(self):
        for reason in self.NEVER:
            self.assertTrue(doctor_job.NEVER.match(reason), reason)
        for reason in self.ENDS:
            self.assertFalse(doctor_job.NEVER.match(reason), reason)

    def test_each_of_them_fails_with_a_way_out(self):
        for reason in self.NEVER:
            entry = only(doctor_verdicts.never_starts({"number": "7", "reason": reason}, JOB))
            self.assertEqual((entry["level"], entry["seen"]), ("FAIL", "job 7: " + reason))
            self.assertTrue(entry["fix"], reason)


class Script(unittest.TestCase):
    def examine(self, *options):
        with tempfile.TemporaryDirectory() as directory:
            return subprocess.run([sys.executable, os.path.join(ROOT, "slurm", "doctor"), "--run-dir", directory] + list(options),
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True)

    def test_a_wrong_bin_is_a_bad_command_line(self):
        with tempfile.TemporaryDirectory() as directory:
            for name in ("anyorder", "anyorder-train"):
                with open(os.path.join(directory, name), "w", encoding="utf-8"):
                    pass
            for given, text in (("/nonexist", "no anyorder, no anyorder-train, no anyorder-ckptd"), (directory, "holds no anyorder-ckptd:")):
                done = self.examine("--local", "--bin", given)
                self.assertEqual((done.returncode, done.stdout), (64, ""), done.stderr)
                self.assertIn(text, done.stderr)
                self.assertIn("build/bin", done.stderr)

    def test_the_oldest_python_of_clusters_reads_it(self):
        for name in sorted(os.listdir(os.path.join(ROOT, "slurm"))):
            path = os.path.join(ROOT, "slurm", name)
            if name.endswith(".py") or name == "doctor":
                with open(path, encoding="utf-8") as file:
                    ast.parse(file.read(), path, feature_version=(3, 6))

    def test_a_path_with_odd_characters_is_only_a_path(self):
        with tempfile.TemporaryDirectory(prefix="it's $(touch no) ") as directory:
            sourced = os.path.join(directory, "environment.sh")
            with open(sourced, "w", encoding="utf-8") as file:
                file.write("export ANYORDER_SEEN=yes\n")
            options = dict(JOB, environment=sourced, agent_command=["false"], signal=False, run_dir=directory, mpi_library="",
                           mpi_command=["echo-is-missing"])
            script = doctor_job.batch_script(options).replace("exec python3", "echo $ANYORDER_SEEN; exec python3")
            done = subprocess.run(["bash"], input=script, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, universal_newlines=True)
            facts, other = doctor_job.parse_facts(done.stdout)
        self.assertEqual(other, ["yes"], done.stdout)
        self.assertTrue(doctor_job.is_whole(facts), done.stdout)
        self.assertFalse(os.path.exists("no"))
        self.assertEqual([fact["nodes"] for fact in facts if fact["fact"] == "agents"], [{}])

    def test_a_job_that_began_again_is_judged_by_its_last_start(self):
        facts, _ = doctor_job.parse_facts('{"fact": "begin"}\n{"fact": "old"}\nslurmstepd: requeued\n{"fact": "begin"}\n{"fact": "end"}\n')
        self.assertEqual([fact["fact"] for fact in facts], ["begin", "end"])

    def test_a_node_tells_itself_from_another_at_the_same_address(self):
        agent = doctor_agent.Agent()
        port = agent.op_listen()
        with socket.socket() as nobody:
            nobody.bind(("127.0.0.1", 0))
            results = agent.op_connect([[agent.node, "127.0.0.1", port], [agent.node + 1, "127.0.0.1", port],
                                        [agent.node, "127.0.0.1", nobody.getsockname()[1]]], 5)
        self.assertEqual([result[2] for result in results], ["", "reaches another machine", "Connection refused"])


if __name__ == "__main__":
    unittest.main()
