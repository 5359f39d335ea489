// Reads a published snapshot as a program does.
#pragma once

#include <cstring>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>
#include <vector>

#include "db/snapshot/key_convert.h"
#include "db/snapshot/snapshot.h"
#include "proto/model/tuning/candidate.h"

namespace convtune::release {

// Value type; empty until Read succeeds.
class SnapshotReader {
 public:
  // False if there is no sound snapshot at `path`.
  bool Read(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    const std::string bytes{std::istreambuf_iterator<char>(file), {}};
    data_.assign((bytes.size() + 7) / 8, 0);
    if (bytes.empty()) return false;
    memcpy(data_.data(), bytes.data(), bytes.size());
    return snapshot::SnapshotView::Open(data_.data(), bytes.size(), &view_) ==
           snapshot::SnapshotError::kNone;
  }

  const snapshot::SnapshotHeader& header() const { return view_.header(); }
  bool Knows(const std::string& environment) const {
    return Section(environment, snapshot::Channel::kStable) != nullptr;
  }
  const snapshot::SnapshotEntry* Find(
      const std::string& problem, const std::string& environment,
      snapshot::Channel channel = snapshot::Channel::kStable) const {
    const auto* section = Section(environment, channel);
    if (section == nullptr) return nullptr;
    const auto key = snapshot::ToKey(ConvProblem::Parse(problem).value()).value();
    return view_.Find(*section, key, snapshot::HashOf(key));
  }
  // Texts of the problem's candidates, in order; none if it has no entry.
  std::vector<std::string> Candidates(
      const std::string& problem, const std::string& environment,
      snapshot::Channel channel = snapshot::Channel::kStable) const {
    std::vector<std::string> texts;
    const snapshot::SnapshotEntry* entry = Find(problem, environment, channel);
    if (entry == nullptr) return texts;
    for (int i = 0; i < entry->candidate_count; ++i) {
      texts.push_back(ToText(snapshot::ToCandidate(view_, view_.candidates(*entry)[i]).id));
    }
    return texts;
  }

 private:
  const snapshot::SnapshotSection* Section(const std::string& environment,
                                           snapshot::Channel channel) const {
    const auto key = snapshot::ToKey(Environment::Parse(environment).value()).value();
    return view_.FindSection(key, channel);
  }

  std::vector<uint64_t> data_;
  snapshot::SnapshotView view_;
};

}  // namespace convtune::release
