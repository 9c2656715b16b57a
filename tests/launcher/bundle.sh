#!/usr/bin/env bash
# The bundle where nothing is installed: unpacked into a root that has glibc, a shell and nothing
# else, and run there.
#
# Usage: bundle.sh WORK_DIR ARCHIVE COMMAND...      COMMAND makes ARCHIVE
# Where mount namespaces are refused (some containers) the same runs in this root, without
# environment: then only the libraries' paths, which are checked first, tell what came from where.
# Exit status 77 without patchelf.
set -eu
work=$1 archive=$2
shift 2
export LC_ALL=C
command -v patchelf >/dev/null || { echo "skipped: no patchelf"; exit 77; }
rm -rf "$work" && mkdir -p "$work/root"
fail() { echo "FAILED: $*" >&2; exit 1; }

"$@" || fail "making the bundle"
[ "$(wc -c <"$archive")" -le $((64 << 20)) ] || fail "the archive is larger than 64 MiB"
python3 -m tarfile -e "$archive" "$work/root"  # as on machines without xz
mv "$work"/root/anyorder-bundle-* "$work/root/moved elsewhere"  # a name that the build never saw, with a blank
bundle="$work/root/moved elsewhere"

# Of this machine only glibc, and nothing that names its folders. ldd of the least environment, so
# that no setting here helps. mpirun is the folder's own script, load_anyorder.py a Python program.
while IFS= read -r elf; do
  paths=$(readelf -d "$elf" | sed -n 's/.*(R\(UN\)\?PATH).*\[\(.*\)\]/\2/p')
  case $paths in '$ORIGIN/'*) ;; *) fail "$elf has the library path '$paths'" ;; esac
  case $paths in *:*) fail "$elf has several library paths: $paths" ;; esac
  foreign=$(env -i ldd "$elf" | grep -v "$bundle/" | sed -n 's/^\t*\([^ ]*\) => .*/\1/p' |
    grep -Ev '^lib(c|m|mvec|dl|rt|pthread|resolv|util)\.so\.' || true)
  [ -z "$foreign" ] || fail "$elf takes from this machine: $foreign"
done < <(find "$bundle" -type f \( -path '*/bin/*' -o -name '*.so*' \) ! -path '*/bin/mpirun' ! -name '*.py' -print; echo "$bundle/mpi/bin/mpirun")

# A root with glibc, a shell, /proc and /dev. Open MPI's session folder is in /tmp.
mkdir -p "$work/root"/{bin,proc,dev,sys,tmp,etc,work}
cp "$(readlink -f /bin/sh)" "$work/root/bin/sh"
{ ldd /bin/sh; env -i ldd "$bundle/bin/anyorder-prep"; } | grep -o '/[^ ]*/\(ld-linux\|lib\(c\|m\|mvec\|dl\|rt\|pthread\|resolv\|util\)\.so\)[^ ]*' | sort -u |
  while read -r library; do
    mkdir -p "$work/root$(dirname "$library")" && cp -L "$library" "$work/root$library"
  done
# Named by name at run time: the host's own name and the user's.
for library in /lib/*-linux-gnu/libnss_files.so.2; do cp -L "$library" "$work/root/lib/${library#/lib/}"; done
echo 'root:x:0:0::/:/bin/sh' >"$work/root/etc/passwd"
echo '127.0.0.1 localhost' >"$work/root/etc/hosts"
namespace=(unshare --mount --pid --fork)
"${namespace[@]}" true 2>/dev/null || namespace=(unshare --user --map-root-user --mount --pid --fork)
if "${namespace[@]}" sh -c 'mount -t proc proc "$1/proc" && mount --rbind /dev "$1/dev" && mount --rbind /sys "$1/sys"' sh "$work/root" 2>/dev/null; then
  inside() {
    env -i HOME=/ OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 "${namespace[@]}" "$(command -v sh)" -c \
      'PATH=/usr/sbin:/usr/bin:/sbin:/bin; root=$1; shift; mount -t proc proc "$root/proc" && mount --rbind /dev "$root/dev" && mount --rbind /sys "$root/sys" && cd "$root" && exec chroot . "$@"' \
      sh "$work/root" "$@"
  }
  root=""
else
  echo "no mount namespaces here: running without a root of its own"
  inside() { env -i HOME=/ PATH=/nonexistent OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 "$@"; }
  root=$work/root
fi
moved="$root/moved elsewhere"

inside "$moved/bin/anyorder" --help >"$work/help" && grep -q launch "$work/help" || fail "anyorder --help"
inside "$moved/bin/core.base_test" >"$work/unit.log" || fail "a test program: $(tail -n 3 "$work/unit.log")"
inside "$moved/bin/anyorder" prep --input "$moved/data/readmes.txt" --output "$root/work/shards" --vocab-size 500 >"$work/prep.log" 2>&1 ||
  fail "prep: $(tail -n 3 "$work/prep.log")"
for ranks in 1 2; do
  run=$root/work/run$ranks
  inside "$moved/bin/anyorder" launch --config "$moved/configs/xlnet-tiny.toml" --run-dir "$run" --ranks $ranks --set data.shards="$root/work/shards" \
    --set train.steps=20 --set train.global_batch_size=8 --set train.micro_batch_size=1 --set checkpoint.every=20 --set model.num_layers=1 \
    --set model.model_dim=64 --set model.num_heads=1 --set model.ffn_dim=128 --set sampling.seq_len=64 --set sampling.reuse_len=32 \
    --set sampling.perm_size=32 --set sampling.num_predict=10 --set model.mem_len=32 >"$work/launch$ranks.log" 2>&1 ||
    fail "$ranks ranks: $(tail -n 5 "$work/launch$ranks.log")"
  inside "$moved/bin/anyorder" status --run-dir "$run" >"$work/status" || fail "status: $(cat "$work/status")"
  inside "$moved/bin/anyorder" inspect "$run/checkpoints/step-000000020" --json --verify >"$work/inspect$ranks" || fail "inspect: $(cat "$work/inspect$ranks")"
done
digest() { sed -n 's/.*"state_digest": "\(.*\)".*/\1/p' "$1"; }
[ -n "$(digest "$work/inspect1")" ] && [ "$(digest "$work/inspect1")" = "$(digest "$work/inspect2")" ] || fail "1 and 2 ranks end in different states"
inside "$moved/bin/mpirun" -n 2 --oversubscribe "$moved/bin/dist.mpi_test" >"$work/mpi.log" 2>&1 ||
  fail "mpirun: $(tail -n 5 "$work/mpi.log")"
# check.sh comes along, and finds the programs from the folder that it lies in.
status=0
"$bundle/tests/gpu/check.sh" rerun starts_without_driver --out "$work/report" >"$work/check.log" 2>&1 || status=$?
case $status in 0 | 77) ;; *) fail "check.sh: status $status: $(tail -n 5 "$work/check.log")" ;; esac
grep -q '| starts_without_driver | passed |' "$work/report/report.md" && [ -s "$work/report/report.tgz" ] || fail "check.sh: $(cat "$work/check.log")"
echo "the bundle runs by itself: $(wc -c <"$archive") bytes, 1 and 2 ranks end in $(digest "$work/inspect1")"
rm -rf "$work"
