// Where records come from: a file, an importer, a generator, a transform.
#pragma once

#include "traces/trace_record.h"

namespace kneepoint::traces {

class RecordSource {
 public:
  virtual ~RecordSource() = default;
  /// The next record into `record`, whose storage is reused; false at the end.
  /// Arrivals never fall. Throws TraceError for wrong input.
  [[nodiscard]] virtual bool next(TraceRecord& record) = 0;
};

}  // namespace kneepoint::traces
