#!/usr/bin/env python3
"""What `anyorder doctor` makes of facts and of Slurm's words, also of those that no test machine shows.

Usage: doctor_test.py ROOT BIN
"""
import ast
import json
import os
import subprocess
import sys
import tempfile
import unittest

ROOT = os.path.abspath(sys.argv.pop(1))
BIN = os.path.abspath(sys.argv.pop(1))
sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(ROOT, "slurm"))

import doctor
import doctor_agent
import doctor_job
import doctor_site
import doctor_verdicts

JOB = {"run_dir": "/run", "nodes": 2, "ranks_per_node": 4, "gpus": 0, "mpi_command": ["srun"],
       "checkpoint_bytes": 0, "is_local": False}


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
    def seen(self, judge, **changes):
        fact = dict({"delays": {"n2": 0.1}, "errors": {}, "incomplete": [], "error": None,
                     "node": "n1"}, **changes)
        return only(judge(fact, JOB))["level"]

    def test_new_files_and_renames_must_be_seen_whole(self):
        for judge in (doctor_verdicts.shared, doctor_verdicts.renamed):
            self.assertEqual(self.seen(judge), "PASS")
            for changes in ({"delays": {"n2": None}}, {"incomplete": ["n2"]}, {"error": "EROFS"}):
                self.assertEqual(self.seen(judge, **changes), "FAIL", changes)
        self.assertEqual(self.seen(doctor_verdicts.renamed, delays={"n2": 30.0}), "WARN")

    def test_a_name_has_one_creator(self):
        for winners, level in (([1, 1], "PASS"), ([1, 2], "FAIL"), ([0, 1], "FAIL")):
            fact = {"winners": winners, "errors": {}}
            self.assertEqual(only(doctor_verdicts.exclusive(fact, JOB))["level"], level, winners)

    def test_a_lock_that_two_nodes_hold_is_named(self):
        fact = {"leader": {"ok": True}, "nodes": {"n2": {"ok": True}, "n3": {"ok": False}}}
        entry = only(doctor_verdicts.lock(fact, JOB))
        self.assertEqual(entry["level"], "WARN")
        self.assertIn("n2 got", entry["seen"])

    def test_space_for_one_more_checkpoint_than_is_kept(self):
        for checkpoint, level in ((3, "PASS"), (4, "FAIL")):
            job = dict(JOB, checkpoint_bytes=checkpoint << 30)
            self.assertEqual(only(doctor_verdicts.space({"free": 10 << 30}, job))["level"], level)


class Agent(unittest.TestCase):
    """What a watching node says of two files, told what it finds at each look."""

    def wait(self, at_once, *looks, within=60.0):
        agent, left = doctor_agent.Agent(), list(looks)
        agent.read = lambda path: (left.pop(0) if len(left) > 1 else left[0]).get(path)
        return agent.op_wait(["b", "a"], "whole", within, at_once)

    def test_a_write_at_work_is_waited_for(self):
        self.assertIs(self.wait(False, {}, {"b": ""}, {"b": "wh"}, {"a": "whole", "b": "whole"}), True)

    def test_a_write_that_never_gets_whole_is_told(self):
        self.assertIs(self.wait(False, {"b": "wh"}, within=0.02), False)
        self.assertIsNone(self.wait(False, {}, within=0.02))

    def test_a_rename_shows_all_files_at_once(self):
        self.assertIs(self.wait(True, {}, {"a": "whole", "b": "whole"}), True)
        self.assertIs(self.wait(True, {}, {"b": "whole"}, {"b": "whole"}, {"b": "whole"},
                                {"a": "whole", "b": "whole"}), False)
        self.assertIsNone(self.wait(True, {}, within=0.02))


class Inventory(unittest.TestCase):
    """What launch and submit are told of the nodes (core/train/FORMAT.md)."""

    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.run = directory.name
        self.path = os.path.join(self.run, ".launch", "nodes.json")

    def record(self, gpus=None):
        facts = [{"fact": "agents", "nodes": {"n1": {"inventory": {"host_bytes": 9}}}}, {"fact": "end"}]
        if gpus:
            facts.append({"fact": "gpus", "nodes": {"n1": gpus}})
        doctor.record_nodes(self.run, facts)

    def kept(self):
        with open(self.path, encoding="utf-8") as file:
            return json.load(file)

    def test_what_is_not_asked_for_this_time_stays(self):
        self.record({"ok": {"inventory": {"gpus": 2, "gpu_bytes": 5}}})
        self.assertEqual(self.kept(), {"n1": {"host_bytes": 9, "gpus": 2, "gpu_bytes": 5}})
        with open(self.path, "w", encoding="utf-8") as file:
            json.dump({"n1": {"host_bytes": 8, "gpus": 2}, "n2": {"host_bytes": 7}}, file)
        self.record({"error": "no answer"})
        self.assertEqual(self.kept(), {"n1": {"host_bytes": 9, "gpus": 2}, "n2": {"host_bytes": 7}})

    def test_a_damaged_file_is_replaced(self):
        for text in ("", "[1]", "7", '{"n1": 7}', '{"n1": {'):
            os.makedirs(os.path.dirname(self.path), exist_ok=True)
            with open(self.path, "w", encoding="utf-8") as file:
                file.write(text)
            self.record()
            self.assertEqual(self.kept(), {"n1": {"host_bytes": 9}}, text)

    def test_other_directories_than_runs_stay_as_they_were(self):
        doctor.record_nodes(self.run, [{"fact": "begin"}])  # no node was seen
        os.mkdir(os.path.join(self.run, "home"))
        self.record()
        self.assertEqual(os.listdir(self.run), ["home"])
        os.rename(os.path.join(self.run, "home"), os.path.join(self.run, "slurm"))
        self.record()
        self.assertEqual(sorted(os.listdir(self.run)), [".launch", "slurm"])

    def test_an_agent_says_what_its_machine_has(self):
        self.assertGreater(doctor_agent.Agent().op_hello()["inventory"]["host_bytes"], 1 << 20)
        smi, path = os.path.join(self.run, "nvidia-smi"), os.environ["PATH"]
        for lines, gpus in (("81559, A\n40960, B", (2, 40960 << 20, "A")), ("[N/A], C", (1, 0, "C")),
                            ("No devices, sorry", (0, 0, ""))):
            with open(smi, "w", encoding="utf-8") as file:
                file.write("#!/bin/sh\necho '%s'\n" % lines)
            os.chmod(smi, 0o755)
            os.environ["PATH"] = self.run + ":" + path
            try:
                said = doctor_agent.Agent().op_gpus()
            finally:
                os.environ["PATH"] = path
            self.assertEqual(said["listed"], gpus[0])
            self.assertEqual(said["inventory"], dict(zip(("gpus", "gpu_bytes", "gpu_name"), gpus)))


class Nodes(unittest.TestCase):
    def answer(self, nodes, **changes):
        return levels(doctor_verdicts.agents(
            {"nodes": nodes, "expected": 2, "errors": []}, dict(JOB, **changes)))

    def test_every_node_answers_with_cores_and_memory(self):
        node = {"python": "3.11", "cores": 4, "memory": 3 << 30}
        nodes = {"n1": node, "n2": node}
        self.assertEqual(set(self.answer(nodes).values()), {"PASS"})
        self.assertEqual(self.answer({"n1": node})["service step"], "FAIL")
        self.assertEqual(self.answer(nodes, ranks_per_node=5)["cores"], "WARN")
        for total, level in ((3, "PASS"), (4, "FAIL")):  # half of it on each node, staged twice
            self.assertEqual(self.answer(nodes, checkpoint_bytes=total << 30)["memory"], level)

    def test_gpus_are_counted_against_the_promise(self):
        def level(listed, visible, is_local=False):
            fact = {"nodes": {"n1": {"ok": {"listed": listed, "error": "", "visible": visible}}}}
            return only(doctor_verdicts.gpus(fact, dict(JOB, gpus=4, is_local=is_local)))["level"]
        self.assertEqual(level(8, "0,1,2,3"), "PASS")
        self.assertEqual(level(8, None, is_local=True), "PASS")
        for bad in ((0, None), (2, "0,1"), (8, "0,1"), (8, None)):
            self.assertEqual(level(*bad), "FAIL", bad)


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
                "anyorder": (0, "oneDNN:    2.6.3\nMPI:       Open MPI v4.1.4\ndevice:    cpu\n"),
                "ompi_info": (0, "MCA pmix: ext3x (MCA v2.1.0)\n"), "mpi_list": (0, LIST), "config": (0, CONFIG), "partitions": (0, PARTITIONS), "ldd": (0, "\tlibc.so.6 => /lib/libc.so.6 (0x7f)\n")}
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

    def test_mpirun_is_of_the_release_that_the_programs_run_with(self):
        def level(mpirun, linked, starter="mpirun"):
            return self.judge(mpi=starter, mpirun=(0, mpirun), anyorder=(0, "MPI:       %s\n" % linked))[0]["Open MPI"]
        for version, linked, expected in (("4.1.4", "4.1.6", "PASS"), ("5.0.7", "5.0.3", "PASS"), ("4.0.7", "4.0.7", "FAIL"),
                                          ("4.1.4", "5.0.7", "FAIL"), ("5.0.7", "4.1.4", "FAIL"), ("6.0.0", "6.0.1", "WARN")):
            self.assertEqual(level("mpirun (Open MPI) %s\n" % version, "Open MPI v" + linked), expected, (version, linked))
        self.assertEqual(level("mpirun (Open MPI) 5.0.7", "unknown"), "PASS")
        self.assertEqual(level("HYDRA build details:\n    Version: 4.0", "Open MPI v4.1.4"), "FAIL")
        # srun starts the ranks without it.
        self.assertEqual(level("mpirun (Open MPI) 4.1.4", "Open MPI v5.0.7", "auto"), "WARN")
        self.assertEqual(level("HYDRA build details:\n    Version: 4.0", "Open MPI v4.1.4", "auto"), "WARN")

    def test_libraries_that_are_missing_or_too_old_fail(self):
        for ldd, level, seen in (
                ((0, "\tlibdnnl.so.2 => not found\n\tlibm.so.6 => /lib/libm.so.6\n"), "FAIL", "no libdnnl.so.2"),
                ((1, "/bin/a: /lib/libc.so.6: version `GLIBC_2.38' not found (required by /bin/a)\n"), "FAIL", "libc.so.6 without GLIBC_2.38"),
                ((127, ""), "WARN", "ldd tells nothing")):
            self.assertEqual(self.judge(ldd=ldd)[0]["libraries"], level, ldd)
            self.assertEqual(doctor_site.libraries({"ldd": ldd})["seen"], seen)


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
            entry = only(doctor_verdicts.never({"number": "7", "reason": reason}, JOB))
            self.assertEqual((entry["level"], entry["seen"]), ("FAIL", "job 7: " + reason))
            self.assertTrue(entry["fix"], reason)


class Script(unittest.TestCase):
    def examine(self, *options):
        with tempfile.TemporaryDirectory() as directory:
            done = subprocess.run([os.path.join(BIN, "anyorder"), "doctor"] + list(options), cwd=directory,
                                  env=dict(os.environ, TMPDIR=directory), stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE, universal_newlines=True)
            self.assertEqual(os.listdir(directory), [], "left behind")
        return done

    def test_a_machine_alone_needs_no_run_directory(self):
        done = self.examine("--local", "--ranks-per-node", "2", "--json")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        checks = [entry["check"] for entry in json.loads(done.stdout)["findings"]]
        self.assertIn("MPI start", checks)
        self.assertNotIn("space", " ".join(checks), "of a directory that nobody named")

    def test_a_cluster_needs_one(self):
        done = self.examine("--nodes", "2")
        self.assertEqual((done.returncode, done.stdout), (64, ""), done.stderr)
        self.assertIn("--run-dir is required", done.stderr)

    def test_the_oldest_python_of_clusters_reads_it(self):
        for name in sorted(os.listdir(os.path.join(ROOT, "slurm"))):
            path = os.path.join(ROOT, "slurm", name)
            if name.endswith(".py"):
                with open(path, encoding="utf-8") as file:
                    ast.parse(file.read(), path, feature_version=(3, 6))

    def test_what_a_job_prints_may_be_any_bytes(self):
        said = doctor_job.run_to_end(["sh", "-c", "printf 'a\\377'; printf '\\377b' >&2"])
        self.assertEqual(said, (0, "a\udcff", "\udcffb"))

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


if __name__ == "__main__":
    unittest.main()
