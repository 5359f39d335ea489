// A CandidateList says what cuDNN lists for a convolution, out of its tuning.
#pragma once

#include <string>
#include <vector>

#include "convtune/v1/tuning_service.pb.h"

namespace convtune::cli::calls {

// Value type; the tuning outlives it.
class CandidateList {
 public:
  // Takes the graph API's candidates that can be built. `no_tf32` leaves out those
  // on tensor cores where the problem is f32.
  CandidateList(const v1::Tuning& tuning, bool no_tf32);

  // In the heuristics' order: the first is what cuDNN runs by itself. Those that
  // no heuristic lists are last.
  const std::vector<const v1::Candidate*>& all() const { return all_; }
  bool empty() const { return all_.empty(); }
  const v1::Candidate& first() const { return *all_.front(); }
  int size() const { return static_cast<int>(all_.size()); }
  int on_tensor_cores() const { return on_tensor_cores_; }
  int deterministic() const { return deterministic_; }
  int compiled_at_run_time() const { return compiled_; }
  // The heuristics list all of them in mode FALLBACK alone.
  bool last_resort_only() const { return last_resort_only_; }
  // The one with the least workspace: of those on tensor cores if there is one,
  // between equals the first. REQUIRES: !empty().
  const v1::Candidate& leanest() const { return *leanest_; }

  // "31 candidates, 20 on tensor cores, first graph:eng47,k2=2 with 12.3 MiB of workspace".
  std::string ToText() const;

 private:
  std::vector<const v1::Candidate*> all_;
  const v1::Candidate* leanest_ = nullptr;
  int on_tensor_cores_ = 0;
  int deterministic_ = 0;
  int compiled_ = 0;
  bool last_resort_only_ = false;
};

bool OnTensorCores(const v1::Candidate& candidate);
bool CompiledAtRunTime(const v1::Candidate& candidate);
// "12.3 MiB of workspace", "graph:eng47,k2=2 with 12.3 MiB of workspace".
std::string WorkspaceWords(const v1::Candidate& candidate);
std::string WithWorkspace(const v1::Candidate& candidate);

}  // namespace convtune::cli::calls
