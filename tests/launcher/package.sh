#!/usr/bin/env bash
# What `cmake --install` and the Debian package put where, and that it runs from there.
#
# Usage: package.sh install|deb|minimal_root BUILD_DIR WORK_DIR
#   install        a tree with a prefix of its own: prep, launch, status and doctor from bin/
#   deb            the package: its files, and that the packages it names hold every library of the
#                  programs
#   minimal_root   the package installed by apt in a root of this machine's release, made by
#                  mmdebstrap, and the same run there; needs root and the network, so CTest does not
#                  run it
# Exit status 77 where a tool is missing.
set -eu
case=$1 build=$2 work=$3
root_of_source=$(cd "$(dirname "$0")/../.." && pwd)
export LC_ALL=C
rm -rf --one-file-system "$work" && mkdir -p "$work"
fail() { echo "FAILED: $*" >&2; exit 1; }
need() { command -v "$1" >/dev/null || { echo "skipped: no $1"; exit 77; }; }

# run_from BIN CONFIGS DIR [COMMAND...]: text to a checkpoint, with nothing but BIN and the system's
# folders in PATH. COMMAND precedes each program.
run_from() {
  local bin=$1 configs=$2 dir=$3 keys key
  shift 3
  keys=(train.steps=4 train.global_batch_size=4 train.micro_batch_size=1 checkpoint.every=4 model.num_layers=1
    model.model_dim=32 model.num_heads=1 model.head_dim=32 model.ffn_dim=64 model.mem_len=16 sampling.seq_len=32
    sampling.reuse_len=16 sampling.perm_size=16 sampling.num_predict=5 "data.shards=$dir/shards")
  "$@" "$bin/anyorder" prep --input "$dir/text.txt" --output "$dir/shards" --vocab-size 300 --no-filter --no-dedup ||
    fail "prep"
  "$@" "$bin/anyorder" launch --config "$configs/xlnet-tiny.toml" --run-dir "$dir/run" --ranks 2 \
    $(for key in "${keys[@]}"; do echo --set "$key"; done) || fail "launch"
  "$@" "$bin/anyorder" status --run-dir "$dir/run" || fail "status"
  "$@" "$bin/anyorder" inspect "$dir/run/checkpoints/step-000000004" --verify || fail "inspect"
  "$@" "$bin/anyorder" doctor --local || fail "doctor"
}
text() { (cd "$root_of_source" && find . -name '*.md' -not -path './build*' -exec cat {} + 2>/dev/null | head -c 300000); }

build_package() {
  need dpkg-shlibdeps
  need file
  (cd "$build" && cpack -G DEB -B "$work") >"$work/cpack.log" 2>&1 || fail "cpack: $(tail -n 5 "$work/cpack.log")"
  package=$(ls "$work"/anyorder_*.deb)
}

case_install() {
  local prefix="$work/moved elsewhere" program usage
  cmake --install "$build" --prefix "$work/tree" >"$work/install.log" || fail "cmake --install"
  mv "$work/tree" "$prefix"
  text >"$work/text.txt"
  for program in "$prefix"/libexec/anyorder/bin/anyorder*; do
    readelf -d "$program" | grep -E 'R(UN)?PATH' | grep -F "$build" && fail "$program looks for libraries in the build folder"
    ! grep -qF "$build/bin" "$program" || fail "$program knows the build folder"
  done
  # Nor has it what it does not use: libraries of MPI take signals that nohup ignores.
  for program in anyorder-prep anyorder-ckptd; do
    ! readelf -d "$prefix/libexec/anyorder/bin/$program" | grep -q 'NEEDED.*libmpi' || fail "$program is linked with MPI"
  done
  for program in "$build"/bin/*.py; do
    [ -x "$prefix/libexec/anyorder/bin/$(basename "$program")" ] || fail "no $program"
  done
  usage=$(python3 "$prefix/libexec/anyorder/bin/convert_tf.py" 2>&1) || true
  [[ $usage == "convert_tf.py: usage"* ]] || fail "convert_tf.py: $usage"
  [ -s "$prefix/share/doc/anyorder/README.md" ] && [ -s "$prefix/share/doc/anyorder/copyright" ] || fail "no documentation"
  (run_from "$prefix/bin" "$prefix/share/anyorder/configs" "$work" env PATH=/usr/bin:/bin) >"$work/log" 2>&1 ||
    { tail -n 15 "$work/log" >&2; fail "the installed tree does not run"; }
}

case_deb() {
  local depends program library owner
  need dpkg-query
  build_package
  depends=", $(dpkg-deb -f "$package" Depends), "
  dpkg-deb -c "$package" | awk '{ print $6 }' >"$work/files"
  for library in ./usr/bin/anyorder ./usr/libexec/anyorder/bin/anyorder-train ./usr/share/anyorder/configs/xlnet-base.toml; do
    grep -qxF "$library" "$work/files" || fail "the package lacks $library"
  done
  dpkg-deb -x "$package" "$work/root"
  for program in "$work"/root/usr/libexec/anyorder/bin/anyorder*; do
    for library in $(readelf -d "$program" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p'); do
      case $library in ld-linux*) continue ;; esac  # libc6, which every package needs
      # dpkg may know the file without the /usr that merged systems add.
      owner=$(env -u LD_LIBRARY_PATH ldd "$program" | awk -v name="$library" '$1 == name { print $3 }' | sed 's#^\(/usr\)\?/lib/#*/lib/#')
      owner=$(dpkg-query -S "$owner" | head -n 1 | cut -d: -f1)
      [[ $depends == *", $owner "* || $depends == *", $owner, "* ]] || fail "$(basename "$program") needs $library of '$owner', which Depends lacks: $depends"
    done
  done
}

case_minimal_root() {
  need mmdebstrap
  build_package
  root=$work/root
  mmdebstrap --variant=minbase --mode=root "$(. /etc/os-release && echo "$VERSION_CODENAME")" "$root" >"$work/mmdebstrap.log" 2>&1 || fail "mmdebstrap: $(tail -n 3 "$work/mmdebstrap.log")"
  cp "$package" "$root/tmp/anyorder.deb"
  cp /etc/apt/apt.conf.d/* "$root/etc/apt/apt.conf.d/"  # proxies
  cp /etc/resolv.conf /etc/hosts "$root/etc/"
  chroot "$root" sh -c 'apt-get update && apt-get install -y --no-install-recommends /tmp/anyorder.deb' >"$work/apt.log" 2>&1 ||
    fail "apt-get: $(tail -n 5 "$work/apt.log")"
  mkdir "$root/work" && text >"$root/work/text.txt"
  # Devices are nodes that mmdebstrap made, so that nothing of this machine lies below $work.
  mkdir -p "$root/dev/shm"
  trap 'umount "$root/proc"' EXIT
  mount -t proc proc "$root/proc"
  (run_from /usr/bin /usr/share/anyorder/configs /work chroot "$root" env OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 \
    OMPI_MCA_rmaps_base_oversubscribe=1) >"$work/log" 2>&1 || { tail -n 15 "$work/log" >&2; fail "the package does not run"; }
  echo "$(basename "$package"), $(wc -c <"$package") bytes; $(chroot "$root" dpkg-query -W | wc -l) packages in the root"
}

"case_$case"
echo "$case: passed"
