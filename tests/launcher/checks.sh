# What cases of real runs share; sourced by the scripts of this folder and of tests/slurm. $anyorder
# is the program, $here the script's folder, and what a case writes goes to $name/, where log and
# err tell a failure's cause.
set -u
here=$(cd "$(dirname "$0")" && pwd)

# begin BIN_DIR WORK_DIR NAME: goes to WORK_DIR and empties NAME/ there.
begin() {
  bin=$1 work=$2 name=$3
  anyorder=$bin/anyorder
  mkdir -p "$work" && cd "$work" || exit 1
  rm -rf "$name" && mkdir "$name"
}
fail() { echo "FAILED: $*" >&2; tail -n 15 "$name/log" "$name/err" 2>/dev/null >&2; exit 1; }
expect_status() { [ "$1" -eq "$2" ] || fail "exit status $1, expected $2 ($3)"; }
expect_text() { grep -q -- "$1" "$2" || fail "'$1' is not in $2: $(tail -n 3 "$2")"; }
# succeeds COMMAND...: its output becomes $name/log.
succeeds() { "$@" >"$name/log" 2>&1 || fail "exit status $? of: $*"; }
prep() { succeeds "$anyorder" prep "$@" --no-filter --no-dedup; }
# expect_refused STATUS TEXT COMMAND...: it ends so and says TEXT.
expect_refused() {
  local status=$1 text=$2; shift 2
  "$@" >"$name/out" 2>"$name/err"
  expect_status $? "$status" "$*: $(tail -n 3 "$name/err")"
  expect_text "$text" "$name/err"
}
expect_refused_in_a_line() {
  expect_refused "$@"
  [ "$(wc -l <"$name/err")" -eq 1 ] || fail "not one line: $(cat "$name/err")"
}
# await COMMAND...: until it succeeds. Only what never comes is waited for so long: a limit that a
# busy machine can reach would fail a case in which nothing is wrong.
patience_s=400
await_pause=2  # hundredths of a second between two looks
await() {
  local pause end=$((SECONDS + patience_s))
  printf -v pause 0.%02d $await_pause
  until "$@"; do
    [ $SECONDS -lt $end ] || fail "waited $patience_s s in vain for: $*"
    sleep $pause
  done
}

# setting SECTION KEY FILE: its value in a configuration.
setting() {
  sed -n "/^\[$1\]/,/^\[/{s/^$2 = \"\([^\"]*\)\".*/\1/p; s/^$2 = \([^\"# ]*\).*/\1/p}" "$3" | head -n 1
}
newest() { ls -d "$1"/checkpoints/step-*[0-9] 2>/dev/null | tail -n 1; }
has_commit() { [ -n "$(newest "$1")" ]; }
# digest RUN: of the state of its newest checkpoint.
digest() { "$anyorder" inspect "$(newest "$1")" --json | sed -n 's/.*"state_digest": "\(.*\)".*/\1/p'; }
starts() { cat "$1"/ledger*.jsonl | grep -c '"event":"start"'; }
expect_nothing_redone() {
  [ ! -e "$1/metrics.redone.jsonl" ] || fail "$(wc -l <"$1/metrics.redone.jsonl") steps of $1 were trained twice"
}
# What a run did before it stopped is saved: nothing will be trained twice.
expect_saved_where_it_stopped() {
  local last; last=$(tail -n 1 "$1/metrics.jsonl" | sed 's/.*"step":\([0-9]*\),.*/\1/')
  [ -d "$(printf '%s/checkpoints/step-%09d' "$1" "$last")" ] || fail "no checkpoint of step $last, where $1 stopped"
}
# kill_all RUN_DIR JOB: kills JOB, or -JOB's process group, and what runs for a run directory that
# begins so; returns when it is gone.
kill_all() {
  kill -9 -- "$2" $(pgrep -f -- "--run-dir $1") 2>/dev/null
  wait "${2#-}" 2>/dev/null
  gone() { ! pgrep -f -- "--run-dir $1" >/dev/null; }
  await gone "$1"
}
