# cluster: ANYORDER_SLURM_GPUS=0
# Steps die and the nodes live: one service of three, all services, and the ranks while a save is
# being written.
. "$here/life.sh"
train run -N3 --ntasks-per-node=1 --no-kill --
pkill -9 -o -f "^$bin/anyorder-ckptd --run-dir $run " || fail "no service"  # the oldest: one of three
# The ranks of start N train.
trains() { [ "$(grep -c '"event":"train"' "$run/ledger.jsonl")" -ge "$1" ]; }
await trains 2
expect_text "checkpoint service ended" $name/log
service=$(step_of anyorder-ckptd); [ -n "$service" ] || fail "no step of the service"
x scancel --signal=KILL "$service"
await trains 3
# A save ends within 50 ms, which a look now and then misses: one service is held until it is seen.
held=$(pgrep -o -f "^$bin/anyorder-ckptd --run-dir $run ") && kill -STOP "$held" || fail "no service"
is_saving() { compgen -G "$run/checkpoints/*.tmp" >/dev/null; }
await is_saving
pkill -9 -f "^$bin/anyorder-train --run-dir $run "
kill -CONT "$held"
await trains 4
expect_finished
