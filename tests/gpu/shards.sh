#!/usr/bin/env bash
# A GoogleTest program as several processes at once, each with its share of the cases: what takes
# long is the reference on the CPU, which has one thread. Their logs come one after another.
#
# Usage: shards.sh COUNT PROGRAM ARGUMENT...; exit status: the highest of the processes'.
set -u
count=$1
shift
logs=$(mktemp -d "${TMPDIR:-/tmp}/anyorder-shards.XXXXXX") || exit 74
tell() { cat "$logs"/*; rm -rf "$logs"; }
trap 'tell; exit 124' TERM
pids=()
for ((shard = 0; shard < count; ++shard)); do
  GTEST_TOTAL_SHARDS=$count GTEST_SHARD_INDEX=$shard "$@" >"$logs/$shard" 2>&1 &
  pids+=($!)
done
status=0
for pid in "${pids[@]}"; do
  wait "$pid"
  each=$?
  [ $each -le $status ] || status=$each
done
tell
exit $status
