#!/usr/bin/env bash
# Makes the Python of this folder's comparisons, once: the distribution's torch, and a virtual
# environment with pinned wheels beside it (about 21 MB to download). A plain `pip install torch`
# would bring gigabytes of CUDA. `followers` makes that of the peers of launcher/follow_metrics.py
# (about 60 MB), without torch; `metrics` that of the peers of core/metrics (about 80 MB), `harness`
# lm-evaluation-harness and the client openai (about 135 MB), too.
#
# Usage: make_environment.sh DIR [torch|followers|metrics|harness]
# With ANYORDER_PARITY_PYTHON, which is used instead, only says what that has.
# Exit status: 0 ready; 77 cannot be made here, and the comparisons will skip; 64
# ANYORDER_PARITY_PYTHON lacks something (of the others: 77).
set -euo pipefail
directory=${1:?usage: make_environment.sh DIR [torch|followers|metrics|harness]}
kind=${2:-torch}
here=$(cd "$(dirname "$0")" && pwd)
beside=--system-site-packages
time_limit=400  # seconds for all of pip, four of which may share a core: a network that hangs must not hang the tests

case $kind in
  torch)
    what="torch and transformers" pins=requirements.txt base_has="torch, ensurepip" packages="python3-torch or python3-venv"
    show='import torch, transformers, safetensors, sentencepiece
print("ready: torch", torch.__version__ + ", transformers", transformers.__version__)' ;;
  followers)
    what="wandb and mlflow-skinny" pins=followers.txt base_has=ensurepip packages=python3-venv
    show='import wandb, mlflow
print("ready: wandb", wandb.__version__ + ", mlflow", mlflow.__version__)' ;;
  metrics)
    what="scikit-learn, scipy, seqeval, pytrec_eval, ir_measures and transformers" pins=metrics.txt base_has=ensurepip packages=python3-venv
    export PIP_USE_PEP517=1 PIP_CONSTRAINT="$here/metrics.txt"  # for what seqeval is built with
    show='import ir_measures, pytrec_eval, scipy, seqeval, sklearn, transformers
print("ready: scikit-learn", sklearn.__version__ + ", scipy", scipy.__version__)' ;;
  harness)
    what="lm_eval and openai" pins=harness.txt base_has=ensurepip packages=python3-venv
    beside=  # not the distribution's torch, which cannot have its numpy
    show='import lm_eval, datasets, openai, tokenizers
print("ready: lm_eval", lm_eval.__version__ + ", datasets", datasets.__version__ + ", openai", openai.__version__)' ;;
  *) echo "make_environment.sh: '$kind' is none of torch, followers, metrics, harness" >&2; exit 64 ;;
esac
skip() {
  echo "SKIPPED: $1; name an interpreter that has $what in ANYORDER_PARITY_PYTHON"
  exit 77
}

if [ -n "${ANYORDER_PARITY_PYTHON:-}" ]; then
  "$ANYORDER_PARITY_PYTHON" -c "$show" && exit 0
  [ $kind = torch ] || skip "ANYORDER_PARITY_PYTHON=$ANYORDER_PARITY_PYTHON lacks them"
  echo "make_environment.sh: ANYORDER_PARITY_PYTHON=$ANYORDER_PARITY_PYTHON cannot import what comparisons need" >&2
  exit 64
fi

base=/usr/bin/python3  # the distribution's: no other has its torch
stamp="$directory/.ready"
wanted=$("$base" --version 2>&1 && cat "$here/$pins") || skip "there is no $base"
if [ "$(cat "$stamp" 2>/dev/null)" = "$wanted" ] && "$directory/bin/python" -c "$show"; then exit 0; fi

missing=$("$base" -c "import $base_has" 2>&1) ||
  skip "$base lacks $packages (${missing##*$'\n'})"
rm -rf "$directory"
"$base" -m venv $beside "$directory" >/dev/null || skip "no virtual environment could be made in $directory"
export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INPUT=1
timeout --kill-after=5 "$time_limit" "$directory/bin/python" -m pip install --quiet --no-compile --no-deps --only-binary :all: \
  --timeout 15 --retries 1 --requirement "$here/$pins" >"$directory/pip.log" 2>&1 ||
  skip "pip could not install $pins ($(tail -n 1 "$directory/pip.log"))"
"$directory/bin/python" -c "$show" || skip "the environment in $directory does not work"
printf '%s\n' "$wanted" >"$stamp"
