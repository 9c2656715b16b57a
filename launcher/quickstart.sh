#!/usr/bin/env bash
# From a clone to a trained, killed, resumed and exported model on this machine, in about ten
# minutes on two cores.
#
# Usage: quickstart.sh [--corpus PATH] [--steps N] [--ranks N] [--dir DIR]
#   --corpus PATH  .txt (one sentence a line, a blank line ends a document) or .jsonl, each
#                  optionally .gz or .zst, or a folder of them.
#                  Default: the prose of Perl's manual, from the package perl-doc.
#   --steps N      training steps                 (default 400)
#   --ranks N      MPI trainer ranks              (default 2)
#   --dir DIR      where everything is written    (default quickstart-run); an existing one must
#                  be empty
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
corpus="" steps=400 ranks=2 dir=quickstart-run

fail() { echo "quickstart: $2" >&2; exit "$1"; }
say() { printf '\n== %s\n' "$*"; }

while [ $# -gt 0 ]; do
  case "$1" in
    --corpus|--steps|--ranks|--dir)
      [ $# -ge 2 ] || fail 64 "$1 needs a value"
      declare "${1#--}=$2"; shift 2 ;;
    -h|--help) sed -n '2,/^set -/s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit 0 ;;
    *) fail 64 "unknown option '$1'; see quickstart.sh --help" ;;
  esac
done
[[ $steps =~ ^[0-9]+$ && $steps -ge 4 ]] || fail 64 "--steps $steps: a whole number of at least 4 is needed"
[[ $ranks =~ ^[0-9]+$ && $ranks -ge 1 ]] || fail 64 "--ranks $ranks: a whole number of at least 1 is needed"
[ -z "$corpus" ] || [ -e "$corpus" ] || fail 64 "--corpus '$corpus' does not exist"
if [ -e "$dir" ] && [ -n "$(ls -A "$dir" 2>/dev/null)" ]; then
  fail 64 "--dir '$dir' is not empty; name another folder or remove it (nothing was changed)"
fi
mkdir -p "$dir"
dir=$(cd "$dir" && pwd)
started=$SECONDS

say "Packages"
bash "$root/launcher/install_packages.sh" quickstart

say "Build (Release, $root/build)"
cmake -S "$root" --preset release -B "$root/build" -DANYORDER_BUILD_TESTS=OFF >"$dir/configure.log" \
  || { tail -n 20 "$dir/configure.log" >&2; fail 70 "configuring failed; the whole log is $dir/configure.log"; }
cmake --build "$root/build" --target anyorder anyorder-prep anyorder-train anyorder-ckptd
anyorder=$root/build/bin/anyorder

say "Text"
if [ -z "$corpus" ]; then
  corpus=$dir/corpus.txt
  dpkg -L perl-doc | grep '\.pod$' | sort | xargs perl "$root/data/prep/pod_to_text.pl" >"$corpus"
fi
du -shL "$corpus"

say "Vocabulary and shards"
# A small vocabulary for a small model; a short text may support fewer pieces still.
"$anyorder" prep --input "$corpus" --output "$dir/shards" --vocab-size 8000

run=$dir/run
launch() {
  "$anyorder" launch --config "$root/configs/xlnet-tiny.toml" --run-dir "$run" --ranks "$ranks" --resume "$1" \
    --set "data.shards=$dir/shards" --set train.device=auto --set "train.steps=$steps" --set "checkpoint.every=$((steps / 8 > 0 ? steps / 8 : 1))"
}

say "Pretraining on $ranks MPI ranks; everything will be killed (kill -9) half way"
setsid bash -c "$(declare -f launch); $(declare -p anyorder root run ranks dir steps); launch never" &
job=$!
trap 'kill -9 -- "-$job" 2>/dev/null || true' INT TERM
committed() { ls -d "$run"/checkpoints/step-*[0-9] 2>/dev/null | tail -n 1; }
logged_step() { tail -n 1 "$run/metrics.jsonl" 2>/dev/null | grep -o '"step": *[0-9]*' | grep -o '[0-9]*$' || echo 0; }
while kill -0 "$job" 2>/dev/null; do
  step=$(logged_step)
  if [ -n "$(committed)" ] && [ "${step:-0}" -ge $((steps / 2)) ]; then break; fi
  sleep 0.5
done
kill -0 "$job" 2>/dev/null || { wait "$job" || fail $? "training ended early; see the messages above"; }
# Launcher and mpirun die here and take their ranks along; the checkpoint service is a session of
# its own and survives.
disown "$job"  # or bash reports the death of its job in the middle of ours
kill -9 -- "-$job" 2>/dev/null || true
while kill -0 "$job" 2>/dev/null; do sleep 0.1; done
trap - INT TERM
printf '\n'
say "Killed after step $(logged_step); newest committed checkpoint: $(basename "$(committed)")"

say "Resuming"
launch required

say "Export"
"$anyorder" export --run-dir "$run" --format hf --output "$dir/hf"
"$anyorder" report "$run"

say "Done in $((SECONDS - started)) s"
cat <<SUMMARY
  text             $corpus
  shards           $dir/shards
  run              $run            (anyorder status --run-dir $run)
  checkpoints      $run/checkpoints
  metrics          $run/metrics.jsonl, TensorBoard: $run/tensorboard
  curves           $run/report.html
  Hugging Face     $dir/hf
SUMMARY
