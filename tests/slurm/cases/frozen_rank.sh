# cluster: ANYORDER_SLURM_NODES=2 ANYORDER_SLURM_GPUS=0
# A rank on another node than the launcher stands still: it is named, and its start ends, stopped
# ranks and all.
. "$here/life.sh"
train run -N2 --ntasks-per-node=1 -- --set dist.hang_report_seconds=2 --set dist.collective_timeout_seconds=5
frozen=$(pgrep -f "^$bin/anyorder-train --run-dir $run " | tail -n 1)
kill -STOP "$frozen"
expect_finished
expect_text "rank [01] on .*no sign of life for" $name/log
expect_text "starting again" $name/log
! grep -q '^State:.[^ZX]' "/proc/$frozen/status" 2>/dev/null || fail "the stopped rank still lives"
