// A file that appears whole or not at all.
//
// Bytes go to a temporary file in the same folder; commit() brings them to the
// disk and renames it. Without commit() nothing is left behind, and an older
// file of the name stays as it was.
#pragma once

#include <cstdio>
#include <filesystem>
#include <string>
#include <string_view>

namespace kneepoint::traces {

class AtomicFile {
 public:
  /// Throws TraceError if the folder is missing or cannot be written to.
  explicit AtomicFile(std::filesystem::path path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(std::string_view bytes);
  void commit();

 private:
  [[noreturn]] void fail(std::string_view what) const;

  std::filesystem::path path_;
  std::string temporary_;
  std::FILE* file_ = nullptr;  // Null once committed.
};

}  // namespace kneepoint::traces
