#!/usr/bin/env bash
# sbatch, scontrol, squeue, srun and scancel for tests of options: what they are called with is
# written down, what they answer is in files of
# $FAKE_SLURM. Whether a job runs is for tests/slurm, with a real Slurm.
set -u
name=$(basename "$0")
printf '%s' "$name" >>"$FAKE_SLURM/calls"
printf ' [%s]' "$@" >>"$FAKE_SLURM/calls"
echo >>"$FAKE_SLURM/calls"
case $name in
  sbatch)
    number=$(($(cat "$FAKE_SLURM/last" 2>/dev/null || echo 100) + 1))
    if [ -f "$FAKE_SLURM/refusal" ] && grep -q "^$number:" "$FAKE_SLURM/refusal"; then
      sed -n "s/^$number://p" "$FAKE_SLURM/refusal" >&2
      exit 1
    fi
    echo "$number" >"$FAKE_SLURM/last"
    echo "sbatch: warning: a word of the site" >&2
    echo "$number;cluster" ;;
  scontrol)
    # `scontrol -o show job N`
    file=$FAKE_SLURM/job-${*: -1}
    [ -f "$file" ] && exec cat "$file"
    echo "slurm_load_jobs error: Invalid job id specified" >&2
    exit 1 ;;
  srun) cat "$FAKE_SLURM/mpi-list" 2>/dev/null ;;
  squeue) cat "$FAKE_SLURM/reason" 2>/dev/null ;;
esac
exit 0
