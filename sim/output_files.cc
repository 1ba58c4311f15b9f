#include "sim/output_files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <boost/assert.hpp>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

#include "traces/temporary_files.h"

namespace kneepoint::sim {

namespace fs = std::filesystem;

namespace {

constexpr std::size_t kBufferBytes = std::size_t{1} << 16;


[[noreturn]] void fail_at(const fs::path& path, std::string_view what, int error) {
  throw OutputError(fmt::format("{}: {}: {}", path.string(), what, std::strerror(error)));
}

/// All of `bytes`, or an errno.
[[nodiscard]] int write_all(int descriptor, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(descriptor, bytes.data(), bytes.size());
    if (written < 0 && errno != EINTR) {
      return errno;
    }
    bytes.remove_prefix(static_cast<std::size_t>(std::max<ssize_t>(written, 0)));
  }
  return 0;
}

// A name reaches the disk with the folder it stands in.
void sync_folder(const fs::path& folder) {
  if (const int descriptor = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC); descriptor >= 0) {
    ::fsync(descriptor);
    ::close(descriptor);
  }
}

fs::path folder_of(const fs::path& path) {
  return path.has_parent_path() ? path.parent_path() : fs::path(".");
}

}  // namespace

// ---- one file

OutputFile::OutputFile(fs::path path) : path_(std::move(path)) {
  std::error_code ignored;
  const fs::file_status status = fs::status(path_, ignored);
  if (fs::is_directory(status)) {
    throw OutputError(fmt::format("{}: is a folder; name a file", path_.string()));
  }
  if (fs::exists(status) && !fs::is_regular_file(status)) {
    throw OutputError(
        fmt::format("{}: is no regular file and cannot be replaced; name a file", path_.string()));
  }
  descriptor_ = traces::make_temporary_file(path_, temporary_);
  if (descriptor_ < 0) {
    fail_at(path_, "cannot be written", errno);
  }
  buffer_.reserve(kBufferBytes);
}

OutputFile::~OutputFile() {
  if (descriptor_ >= 0) {
    ::close(descriptor_);
  }
  if (!temporary_.empty()) {
    ::unlink(temporary_.c_str());
    traces::forget_temporary(temporary_);
  }
}

void OutputFile::fail(std::string_view what) const {
  fail_at(path_, what, errno);
}

void OutputFile::write(std::string_view bytes) {
  BOOST_ASSERT_MSG(descriptor_ >= 0, "OUTPUT_FILES: written to after commit()");
  if (buffer_.size() + bytes.size() > kBufferBytes) {
    flush();
  }
  buffer_ += bytes;
}

void OutputFile::flush() {
  hash_.update(buffer_);
  if (const int error = write_all(descriptor_, buffer_); error != 0) {
    fail_at(path_, "cannot be written", error);
  }
  buffer_.clear();
}

void OutputFile::sync() {
  flush();
  // EINVAL: this file system has no notion of it (some network and FUSE ones).
  if (::fsync(descriptor_) != 0 && errno != EINVAL) {
    fail("cannot be written");
  }
  if (::close(std::exchange(descriptor_, -1)) != 0) {
    fail("cannot be written");
  }
}

void OutputFile::rename() {
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) {
    fail("cannot be put into place");
  }
  traces::forget_temporary(temporary_);
  temporary_.clear();
}

// ---- the set

OutputFiles::OutputFiles(fs::path folder) : folder_(std::move(folder)) {
  if (!folder_.empty()) {
    make_folder();
  }
}

OutputFiles::~OutputFiles() {
  files_.clear();
  if (!committed_) {
    std::error_code ignored;  // A folder that others have begun to use stays.
    std::for_each(made_folders_.rbegin(), made_folders_.rend(),
                  [&](const fs::path& made) { fs::remove(made, ignored); });
  }
  for (const fs::path& made : made_folders_) {
    traces::forget_temporary(made.string());
  }
}

void OutputFiles::make_folder() {
  std::error_code error;
  const fs::file_status status = fs::status(folder_, error);
  if (fs::is_directory(status)) {
    if (::access(folder_.c_str(), W_OK | X_OK) != 0) {
      fail_at(folder_, "cannot be written to", errno);
    }
    return;
  }
  fs::path made;
  for (const fs::path& part : folder_) {
    made /= part;
    if (fs::exists(made, error) && !fs::is_directory(made, error)) {
      throw OutputError(fmt::format("{}: is a file; --out takes a folder", made.string()));
    }
    if (fs::create_directory(made, error)) {
      made_folders_.push_back(made);
      traces::note_temporary_folder(made);
    }
    if (error) {
      std::error_code ignored;
      std::for_each(made_folders_.rbegin(), made_folders_.rend(),
                    [&](const fs::path& old) { fs::remove(old, ignored); });
      fail_at(folder_, "cannot be made", error.value());
    }
  }
}

OutputFile& OutputFiles::create(std::string_view name) {
  BOOST_ASSERT(has_folder());
  const bool taken =
      std::any_of(files_.begin(), files_.end(), [&](const Named& old) { return old.name == name; });
  if (taken) {
    throw OutputError(fmt::format("{}: would be written twice; give one of the two another name",
                                  (folder_ / name).string()));
  }
  files_.push_back({std::string(name), std::unique_ptr<OutputFile>(new OutputFile(folder_ / name))});
  return *files_.back().file;
}

OutputFile& OutputFiles::create_at(const fs::path& path) {
  std::error_code error;
  if (has_folder() && fs::equivalent(folder_of(path), folder_, error)) {
    return create(path.filename().string());
  }
  files_.push_back({"", std::unique_ptr<OutputFile>(new OutputFile(path))});
  return *files_.back().file;
}

// In the form of `sha256sum --check`, in the order of names.
void OutputFiles::write_checksums() {
  std::vector<std::pair<std::string, std::string>> lines;
  for (const Named& named : files_) {
    if (!named.name.empty()) {
      lines.emplace_back(named.name, named.file->hash_.hex());
    }
  }
  std::sort(lines.begin(), lines.end());
  OutputFile& file = create(kChecksumsFile);
  for (const auto& [name, hash] : lines) {
    file.write(fmt::format("{}  {}\n", hash, name));
  }
  file.sync();
}

void OutputFiles::commit() {
  BOOST_ASSERT(!committed_);
  for (const Named& named : files_) {
    named.file->sync();
  }
  if (has_folder()) {
    write_checksums();
    std::error_code ignored;  // What cannot be removed cannot be replaced either; rename() will tell.
    fs::remove(folder_ / kChecksumsFile, ignored);
    for (const std::string& name : replaced_names_) {
      const auto is_it = [&](const Named& named) { return named.name == name; };
      if (std::none_of(files_.begin(), files_.end(), is_it)) {
        fs::remove(folder_ / name, ignored);
      }
    }
    sync_folder(folder_);  // Before any new name, whatever order the disk likes.
  }
  committed_ = true;  // From here on a folder of ours holds files.
  for (const Named& named : files_) {
    if (named.name == kChecksumsFile) {
      sync_folder(folder_);  // The files first, then what vouches for them.
    }
    named.file->rename();
  }
  for (const Named& named : files_) {
    sync_folder(folder_of(named.file->path_));
  }
}

// ---- standard streams

void guard_process() {
  ::signal(SIGPIPE, SIG_IGN);
  traces::remove_temporaries_on_signals();
  // A closed descriptor would go to the next file we open. Standard output gets
  // one that cannot be written to, so that its loss is noticed.
  for (const auto& [descriptor, flags] : {std::pair{0, O_RDONLY}, {1, O_RDONLY}, {2, O_WRONLY}}) {
    if (::fcntl(descriptor, F_GETFD) < 0 && errno == EBADF) {
      static_cast<void>(::open("/dev/null", flags));  // The lowest free one: this.
    }
  }
}

void write_stdout(std::string_view text) {
  if (const int error = write_all(STDOUT_FILENO, text); error != 0) {
    throw OutputError(fmt::format("standard output: cannot be written: {}", std::strerror(error)));
  }
}

}  // namespace kneepoint::sim
