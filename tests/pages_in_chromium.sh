#!/usr/bin/env bash
# The reports in a real browser: pages_in_chromium.sh BIN
#
# Of each page, light and dark, wide and narrow: it renders, nothing is said on the
# console, and nothing is asked of the network. The page's own security policy
# forbids every request, and the browser names each that it refuses on the
# console; a page with one such request is the control that this is seen. A copy
# with a measuring script says whether a text in a figure meets another or leaves
# its figure, and whether the page is wider than its window.
#
# Skips (exit 77) without Chromium. Set KEEP to a folder to look at the pictures.
set -euo pipefail
[ $# -eq 1 ] || { echo "usage: pages_in_chromium.sh BIN" >&2; exit 2; }
bin=$(realpath "$1")
browser=$(command -v chromium || command -v chromium-browser || command -v google-chrome || true)
[ -n "$browser" ] || { echo "skipped: no Chromium here (apt-get install chromium)"; exit 77; }

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=0
fail() { echo "FAILED: $*" >&2; failures=$((failures + 1)); }

open_page() {  # open_page SCHEME WIDTH FILE ARGUMENTS... ; what the browser says goes to $work/said
  local scheme=$1 width=$2 page=$3
  shift 3
  timeout 60 "$browser" --headless --no-sandbox --disable-gpu --hide-scrollbars --user-data-dir="$work/profile" \
    --blink-settings=preferredColorScheme="$scheme" --window-size="$width,1000" --enable-logging=stderr --v=0 \
    "$@" "file://$page" 2>"$work/said"
}

measure='<script>
const said = [];
if (document.documentElement.scrollWidth > window.innerWidth) said.push("page is wider than its window");
for (const svg of document.querySelectorAll("svg.wide, svg.narrow")) {
  const frame = svg.getBoundingClientRect();
  if (frame.width === 0) continue;
  const texts = [...svg.querySelectorAll("text")].map(t => [t.textContent, t.getBoundingClientRect()]);
  texts.forEach(([a, r], i) => {
    if (r.left < frame.left - 1 || r.right > frame.right + 1 || r.top < frame.top - 3 || r.bottom > frame.bottom + 3)
      said.push(svg.getAttribute("aria-label") + ": leaves the figure: " + a);
    texts.slice(i + 1).forEach(([b, s]) => {
      if (Math.min(r.right, s.right) - Math.max(r.left, s.left) > 1 && Math.min(r.bottom, s.bottom) - Math.max(r.top, s.top) > 3)
        said.push(svg.getAttribute("aria-label") + ": meet: " + a + " / " + b);
    });
  });
}
document.title = "measured: " + (said.length ? said.join("; ") : "well");
</script>'

check_page() {  # check_page FILE NAME
  local page=$1 name=$2 scheme width measured="$work/measured.html"
  sed -e 's|<meta http-equiv="Content-Security-Policy"[^>]*/>||' "$page" >"$measured"
  printf '%s' "$measure" >>"$measured"
  for scheme in 0 1; do
    for width in 1280 500; do
      open_page "$scheme" "$width" "$page" --screenshot="$work/picture.png" >/dev/null || fail "$name does not open"
      grep -a 'CONSOLE' "$work/said" && fail "$name: something on the console"
      [ "$(stat -c %s "$work/picture.png" 2>/dev/null || echo 0)" -gt 20000 ] || fail "$name: nothing is drawn"
      [ -z "${KEEP:-}" ] || cp "$work/picture.png" "$KEEP/$name-$scheme-$width.png"
      rm -f "$work/picture.png"
    done
  done
  for width in 1280 500; do
    open_page 1 "$width" "$measured" --dump-dom >"$work/dom.html" || fail "$name does not open"
    grep -ao '<title>measured: [^<]*' "$work/dom.html" | grep -q 'measured: well$' ||
      fail "$name, $width wide: $(grep -ao '<title>measured: [^<]*' "$work/dom.html" || echo 'was not measured')"
  done
}

# The control: under the pages' policy a request is refused, aloud.
printf '<!DOCTYPE html><meta http-equiv="Content-Security-Policy" content="%s"/><img src="http://127.0.0.1:9/x.png"/>' \
  "default-src 'none'" >"$work/control.html"
open_page 1 500 "$work/control.html" --screenshot="$work/control.png" >/dev/null
grep -qa 'CONSOLE.*Content Security Policy' "$work/said" || fail "the control: a refused request is not seen"

cd "$work"
"$bin/traces" generate --arrivals gamma --burstiness 0.2 --rate 22 --requests 3000 --prompt-tokens 1024 \
  --output-tokens 256 --random-range-ratio 0.5 --seed 7 trace.pb
"$bin/simulate" --trace trace.pb --out calm >/dev/null 2>&1
"$bin/simulate" --trace trace.pb --gpu l40s --client-timeout 60 --out crowded >/dev/null 2>&1
check_page "$work/calm/report.html" calm
check_page "$work/crowded/report.html" crowded
"$bin/simulate" knee --prompt-tokens 512 --output-tokens 128 --ttft-slo 500 --seeds 2 --requests 300 --max-requests 600 \
  --precision 0.2 --no-what-if --out knee >/dev/null 2>&1
check_page "$work/knee/report.html" knee

[ "$failures" -eq 0 ] || exit 1
echo "3 pages, light and dark, wide and narrow: nothing on the console, nothing asked for, no text meets another"
