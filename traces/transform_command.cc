// traces transform: scaled, cut, thinned, repeated and mixed workloads.
#include <fmt/format.h>

#include <charconv>
#include <cstdio>
#include <filesystem>

#include "traces/arrival_options.h"
#include "traces/command_line.h"
#include "traces/subcommands.h"
#include "traces/trace_file.h"
#include "traces/transform.h"

namespace kneepoint::traces {
namespace {

// "a.pb:0.7": the share is what follows the last colon.
MixPart parse_part(const std::string& text) {
  const std::size_t colon = text.rfind(':');
  if (colon == std::string::npos || colon == 0)
    throw TraceError(fmt::format("--mix {}: FILE:SHARE is wanted", text));
  return {text.substr(0, colon), numbers_of("--mix", std::string_view(text).substr(colon + 1), 1)[0]};
}

}  // namespace

int run_transform(const Arguments& arguments) {
  TransformOptions options;
  std::string slice, cap;
  std::vector<std::string> mix, files;
  CLI::App app("Changes a workload: mixes, cuts, thins, scales, repeats, caps, shifts; in this order.",
               "traces transform");
  app.footer(
      "Examples:\n"
      "  traces transform --slice 600:1200 --scale-rate 2 conv.pb rush.pb\n"
      "  traces transform --mix conv.pb:0.7 code.pb:0.3 --seed 1 both.pb");
  app.add_option("--mix", mix, "FILE:SHARE FILE:SHARE ...: shares of the requests; OUT.pb alone follows")
      ->expected(2, 64);
  app.add_option("--slice", slice, "FROM:TO in seconds: keep these, starting at 0");
  app.add_option("--sample", options.sample, "Keep each request (each session) with this probability");
  app.add_option("--scale-rate", options.scale_rate, "So many times as fast; think times stay");
  app.add_option("--repeat", options.repeat, "So many copies, one after another, sharing nothing");
  app.add_flag("--repeat-shares", options.repeat_shares,
               "Copies keep their contents: later ones hit the prefix cache");
  app.add_option("--cap-lengths", cap, "PROMPT:OUTPUT: cut what is longer; 0 is no cap");
  app.add_option("--shift", options.shift_s, "Seconds added to every arrival");
  app.add_option("--seed", options.seed, "Seed of sampling and mixing")->capture_default_str();
  app.add_option("FILES", files, "IN OUT.pb; with --mix OUT.pb")->required()->expected(1, 2);
  // --mix takes all that follows it; the last one is the output.
  if (const auto done = parse_arguments(app, arguments)) return *done;

  if (files.size() == 1 && !mix.empty()) {
    for (const std::string& part : mix) options.inputs.push_back(parse_part(part));
  } else if (files.size() == 2 && mix.empty()) {
    options.inputs.push_back({files.front(), 1});
  } else {
    throw TraceError("wanted are IN OUT.pb, or --mix A:SHARE B:SHARE ... OUT.pb");
  }
  if (!slice.empty()) {
    const auto ends = numbers_of("--slice", slice, 2);
    options.slice_from_s = ends[0];
    options.slice_to_s = ends[1];
  }
  if (!cap.empty()) {
    const auto caps = numbers_of("--cap-lengths", cap, 2);
    options.cap_prompt = static_cast<std::int64_t>(caps[0]);
    options.cap_output = static_cast<std::int64_t>(caps[1]);
  }
  if (options.repeat_shares && options.repeat == 1) throw TraceError("--repeat-shares needs --repeat");

  const auto records = transform(options);
  std::string inputs;
  for (const MixPart& part : options.inputs) inputs += " " + part.path.filename().string();
  const std::string& out = files.back();
  TraceWriter writer(out, fmt::format("traces transform {}:{}", given_options(app), inputs));
  std::uint64_t count = 0;
  for (TraceRecord record; records->next(record); ++count) writer.add(record);
  if (count == 0) throw TraceError(fmt::format("{}: nothing is left of{}", out, inputs));
  writer.finish();
  fmt::print("{}: {} requests\n", out, count);
  for (const std::string& notice : records->notices()) fmt::print(stderr, "traces transform: {}\n", notice);
  return 0;
}

}  // namespace kneepoint::traces
