// Every reader of files, fed with arbitrary bytes.
//
// The first byte chooses a row of kReaders, modulo their number; what follows is
// the file (importers take one byte more, of options). A row may return or throw
// one of our own errors, which main() shows as one line; everything else stops the
// process and is a finding: other exceptions, a crash, a broken invariant.
// Memory is the fuzzer's to watch (-rss_limit_mb, -malloc_limit_mb).
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <string_view>

#include "calibrate/calibrate_error.h"
#include "calibrate/logged_config.h"
#include "calibrate/ops_table.h"
#include "calibrate/run_input.h"
#include "calibrate/server_log.h"
#include "engine/scheduler_config.h"
#include "hw/deployment.h"
#include "hw/gpu_spec.h"
#include "hw/measured_step.h"
#include "hw/rates.h"
#include "hw/spec_error.h"
#include "sim/options.h"
#include "sim/output_files.h"
#include "sim/reproduce.h"
#include "sim/verify_folder.h"
#include "sim/vllm_flags.h"
#include "tests/fuzz/fuzz_target.h"
#include "traces/frame.h"
#include "traces/import.h"
#include "traces/one_line.h"
#include "traces/sha256.h"
#include "traces/trace.pb.h"
#include "traces/trace_file.h"

namespace kneepoint::fuzz {
namespace {

namespace fs = std::filesystem;

// A folder in memory, gone with the process.
class Folder {
 public:
  Folder() {
    const char* const base = fs::is_directory("/dev/shm") ? "/dev/shm" : "/tmp";
    std::string name = std::string(base) + "/kneepoint-fuzz-XXXXXX";
    if (::mkdtemp(name.data()) == nullptr) {
      std::abort();
    }
    path_ = name;
  }
  ~Folder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  [[nodiscard]] std::string write(const std::string& name, std::string_view bytes) const {
    const fs::path path = path_ / name;
    std::ofstream(path, std::ios::binary) << bytes;
    return path.string();
  }
  [[nodiscard]] const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

const Folder& folder() {
  static const Folder only;
  return only;
}

void read_whole(const std::string& path, traces::TraceReader::Damage damage) {
  traces::TraceReader reader(path, damage);
  for (traces::TraceRecord record; reader.next(record);) {
  }
}

void trace_file(std::string_view bytes) {
  const std::string path = folder().write("x.pb", bytes);
  try {
    read_whole(path, traces::TraceReader::Damage::kKeepWhole);
  } catch (const traces::TraceError&) {
  }
  read_whole(path, traces::TraceReader::Damage::kRefuse);
}

// Columns in a file whose framing, checksums and digest are right: what a
// checksum would otherwise hide.
void trace_block(std::string_view bytes) {
  using traces::FrameTag;
  traces::pb::Header header;
  header.set_version(traces::kFormatVersion);
  std::string file = make_frame(FrameTag::kHeader, header.SerializeAsString()) + make_frame(FrameTag::kBlock, bytes);
  traces::Sha256 hash;
  hash.update(file);
  const traces::Sha256Digest digest = hash.digest();
  traces::pb::Block block;
  std::uint64_t last = 0;
  if (block.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
    for (const std::uint64_t delta : block.arrival_delta_ns()) {
      last += delta;
    }
  }
  traces::pb::Trailer trailer;
  trailer.set_num_records(static_cast<std::uint64_t>(block.arrival_delta_ns_size()));
  trailer.set_last_arrival_ns(last);
  trailer.set_sha256(digest.data(), digest.size());
  file += make_frame(FrameTag::kTrailer, trailer.SerializeAsString());
  read_whole(folder().write("x.pb", file), traces::TraceReader::Damage::kRefuse);
}

void import_as(const std::string& format, std::string_view bytes) {
  if (bytes.empty()) {
    return;
  }
  const auto choices = static_cast<unsigned char>(bytes.front());
  traces::ImportOptions options;
  options.format = format;
  options.sort = (choices & 1) != 0;
  options.skip_bad_rows = (choices & 2) != 0 ? 3 : 0;
  options.recover = (choices & 4) != 0;
  if ((choices & 8) != 0) {
    options.arrivals = traces::ArrivalOptions{};
    options.arrivals->process = "poisson";
    options.arrivals->rate = 2;
  }
  if ((choices & 16) != 0) {
    options.block_size = 16;
  }
  const auto importer = traces::import_trace(folder().write("x.txt", bytes.substr(1)), options);
  for (traces::TraceRecord record; importer->next(record);) {
  }
}

template <std::size_t kFormat>
void import_nth(std::string_view bytes) {
  const auto formats = traces::import_formats();
  import_as(std::string(formats.at(kFormat).name), bytes);
}

void import_by_looks(std::string_view bytes) { import_as("", bytes); }

// What a resolved run is asked for its times: any step must take some.
void take_steps(const hw::StepTimeModel& times) {
  for (const std::int64_t count : {1, 7, 256}) {
    hw::StepShape shape;
    shape.num_tokens = shape.padded_tokens = shape.num_sampled = count;
    shape.decodes = {count, count * 1000, 1000, {}};
    if (times.step_time(shape).device.count() < 0) {
      std::fprintf(stderr, "fuzz_parsers: a step of negative time\n");
      std::abort();
    }
  }
}

void resolve_with(const sim::pb::RunConfig& asked) {
  const sim::RunConfig config = sim::resolve(asked);
  static_cast<void>(sim::as_text(sim::as_proto(config, asked)));
}

void model_config(std::string_view bytes) {
  sim::pb::RunConfig asked;
  asked.set_model(folder().write("x.json", bytes));
  resolve_with(asked);
}

void gpu_spec(std::string_view bytes) {
  sim::pb::RunConfig asked;
  asked.set_gpu(folder().write("x.textproto", bytes));
  resolve_with(asked);
}

void rates(std::string_view bytes) { static_cast<void>(hw::parse_rates(std::string(bytes), "x.textproto")); }

void measured_server(std::string_view bytes) {
  const std::string path = folder().write("x.textproto", bytes);
  take_steps(*hw::make_measured_step_time_model(hw::load_server(path)));
}

void run_config(std::string_view bytes) {
  resolve_with(sim::parse_run_config(std::string(bytes), "x.textproto"));
}

// One argument a line.
void command_line(std::string_view bytes) {
  std::vector<std::string> arguments;
  std::istringstream in{std::string(bytes)};
  for (std::string line; std::getline(in, line);) {
    arguments.push_back(line);
  }
  resolve_with(sim::parse_flags(arguments).config);
}

void bench_result(std::string_view bytes) {
  static_cast<void>(calibrate::read_client_result(folder().write("x.json", bytes)));
}

void timed_trace(std::string_view bytes) {
  static_cast<void>(calibrate::read_timed_trace(folder().write("x.jsonl", bytes)));
}

void cache_state(std::string_view bytes) {
  static_cast<void>(calibrate::read_cache_state(folder().write("x.json", bytes)));
}

void server_log(std::string_view bytes) {
  calibrate::ServerLogReader reader;
  std::istringstream in{std::string(bytes)};
  reader.read(in, "x.log");
  const calibrate::ServerLog log = reader.take();
  for (const calibrate::LoggedServer& server : log.servers) {
    static_cast<void>(calibrate::logged_config(server));
  }
}

void measured_operators(std::string_view bytes) {
  calibrate::OpsTable table;
  const char* const kinds[] = {"gemm", "decode_attention", "prefill_attention", "moe", "allreduce", "nccl"};
  if (bytes.empty()) {
    return;
  }
  const std::string kind = kinds[static_cast<unsigned char>(bytes.front()) % std::size(kinds)];
  calibrate::read_ops_csv(folder().write("h100_sxm_" + kind + ".csv", bytes.substr(1)), table);
}

void result_file(std::string_view bytes) {
  static_cast<void>(sim::first_difference("result.json", std::string(bytes), std::string(bytes)));
}

void checksum_list(std::string_view bytes) {
  static const Folder result;
  static_cast<void>(result.write("result.json", "{}"));
  static_cast<void>(result.write("checksums.sha256", bytes));
  static_cast<void>(sim::verify_folder(result.path()));
}

// The corpus counts on the order: new rows go to the end.
using Reader = void (*)(std::string_view);
constexpr Reader kReaders[] = {
    &trace_file,     &trace_block,    &import_by_looks, &import_nth<0>,  &import_nth<1>,  &import_nth<2>,
    &import_nth<3>,  &import_nth<4>,  &import_nth<5>,   &import_nth<6>,  &import_nth<7>,  &import_nth<8>,
    &import_nth<9>,  &import_nth<10>, &import_nth<11>,  &import_nth<12>, &import_nth<13>, &model_config,
    &gpu_spec,       &rates,          &measured_server, &run_config,     &command_line,   &bench_result,
    &timed_trace,    &cache_state,    &server_log,      &measured_operators, &result_file,
    &checksum_list};

// As main() shows it: one line of text that a terminal shows as it is.
void check_message(const std::exception& error) {
  const std::string text = traces::one_line(error.what());
  const auto odd = [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; };
  if (text.empty() || text.size() > 2000 || std::any_of(text.begin(), text.end(), odd)) {
    std::fprintf(stderr, "fuzz_parsers: the error is no one line: %s\n", error.what());
    std::abort();
  }
}

}  // namespace

void fuzz_parsers(std::span<const std::uint8_t> bytes) {
  if (bytes.empty()) {
    return;
  }
  const std::string_view file(reinterpret_cast<const char*>(bytes.data()) + 1, bytes.size() - 1);
  try {
    kReaders[bytes.front() % std::size(kReaders)](file);
  } catch (const traces::TraceError& error) {
    check_message(error);
  } catch (const sim::UsageError& error) {
    check_message(error);
  } catch (const hw::SpecError& error) {
    check_message(error);
  } catch (const engine::ConfigError& error) {
    check_message(error);
  } catch (const calibrate::CalibrateError& error) {
    check_message(error);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "fuzz_parsers: an error of no kind of ours: %s\n", error.what());
    std::abort();
  }
}

}  // namespace kneepoint::fuzz
