#!/usr/bin/env bash
# Runs both commands of the README in a fresh, minimal root of a Debian release, as a new user has
# it: git is there, nothing else. Takes about an hour for a release on two cores, half of it with a
# warm compiler cache; CI does not run it. Its results are in VERIFIED.md.
#
# Usage: tests/releases.sh 12|13 [--quick] [--keep] [--ccache DIR]
#   --quick       leaves out the cases labelled `slow`
#   --keep        leaves the root behind and names it (default: it is removed)
#   --ccache DIR  compiler cache that is shared with other runs (default: none, as for a new user)
# Needs root, debootstrap, and the network. What is committed is tested. The mounts are in a
# namespace that ends with each command, and what a command leaves running is killed. Certificates
# of this machine's administrator are copied, for networks that need them. Prints one line; exit
# status 0 if both commands succeeded, 1 if one failed, 64 for a bad command line, 74 if no root
# could be made.
set -euo pipefail
cd "$(dirname "$0")/.."
fail() { echo "releases.sh: $2" >&2; exit "$1"; }
quick="" keep="" ccache=""
case "${1:-}" in
  12) suite=bookworm ;;
  13) suite=trixie ;;
  -h|--help) sed -n '2,/^set -/{/^#/s/^# \{0,1\}//p}' tests/releases.sh; exit 0 ;;
  *) fail 64 "'${1:-}' is no release; use 12 or 13" ;;
esac
release=$1; shift
while [ $# -gt 0 ]; do
  case $1 in
    --quick) quick=--quick; shift ;;
    --keep) keep=1; shift ;;
    --ccache) ccache=$(realpath -e "${2:-}") || fail 64 "--ccache needs a folder"; shift 2 ;;
    *) fail 64 "unknown option '$1'; see releases.sh --help" ;;
  esac
done
[ "$(id -u)" -eq 0 ] || fail 64 "only root can make a root directory; use sudo"
command -v debootstrap >/dev/null || fail 74 "there is no debootstrap; install the package"

work=$(mktemp -d "${TMPDIR:-/tmp}/anyorder-release.XXXXXX")
root=$work/root log=$work/log
# Not by a process namespace: what a Slurm of the tests does to its jobs needs the machine's own.
end_processes() {
  local process
  for process in /proc/[0-9]*; do
    if [ "$process/root" -ef "$root" ]; then kill -KILL "${process#/proc/}" 2>/dev/null || true; fi
  done
}
finish() {
  end_processes
  [ -n "$keep" ] || rm -rf --one-file-system "$root"
}
trap finish EXIT
debootstrap --variant=minbase --include=git,ca-certificates $suite "$root" >"$log" 2>&1 ||
  fail 74 "debootstrap failed; see $log"
commit=$(git rev-parse --short=8 HEAD)
git clone --quiet --no-hardlinks . "$root/anyorder" 2>>"$log" || fail 74 "no clone; see $log"
cp -L /etc/resolv.conf "$root/etc/resolv.conf"
printf '127.0.0.1 localhost %s\n' "$(uname -n)" >"$root/etc/hosts"
cp -r /usr/local/share/ca-certificates/. "$root/usr/local/share/ca-certificates/"
env -u TMPDIR chroot "$root" update-ca-certificates >>"$log" 2>&1 || fail 74 "no certificates; see $log"
[ -z "$ccache" ] || mkdir "$root/ccache"

# in_root NAME SCRIPT [ARGUMENTS]: runs a script of the clone and prints how it ended.
in_root() {
  local begin=$SECONDS status=0
  unshare --mount --propagation private bash -c '
    root=$1 ccache=$2; shift 2
    # By chroot alone, tests could make no mount namespaces of their own.
    mount --rbind "$root" "$root"
    mount -t proc proc "$root/proc"
    mount --rbind /sys "$root/sys"
    mount --rbind /dev "$root/dev"
    mount -t tmpfs tmpfs "$root/dev/shm"
    [ -z "$ccache" ] || mount --bind "$ccache" "$root/ccache"
    cd "$root"
    pivot_root . mnt
    umount --lazy /mnt
    exec /usr/bin/env -i HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin \
      PIP_CERT=/etc/ssl/certs/ca-certificates.crt ${ccache:+CCACHE_DIR=/ccache} bash -c "cd /anyorder && exec bash \"\$@\"" - "$@"
  ' - "$root" "$ccache" "${@:2}" </dev/null >"$work/$1.log" 2>&1 || status=$?
  end_processes
  echo "$1 ended with $status after $((SECONDS - begin)) s"
  return $status
}
status=0
quickstart=$(in_root quickstart launcher/quickstart.sh) || status=1
tests=$(in_root tests tests/run.sh $quick) || status=1
count() { grep -cE "$1" "$work/tests.log" || true; }
passed=$(count '^ *[0-9]+/[0-9]+ Test .* Passed ')
skipped=$(count '^ *[0-9]+/[0-9]+ Test .*\*\*\*Skipped ')
failed=$(count '^ *[0-9]+/[0-9]+ Test .*\*\*\*(Failed|Timeout|Exception|Not Run)')
echo "Debian $release, $commit: $quickstart; $tests: $passed passed, $failed failed, $skipped skipped; logs in $work"
exit $status
