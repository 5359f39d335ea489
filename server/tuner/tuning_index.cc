#include "server/tuner/tuning_index.h"

#include <algorithm>
#include <tuple>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace convtune {
namespace {

constexpr int kDefaultAlignment = 16;

// Read from the text, which every tuning has, without validating it anew.
int AlignmentOf(absl::string_view problem_text) {
  for (absl::string_view token : absl::StrSplit(problem_text, ',')) {
    int bytes = 0;
    if (absl::ConsumePrefix(&token, "align=") && absl::SimpleAtoi(token, &bytes)) return bytes;
  }
  return kDefaultAlignment;
}

}  // namespace

std::string TextWithAlignment(const ConvProblem& problem, int alignment_bytes) {
  ConvProblemSpec spec;
  spec.operation = problem.operation();
  spec.x_dims = problem.x_dims();
  spec.w_dims = problem.w_dims();
  spec.pad_low = problem.pad_low();
  spec.pad_high = problem.pad_high();
  spec.strides = problem.strides();
  spec.dilations = problem.dilations();
  spec.groups = problem.groups();
  spec.data_type = problem.data_type();
  spec.output_type = problem.output_type();
  spec.compute_type = problem.compute_type();
  spec.layout = problem.layout();
  if (problem.layout() == TensorLayout::kStrided) {
    spec.x_strides = problem.x_strides();
    spec.w_strides = problem.w_strides();
    spec.y_strides = problem.y_strides();
  }
  spec.mode = problem.mode();
  spec.epilogue = problem.epilogue();
  if (!problem.epilogue().empty()) spec.intermediate_type = problem.intermediate_type();
  spec.alignment_bytes = alignment_bytes;
  if (problem.sm_count_target() != 0) spec.sm_count_target = problem.sm_count_target();
  const auto changed = ConvProblem::Create(spec);
  return changed.ok() ? changed->ToText() : "";
}

TuningIndex::TuningIndex(DigestFunction digest) : digest_(std::move(digest)) {}

const TuningIndex::Shard& TuningIndex::ShardOf(const TuningDigest& digest) const {
  return shards_[digest.low % shards_.size()];
}

void TuningIndex::Change(const TuningKey& key, const std::function<void(IndexHit*)>& change) {
  const TuningDigest digest = digest_(key);
  Shard& shard = const_cast<Shard&>(ShardOf(digest));
  MutexLock lock(shard.mutex);
  std::vector<Entry>& bucket = shard.entries[digest];
  auto it = std::find_if(bucket.begin(), bucket.end(),
                         [&key](const Entry& entry) { return entry.key == key; });
  if (it == bucket.end()) it = bucket.insert(bucket.end(), Entry{key, {}});
  change(&it->hit);
  if (it->hit.tuning == nullptr && it->hit.pin == nullptr) bucket.erase(it);
  if (bucket.empty()) shard.entries.erase(digest);
}

std::shared_ptr<const IndexedTuning> TuningIndex::Prepare(const Tuning& tuning,
                                                          bool persisted) const {
  const IndexHit before = Find(tuning.key);
  IndexedTuning indexed =
      KeepBest(tuning, before.pin != nullptr ? &before.pin->candidate : nullptr);
  indexed.persisted = persisted;
  return std::make_shared<const IndexedTuning>(std::move(indexed));
}

void TuningIndex::Publish(std::shared_ptr<const IndexedTuning> prepared) {
  const TuningKey& key = prepared->tuning.key;
  Change(key, [&prepared](IndexHit* hit) { hit->tuning = prepared; });
  MutexLock lock(order_mutex_);
  auto& slot = ordered_[{key.environment_text, key.problem_text}];
  if (slot == nullptr) {
    ++counts_[key.environment_text];
    ++alignments_[AlignmentOf(key.problem_text)];
  }
  slot = std::move(prepared);
}

bool TuningIndex::Erase(const TuningKey& key) {
  Change(key, [](IndexHit* hit) { hit->tuning = nullptr; });
  MutexLock lock(order_mutex_);
  if (ordered_.erase({key.environment_text, key.problem_text}) == 0) return false;
  if (--counts_[key.environment_text] == 0) counts_.erase(key.environment_text);
  const int alignment = AlignmentOf(key.problem_text);
  if (--alignments_[alignment] == 0) alignments_.erase(alignment);
  return true;
}

void TuningIndex::SetPin(const Pin& pin) {
  const auto shared = std::make_shared<const Pin>(pin);
  Change(pin.key, [&shared](IndexHit* hit) { hit->pin = shared; });
  MutexLock lock(order_mutex_);
  pins_[{pin.key.environment_text, pin.key.problem_text}] = pin;
}

void TuningIndex::ErasePin(const TuningKey& key) {
  Change(key, [](IndexHit* hit) { hit->pin = nullptr; });
  MutexLock lock(order_mutex_);
  pins_.erase({key.environment_text, key.problem_text});
}

IndexHit TuningIndex::Find(const TuningKey& key) const {
  const TuningDigest digest = digest_(key);
  const Shard& shard = ShardOf(digest);
  MutexLock lock(shard.mutex);
  const auto bucket = shard.entries.find(digest);
  if (bucket == shard.entries.end()) return {};
  for (const Entry& entry : bucket->second) {
    if (entry.key == key) return entry.hit;
  }
  return {};
}

IndexHit TuningIndex::FindServing(const ConvProblem& problem, const TuningKey& key) const {
  IndexHit best = Find(key);
  if (best.tuning != nullptr && best.tuning->tuning.evidence == Evidence::kMeasured) return best;
  if (best.tuning != nullptr && best.pin != nullptr) return best;
  std::vector<int> looser;
  {
    MutexLock lock(order_mutex_);
    for (const auto& [alignment, count] : alignments_) {
      if (alignment < problem.alignment_bytes()) looser.push_back(alignment);
    }
  }
  std::reverse(looser.begin(), looser.end());
  for (const int alignment : looser) {
    IndexHit hit = Find({TextWithAlignment(problem, alignment), key.environment_text});
    if (hit.tuning == nullptr) continue;
    if (best.tuning != nullptr && hit.tuning->tuning.evidence <= best.tuning->tuning.evidence) {
      continue;
    }
    if (hit.pin == nullptr) hit.pin = best.pin;
    best = std::move(hit);
  }
  return best;
}

std::shared_ptr<const IndexedTuning> TuningIndex::FindHint(const TuningKey& key) const {
  const auto asked = Environment::Parse(key.environment_text);
  if (!asked.ok()) return nullptr;
  std::shared_ptr<const IndexedTuning> best;
  const auto rank = [](const IndexedTuning& indexed) {
    const Environment environment =
        Environment::Parse(indexed.tuning.key.environment_text).value_or(Environment{});
    return std::make_tuple(!environment.profile, indexed.tuning.evidence, indexed.tuning.tune_time);
  };
  for (const auto& [environment_text, count] : Counts()) {
    if (environment_text == key.environment_text) continue;
    const auto other = Environment::Parse(environment_text);
    if (!other.ok() || Slug(other->gpu_model) != Slug(asked->gpu_model)) continue;
    const auto found = Find({key.problem_text, environment_text}).tuning;
    if (found != nullptr && (best == nullptr || rank(*found) > rank(*best))) best = found;
  }
  return best;
}

absl::StatusOr<std::pair<std::vector<std::shared_ptr<const IndexedTuning>>, std::string>>
TuningIndex::List(const std::string& environment_text, size_t page_size,
                  const std::string& page_token, const std::string& text_filter) const {
  OrderKey after;
  if (!page_token.empty()) {
    std::string plain;
    const bool readable = absl::WebSafeBase64Unescape(page_token, &plain);
    const std::vector<std::string> parts = absl::StrSplit(plain, '\n');
    if (!readable || parts.size() != 2) {
      return absl::InvalidArgumentError("page_token: must be one that the previous page gave");
    }
    after = {parts[0], parts[1]};
  }
  std::vector<std::shared_ptr<const IndexedTuning>> page;
  MutexLock lock(order_mutex_);
  auto it = page_token.empty() ? ordered_.lower_bound({environment_text, ""})
                               : ordered_.upper_bound(after);
  for (; it != ordered_.end(); ++it) {
    if (!environment_text.empty() && it->first.first != environment_text) break;
    if (!absl::StrContains(it->first.second, text_filter)) continue;
    if (page.size() == page_size) {
      const TuningKey& last = page.back()->tuning.key;
      return std::make_pair(std::move(page), absl::WebSafeBase64Escape(absl::StrCat(
                                                 last.environment_text, "\n", last.problem_text)));
    }
    page.push_back(it->second);
  }
  return std::make_pair(std::move(page), std::string());
}

std::vector<Pin> TuningIndex::ListPins(const std::string& environment_text, absl::Time now) const {
  std::vector<Pin> pins;
  MutexLock lock(order_mutex_);
  for (const auto& [key, pin] : pins_) {
    if (!environment_text.empty() && key.first != environment_text) continue;
    if (!pin.expire_time || *pin.expire_time > now) pins.push_back(pin);
  }
  return pins;
}

std::map<std::string, int64_t> TuningIndex::Counts() const {
  MutexLock lock(order_mutex_);
  return counts_;
}

}  // namespace convtune
