#include "calibrate/run_input.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>

#include "calibrate/calibrate_error.h"
#include "calibrate/client_formats.h"
#include "sim/options.h"

namespace kneepoint::calibrate {

namespace {

using Json = nlohmann::json;
namespace fs = std::filesystem;

[[noreturn]] void refuse(const fs::path& path, const std::string& why) {
  throw CalibrateError(fmt::format("{}: {}", path.string(), why));
}

std::ifstream open(const fs::path& path) {
  std::ifstream in(path);
  if (!in) refuse(path, "cannot be read; is the path right?");
  return in;
}

// vLLM's client writes NaN and Infinity as Python does; JSON has no such
// numbers, so they end here too, by name.
Json parse_json(const fs::path& path, std::istream& in) {
  try {
    return Json::parse(in);
  } catch (const Json::parse_error& error) {
    refuse(
        path,
        fmt::format("no valid JSON at byte {}: cut short, or NaN in it? Give the file as the client wrote it",
                    error.byte));
  } catch (const Json::out_of_range&) {
    refuse(path, "holds a number beyond 1.8e308");
  }
}

const Json& field(const fs::path& path, const Json& object, const char* name) {
  const auto found = object.find(name);
  if (found == object.end()) {
    refuse(path, fmt::format("no field '{}'; run the client with --save-result --save-detailed", name));
  }
  return *found;
}

// For a message: the digits of a number, or what else it is (whose text may be of any length and depth).
std::string seen(const Json& value) {
  return value.is_number() ? value.dump() : fmt::format("of type {}", value.type_name());
}

const Json& list_field(const fs::path& path, const Json& object, const char* name) {
  const Json& list = field(path, object, name);
  if (!list.is_array()) refuse(path, fmt::format("'{}' is no list", name));
  return list;
}

double seconds_in(const fs::path& path, const Json& value, const char* name, std::size_t index) {
  if (!value.is_number()) refuse(path, fmt::format("{}[{}] is no number", name, index));
  const double seconds = value.get<double>();
  if (!std::isfinite(seconds) || seconds < 0) {
    refuse(path, fmt::format("{}[{}] = {}: a time cannot be negative or infinite", name, index, seconds));
  }
  return seconds;
}

std::int64_t count_in(const fs::path& path, const Json& value, const char* name, std::size_t index,
                      std::int64_t least) {
  constexpr std::int64_t kMost = std::int64_t{1} << 40;
  const bool fits = value.is_number_integer() &&
                    (!value.is_number_unsigned() || value.get<std::uint64_t>() <= std::uint64_t{kMost}) &&
                    value.get<std::int64_t>() >= least;
  if (!fits) {
    refuse(path, fmt::format("{}[{}] is {}: a whole number from {} to {} is needed", name, index, seen(value), least,
                             kMost));
  }
  return value.get<std::int64_t>();
}

// "20261130-212422" on the clock of the server's log, which has no year.
std::optional<std::int64_t> stamp_of_date(const Json& result) {
  const auto date = result.find("date");
  if (date == result.end() || !date->is_string()) return std::nullopt;
  const std::string text = date->get<std::string>();
  if (text.size() != 15 || text[8] != '-') return std::nullopt;
  return parse_stamp(fmt::format("{}-{} {}:{}:{}", text.substr(4, 2), text.substr(6, 2), text.substr(9, 2),
                                 text.substr(11, 2), text.substr(13, 2)));
}

void check_failures(const fs::path& path, const Json& result) {
  const auto failures = result.find("failed");
  const bool any_failed = failures != result.end() && failures->is_number() && *failures != 0;
  std::size_t index = 0;
  for (const Json& error : list_field(path, result, "errors")) {
    if (error.is_string() && !error.get<std::string>().empty()) {
      refuse(path,
             fmt::format("request {} failed ({}); a run with failed requests cannot be replayed or fitted",
                         index, error.get<std::string>().substr(0, 80)));
    }
    ++index;
  }
  if (any_failed) {
    refuse(path, fmt::format("{} requests failed; such a run cannot be replayed or fitted", seen(*failures)));
  }
}

// The arrays are in seconds; files that were converted to ms betray themselves
// by latencies longer than the run, or by the summary next to them.
void check_units(const fs::path& path, const Json& result, const ClientRun& run) {
  double ttft_sum = 0;
  for (std::size_t i = 0; i < run.requests.size(); ++i) {
    const ClientRequest& request = run.requests[i];
    if (request.latency_s > run.duration_s * 1.01 + 0.1) {
      refuse(path, fmt::format(
                       "latencies[{}] = {} but the run lasted {} s: are the times in ms? Seconds are needed",
                       i, request.latency_s, run.duration_s));
    }
    if (request.ttft_s > request.latency_s + 1e-4) {
      refuse(path, fmt::format("ttfts[{}] = {} is larger than latencies[{}] = {}", i, request.ttft_s, i,
                               request.latency_s));
    }
    ttft_sum += request.ttft_s;
  }
  const double mean_ms = ttft_sum / static_cast<double>(run.requests.size()) * 1e3;
  const auto said = result.find("mean_ttft_ms");
  if (said != result.end() && said->is_number() && said->get<double>() > 0) {
    const double ratio = mean_ms / said->get<double>();
    if (ratio < 0.98 || ratio > 1.02) {
      refuse(path,
             fmt::format("mean of ttfts is {:.3f} ms but mean_ttft_ms says {:.3f}: other units, or requests "
                         "missing",
                         mean_ms, said->get<double>()));
    }
  }
}

}  // namespace

RunFiles parse_run_argument(const std::string& argument) {
  RunFiles files;
  std::string_view rest = argument;
  while (!rest.empty()) {
    const std::size_t comma = rest.find(',');
    const std::string_view part = rest.substr(0, comma);
    rest = comma == std::string_view::npos ? std::string_view{} : rest.substr(comma + 1);
    const std::size_t equals = part.find('=');
    const std::string_view key = part.substr(0, equals);
    if (equals == std::string_view::npos || equals + 1 == part.size()) {
      throw CalibrateError(
          fmt::format("--run: '{}' is not key=FILE; keys are log (repeatable), client, trace, cache, config", part));
    }
    const fs::path path(part.substr(equals + 1));
    const auto set_once = [&](std::optional<fs::path>& slot) {
      if (slot)
        throw CalibrateError(fmt::format("--run: {}= is given twice; only log= may be repeated", key));
      slot = path;
    };
    if (key == "log") {
      files.logs.push_back(path);
    } else if (key == "client") {
      set_once(files.client);
    } else if (key == "trace") {
      set_once(files.trace);
    } else if (key == "cache") {
      set_once(files.cache);
    } else if (key == "config") {
      set_once(files.config);
    } else {
      throw CalibrateError(
          fmt::format("--run: unknown key '{}'; keys are log (repeatable), client, trace, cache, config", key));
    }
  }
  if (!files.logs.empty() && files.config) {
    throw CalibrateError("--run: log= and config= both say how the server is set; give one of them");
  }
  if (files.logs.empty() && !files.client) {
    throw CalibrateError("--run: give at least log=FILE or client=FILE");
  }
  files.name = files.client ? files.client->stem().string() : files.logs.back().stem().string();
  return files;
}

ClientRun read_client_result(const fs::path& path) {
  std::ifstream in = open(path);
  const Json result = parse_json(path, in);
  if (!result.is_object()) refuse(path, "is no result of `vllm bench serve --save-result --save-detailed`");
  check_failures(path, result);
  ClientRun run;
  const auto model = result.find("model_id");
  if (model != result.end() && model->is_string()) run.model = model->get<std::string>();
  run.end_stamp = stamp_of_date(result);
  run.duration_s = seconds_in(path, field(path, result, "duration"), "duration", 0);
  const auto rate = result.find("request_rate");
  if (rate != result.end() && rate->is_number()) run.request_rate = rate->get<double>();
  const auto concurrency = result.find("max_concurrency");
  if (concurrency != result.end() && concurrency->is_number_integer()) {
    run.max_concurrency = concurrency->get<std::int64_t>();
  }
  const Json& inputs = list_field(path, result, "input_lens");
  const std::size_t count = inputs.size();
  if (count == 0) refuse(path, "holds no request");
  for (const char* name : {"output_lens", "ttfts", "itls", "start_times", "latencies"}) {
    const std::size_t size = list_field(path, result, name).size();
    if (size != count) {
      refuse(path, fmt::format("'{}' has {} entries but 'input_lens' has {}: cut, or of another run?", name,
                               size, count));
    }
  }
  const auto queue = result.find("queue_times");
  double first_start = 0;
  for (std::size_t i = 0; i < count; ++i) {
    ClientRequest request;
    request.prompt_tokens = count_in(path, inputs[i], "input_lens", i, 1);
    request.output_tokens = count_in(path, result["output_lens"][i], "output_lens", i, 1);
    request.ttft_s = seconds_in(path, result["ttfts"][i], "ttfts", i);
    request.latency_s = seconds_in(path, result["latencies"][i], "latencies", i);
    request.start_s = seconds_in(path, result["start_times"][i], "start_times", i);
    if (queue != result.end() && queue->is_array() && queue->size() == count) {
      request.queue_s = seconds_in(path, (*queue)[i], "queue_times", i);
    }
    if (!result["itls"][i].is_array()) refuse(path, fmt::format("itls[{}] is no list", i));
    for (const Json& itl : result["itls"][i]) request.itls_s.push_back(seconds_in(path, itl, "itls", i));
    first_start = i == 0 ? request.start_s : std::min(first_start, request.start_s);
    run.requests.push_back(std::move(request));
  }
  for (ClientRequest& request : run.requests) request.start_s -= first_start;
  check_units(path, result, run);
  return run;
}

std::vector<SentRequest> read_timed_trace(const fs::path& path) {
  std::ifstream in = open(path);
  std::vector<SentRequest> requests;
  std::int64_t line_number = 0;
  for (std::string line; std::getline(in, line);) {
    ++line_number;
    if (line.empty() || line == "\r") continue;
    Json row;
    try {
      row = Json::parse(line);
    } catch (const Json::exception&) {
      refuse(path, fmt::format("line {} is no valid JSON; is the file cut?", line_number));
    }
    const auto at = static_cast<std::size_t>(line_number);
    SentRequest request;
    request.send_s = seconds_in(path, field(path, row, "timestamp"), "timestamp, line", at);
    request.prompt_tokens = count_in(path, field(path, row, "input_length"), "input_length, line", at, 1);
    request.output_tokens = count_in(path, field(path, row, "output_length"), "output_length, line", at, 1);
    const auto ids = row.find("hash_ids");
    if (ids != row.end() && ids->is_array()) {
      for (const Json& id : *ids) request.hash_ids.push_back(count_in(path, id, "hash_ids, line", at, 0));
    }
    requests.push_back(std::move(request));
  }
  if (requests.empty()) refuse(path, "holds no request");
  return requests;
}

CacheState read_cache_state(const fs::path& path) {
  std::ifstream in = open(path);
  const Json state = parse_json(path, in);
  CacheState cache;
  cache.block_size = count_in(path, field(path, state, "block_size"), "block_size", 0, 1);
  cache.num_blocks = count_in(path, field(path, state, "num_blocks"), "num_blocks", 0, 2);
  std::set<std::int64_t> seen;
  std::size_t index = 0;
  for (const Json& entry : list_field(path, state, "free_queue")) {
    if (!entry.is_array() || entry.size() != 2) {
      refuse(path, fmt::format("free_queue[{}] is not [block id, hash id or null]", index));
    }
    const std::int64_t block = count_in(path, entry[0], "free_queue", index, 1);
    if (block >= cache.num_blocks || !seen.insert(block).second) {
      refuse(path, fmt::format("free_queue[{}]: block {} is out of range or there twice", index, block));
    }
    std::optional<std::int64_t> hash;
    if (!entry[1].is_null()) hash = count_in(path, entry[1], "free_queue", index, 0);
    cache.free_queue.emplace_back(static_cast<std::int32_t>(block), hash);
    ++index;
  }
  if (static_cast<std::int64_t>(cache.free_queue.size()) != cache.num_blocks - 1) {
    refuse(path,
           fmt::format("free_queue has {} blocks of {} usable ones; the state of an idle server is needed",
                       cache.free_queue.size(), cache.num_blocks - 1));
  }
  return cache;
}

namespace {

void check_trace_against_client(const Run& run) {
  if (!run.client || !run.files.trace) return;
  const auto& sent = run.trace;
  const auto& got = run.client->requests;
  if (sent.size() != got.size()) {
    refuse(*run.files.trace, fmt::format("has {} requests but {} has {}: not of one run", sent.size(),
                                         run.files.client->string(), got.size()));
  }
  for (std::size_t i = 0; i < sent.size(); ++i) {
    if (sent[i].prompt_tokens != got[i].prompt_tokens || sent[i].output_tokens != got[i].output_tokens) {
      refuse(*run.files.trace,
             fmt::format("request {} has {} prompt and {} output tokens, {} says {} and {}: not of one run",
                         i, sent[i].prompt_tokens, sent[i].output_tokens, run.files.client->string(),
                         got[i].prompt_tokens, got[i].output_tokens));
    }
    if (std::abs(sent[i].send_s - got[i].start_s) > 1.0) {
      refuse(*run.files.trace, fmt::format("request {} was sent at {} s, {} says {} s: not of one run", i,
                                           sent[i].send_s, run.files.client->string(), got[i].start_s));
    }
  }
}

void say_what_is_missing(Run& run) {
  if (!run.has_log() && !run.config) {
    run.cannot.push_back("no log: the make-up and time of steps, and the server's configuration");
  }
  if (!run.client) {
    run.cannot.push_back(
        "no client file: the time between steps and of the front end (log stamps have 1 s resolution), the "
        "order of "
        "simultaneous arrivals, latencies");
  }
  if (run.trace.empty())
    run.cannot.push_back("no trace and no client file: lengths, so no replay of the steps");
  const bool any_ids = std::any_of(run.trace.begin(), run.trace.end(),
                                   [](const SentRequest& request) { return !request.hash_ids.empty(); });
  if (!any_ids)
    run.cannot.push_back("no hash_ids: which prompts share blocks; all are taken to share nothing");
  if (any_ids && !run.cache) {
    run.cannot.push_back("no cache state: hits on blocks of earlier runs are inferred from the log");
  }
}

}  // namespace

Run read_run(const RunFiles& files) {
  Run run;
  run.files = files;
  ServerLogReader reader;
  for (const fs::path& path : files.logs) reader.read_file(path);
  run.log = reader.take();
  if (files.client) {
    run.client = read_client_file(*files.client);
    run.notes = run.client->notes;
  }
  if (files.config) run.config = sim::resolve(sim::read_run_config(files.config->string()));
  if (files.trace) {
    run.trace = read_timed_trace(*files.trace);
  } else if (run.client) {
    for (const ClientRequest& request : run.client->requests) {
      run.trace.push_back({request.start_s, request.prompt_tokens, request.output_tokens, {}});
    }
  }
  if (files.cache) run.cache = read_cache_state(*files.cache);
  check_trace_against_client(run);
  if (run.client && run.has_log() && !run.client->model.empty()) {
    for (const LoggedServer& server : run.log.servers) {
      const auto served = server.args.find("served_model_name");
      const bool alias =
          served != server.args.end() && served->second.find(run.client->model) != std::string::npos;
      if (!server.model.empty() && server.model != run.client->model && !alias) {
        refuse(*files.client,
               fmt::format("asked for model '{}' but the log's server ran '{}': not of one run",
                           run.client->model, server.model));
      }
    }
  }
  say_what_is_missing(run);
  return run;
}

std::vector<IterationLine> steps_of_run(const Run& run) {
  const LoggedServer& server = only_server(run.log, run.files.name);
  const auto engine = std::find_if(server.engines.begin(), server.engines.end(),
                                   [](const auto& entry) { return !entry.second.steps.empty(); });
  const std::vector<IterationLine>& steps = engine->second.steps;
  if (!run.client || !run.client->end_stamp) return steps;
  // The client's clock and the log's are of one machine, or differ by a time
  // zone; then nothing falls into the window and all steps are kept.
  const std::int64_t end = *run.client->end_stamp + 2;
  const std::int64_t begin = end - 4 - static_cast<std::int64_t>(std::ceil(run.client->duration_s));
  std::vector<IterationLine> inside;
  std::copy_if(steps.begin(), steps.end(), std::back_inserter(inside), [&](const IterationLine& step) {
    return !step.stamp || (*step.stamp >= begin && *step.stamp <= end);
  });
  return inside.empty() ? steps : inside;
}

}  // namespace kneepoint::calibrate
