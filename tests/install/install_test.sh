#!/usr/bin/env bash
# Installs a build, builds a project that finds it, and runs that: install_test.sh BUILD_DIR
# The consumer must find headers, libraries and what they need without this source tree.
set -euo pipefail
[ $# -eq 1 ] || { echo "usage: install_test.sh BUILD_DIR" >&2; exit 2; }
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cmake --install "$1" --prefix "$work/prefix" >/dev/null
cp "$here/CMakeLists.txt" "$here/consumer.cc" "$work"
cmake -G Ninja -S "$work" -B "$work/build" -DCMAKE_PREFIX_PATH="$work/prefix" -DCMAKE_BUILD_TYPE=Release >/dev/null
cmake --build "$work/build" >/dev/null
"$work/prefix/bin/traces" generate --arrivals poisson --rate 5 --requests 100 --prompt-tokens 512 --output-tokens 32 \
  --seed 1 "$work/t.pb" >/dev/null
"$work/build/consumer" "$work/t.pb" | tee "$work/answer"
grep -Eq '^median TTFT [1-9][0-9]*\.[0-9]{2} ms$' "$work/answer"
# The installed tool says the same.
"$work/prefix/bin/simulate" --trace "$work/t.pb" --format json 2>/dev/null |
  python3 -c 'import json, sys; print("median TTFT %.2f ms" % json.load(sys.stdin)["median_ttft_ms"])' |
  diff - "$work/answer"
