#!/usr/bin/env bash
# Builds gpu_microbench with nothing but the CUDA toolkit (12.4 or newer).
#
#     calibrate/microbench/build.sh build/gpu_microbench          # for A100, L40S, H100, H200 and newer ones
#     ARCHS=native calibrate/microbench/build.sh gpu_microbench   # for this machine's GPU only: faster
#
# cuDNN and NCCL are used if their headers are found; both are loaded when the
# program runs, so it also starts where they are missing.
set -euo pipefail
out=$(realpath -m "${1:?name the program to build, as in: build.sh build/gpu_microbench}")
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

nvcc=${NVCC:-$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)}
[ -x "$nvcc" ] || { echo "build.sh: no nvcc in PATH nor /usr/local/cuda/bin; install the CUDA toolkit or set NVCC" >&2; exit 2; }
toolkit=$(dirname "$(dirname "$(realpath "$nvcc")")")

flags=(-std=c++20 -O3 -I. --Werror all-warnings "-Xcompiler=-Wall,-Wextra${KNEEPOINT_WERROR:+,-Werror}")
if [ "${ARCHS:-}" = native ]; then
  flags+=(-arch=native)
else
  for arch in ${ARCHS:-80 89 90}; do flags+=(-gencode "arch=compute_$arch,code=sm_$arch"); done
  flags+=(-gencode "arch=compute_${arch},code=compute_${arch}")  # What comes after is translated by its driver.
fi

objects=$(mktemp -d)
trap 'rm -rf "$objects"' EXIT
printf '%s\0' calibrate/microbench/*.cu calibrate/microbench/*.cc |
  xargs -0 -P "$(nproc)" -I{} sh -c '
    source=$1 objects=$2; shift 2
    "$@" -c "$source" -o "$objects/$(basename "$source").o"' sh {} "$objects" "$nvcc" "${flags[@]}"
mkdir -p "$(dirname "$out")"
"$nvcc" "$objects"/*.o -o "$out" -lcublasLt -ldl -lpthread -Xcompiler=-static-libstdc++,-static-libgcc -Xlinker "-rpath,$toolkit/lib64"
echo "built $out"
