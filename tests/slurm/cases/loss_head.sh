# cluster: ANYORDER_SLURM_TIMEOUT=3 ANYORDER_SLURM_GPUS=0
# The node with the launcher and the service that holds the lease loses power: Slurm requeues the
# job onto other nodes, and the next launcher need not watch either lease run out, because Slurm
# says that its owner is over.
. "$here/life.sh"
train run -N3 --ntasks-per-node=1 --requeue --
cluster crash n1
expect_finished
expect_starts 2 3 '["n2","n3","n4"]'
[ "$(last_start slurm_restart)" = 1 ] || fail "not a requeue"
# A lease that is watched takes 15 s by the clock, however fast the machine is, and here are two;
# the first start had none to watch.
python3 - $name/log "$run/metrics.jsonl" <<'END' || fail "the takeover took too long"
import json, sys
from datetime import datetime
seconds = lambda text: datetime.fromisoformat(text).timestamp()
launched = [seconds(line.split()[1]) for line in open(sys.argv[1]) if line.startswith("launched ")]
first_steps = {}
for step in map(json.loads, open(sys.argv[2])):
    first_steps.setdefault(step["attempt"], seconds(step["time"][:-1]))
first, second = first_steps[1] - launched[0], first_steps[2] - launched[-1]
print(f"launch to first step: {first:.1f} s, then {second:.1f} s")
sys.exit(second - first > 14)
END
