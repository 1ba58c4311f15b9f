#include "traces/arrival_options.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>

#include "traces/trace_file.h"

namespace kneepoint::traces {
namespace {

std::vector<std::string_view> split(std::string_view text, char by) {
  std::vector<std::string_view> parts;
  while (true) {
    const std::size_t end = text.find(by);
    parts.push_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

std::string process_list() {
  std::string text = "Arrival process:";
  for (const ArrivalProcessRow& row : arrival_processes())
    text += fmt::format(" {} ({});", row.name, row.summary);
  text.pop_back();
  return text;
}

}  // namespace

std::vector<double> numbers_of(const std::string& option, std::string_view text, std::size_t count) {
  std::vector<double> numbers;
  for (const std::string_view part : split(text, ':')) {
    double value = 0;
    const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), value);
    if (error != std::errc() || end != part.data() + part.size() || !std::isfinite(value)) {
      throw TraceError(fmt::format("{} {}: '{}' is no number", option, text, part));
    }
    numbers.push_back(value);
  }
  if (numbers.size() != count) {
    throw TraceError(
        fmt::format("{} {}: {} numbers are wanted, with a colon between them", option, text, count));
  }
  return numbers;
}

void add_arrival_options(CLI::App& app, ArrivalArguments& a) {
  app.add_option("--arrivals", a.options.process, process_list());
  app.add_option("--rate", a.options.rate, "Mean requests (with --turns: sessions) a second");
  app.add_option("--burstiness", a.options.burstiness,
                 "gamma, vllm-bench: shape of the intervals; 1 is Poisson, below 1 bursts");
  app.add_option("--cv", a.options.cv, "gamma, weibull, pareto: coefficient of variation of the intervals");
  app.add_option("--shape", a.options.shape, "weibull, pareto: shape of the intervals");
  app.add_option("--states", a.states,
                 "mmpp: WEIGHT:SECONDS,WEIGHT:SECONDS,... relative rate and mean duration of each state");
  app.add_option("--ramp-up-strategy", a.options.ramp_up,
                 "vllm-bench: linear or exponential, from request to request");
  app.add_option("--ramp-up-start-rps", a.options.ramp_from, "Rate at the first request");
  app.add_option("--ramp-up-end-rps", a.options.ramp_to, "Rate at the last request");
  app.add_option("--diurnal", a.diurnal,
                 "Envelope: AMPLITUDE:PHASE,... of the harmonics of --period; phase in turns");
  app.add_option("--period", a.options.envelope.period_s, "Seconds of the first harmonic")
      ->capture_default_str();
  app.add_option("--spike", a.spikes, "Envelope: AT:SECONDS:FACTOR on the rate; may be repeated")
      ->allow_extra_args(false);
  app.add_option("--ramp", a.ramp, "Envelope: FROM:TO:SECONDS, factor on the rate");
  app.add_option("--seed", a.options.seed, "Seed of all random streams")->capture_default_str();
}

ArrivalOptions arrival_options(const ArrivalArguments& a) {
  ArrivalOptions options = a.options;
  if (!a.states.empty()) {
    for (const std::string_view part : split(a.states, ',')) {
      const auto numbers = numbers_of("--states", part, 2);
      options.states.push_back({numbers[0], numbers[1]});
    }
  }
  if (!a.diurnal.empty()) {
    for (const std::string_view part : split(a.diurnal, ',')) {
      const auto numbers = numbers_of("--diurnal", part, 2);
      options.envelope.harmonics.push_back({numbers[0], numbers[1]});
    }
  }
  for (const std::string& spike : a.spikes) {
    const auto numbers = numbers_of("--spike", spike, 3);
    options.envelope.spikes.push_back({numbers[0], numbers[1], numbers[2]});
  }
  if (!a.ramp.empty()) {
    const auto numbers = numbers_of("--ramp", a.ramp, 3);
    options.envelope.ramp = {numbers[0], numbers[1], numbers[2]};
  }
  return options;
}

}  // namespace kneepoint::traces
