#include "tests/faults/tool.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <iterator>
#include <thread>

#include "traces/trace_file.h"

namespace kneepoint::faults {

namespace fs = std::filesystem;

std::string simulate_tool() { return KNEEPOINT_SIMULATE_TOOL; }
std::string traces_tool() { return KNEEPOINT_TRACES_TOOL; }

namespace {

std::string bytes_of(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

}  // namespace

Contents contents(const fs::path& folder) {
  Contents files;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.is_regular_file()) {
      files[entry.path().filename().string()] = bytes_of(entry.path());
    }
  }
  return files;
}

void write_file(const fs::path& path, const std::string& bytes) { std::ofstream(path, std::ios::binary) << bytes; }

void restore(const fs::path& folder, const Contents& files) {
  fs::create_directories(folder);
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (!files.contains(entry.path().filename().string())) {
      fs::remove_all(entry.path());
    }
  }
  for (const auto& [name, bytes] : files) {
    write_file(folder / name, bytes);
  }
}

TestFolder::TestFolder() {
  std::string name = ((fs::is_directory("/dev/shm") ? fs::path("/dev/shm") : fs::temp_directory_path()) /
                      "kneepoint-faults-XXXXXX")
                         .string();
  path_ = ::mkdtemp(name.data());
}

TestFolder::~TestFolder() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

Outcome run(const fs::path& folder, const std::vector<std::string>& command, const Fate& fate) {
  const fs::path streams = folder.string() + ".streams";
  fs::create_directories(streams);
  const std::string out = (streams / "out").string(), err = (streams / "err").string();
  std::vector<char*> words;
  for (const std::string& word : command) {
    words.push_back(const_cast<char*>(word.c_str()));
  }
  words.push_back(nullptr);
  const pid_t child = ::fork();
  if (child == 0) {
    const int mode = O_WRONLY | O_CREAT | O_TRUNC;
    ::dup2(::open(out.c_str(), mode, 0600), STDOUT_FILENO);
    ::dup2(::open(err.c_str(), mode, 0600), STDERR_FILENO);
    if (::chdir(folder.c_str()) != 0) {
      ::_exit(126);
    }
    if (fate.prepare) {
      fate.prepare();
    }
    ::execv(words.front(), words.data());
    ::_exit(127);
  }
  if (fate.signal_after) {
    std::this_thread::sleep_for(*fate.signal_after);
    ::kill(child, fate.signal);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  Outcome outcome;
  if (WIFEXITED(status)) {
    outcome.status = WEXITSTATUS(status);
  } else {
    outcome.signal = WTERMSIG(status);
  }
  outcome.out = bytes_of(out);
  outcome.err = bytes_of(err);
  return outcome;
}

void make_trace(const fs::path& path, int requests, int seed) {
  traces::TraceWriter writer(path, "made by a test");
  traces::TraceRecord record;
  for (int i = 0; i < requests; ++i) {
    record.arrival += std::chrono::microseconds(50'000 + i * seed);
    record.prompt_tokens = 20 + (i * 37 * seed) % 200;
    record.output_tokens = 1 + (i * 13 * seed) % 12;
    writer.add(record);
  }
  writer.finish();
}

}  // namespace kneepoint::faults
