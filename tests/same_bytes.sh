#!/usr/bin/env bash
# The same inputs give the same bytes with two builds: same_bytes.sh BIN_A BIN_B
set -euo pipefail
[ $# -eq 2 ] || { echo "usage: same_bytes.sh BIN_A BIN_B" >&2; exit 2; }
a=$(realpath "$1") b=$(realpath "$2")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

for build in a b; do
  mkdir "$work/$build"
  (
    cd "$work/$build"
    bin=${!build}
    "$bin/traces" generate --arrivals gamma --burstiness 0.2 --rate 22 --requests 3000 --prompt-tokens 1024 \
      --output-tokens 256 --random-range-ratio 0.5 --seed 7 trace.pb
    "$bin/simulate" --trace trace.pb --out h100 --save-detailed >h100.txt
    "$bin/simulate" --trace trace.pb --gpu l40s --num-gpu-blocks-override 2000 --request-rate 3 --out l40s \
      --timeline l40s.pftrace >l40s.txt
    "$bin/simulate" capacity >capacity.txt
  )
done
diff -r "$work/a" "$work/b"
echo "same bytes: $(find "$work/a" -type f | wc -l) files"
