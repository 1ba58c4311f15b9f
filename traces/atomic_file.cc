#include "traces/atomic_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "traces/temporary_files.h"
#include "traces/trace_file.h"

namespace kneepoint::traces {

namespace fs = std::filesystem;

void AtomicFile::fail(std::string_view what) const {
  throw TraceError(fmt::format("{}: {}: {}", path_.string(), what, std::strerror(errno)));
}

AtomicFile::AtomicFile(fs::path path) : path_(std::move(path)) {
  if (fs::is_directory(path_)) throw TraceError(fmt::format("{}: is a folder; name a file", path_.string()));
  const int descriptor = make_temporary_file(path_, temporary_);
  if (descriptor < 0) fail("cannot be written");
  file_ = fdopen(descriptor, "wb");
  if (file_ == nullptr) {
    close(descriptor);
    unlink(temporary_.c_str());
    forget_temporary(temporary_);
    fail("cannot be written");
  }
}

AtomicFile::~AtomicFile() {
  if (file_ == nullptr) return;
  std::fclose(file_);
  unlink(temporary_.c_str());
  forget_temporary(temporary_);
}

void AtomicFile::write(std::string_view bytes) {
  if (std::fwrite(bytes.data(), 1, bytes.size(), file_) != bytes.size()) fail("cannot be written");
}

void AtomicFile::commit() {
  if (std::fflush(file_) != 0 || fsync(fileno(file_)) != 0) fail("cannot be written");
  if (std::rename(temporary_.c_str(), path_.c_str()) != 0) fail("cannot be renamed into place");
  forget_temporary(temporary_);
  std::fclose(std::exchange(file_, nullptr));
  // The new name itself reaches the disk with its folder.
  const fs::path folder = path_.has_parent_path() ? path_.parent_path() : fs::path(".");
  if (const int descriptor = open(folder.c_str(), O_RDONLY | O_DIRECTORY); descriptor >= 0) {
    fsync(descriptor);
    close(descriptor);
  }
}

}  // namespace kneepoint::traces
