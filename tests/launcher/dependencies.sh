#!/usr/bin/env bash
# A configuration names each library that is missing, too old, or newer than what was tried.
#
# Usage: dependencies.sh WORK_DIR
set -eu
work=$1
source=$(cd "$(dirname "$0")/../.." && pwd)
fail() { echo "FAILED: $*" >&2; cat "$work/log" >&2; exit 1; }
rm -rf "$work" && mkdir -p "$work/old" "$work/new/oneapi/dnnl"
printf '#define XXH_VERSION_%s\n' 'MAJOR 0' 'MINOR 7' 'RELEASE 4' >"$work/old/xxhash.h"
printf '#define DNNL_VERSION_%s\n' 'MAJOR 9' 'MINOR 0' 'PATCH 1' >"$work/new/oneapi/dnnl/dnnl_version.h"
if cmake -S "$source" -B "$work/build" -G Ninja -DANYORDER_CUDA=OFF -DCMAKE_DISABLE_FIND_PACKAGE_CLI11=TRUE \
  "-DANYORDER_XXHASH_INCLUDE=$work/old" "-DANYORDER_DNNL_INCLUDE=$work/new" >"$work/log" 2>&1; then
  fail "it is configured without CLI11"
fi
for line in "CLI11 is missing: 2.1 or newer is needed (Debian package libcli11-dev)" \
  "xxHash 0.7.4 is too old: 0.8 or newer is needed (Debian package libxxhash-dev)" \
  "oneDNN 9.0.1 is newer than 3.7, the newest release that was tried"; do
  grep -qF "$line" "$work/log" || fail "no line '$line'"
done
! grep -qF "GoogleTest" "$work/log" || fail "it asks for the tests' packages"
