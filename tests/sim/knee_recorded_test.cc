// Knees of real servers: closed-loop measurements of Llama 3.1 70B on two H100
// (../shared/data/serving/closed_loop_concurrency.csv), where the mean TTFT jumps
// from one measured concurrency to the next twice as high.
//
//     1024/8192    289 ms at 32, 30.8 s at 64
//     8192/1024    1.28 s at 16, 6.5 s at 32
//
// The set-up is the data's README's: lengths uniform in [0.8 L, L], FP8 weights, KV
// in bf16, 8192 batched tokens, no prefix caching, 10 requests for each in flight.
// An SLO between the two TTFTs must have its knee between the two concurrencies.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>
#include <string>

#include "hw/deployment.h"
#include "sim/knee_search.h"
#include "sim/options.h"
#include "sim/simulation.h"
#include "tests/support/shared_data.h"

namespace kneepoint::sim {
namespace {

// Mean TTFT in milliseconds by concurrency.
std::map<int, double> measured_ttft(const std::string& file, const std::string& lengths) {
  std::ifstream in(file);
  std::map<int, double> ttft;
  const std::string start = "meta-llama/Llama-3.1-70B,h100_sxm,fp8," + lengths + ",";
  for (std::string line; std::getline(in, line);) {
    if (line.rfind(start, 0) != 0) {
      continue;
    }
    const int concurrency = std::stoi(line.substr(start.size()));
    std::size_t at = start.size();
    for (int comma = 0; comma < 4; ++comma) {  // concurrency, tp, dp, release.
      at = line.find(',', at) + 1;
    }
    ttft[concurrency] = std::stod(line.substr(at));
  }
  return ttft;
}

struct RecordedKnee {
  const char* lengths;  // As in the file: "1024,8192".
  const char* prompt;   // 0.8 to 1 times of it.
  const char* output;
  int below;
  int above;
};

class Recorded : public testing::TestWithParam<RecordedKnee> {};

TEST_P(Recorded, KneeLiesBetweenTheMeasuredNeighbours) {
  KNEEPOINT_SHARED_OR_SKIP(file, "data/serving/closed_loop_concurrency.csv");
  const std::map<int, double> ttft = measured_ttft(file.string(), GetParam().lengths);
  ASSERT_TRUE(ttft.contains(GetParam().below) && ttft.contains(GetParam().above));
  const double slo_ms =
      std::sqrt(ttft.at(GetParam().below) * ttft.at(GetParam().above));  // Half-way up the jump.

  pb::RunConfig asked;
  asked.set_model("llama-3.1-70b");
  asked.set_gpu("h100");
  asked.set_tensor_parallel_size(2);
  asked.set_quantization("fp8");
  asked.set_kv_cache_dtype("bfloat16");
  asked.set_enable_prefix_caching(false);
  asked.set_max_num_batched_tokens(8192);
  asked.set_max_model_len(10'240);
  const RunConfig config = resolve(asked);
  const auto workload = drawn_requests({GetParam().prompt, GetParam().output, 0}, 1.0);
  KneeLab lab({.config = config,
               .axis = LoadAxis::kConcurrency,
               .workload = *workload,
               .make_times = [&config] { return make_step_times(config); },
               .first_seed = 0,
               .seeds = 2,
               .threads = 0,
               .keep_gaps = false,
               .on_run = {}});
  SearchOptions options;
  options.min_load = 8;
  options.max_load = 64;
  options.max_requests = options.requests = 640;
  add_slo("ttft:mean:" + std::to_string(slo_ms), options.slo);
  const SearchResult result = search_knees(lab, options);
  for (const Knee& knee : result.knees) {
    std::printf("%s %s: %s at %.1f, measured between %d and %d\n", GetParam().lengths, knee_name(knee.kind),
                knee_status_name(knee.status), knee.load, GetParam().below, GetParam().above);
  }
  const Knee& slo = result.knees.front();
  ASSERT_TRUE(slo.found());
  EXPECT_GE(slo.load, GetParam().below);
  EXPECT_LT(slo.load, GetParam().above);
}

INSTANTIATE_TEST_SUITE_P(
    , Recorded,
    testing::Values(RecordedKnee{"1024,8192", "uniform:819:1024", "uniform:6554:8192", 32, 64},
                    RecordedKnee{"8192,1024", "uniform:6554:8192", "uniform:819:1024", 16, 32}),
    [](const auto& row) {
      std::string name = row.param.lengths;
      std::replace(name.begin(), name.end(), ',', '_');
      return name;
    });

}  // namespace
}  // namespace kneepoint::sim
