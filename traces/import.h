// Reading other people's traces.
//
// A format is a row of a table: its name, what kind of text it is, what its
// columns are called and in what unit it tells time. Formats that need more than
// that have a maker of their own. A row that cannot be read is an error with
// file, line and column; nothing is left out, guessed or re-sorted unless the
// caller says so, and then it is counted.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "traces/arrivals.h"
#include "traces/record_source.h"
#include "traces/time_stamp.h"

namespace kneepoint::traces {

struct ImportOptions {
  std::string format;                 ///< A name of import_formats(); "": by the file's looks.
  std::string columns;                ///< "arrival=ts,prompt=in,output=out": other names than the format's.
  std::optional<TimeUnit> time_unit;  ///< Of numbers in the arrival column; default the format's.
  std::optional<std::int64_t> block_size;  ///< Tokens per hash id; default the format's.
  bool sort = false;                       ///< Sort by arrival (all records in memory) instead of refusing.
  std::uint64_t skip_bad_rows = 0;         ///< Pass over up to so many rows that cannot be read.
  bool recover = false;                    ///< Keep what is whole of a file that was cut.
  std::optional<ArrivalOptions> arrivals;  ///< For formats without times; num_requests is not needed.
  std::optional<double> chars_per_token;   ///< For formats that hold text: an estimate, 4 if not told.
};

/// What happened on the way; complete once next() returned false.
struct ImportReport {
  std::string format;
  std::uint64_t num_records = 0;
  std::vector<std::string> notices = {};  ///< One line each: what was passed over, moved, cut, estimated.
};

class Importer : public RecordSource {
 public:
  [[nodiscard]] virtual const ImportReport& report() const = 0;
};

/// One row per format; the row is the registration.
struct ImportFormat {
  std::string_view name;
  std::string_view summary;
};

/// All formats, ordered by name.
[[nodiscard]] std::vector<ImportFormat> import_formats();

/// Throws TraceError for an unknown format, a file that is not of it, or an option
/// that the format would not look at.
[[nodiscard]] std::unique_ptr<Importer> import_trace(const std::filesystem::path& path,
                                                     const ImportOptions& options);

}  // namespace kneepoint::traces
