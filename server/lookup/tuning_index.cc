#include "server/lookup/tuning_index.h"

#include <algorithm>
#include <tuple>

#include "absl/hash/hash.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace convtune::lookup {
namespace {

// Read from the text, which every tuning has, without validating it anew.
int AlignmentOf(absl::string_view problem_text) {
  for (absl::string_view token : absl::StrSplit(problem_text, ',')) {
    int bytes = 0;
    if (absl::ConsumePrefix(&token, "align=") && absl::SimpleAtoi(token, &bytes)) return bytes;
  }
  return kDefaultAlignmentBytes;
}

// Equal for all alignments of a problem.
size_t HashOfAllAlignments(std::string_view problem_text) {
  std::string text(problem_text);
  const size_t from = text.find(",align=");
  if (from != std::string::npos) text.erase(from, text.find(',', from + 1) - from);
  return absl::HashOf(text);
}

// True if no tuning for less strict alignment comes before what was found, whatever their age.
bool IsSettled(const IndexHit& hit) {
  return hit.tuning != nullptr &&
         (hit.pin != nullptr || hit.tuning->tuning.evidence == Evidence::kMeasured);
}

}  // namespace

const TuningIndex::Shard& TuningIndex::ShardOf(const TuningKey& key) const {
  // Not by the bits by which a shard's set finds its place for the key.
  return shards_[(KeyHash()(key) >> 32) % shards_.size()];
}

ChangeStamp TuningIndex::StampOf(std::string_view problem_text) const {
  return ChangeStamp(changes_[HashOfAllAlignments(problem_text) % changes_.size()]);
}

void TuningIndex::Change(const TuningKey& key, const std::function<void(IndexHit*)>& change) {
  Shard& shard = const_cast<Shard&>(ShardOf(key));
  // Ended after the lock: freeing a tuning takes a while.
  IndexHit before;
  MutexLock lock(shard.mutex);
  if (const auto found = shard.entries.find(key); found != shard.entries.end()) {
    before = *found;
    shard.entries.erase(found);
  }
  IndexHit entry = before;
  change(&entry);
  if (entry.tuning != nullptr || entry.pin != nullptr) shard.entries.insert(std::move(entry));
  ++changes_[HashOfAllAlignments(key.problem_text) % changes_.size()];
}

std::shared_ptr<const IndexedTuning> TuningIndex::MakeEntry(const Tuning& tuning,
                                                            bool persisted) const {
  const IndexHit before = FindLoaded(tuning.key);
  IndexedTuning indexed = KeepBest(tuning, before.pin != nullptr ? &before.pin->candidate : nullptr,
                                   bans()->Of(tuning.key));
  indexed.persisted = persisted;
  if (const std::string why = decision::WhyOutdated(tuning, libraries_); !why.empty()) {
    indexed.tuning.evidence = Evidence::kNone;
    indexed.tuning.incomplete_reasons = ReasonBit(IncompleteReason::kOutdated);
    indexed.tuning.incomplete_message = absl::StrCat("does not hold any more: ", why);
  }
  return std::make_shared<const IndexedTuning>(std::move(indexed));
}

void TuningIndex::PutInstead(const Tuning& tuning, std::shared_ptr<const IndexedTuning> outdated) {
  IndexedTuning indexed = *MakeEntry(tuning, /*persisted=*/false);
  indexed.stand_in = std::make_shared<const StandIn>(StandIn{tuning, std::move(outdated)});
  Put(std::make_shared<const IndexedTuning>(std::move(indexed)));
}

void TuningIndex::Insert(std::shared_ptr<const IndexedTuning> prepared, bool replace) {
  const TuningKey key = prepared->tuning.key.Whole();
  bool is_put = false;
  Change(key, [&](IndexHit* entry) {
    is_put = replace || entry->tuning == nullptr;
    if (is_put) entry->tuning = prepared;
  });
  if (!is_put) return;
  MutexLock lock(order_mutex_);
  const size_t size = ordered_.size();
  // Many come in order: then nothing is looked for.
  const auto place = ordered_.insert(ordered_.end(), prepared);
  if (ordered_.size() == size) {
    // Whoever replaced it in between was here already.
    if (replace) ordered_.insert(ordered_.erase(place), std::move(prepared));
    return;
  }
  ++counts_[key.environment_text];
  ++counts_version_;
  alignments_ |= static_cast<uint32_t>(AlignmentOf(key.problem_text));
}

void TuningIndex::BeginLoading(ReadFunction read) {
  read_ = std::move(read);
  loading_ = true;
}

void TuningIndex::Load(const Tuning& stored) {
  const std::shared_ptr<const Bans> heeded = bans();
  std::shared_ptr<const IndexedTuning> prepared = MakeEntry(stored, /*persisted=*/true);
  MutexLock lock(loading_mutex_);
  if (!loading_ || erased_.contains(stored.key)) {
    return;
  }
  // Whoever sets bans puts in anew what was there before.
  if (bans() != heeded) prepared = MakeEntry(stored, /*persisted=*/true);
  Insert(std::move(prepared), /*replace=*/false);
}

void TuningIndex::FinishLoading() {
  MutexLock lock(loading_mutex_);
  loading_ = false;
  erased_.clear();
}

bool TuningIndex::Erase(const TuningKey& key) {
  if (loading_) {
    MutexLock lock(loading_mutex_);
    if (loading_) erased_.insert(key);
  }
  Change(key, [](IndexHit* entry) { entry->tuning = nullptr; });
  MutexLock lock(order_mutex_);
  const auto found = ordered_.find(key);
  if (found == ordered_.end()) return false;
  ordered_.erase(found);
  if (--counts_[key.environment_text] == 0) counts_.erase(key.environment_text);
  ++counts_version_;
  return true;
}

void TuningIndex::SetPin(const Pin& pin) {
  const auto shared = std::make_shared<const Pin>(pin);
  Change(pin.key, [&shared](IndexHit* entry) { entry->pin = shared; });
  MutexLock lock(order_mutex_);
  pins_[pin.key] = pin;
}

void TuningIndex::ErasePin(const TuningKey& key) {
  Change(key, [](IndexHit* entry) { entry->pin = nullptr; });
  MutexLock lock(order_mutex_);
  pins_.erase(key);
}

IndexHit TuningIndex::Find(const TuningKey& key) const {
  IndexHit hit = FindLoaded(key);
  if (hit.tuning != nullptr || !loading_) return hit;
  const absl::StatusOr<Tuning> stored = read_(key);
  // To callers it was there all along.
  if (stored.ok()) const_cast<TuningIndex*>(this)->Load(*stored);
  return FindLoaded(key);
}

IndexHit TuningIndex::FindLoaded(const TuningKey& key) const {
  const Shard& shard = ShardOf(key);
  MutexLock lock(shard.mutex);
  const auto found = shard.entries.find(key);
  return found == shard.entries.end() ? IndexHit() : *found;
}

IndexHit TuningIndex::FindServing(const ConvProblem& problem, const TuningKey& key,
                                  absl::Time too_old) const {
  const auto rank = [too_old](const IndexHit& hit) {
    const KeptTuning& tuning = hit.tuning->tuning;
    return std::make_pair(tuning.tune_time > too_old, tuning.evidence);
  };
  IndexHit best = Find(key);
  if (IsSettled(best) && (best.pin != nullptr || rank(best).first)) return best;
  for (int alignment = problem.alignment_bytes() / 2; alignment > 0; alignment /= 2) {
    // Alignments are powers of two.
    if (!loading_ && (alignments_ & static_cast<uint32_t>(alignment)) == 0) continue;
    IndexHit hit = Find({problem.WithAlignment(alignment).ToText(), key.environment_text});
    if (hit.tuning == nullptr) continue;
    if (best.tuning != nullptr && rank(hit) <= rank(best)) continue;
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
        Environment::Parse(indexed.tuning.key.environment_text()).value_or(Environment{});
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

TuningPage TuningIndex::List(const std::string& environment_text, size_t page_size,
                             const TuningKey& after, const std::string& text_filter) const {
  TuningPage page;
  MutexLock lock(order_mutex_);
  auto it = after.problem_text.empty() ? ordered_.lower_bound(KeyView(environment_text, ""))
                                       : ordered_.upper_bound(after);
  for (; it != ordered_.end(); ++it) {
    const KeptKey& key = (*it)->tuning.key;
    if (!environment_text.empty() && key.environment_text() != environment_text) break;
    if (!absl::StrContains(key.problem_text, text_filter)) continue;
    page.more = page.tunings.size() == page_size;
    if (page.more) break;
    page.tunings.push_back(*it);
  }
  return page;
}

std::vector<Pin> TuningIndex::ListPins(const std::string& environment_text, absl::Time now) const {
  std::vector<Pin> pins;
  MutexLock lock(order_mutex_);
  for (const auto& [key, pin] : pins_) {
    if (!environment_text.empty() && key.environment_text != environment_text) continue;
    if (!HasExpired(pin.expire_time, now)) pins.push_back(pin);
  }
  return pins;
}

void TuningIndex::SetBans(Bans bans) {
  auto shared = std::make_shared<const Bans>(std::move(bans));
  MutexLock loading(loading_mutex_);
  MutexLock lock(bans_mutex_);
  bans_ = std::move(shared);
}

std::shared_ptr<const Bans> TuningIndex::bans() const {
  MutexLock lock(bans_mutex_);
  return bans_;
}

std::map<int64_t, int64_t> TuningIndex::CountBanned() const {
  std::map<int64_t, int64_t> counts;
  MutexLock lock(order_mutex_);
  for (const Shared& indexed : ordered_) {
    if (indexed->bans == nullptr || indexed->bans->of_winner == nullptr) continue;
    ++counts[indexed->bans->of_winner->number];
  }
  return counts;
}

std::map<std::string, int64_t> TuningIndex::Counts() const {
  MutexLock lock(order_mutex_);
  return counts_;
}

}  // namespace convtune::lookup
