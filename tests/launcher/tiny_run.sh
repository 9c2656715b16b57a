# Shell functions of the cases that train the tiny run; for `source` after checks.sh. Its steps:
steps=300
last=step-000000300  # name of the last checkpoint

# launch RUN [options...]: the tiny run in directory RUN.
compose() {
  local run=$1; shift
  command=("$anyorder" launch --config "$here/tiny.toml" --run-dir "$run" --set data.shards="$work/shards" --set train.steps=$steps "$@")
}
launch() { compose "$@"; "${command[@]}"; }
losses() { sed 's/.*"step":\([0-9]*\),"loss":\([^,]*\),.*/\1 \2/' "$1/metrics.jsonl"; }
expect_same_run() {
  [ -n "$(digest "$1")" ] && [ "$(digest "$1")" = "$(cat reference.digest)" ] || fail "$1 ends in another state than the undisturbed run"
  losses "$1" | diff -q - reference.losses >/dev/null || fail "$1 has other losses than the undisturbed run: $(losses "$1" | diff - reference.losses | head -n 4)"
}
evaluate() { "$anyorder" eval --run-dir "$@"; }
rank_pids() { pgrep -f -- "^$bin/anyorder-train --run-dir $work/$1 " || true; }
service_pids() { pgrep -f -- "^$bin/anyorder-ckptd --run-dir $work/$1 " || true; }
# From Open MPI 5 on mpirun becomes prterun.
mpirun_pids() { pgrep -f -- "^(mpirun|prterun) .* --run-dir $work/$1 " || true; }
# start RUN [options...]: launch in the background, until a checkpoint is committed. Sets $job.
start() {
  local run=$1; shift
  compose "$work/$run" "$@"
  "${command[@]}" >"$name/log" 2>&1 &
  job=$!  # of the launcher itself, not of a shell around it
  await has_commit "$run"
  kill -0 "$job" 2>/dev/null || fail "the run ended before it could be disturbed"
}
