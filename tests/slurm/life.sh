# What the cases about the life of a training job share; sourced by them. A job here is the plainest
# script that forwards signals.

# train RUN [sbatch options...] -- [launch options...]: submits a job that trains $name/RUN. Sets
# $run and $job.
train() {
  run=$work/$name/$1; shift
  local options=()
  while [ "$1" != -- ]; do options+=("$1"); shift; done
  shift
  cat >$name/script <<END
#!/bin/bash
trap 'kill -USR1 \$launch' USR1 TERM
echo "launched \$(date -u +%FT%T.%3N)"
for try in 1 2; do
  "$anyorder" launch --backend slurm --config "$config" --run-dir "$run" --set data.shards="$work/shards" $* &
  launch=\$!
  while :; do wait \$launch; status=\$?; kill -0 \$launch 2>/dev/null || break; done
  [ \$status = 137 ] || break  # it was killed
done
echo "launch ended with \$status"
exit \$status
END
  shown+=("$work/$name/log" "$run/ckptd.log")
  job=$(submit --open-mode=append --output="$work/$name/log" "${options[@]}" "$name/script") || fail "sbatch"
  await 60 has_commit 1
}
num_commits() { ls -d "$run"/checkpoints/step-*[0-9] 2>/dev/null | wc -l; }
has_commit() { [ "$(num_commits)" -ge "$1" ]; }
# has_step N: a checkpoint of step N or a later one.
has_step() { local newest; newest=$(ls -d "$run"/checkpoints/step-*[0-9] 2>/dev/null | tail -n 1); newest=${newest##*-}; [ $((10#${newest:-0})) -ge "$1" ]; }
# Of the last start, as the ledger has it: e.g. ranks or nodes.
last_start() { grep '"event":"start"' "$run/ledger.jsonl" | tail -n 1 | sed "s/.*\"$1\":\(\[[^]]*\]\|[^,]*\).*/\1/"; }
step_of() { x squeue -h -s -j "$job" -o '%i %j' | sed -n "s/ $1\..*//p" | tail -n 1; }
expect_undisturbed_end() { expect_finished 150; }
