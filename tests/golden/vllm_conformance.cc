// vllm_conformance FILE...: does our engine decide as vLLM did?
//
// Replays recorded workloads and compares every field of every event. Exit
// status 0: all cases agree; 1: some differ; 2: a file is missing, damaged or
// has no case.
#include <fmt/format.h>

#include <boost/assert.hpp>
#include <cstdint>
#include <cstdio>
#include <stdexcept>

#include "tests/golden/recorded_case.h"
#include "tests/golden/replay.h"

namespace boost {

// A broken invariant fails the case it happens in; the others still run.
void assertion_failed_msg(char const* expr, char const* msg, char const* /*function*/, char const* file,
                          long line) {
  throw std::logic_error(fmt::format("{}:{}: broken invariant: {} ({})", file, line, msg, expr));
}

void assertion_failed(char const* expr, char const* function, char const* file, long line) {
  assertion_failed_msg(expr, "assertion", function, file, line);
}

}  // namespace boost

namespace {

struct Tally {
  std::int64_t cases = 0;
  std::int64_t agree = 0;
  std::int64_t events = 0;
};

void run_case(const kneepoint::golden::RecordedCase& recorded, Tally& tally) {
  using kneepoint::golden::Way;
  ++tally.cases;
  try {
    // Twice: walked, as vLLM does, and with the cohort that simulations keep.
    auto outcome = replay(recorded, Way::kWalked);
    tally.events += outcome.events;
    const bool walked_agrees = !outcome.difference;
    if (walked_agrees) {
      outcome = replay(recorded, Way::kCohort);
    }
    if (!outcome.difference) {
      ++tally.agree;
      return;
    }
    const auto& d = *outcome.difference;
    fmt::print("{}{}: step {}, {}\n  ours   {}\n  theirs {}\n", recorded.name, walked_agrees ? " (cohort)" : "",
               d.step, d.field, d.ours, d.theirs);
  } catch (const std::logic_error& broken) {
    fmt::print("{}: {}\n", recorded.name, broken.what());
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    fmt::print(stderr, "usage: vllm_conformance FILE...   (.jsonl, .jsonl.gz, scenarios.json)\n");
    return 2;
  }
  Tally tally;
  try {
    for (int i = 1; i < argc; ++i) {
      kneepoint::golden::for_each_case(argv[i], [&](const auto& recorded) { run_case(recorded, tally); });
    }
  } catch (const std::exception& error) {
    fmt::print(stderr, "vllm_conformance: {}\n", error.what());
    return 2;
  }
  fmt::print("{} of {} cases agree, {} events\n", tally.agree, tally.cases, tally.events);
  return tally.agree == tally.cases ? 0 : 1;
}
