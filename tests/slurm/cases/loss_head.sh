# cluster: ANYORDER_SLURM_TIMEOUT=3 ANYORDER_SLURM_GPUS=0
# The node with the launcher and the service that holds the lease loses power: Slurm requeues the
# job onto other nodes, and the next launcher need not watch either lease run out, because Slurm
# says that its owner is over.
. "$here/life.sh"
train run -N3 --ntasks-per-node=1 --requeue --
cluster crash n1
expect_undisturbed_end
[ "$(starts)" -eq 2 ] && [ "$(last_start nodes)" = '["n2","n3","n4"]' ] || fail "the second start: $(last_start nodes)"
[ "$(last_start slurm_restart)" = 1 ] || fail "not a requeue"
# A lease that is watched takes 15 s by the clock, however fast the machine is, and here are two.
python3 - $name/log "$run/metrics.jsonl" <<'END' || fail "the takeover took too long"
import json, sys
from datetime import datetime
launched = [line.split()[1] for line in open(sys.argv[1]) if line.startswith("launched ")][-1]
first = next(step for step in map(json.loads, open(sys.argv[2])) if step["attempt"] == 2)
seconds = (datetime.fromisoformat(first["time"][:-1]) - datetime.fromisoformat(launched)).total_seconds()
print("launch to first step:", seconds, "s")
sys.exit(seconds > 14)
END
