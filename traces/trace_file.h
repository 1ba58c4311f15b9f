// Trace files: reading and writing .pb, as a stream, in constant memory.
//
// A file is a checksummed header, blocks of up to 4096 records as packed columns
// with a checksum each, and a trailer with the count and the digest of all
// records, so that a cut at a block's edge is seen (traces/trace.proto).
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <stdexcept>
#include <string>

#include "traces/trace_record.h"

namespace kneepoint::traces {

/// Wrong trace input. One line: file, record or byte, field, what to do.
struct TraceError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// What the header says.
struct TraceInfo {
  std::string source;  ///< How the trace came to be: "generate poisson rate=25 ...", "azure: FILE.csv".
  std::uint64_t num_records = 0;             ///< From the trailer; known before the first record is read.
  std::chrono::nanoseconds last_arrival{0};  ///< From the trailer.
};

/// Reads one file from front to back.
class TraceReader {
 public:
  /// What to do with a damaged file.
  enum class Damage {
    kRefuse,
    kKeepWhole,  ///< Give the whole blocks before the damage and end there; damage() tells.
  };

  /// Opens and checks header and trailer. Throws TraceError.
  explicit TraceReader(const std::filesystem::path& path, Damage damage = Damage::kRefuse);
  ~TraceReader();
  TraceReader(TraceReader&&) noexcept;
  TraceReader& operator=(TraceReader&&) noexcept;

  [[nodiscard]] const TraceInfo& info() const;

  /// The next record into `record`, whose storage is reused; false at the end.
  /// Throws TraceError for a damaged block, an unsorted or absurd record.
  [[nodiscard]] bool next(TraceRecord& record);

  /// Under kKeepWhole, what is wrong with the file; "" if nothing was found so far.
  [[nodiscard]] const std::string& damage() const;

  /// SHA-256 of the whole file, lower-case hex; available once next() returned false.
  [[nodiscard]] std::string sha256() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Writes to a temporary file beside `path` and renames it in finish(); without
/// finish() nothing is left behind.
class TraceWriter {
 public:
  TraceWriter(const std::filesystem::path& path, std::string source);
  ~TraceWriter();
  TraceWriter(TraceWriter&&) noexcept;
  TraceWriter& operator=(TraceWriter&&) noexcept;

  /// Throws TraceError if `record` is not in order or its fields contradict each other.
  void add(const TraceRecord& record);
  /// Trailer, sync, rename.
  void finish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace kneepoint::traces
