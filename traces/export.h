// Writing a workload for others to read.
//
//     pb           our own files
//     csv, jsonl   a row or an object a request, with the fields of TraceRecord;
//                  jsonl keeps prompt identity, csv cannot
//     timed-trace  what `vllm bench serve --dataset-name timed_trace` replays:
//                  seconds, lengths, and hash_ids of blocks where prompts share
//
// A writer that cannot say something the workload holds counts it in notices().
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "traces/trace_record.h"

namespace kneepoint::traces {

struct ExportOptions {
  std::string format;            ///< A name of export_formats().
  std::string source;            ///< How the workload came to be; kept by pb.
  std::int64_t block_size = 16;  ///< timed-trace: tokens per hash id.
};

class TraceSink {
 public:
  virtual ~TraceSink() = default;
  /// Throws TraceError if `record` is out of order or the disk is full.
  virtual void add(const TraceRecord& record) = 0;
  /// Completes the file; without it nothing is left behind.
  virtual void finish() = 0;
  /// What could not be said in the format; complete after finish().
  [[nodiscard]] virtual std::vector<std::string> notices() const { return {}; }
};

[[nodiscard]] std::vector<std::string> export_formats();

/// The format that the ending of `path` means, or "" : .pb, .csv, .jsonl.
[[nodiscard]] std::string format_of_ending(const std::filesystem::path& path);

/// Throws TraceError for an unknown format or a place that cannot be written to.
[[nodiscard]] std::unique_ptr<TraceSink> export_trace(const std::filesystem::path& path,
                                                      const ExportOptions& options);

}  // namespace kneepoint::traces
