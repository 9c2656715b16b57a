# cluster: ANYORDER_SLURM_TIMEOUT=3 ANYORDER_SLURM_GPUS=0
# The node with the launcher and the service that holds the lease loses power: Slurm requeues the job onto other nodes, and the next
# launcher need not watch either lease run out, because Slurm says that its owner is over.
. "$here/life.sh"
train run -N3 --ntasks-per-node=1 --requeue --
cluster crash n1
expect_undisturbed_end
[ "$(starts)" -eq 2 ] && [ "$(last_start nodes)" = '["n2","n3","n4"]' ] || fail "the second start: $(last_start nodes)"
[ "$(last_start slurm_restart)" = 1 ] || fail "not a requeue"
# Of the node's processes nothing was left to ask or to end: the start cost no watching.
python3 - "$run/ledger.jsonl" "$run/metrics.jsonl" <<'END' || fail "the takeover took too long"
import json, sys
from datetime import datetime
records = [json.loads(line) for line in open(sys.argv[1])]
start = [r for r in records if r["event"] == "start"][-1]
steps = [json.loads(line) for line in open(sys.argv[2])]
first = next(s for s in steps if s["incarnation"] == start["incarnation"])
seconds = (datetime.fromisoformat(first["time"][:-1]) - datetime.fromisoformat(start["time"][:-1])).total_seconds()
print("start to first step:", seconds, "s")
sys.exit(seconds > 14)  # a lease that is watched takes 15 s by the clock, not by the machine's speed
END
