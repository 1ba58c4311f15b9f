#include "traces/rate_plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace kneepoint::traces {
namespace {

constexpr double kWidth = 960, kHeight = 320, kLeft = 64, kRight = 16, kTop = 36, kBottom = 40;

// 1, 2 or 5 times a power of ten, so that about five steps make `most`.
double round_step(double most) {
  double step = std::pow(10.0, std::floor(std::log10(most / 5)));
  for (const double factor : {2.0, 2.5, 2.0}) {
    if (most / step > 7) step *= factor;
  }
  return step;
}

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '<') {
      out += "&lt;";
    } else if (c == '>') {
      out += "&gt;";
    } else if (c == '&') {
      out += "&amp;";
    } else {
      out += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
    }
  }
  return out;
}

}  // namespace

std::string rate_plot(std::string_view title, const RateWindows& windows, const std::vector<Burst>& marked) {
  const double across = kWidth - kLeft - kRight, down = kHeight - kTop - kBottom;
  double most = 0;
  for (std::size_t i = 0; i < windows.counts.size(); ++i) most = std::max(most, windows.rate(i));
  most = std::max(most, 1e-9);
  const double span = windows.window_s * static_cast<double>(windows.counts.size());
  const auto y_of = [&](double rate) { return kTop + down * (1 - rate / most); };
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" viewBox=\"0 0 {0} {1}\" "
      "font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
      "<text x=\"{2}\" y=\"20\" font-size=\"14\">{3}: requests/s over time</text>\n",
      kWidth, kHeight, kLeft, escaped(title));
  for (double rate = 0; rate <= most; rate += round_step(most)) {
    svg += fmt::format(
        "<line x1=\"{:.1f}\" x2=\"{:.1f}\" y1=\"{:.1f}\" y2=\"{:.1f}\" stroke=\"#ddd\"/>"
        "<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"end\">{:.3g}</text>\n",
        kLeft, kWidth - kRight, y_of(rate), y_of(rate), kLeft - 6, y_of(rate) + 4, rate);
  }
  const double bar = across / static_cast<double>(windows.counts.size());
  for (std::size_t i = 0; i < windows.counts.size(); ++i) {
    const bool burst =
        std::ranges::any_of(marked, [i](const Burst& b) { return b.first <= i && i <= b.last; });
    svg += fmt::format("<rect x=\"{:.2f}\" y=\"{:.2f}\" width=\"{:.2f}\" height=\"{:.2f}\" fill=\"{}\"/>\n",
                       kLeft + bar * static_cast<double>(i), y_of(windows.rate(i)), bar,
                       kTop + down - y_of(windows.rate(i)), burst ? "#d62728" : "#1f77b4");
  }
  for (double t = 0; t <= span; t += round_step(span)) {
    svg += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\">{:.6g} s</text>\n",
                       kLeft + across * t / span, kHeight - kBottom + 18, t);
  }
  return svg + "</svg>\n";
}

}  // namespace kneepoint::traces
