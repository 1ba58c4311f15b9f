// How a watcher ends a run that has shown what it was run for.
#pragma once

namespace kneepoint::sim {

/// Set by an observer, looked at by the event loop after each event: the run ends
/// there, whoever is under way counted as unfinished (RunSummary).
struct StopSignal {
  bool requested = false;
};

}  // namespace kneepoint::sim
