#include "calibrate/validate_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <utility>

#include "calibrate/calibrate_error.h"
#include "calibrate/robust_linear.h"

namespace kneepoint::calibrate {

namespace {

namespace fs = std::filesystem;

constexpr std::size_t kWindows = 50;

double tpot_ms(const RequestTimes& request) {
  const double rest = static_cast<double>(std::max<std::int64_t>(request.output_tokens - 1, 1));
  return (request.latency_s - request.ttft_s) / rest * 1e3;
}

void write_file(const fs::path& path, const std::string& text) {
  std::ofstream file(path);
  file << text;
  if (!file.flush()) throw CalibrateError(fmt::format("{}: cannot be written", path.string()));
}

std::string requests_csv(const ValidatedRun& run) {
  std::string text =
      "request,start_s,prompt_tokens,output_tokens,measured_ttft_ms,predicted_ttft_ms,measured_tpot_ms,"
      "predicted_tpot_ms\n";
  std::size_t next = 0;
  for (const RequestTimes& measured : run.measured) {
    while (next < run.predicted.size() && run.predicted[next].index < measured.index) ++next;
    if (next == run.predicted.size() || run.predicted[next].index != measured.index) continue;
    const RequestTimes& predicted = run.predicted[next];
    text += fmt::format("{},{:.6f},{},{},{:.3f},{:.3f},{:.3f},{:.3f}\n", measured.index, measured.start_s,
                        measured.prompt_tokens, measured.output_tokens, measured.ttft_s * 1e3,
                        predicted.ttft_s * 1e3, tpot_ms(measured), tpot_ms(predicted));
  }
  return text;
}

struct Window {
  double sum_ms = 0, most_ms = 0;
  int count = 0;
};

std::vector<Window> windows_of(const std::vector<RequestTimes>& requests, double width_s) {
  std::vector<Window> windows(kWindows);
  for (const RequestTimes& request : requests) {
    Window& window = windows[std::min(static_cast<std::size_t>(request.start_s / width_s), kWindows - 1)];
    window.sum_ms += request.ttft_s * 1e3;
    window.most_ms = std::max(window.most_ms, request.ttft_s * 1e3);
    ++window.count;
  }
  return windows;
}

// Windows in which nobody was sent have no line.
std::string windows_csv(const ValidatedRun& run) {
  double end_s = 1e-9;
  for (const RequestTimes& request : run.measured) end_s = std::max(end_s, request.start_s);
  const double width_s = end_s / static_cast<double>(kWindows);
  const std::vector<Window> measured = windows_of(run.measured, width_s);
  const std::vector<Window> predicted = windows_of(run.predicted, width_s);
  std::string text = "middle_s,measured_mean_ms,predicted_mean_ms,measured_max_ms,predicted_max_ms\n";
  for (std::size_t i = 0; i < kWindows; ++i) {
    if (measured[i].count == 0 || predicted[i].count == 0) continue;
    text += fmt::format("{:.3f},{:.3f},{:.3f},{:.3f},{:.3f}\n", (static_cast<double>(i) + 0.5) * width_s,
                        measured[i].sum_ms / measured[i].count, predicted[i].sum_ms / predicted[i].count,
                        measured[i].most_ms, predicted[i].most_ms);
  }
  return text;
}

std::string distribution_csv(const ValidatedRun& run) {
  const auto columns = [](const std::vector<RequestTimes>& requests) {
    std::pair<std::vector<double>, std::vector<double>> found;
    for (const RequestTimes& request : requests) {
      found.first.push_back(request.ttft_s * 1e3);
      if (request.output_tokens > 1) found.second.push_back(tpot_ms(request));
    }
    return found;
  };
  const auto measured = columns(run.measured);
  const auto predicted = columns(run.predicted);
  std::string text =
      "share,measured_ttft_ms,predicted_ttft_ms,measured_tpot_ms,predicted_tpot_ms\n";
  for (int i = 0; i <= 200; ++i) {
    const double q = i / 200.0;
    text += fmt::format("{:.3f},{:.3f},{:.3f},{:.3f},{:.3f}\n", q, quantile(measured.first, q),
                        quantile(predicted.first, q), quantile(measured.second, q),
                        quantile(predicted.second, q));
  }
  return text;
}

const ValidatedMetric& metric_of(const ValidatedRun& run, const std::string& name) {
  const auto found = std::find_if(run.metrics.begin(), run.metrics.end(),
                                  [&](const ValidatedMetric& metric) { return metric.name == name; });
  if (found == run.metrics.end()) throw CalibrateError(fmt::format("{}: has no {}", run.name, name));
  return *found;
}

// Blue measured, orange predicted, in all panels.
std::string gnuplot_script(const ValidatedRun& run) {
  const ValidatedMetric& mean = metric_of(run, "mean_ttft_ms");
  const ValidatedMetric& p99 = metric_of(run, "p99_ttft_ms");
  const std::string name = run.name;
  std::string text = fmt::format(
      "# Run in this folder: gnuplot {0}.gnuplot\n"
      "set terminal svg size 960,620 font 'sans-serif,13' background rgb 'white'\n"
      "set output '{0}.svg'\n"
      "set datafile separator ','\n"
      "set border 3\nset tics nomirror out\nset grid ytics lc rgb '#dddddd'\n"
      "m = '#1f77b4'\np = '#ff7f0e'\n"
      "set multiplot\n"
      "set origin 0,0.48\nset size 1,0.52\nset lmargin 11\nset rmargin 3\n"
      "set title '{1} requests: mean TTFT {2:.0f} ms measured, {3:.0f} predicted ({4:+.1f} %); p99 {5:.0f}, {6:.0f} "
      "({7:+.1f} %)'\n",
      name, run.measured.size(), mean.measured, mean.predicted, mean.error() * 100, p99.measured, p99.predicted,
      p99.error() * 100);
  text += fmt::format(
      "set xlabel 'sent at (s)' offset 0,0.5\nset ylabel 'TTFT (ms)'\nset yrange [0:*]\nset offsets 0,0,graph 0.25,0\nset key top left horizontal\n"
      "plot '{0}.windows.csv' every ::1 using 1:2 with lines lw 2 lc rgb m title 'measured, mean of 1/50 of the run', \\\n"
      "     '' every ::1 using 1:3 with lines lw 2 lc rgb p title 'predicted', \\\n"
      "     '' every ::1 using 1:4 with points pt 6 ps 0.6 lc rgb m title 'measured, largest', \\\n"
      "     '' every ::1 using 1:5 with points pt 2 ps 0.6 lc rgb p title 'predicted'\n",
      name);
  text += "unset offsets\nset yrange [0:1]\nset ylabel 'share of requests'\nset key bottom right vertical\nset size 0.5,0.48\n";
  const std::pair<const char*, int> panels[] = {{"TTFT", 2}, {"TPOT", 4}};
  for (const auto& [what, column] : panels) {
    text += fmt::format(
        "set origin {0},0\nset title 'distribution of {1}'\nset xlabel '{1} (ms)'\nset logscale x\nset xrange [*:*]\n"
        "plot '{2}.distribution.csv' every ::1 using {3}:1 with lines lw 2 lc rgb m title 'measured', \\\n"
        "     '' every ::1 using {4}:1 with lines lw 2 lc rgb p title 'predicted'\n",
        column == 2 ? 0.0 : 0.5, what, name, column, column + 1);
  }
  return text + "unset multiplot\n";
}

}  // namespace

void write_pictures(const ValidatedRun& run, const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) throw CalibrateError(fmt::format("{}: cannot be made: {}", folder.string(), error.message()));
  write_file(folder / (run.name + ".requests.csv"), requests_csv(run));
  write_file(folder / (run.name + ".windows.csv"), windows_csv(run));
  write_file(folder / (run.name + ".distribution.csv"), distribution_csv(run));
  write_file(folder / (run.name + ".gnuplot"), gnuplot_script(run));
}

}  // namespace kneepoint::calibrate
