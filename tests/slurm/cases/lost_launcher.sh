# cluster: ANYORDER_SLURM_NODES=2 ANYORDER_SLURM_GPUS=0
# The launcher is killed and its job lives: the ranks end with it, the service does not, and the
# next launch in the job goes on from there.
. "$here/life.sh"
train run -N2 --ntasks-per-node=1 -- --set run.private=true
old=$(pgrep -f "^$bin/anyorder-train --run-dir $run " | paste -sd,)
pkill -9 -f "^$anyorder launch --backend slurm .* --run-dir $run "
no_old() { ! ps -o stat= -p "$old" | grep -qv '^[ZX]'; }
await no_old
expect_finished
[ "$(starts "$run")" -eq 2 ] || fail "$(starts "$run") starts"
# Also what nodes and Slurm itself wrote for the run is its user's alone.
open=$(find "$run" ! -type l -perm /077) && [ -z "$open" ] || fail "others may use: $open"
expect_text "ending step .* of an earlier launch" $name/log
