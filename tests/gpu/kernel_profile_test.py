"""kernel_profile.py on tables as Nsight Compute prints them."""
import tempfile
import unittest
from pathlib import Path

import kernel_profile

RING = "void anyorder::kernels::cuda::<unnamed>::AttentionRingForwardKernel<(bool)1, (anyorder::kernels::cuda::RingFault)0>(anyorder::kernels::cuda::RingParams)"
COUNTERS = f"""==PROF== Connected to process 1234
==PROF== Profiling "AttentionRingForwardKernel": 0%....50%....100% - 5 passes
{{"name": "attention_forward", "value": 1}}
"ID","Process ID","Kernel Name","Grid Size","dram__bytes.sum","gpu__time_duration.sum","sm__inst_executed_pipe_tensor_op_hmma.sum","smsp__inst_executed.sum","smsp__inst_executed_op_ldsm.sum","smsp__pcsamp_warps_issue_stalled_barrier","smsp__pcsamp_warps_issue_stalled_barrier_not_issued","smsp__pcsamp_warps_issue_stalled_selected","smsp__pcsamp_warps_issue_stalled_wait"
"","","","","byte","ns","inst","inst","inst","warp","warp","warp","warp"
"0","1234","{RING}","(10, 16, 16)","36,500,000","361,250","19,200","276,000","n/a","10","9","50","40"
"1","1234","void anyorder::kernels::cuda::ActivationForwardKernel<__nv_bfloat16, 1, true>(X)","(4, 1, 1)","1","1","0","79472640","0","0","0","0","0"
"2","1234","void anyorder::kernels::cuda::NormFor
"""
GOALS = [{"kernel": "AttentionRingForwardKernel", "step": "step", "instructions": 2300, "hmma": 192, "ldsm": 56},
         {"kernel": "ActivationForwardKernel", "instructions": 65, "elements_a_lane": 2445312}, {"kernel": "MatrixKeyGradientKernel"}]


class TableTest(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.logs = Path(holder.name)

    def counters(self):
        (self.logs / "ncu_counters.csv").write_text(COUNTERS)
        return kernel_profile.records(self.logs, {"counters_lanes": 16})

    def test_kernels_are_called_by_their_own_names(self):
        for whole, short in ((RING, "AttentionRingForwardKernel"), ("nvjet_hsh_128x256_64x4_2x1_v_bz_coopA_NTT", "nvjet_hsh_128x256_64x4_2x1_v_bz_coopA_NTT"),
                             ("void cutlass::Kernel2<cutlass_80_tensorop<int, (int)3>>(T1::Params)", "Kernel2"), ("", "")):
            self.assertEqual(kernel_profile.short_name(whole), short)

    def test_separators_and_what_is_missing(self):
        ring, activation = self.counters()
        self.assertEqual((ring["kernel"], ring["grid"], ring["lanes"]), ("AttentionRingForwardKernel", "(10, 16, 16)", 16))
        self.assertEqual((ring["ns"], ring["dram_bytes"], ring["instructions"]), (361250, 36.5e6, 276000))
        self.assertNotIn("ldsm", ring)
        self.assertEqual(ring["stalls"], [["wait", 40], ["barrier", 10]])
        self.assertEqual(activation["stalls"], [])

    def test_a_table_that_is_not_there_or_has_no_row_is_empty(self):
        self.assertEqual(kernel_profile.records(self.logs, {}), [])
        (self.logs / "ncu_counters.csv").write_text("==ERROR== ERR_NVGPUCTRPERM\n")
        self.assertEqual(kernel_profile.records(self.logs, {}), [])

    def test_counts_are_confirmed_or_refuted(self):
        rows = kernel_profile.counted_rows(self.counters(), GOALS)
        self.assertEqual([row[0] for row in rows], ["AttentionRingForwardKernel", "ActivationForwardKernel", "MatrixKeyGradientKernel"])
        self.assertEqual(rows[0][2:], (2300, 2760, "1.20 times"))
        self.assertEqual(rows[1][2:], (65, 65, "confirmed"))
        self.assertEqual(rows[2][-1], "not profiled")

    def test_a_step_by_kernels_and_by_what_was_counted(self):
        lines = ['"ID","Kernel Name","gpu__time_duration.sum"', '"","","ns"']
        lines += [f'"{i}","{name}","{ns}"' for i, (name, ns) in enumerate([("nvjet_hsh", 2000000), (RING, 700000), (RING, 740000), ("other", 10)])]
        (self.logs / "ncu_timeline.csv").write_text("\n".join(lines))
        times = kernel_profile.records(self.logs, {"timeline_lanes": 4})
        self.assertEqual([(r["kernel"], r["launches"], r["ms"], r["percent"]) for r in times],
                         [("nvjet_hsh", 1, 2.0, 58.14), ("AttentionRingForwardKernel", 2, 1.44, 41.86), ("other", 1, 0.0, 0.0)])
        rows = kernel_profile.step_rows(times, [{"what": "products", "ms": 0.2, "kernels": "gemm|nvjet"}, {"what": "forward", "ms": 0.36, "kernels": "ringforward"},
                                                {"what": "rest", "ms": 0.1, "kernels": ""}])
        self.assertEqual(rows, [("products", 0.2, 0.5, 1, "2.50 times"), ("forward", 0.36, 0.36, 2, "confirmed"), ("rest", 0.1, 0.0, 1, "0.00 times")])

    def test_only_counters_that_this_ncu_knows_are_asked_for(self):
        self.assertEqual(kernel_profile.known_metrics("gpu__time_duration  time\nsmsp__inst_executed  count\n"), ["gpu__time_duration.sum", "smsp__inst_executed.sum"])
        self.assertEqual(len(kernel_profile.known_metrics("")), len(kernel_profile.COUNTERS))
