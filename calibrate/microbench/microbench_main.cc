// gpu_microbench: measures this machine's GPU and writes a measurement that
// `calibrate fit-ops` reads.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <string>
#include <vector>

#include "calibrate/microbench/command_options.h"
#include "calibrate/microbench/cuda_device.h"
#include "calibrate/microbench/measure_loop.h"
#include "calibrate/microbench/shape_plan.h"

namespace kneepoint::microbench {
namespace {

volatile std::sig_atomic_t g_interrupted = 0;

// The first Ctrl-C ends the measuring after the running shape; the second one the program.
void on_interrupt(int) {
  g_interrupted = 1;
  std::signal(SIGINT, SIG_DFL);
}

double now_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

std::string today() {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&now, &utc);
  char text[16];
  std::strftime(text, sizeof text, "%Y-%m-%d", &utc);
  return text;
}

int check(Device& device) {
  int wrong = 0;
  for (const Comparison& c : device.check()) {
    const bool good = c.error <= c.allowed;
    std::printf("%-5s %-70s error %.2g, allowed %.2g\n", good ? "good" : "WRONG", c.what.c_str(), c.error,
                c.allowed);
    if (!good) ++wrong;
  }
  std::printf("%s\n", wrong == 0 ? "all kernels agree with the reference" : "some kernels are wrong");
  return wrong == 0 ? 0 : 1;
}

void print_summary(const Measurement& m) {
  std::printf("%zu of %lld shapes in %.0f s (%s)\n", m.rows.size(), static_cast<long long>(m.planned),
              m.seconds, m.ended_by.c_str());
  for (const SkippedShapes& s : m.skipped) {
    std::printf("skipped %lld: %s (first: %s)\n", static_cast<long long>(s.count), s.why.c_str(),
                s.first.c_str());
  }
  for (const std::string& line : highlights(m)) std::printf("%s\n", line.c_str());
}

int measure(Device& device, const CommandOptions& options) {
  Measurement measurement;
  measurement.date = options.date.empty() ? today() : options.date;
  measurement.facts = device.facts();
  const bool terminal = isatty(STDERR_FILENO) != 0;
  LoopOptions loop;
  loop.budget_seconds = options.budget_seconds;
  LoopWorld world;
  world.seconds = &now_seconds;
  world.interrupted = [] { return g_interrupted != 0; };
  world.write = [&](const Measurement& m) { replace_file(options.out, measurement_text(m)); };
  if (terminal) {
    world.progress = [](const std::string& line) { std::fprintf(stderr, "\r\033[K%s", line.c_str()); };
  }
  // A folder that cannot be written to is better known now than in four minutes.
  replace_file(options.out, measurement_text(measurement));
  std::signal(SIGINT, &on_interrupt);
  measure_all(device, plan_shapes(measurement.facts), loop, world, measurement);
  if (terminal) std::fprintf(stderr, "\r\033[K");
  print_summary(measurement);
  std::printf("written to %s; next: calibrate fit-ops %s\n", options.out.c_str(), options.out.c_str());
  return measurement.ended_by.rfind("error", 0) == 0 ? 2 : 0;
}

int run(const std::vector<std::string>& arguments) {
  const CommandOptions options = parse_options(arguments);
  if (options.help) {
    std::printf("%s", usage_text());
    return 0;
  }
  std::vector<std::string> notes;
  const std::unique_ptr<Device> device = open_cuda_device(options.device, notes);
  for (const std::string& note : notes) std::fprintf(stderr, "note: %s\n", note.c_str());
  return options.check ? check(*device) : measure(*device, options);
}

}  // namespace
}  // namespace kneepoint::microbench

int main(int argc, char** argv) {
  try {
    return kneepoint::microbench::run(std::vector<std::string>(argv + 1, argv + argc));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "gpu_microbench: %s\n", error.what());
    return 2;
  }
}
