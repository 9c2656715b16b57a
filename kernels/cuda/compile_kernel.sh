#!/bin/sh
# Runs a compiler that reports registers and spills of each kernel, and keeps the report beside the
# object: the gate reads it (tests/kernels/cuda/compile_gate.py), people do not want it in the log
# of a build that succeeds.
# Usage: compile_kernel.sh COMPILER ARGUMENT...
object=
previous=
for argument in "$@"; do
  [ "$previous" = -o ] && object=$argument
  previous=$argument
done
if "$@" 2>"$object.report"; then
  grep -i warning "$object.report" >&2
  exit 0
fi
cat "$object.report" >&2
exit 1
