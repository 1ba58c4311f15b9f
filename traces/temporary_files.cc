#include "traces/temporary_files.h"

#include <fcntl.h>
#include <sys/random.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstring>

namespace kneepoint::traces {
namespace {

// What the signal handler removes. It may allocate nothing and wait for nobody,
// so the names lie in fixed places that are marked as used.
struct Slot {
  enum State : int { kFree, kBeingWritten, kUsed };
  std::atomic<int> state{kFree};
  std::array<char, 1024> name{};
};
constinit std::array<Slot, 64> slots;

// A name that finds no room is not cleaned up after a signal; nothing else is lost.
void note(const std::string& name) {
  if (name.size() >= slots.front().name.size()) return;
  for (Slot& slot : slots) {
    int expected = Slot::kFree;
    if (slot.state.compare_exchange_strong(expected, Slot::kBeingWritten)) {
      std::memcpy(slot.name.data(), name.c_str(), name.size() + 1);
      slot.state = Slot::kUsed;
      return;
    }
  }
}

// From the last slot to the first: files before the folders that were made for them.
extern "C" void remove_and_end(int signal) {
  for (std::size_t i = slots.size(); i-- > 0;) {
    if (slots[i].state == Slot::kUsed && ::unlink(slots[i].name.data()) != 0) ::rmdir(slots[i].name.data());
  }
  // The handler was reset when it was entered: this time the signal ends the process.
  ::raise(signal);
}

constexpr char kLetters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_";
constexpr std::size_t kSuffix = 8;

std::string random_suffix() {
  std::array<unsigned char, kSuffix> bytes{};
  if (::getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size())) {
    const auto id = static_cast<std::uint64_t>(::getpid());
    std::memcpy(bytes.data(), &id, bytes.size());
  }
  std::string text;
  for (const unsigned char byte : bytes) text.push_back(kLetters[byte % 64]);
  return text;
}

}  // namespace

int make_temporary_file(const std::filesystem::path& path, std::string& name) {
  for (int attempt = 0; attempt < 100; ++attempt) {
    name = path.string() + "." + random_suffix();
    note(name);  // First: there is no moment at which the file is there and nobody knows.
    const int descriptor = ::open(name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (descriptor >= 0) return descriptor;
    const int error = errno;
    forget_temporary(name);
    errno = error;
    if (error != EEXIST) break;
  }
  name.clear();
  return -1;
}

bool is_temporary_name(const std::string& name, const std::string& place) {
  const std::string start = place + ".";
  return name.size() == start.size() + kSuffix && name.starts_with(start) &&
         name.find_first_not_of(kLetters, start.size()) == std::string::npos;
}

void note_temporary_folder(const std::filesystem::path& folder) {
  note(folder.string());
}

void forget_temporary(const std::string& name) {
  for (Slot& slot : slots) {
    if (slot.state == Slot::kUsed && name == slot.name.data()) {
      slot.state = Slot::kFree;
      return;
    }
  }
}

void remove_temporaries_on_signals() {
  for (const int signal : {SIGTERM, SIGINT, SIGHUP, SIGPIPE}) {
    struct sigaction action {};
    if (::sigaction(signal, nullptr, &action) != 0 || action.sa_handler != SIG_DFL) continue;
    action.sa_handler = &remove_and_end;
    action.sa_flags = static_cast<int>(SA_RESETHAND | SA_NODEFER);
    ::sigaction(signal, &action, nullptr);
  }
}

}  // namespace kneepoint::traces
