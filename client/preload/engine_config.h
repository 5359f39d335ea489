// Descriptors owns descriptors that the interposer makes for itself, unseen by the hooks. The
// functions make engine configs of stored candidates, and read what cuDNN says of a config.
#pragma once

#include <cudnn.h>

#include "client/preload/real_cudnn.h"
#include "client/preload/shadow.h"
#include "db/snapshot/datagram.h"
#include "db/snapshot/snapshot.h"

namespace convtune::preload {

// Owns at most kMost descriptors. One that calloc made has none.
class Descriptors {
 public:
  static constexpr int kMost = 128;

  // Makes `most` descriptors of a type; fewer if cuDNN makes no more.
  explicit Descriptors(cudnnBackendDescriptorType_t type, int most = 1) {
    while (count_ < most && real_cudnn.Create(type, &raw_[count_]) == CUDNN_STATUS_SUCCESS) {
      ++count_;
    }
  }
  // Takes over the descriptor `made`, unless it is null.
  explicit Descriptors(cudnnBackendDescriptor_t made) { Add(made); }
  ~Descriptors() { Clear(); }
  Descriptors(const Descriptors&) = delete;
  Descriptors& operator=(const Descriptors&) = delete;

  int count() const { return count_; }
  cudnnBackendDescriptor_t operator[](int i) const { return raw_[i]; }
  const cudnnBackendDescriptor_t* data() const { return raw_; }
  cudnnBackendDescriptor_t* data() { return raw_; }

  // Takes it over. False if it is null.
  bool Add(cudnnBackendDescriptor_t made) {
    raw_[count_] = made;
    count_ += made != nullptr ? 1 : 0;
    return made != nullptr;
  }
  // Gives up the last one.
  cudnnBackendDescriptor_t Release() { return raw_[--count_]; }
  void Clear() {
    while (count_ > 0) {
      real_cudnn.Destroy(Release());
    }
  }

 private:
  cudnnBackendDescriptor_t raw_[kMost];
  int count_ = 0;
};

// Reads an attribute. Gives the number of elements that were written to `values`, and with a
// `count` of 0 how many there are; -1 on an error.
int64_t Get(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
            cudnnBackendAttributeType_t type, int64_t count, void* values);

// Makes the candidate's engine and, behind it, its knob choices for the graph of a query. False,
// and nothing is left, if cuDNN refuses one or a config of them.
bool MakeEngineSet(const HeuristicsShadow& query, const snapshot::SnapshotCandidate& candidate,
                   const snapshot::SnapshotKnob* knobs, Descriptors* set);

// Makes a created, not yet finalised engine config descriptor that of the set.
bool FillConfig(const Descriptors& set, cudnnBackendDescriptor_t config);

constexpr int kMaxServed = 3;

// The list that a finalised heuristics descriptor returns instead of cuDNN's own:
// `count` stored configs, then cuDNN's list. If it is cut, only the configs at the first
// `place_count` of `places` follow, which ascend.
struct Served {
  int count;
  bool cut;
  int place_count;
  int16_t places[Descriptors::kMost];
  // A query of another mode, whose list has the `places`; owned. Null: the descriptor's own list
  // has them.
  cudnnBackendDescriptor_t other;
  Descriptors sets[kMaxServed];  // see MakeEngineSet
};

void Release(Served* served);

// The facts about an engine config, as the daemon is told of them; `with_knobs` says whether the
// knobs are read, too. False if cuDNN does not tell one of them.
using ConfigFacts = snapshot::ObservedPlanDatagram;
bool ReadConfig(cudnnBackendDescriptor_t config, bool with_knobs, ConfigFacts* facts);

// Fills `configs`, which are engine configs, with the first ones of a finalised query's own list.
// Returns how many; 0 on an error, too.
int ListConfigs(cudnnBackendDescriptor_t heuristics, Descriptors* configs);

// A finalised query for the same graph and device in another mode, which is the
// caller's to destroy; null if cuDNN refuses it.
cudnnBackendDescriptor_t MakeQuery(const HeuristicsShadow& query, cudnnBackendHeurMode_t mode);

// Finalises a plan of the config for the query's device and asks for its
// workspace; -1 if it cannot be built.
int64_t WorkspaceOf(const HeuristicsShadow& query, cudnnBackendDescriptor_t config);
// The same without a plan where cuDNN tells the workspace of a config.
int64_t ToldWorkspaceOf(const HeuristicsShadow& query, cudnnBackendDescriptor_t config);

}  // namespace convtune::preload
