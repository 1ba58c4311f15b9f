// Files that are not in their place yet.
//
//     result.json.k3Xw9aQz  ── written, synced ──►  rename ──►  result.json
//
// Whoever writes a file makes one of these beside its place. A process that ends
// in the middle leaves the old file as it was; one that is asked to end (SIGTERM,
// SIGINT, SIGHUP, or SIGPIPE where it counts) takes its temporary files and new folders along, too. After
// SIGKILL or a power failure they stay, under names that nobody reads as results.
#pragma once

#include <filesystem>
#include <string>

namespace kneepoint::traces {

/// Makes and opens a new file beside `path`, with the rights of a plain new file; `name` gets its name.
/// Returns a descriptor, or -1 with errno set.
[[nodiscard]] int make_temporary_file(const std::filesystem::path& path, std::string& name);

/// Whether `name` is a name that make_temporary_file() gives to a file beside `place`; both without folders.
[[nodiscard]] bool is_temporary_name(const std::string& name, const std::string& place);

/// A folder that goes, if it is empty, when a signal ends the process.
void note_temporary_folder(const std::filesystem::path& folder);

/// After a rename or a removal: `name` is nothing of ours any more.
void forget_temporary(const std::string& name);

/// For main(): the signals above remove what is noted, then end the process as they would have. A signal that
/// the caller had ignored (nohup) stays ignored.
void remove_temporaries_on_signals();

}  // namespace kneepoint::traces
