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
  await has_commit "$run"
}
# has_step N: a checkpoint of step N or a later one.
has_step() { local step; step=$(newest "$run"); step=${step##*-}; [ $((10#${step:-0})) -ge "$1" ]; }
step_of() { x squeue -h -s -j "$job" -o '%i %j' | sed -n "s/ $1\..*//p" | tail -n 1; }
