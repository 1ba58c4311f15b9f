#!/usr/bin/env bash
# Builds gpu_microbench, checks its kernels and measures, within 6 minutes in all,
# and leaves everything in a folder:
#
#     calibrate/microbench/measure.sh FOLDER [BUDGET_SECONDS]
#
#     FOLDER/gpu.measurement.textproto   what `calibrate fit-ops` reads
#     FOLDER/check.txt                   our kernels against the reference in double
#     FOLDER/measure.txt                 what the program said
#     FOLDER/machine.txt                 GPU, driver and toolkit
#
# Exit status 0 if the kernels are right and the measurement was written. A kernel that is
# wrong does not keep the rest from being measured: check.txt says which one.
set -euo pipefail
folder=$(realpath -m "${1:?name a folder for the measurement}")
budget=${2:-240}
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
mkdir -p "$folder"

{
  date -u +%F
  nvidia-smi || true
  nvidia-smi -q -d CLOCK,POWER,PERFORMANCE || true
  "${NVCC:-$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)}" --version
} >"$folder/machine.txt" 2>&1

program=build/gpu_microbench
ARCHS=${ARCHS:-native} calibrate/microbench/build.sh "$program"

wrong=0
timeout 60 "$program" --check >"$folder/check.txt" 2>&1 || wrong=$?
cat "$folder/check.txt"

# The loop stops by itself; 30 s more are for the shape that runs then, and the start.
timeout --signal=INT $((budget + 30)) "$program" --budget-seconds "$budget" \
  --out "$folder/gpu.measurement.textproto" >"$folder/measure.txt" 2>&1 || wrong=$?
cat "$folder/measure.txt"
exit "$wrong"
