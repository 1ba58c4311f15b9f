#include "sim/study_store.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <boost/assert.hpp>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "sim/options.h"
#include "sim/output_files.h"
#include "sim/usage_error.h"
#include "traces/sha256.h"

namespace kneepoint::sim {

namespace fs = std::filesystem;

namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kSeal = ",\"sha256\":\"";
constexpr std::string_view kSealEnd = "\"}";
constexpr std::size_t kHexDigits = 64;
constexpr const char* kParts = "parts";
constexpr const char* kResults = "results.jsonl";

[[noreturn]] void fail(const fs::path& path, const char* what, int error) {
  throw OutputError(fmt::format("{}: {}: {}", path.string(), what, std::strerror(error)));
}

std::string hash_of(std::string_view bytes) {
  traces::Sha256 hash;
  hash.update(bytes);
  return hash.hex();
}

// Reads to the end of the line. A line without its end is told apart.
bool next_line(std::ifstream& in, std::string& line, bool& whole) {
  if (!std::getline(in, line)) {
    return false;
  }
  whole = !in.eof();
  return true;
}

}  // namespace

std::string seal_line(std::string_view json) {
  BOOST_ASSERT(json.size() > 2 && json.back() == '}');
  json.remove_suffix(1);
  return fmt::format("{}{}{}{}", json, kSeal, hash_of(json), kSealEnd);
}

std::optional<std::string> unseal_line(std::string_view line) {
  const std::size_t sealed = kSeal.size() + kHexDigits + kSealEnd.size();
  if (line.size() <= sealed) {
    return std::nullopt;
  }
  const std::string_view body = line.substr(0, line.size() - sealed);
  if (line.substr(body.size()) != fmt::format("{}{}{}", kSeal, hash_of(body), kSealEnd)) {
    return std::nullopt;
  }
  return std::string(body) + "}";
}

StudyHeader make_header(const StudyPoints& study) {
  Json json;
  json["study"] = study.identity();
  json["title"] = study.title();
  json["kneepoint_version"] = kVersion;
  json["points"] = study.size();
  json["options"] = study.options();
  json["inputs"] = Json::array();
  for (const InputFile& input : study.inputs()) {
    json["inputs"].push_back({{"role", input.role}, {"name", input.name}, {"sha256", input.sha256}});
  }
  json["file"] = study.text();
  return {study.identity(), study.size(), study.options(),
          seal_line(json.dump(-1, ' ', false, Json::error_handler_t::replace))};
}

// ---- reading

StudyScan::StudyScan(const fs::path& folder) {
  std::error_code error;
  if (!fs::is_directory(folder, error)) {
    throw UsageError(fmt::format("{}: no folder with a study's results", folder.string()));
  }
  for (const auto& entry : fs::directory_iterator(folder / kParts, error)) {
    if (entry.path().extension() == ".jsonl") {
      files_.push_back(entry.path());
    }
  }
  std::sort(files_.begin(), files_.end());
  if (fs::exists(folder / kResults, error)) {
    files_.push_back(folder / kResults);
  }
  for (std::size_t i = 0; i < files_.size(); ++i) {
    scan(i);
  }
}

void StudyScan::scan(std::size_t file) {
  std::ifstream in(files_[file], std::ios::binary);
  if (!in) {
    throw UsageError(fmt::format("{}: cannot be read", files_[file].string()));
  }
  std::string line;
  bool whole = false;
  std::int64_t offset = 0;
  for (std::int64_t number = 1; next_line(in, line, whole); ++number) {
    if (!whole) {
      if (files_[file].filename() == kResults) {  // Never seen half-written: it is renamed into place.
        throw UsageError(
            fmt::format("{}: the last line was cut off; the file was changed", files_[file].string()));
      }
      if (unseal_line(std::string_view(line).substr(0, line.size() - 1))) {  // All there, and one byte more.
        throw UsageError(fmt::format("{}: the end of line {} is no line end; the file was changed",
                                     files_[file].string(), number));
      }
      ++num_torn_;
      return;
    }
    const std::optional<std::string> body = unseal_line(line);
    if (!body) {
      throw UsageError(
          fmt::format("{}: line {} does not match its checksum: the file was changed or the disk failed; "
                      "remove that line, and "
                      "its point is run again",
                      files_[file].string(), number));
    }
    if (number == 1) {
      take_header(file, line, *body);
    } else {
      take_record(file, offset, line, *body);
    }
    offset += static_cast<std::int64_t>(line.size()) + 1;
  }
}

void StudyScan::take_header(std::size_t file, std::string_view line, std::string_view body) {
  const Json json = Json::parse(body, nullptr, false);
  if (!json.is_object() || !json.contains("study") || !json.contains("points")) {
    throw UsageError(fmt::format("{}: does not begin with the header of a study", files_[file].string()));
  }
  StudyHeader header{json["study"].get<std::string>(), json["points"].get<std::int64_t>(),
                     json["options"].get<std::vector<std::string>>(), std::string(line)};
  if (!header_) {
    places_.resize(static_cast<std::size_t>(header.points));
    header_ = std::move(header);
  } else if (header_->line != line) {
    throw UsageError(
        fmt::format("{}: is of another study than {}", files_[file].string(), files_.front().string()));
  }
}

void StudyScan::take_record(std::size_t file, std::int64_t offset, std::string_view line,
                            std::string_view body) {
  const Json json = Json::parse(body, nullptr, false);
  const std::int64_t point =
      json.is_object() && json.contains("point") ? json["point"].get<std::int64_t>() : -1;
  if (point < 0 || point >= header_->points) {
    throw UsageError(fmt::format("{}: has a record of no point of this study", files_[file].string()));
  }
  std::optional<RecordPlace>& place = places_[static_cast<std::size_t>(point)];
  if (!place) {
    place = RecordPlace{file, offset, static_cast<std::int64_t>(line.size())};
    ++num_found_;
  } else if (read(*place) != line) {
    throw UsageError(
        fmt::format("{}: point {} has another result than in {}; they come from different builds",
                    files_[file].string(), point, files_[place->file].string()));
  }
}

std::string StudyScan::read(const RecordPlace& place) const {
  std::ifstream in(files_[place.file], std::ios::binary);
  std::string line(static_cast<std::size_t>(place.length), '\0');
  in.seekg(place.offset);
  in.read(line.data(), place.length);
  if (!in) {
    throw UsageError(fmt::format("{}: cannot be read", files_[place.file].string()));
  }
  return line;
}

std::string StudyScan::line_of(std::int64_t point) const {
  BOOST_ASSERT(has(point));
  return read(*places_[static_cast<std::size_t>(point)]);
}

// ---- writing

void make_study_folder(const fs::path& folder) {
  std::error_code error;
  if (fs::exists(folder, error) && !fs::is_directory(folder, error)) {
    throw OutputError(fmt::format("{}: is a file; --out takes a folder", folder.string()));
  }
  fs::create_directories(folder / kParts, error);
  if (error) {
    throw OutputError(fmt::format("{}: cannot be made: {}", (folder / kParts).string(), error.message()));
  }
}

StudyPart::StudyPart(const fs::path& folder, const std::string& name, const StudyHeader& header)
    : path_(folder / kParts / (name + ".jsonl")) {
  descriptor_ = ::open(path_.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (descriptor_ < 0) {
    fail(path_, "cannot be written", errno);
  }
  if (::flock(descriptor_, LOCK_EX | LOCK_NB) != 0) {
    const int error = errno;
    ::close(descriptor_);
    if (error == EWOULDBLOCK) {
      throw UsageError(fmt::format(
          "{}: another `simulate study` is writing it; wait for it, or give another --out", path_.string()));
    }
    fail(path_, "cannot be locked", error);
  }
  std::ifstream in(path_, std::ios::binary);
  std::string line;
  bool whole = false;
  std::int64_t kept = 0;
  while (next_line(in, line, whole) && whole) {
    kept += static_cast<std::int64_t>(line.size()) + 1;
  }
  if (::ftruncate(descriptor_, kept) != 0) {
    const int error = errno;
    ::close(descriptor_);
    fail(path_, "cannot be written", error);
  }
  if (kept == 0) {
    write_line(header.line);
  }
}

StudyPart::~StudyPart() {
  ::fdatasync(descriptor_);
  ::close(descriptor_);
}

void StudyPart::append(std::string_view json) {
  write_line(seal_line(json));
}

void StudyPart::write_line(const std::string& line) {
  const std::string bytes = line + "\n";
  std::size_t written = 0;
  while (written < bytes.size()) {
    const ssize_t n = ::write(descriptor_, bytes.data() + written, bytes.size() - written);
    if (n < 0 && errno != EINTR) {
      fail(path_, "cannot be written", errno);
    }
    written += n > 0 ? static_cast<std::size_t>(n) : 0;
  }
}

}  // namespace kneepoint::sim
