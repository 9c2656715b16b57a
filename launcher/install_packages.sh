#!/usr/bin/env bash
# Installs the Debian/Ubuntu packages that are missing, and nothing when none is: then no network
# and no root is needed.
#
# Usage: install_packages.sh build|quickstart|tests|parity|browser
# Why each is needed: package/README.md. Two sets are optional, and the tests that need them
# skip without: `parity` is for comparisons with other implementations (200 MB to download, 830 MB
# installed, because the distribution's torch depends on OpenCV), `browser` for looking at the pages
# of `anyorder report` and `serve`.
set -euo pipefail

packages=(
  g++ cmake ninja-build ccache pkg-config
  openmpi-bin libopenmpi-dev
  libhdf5-dev libsentencepiece-dev libabsl-dev libdnnl-dev
  libtomlplusplus-dev libcli11-dev nlohmann-json3-dev libcpp-httplib-dev
  libisal-dev zlib1g-dev libzstd-dev libxxhash-dev libutf8proc-dev
)
case "${1:?usage: install_packages.sh build|quickstart|tests|parity|browser}" in
  build) ;;
  quickstart) packages+=(perl perl-doc) ;;
  tests) packages+=(libgtest-dev libgmock-dev libboost-context-dev clang clang-format git perl python3 python3-numpy python3-h5py
    patchelf binutils dpkg-dev file slurmctld slurmd slurm-client slurm-wlm-basic-plugins munge iproute2 procps util-linux zsh) ;;  # a private cluster: tests/slurm
  parity) packages=(python3-torch python3-venv libopenblas0-pthread) ;;  # torch's products are 20 times slower without OpenBLAS
  browser) packages=(chromium) ;;  # Ubuntu has it as a snap only: then the test skips
  *) echo "install_packages.sh: unknown set '$1'; use build, quickstart, tests, parity or browser" >&2; exit 64 ;;
esac

missing=()
for package in "${packages[@]}"; do
  dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q '^install ok installed$' || missing+=("$package")
done
[ ${#missing[@]} -eq 0 ] && exit 0

echo "Installing ${#missing[@]} missing packages: ${missing[*]}"
as_root=()
if [ "$(id -u)" -ne 0 ]; then
  command -v sudo >/dev/null || { echo "install_packages.sh: not root and no sudo; ask an administrator to install: ${missing[*]}" >&2; exit 74; }
  as_root=(sudo)
fi
export DEBIAN_FRONTEND=noninteractive
# The packages of Slurm and munge would start their daemons, which the tests do not want: they start
# their own.
policy=/usr/sbin/policy-rc.d
if [[ " ${missing[*]} " =~ \ (slurmctld|slurmd|munge)\  ]] && [ ! -e $policy ]; then
  trap '"${as_root[@]}" rm -f $policy' EXIT
  "${as_root[@]}" sh -c "printf '#!/bin/sh\nexit 101\n' >$policy && chmod 755 $policy"
fi
# Package lists may be absent or old; an update that fails (no network) still lets cached packages
# install.
if [ "$1" = parity ] || [ "$1" = browser ]; then
  # Nobody waits for what is optional. Only downloads may be cut short: dpkg does not like it.
  once=(-qq -o Acquire::Retries=1 -o Acquire::http::Timeout=15 -o Acquire::https::Timeout=15)
  "${as_root[@]}" timeout 60 apt-get "${once[@]}" update || true
  "${as_root[@]}" timeout 180 apt-get "${once[@]}" install -y --no-install-recommends --download-only "${missing[@]}" >/dev/null || {
    echo "install_packages.sh: could not download: ${missing[*]}; tests that need them will skip" >&2
    exit 74
  }
else
  "${as_root[@]}" apt-get update -qq || true
fi
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null || {
  echo "install_packages.sh: could not install: ${missing[*]}; check the network or install them by hand" >&2
  exit 74
}
