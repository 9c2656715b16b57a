# cluster: ANYORDER_SLURM_TIMEOUT=3 ANYORDER_SLURM_GPUS=0
# A run has all four nodes and loses the one with script and launcher. --no-kill keeps such a job,
# with nobody to start anything; the watch on another node puts it back into the queue. There it
# waits for a fourth node, until it is told to take the three that are left; the run goes on with
# fewer ranks.
. "$here/submitted.sh"
nodes_of_last_start() {
  python3 - "$run/ledger.jsonl" <<'END'
import json, sys
starts = [record for record in map(json.loads, open(sys.argv[1])) if record["event"] == "start"]
print(len(starts), len(starts[-1]["nodes"]), starts[-1]["ranks"], *starts[-1]["nodes"])
END
}
shape="--nodes 4 --ranks-per-node 1"
submit_run
await_commit
expect_nodes() { local found; found=$(nodes_of_last_start); [[ $found =~ $1 ]] || fail "starts, nodes, ranks and names of nodes: $found"; }
expect_nodes '^1 4 4 n1 n2 n3 n4$'
cluster crash n1
requeued() { job_is $job PENDING && [ "$(job_field $job Restarts)" -eq 1 ]; }
await 60 requeued
await 30 x scontrol update JobId=$job NumNodes=3 NumTasks=3 2>$name/update
expect_finished 120
expect_nodes '^2 3 3 n2 n3 n4$'
