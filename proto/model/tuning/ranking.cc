#include "proto/model/tuning/ranking.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "convtune/v1/tuning_service.pb.h"

namespace convtune {
namespace {

// A 99% interval of a median takes eight samples. With one or two samples, nothing replaces the
// stock choice. With three to seven, a candidate replaces it only if it is faster by a factor that
// no noise of a simulated GPU reached.
constexpr int kSamplesOfInterval = 8;
constexpr int kFewestSamples = 3;
constexpr double kFewSamplesFactor = 1.25;

bool FasterMedian(const Candidate* a, const Candidate* b) {
  return std::tie(a->median_us, a->high_us) < std::tie(b->median_us, b->high_us);
}

// The time that another candidate must stay below for replacing the stock choice.
double StockAtBest(const Candidate& stock, const Candidate& fastest) {
  const int samples = std::min(stock.sample_count, fastest.sample_count);
  if (samples == 0 || samples >= kSamplesOfInterval) return stock.low_us;
  return samples < kFewestSamples ? 0 : stock.low_us / kFewSamplesFactor;
}

int StatusClass(const Candidate& candidate) {
  if (candidate.timed()) return 0;
  if (candidate.usable()) return 1;
  return 2;
}

// The shortest host time that is known of the candidates; 0 if none is.
template <typename Iterator>
double LeastHostTime(Iterator begin, Iterator end) {
  double least = 0;
  for (auto c = begin; c != end; ++c) {
    const double host_us = (*c)->host_us;
    if (host_us > 0 && (least == 0 || host_us < least)) least = host_us;
  }
  return least;
}

// Order of candidates that are tied, the cheapest of which takes the host
// `least_host_us`. All are compared with that one, and not each with each, so
// that the order is transitive though small differences do not count.
auto TiedBefore(double least_host_us) {
  return [least_host_us](const Candidate* a, const Candidate* b) {
    const bool a_is_dear = IsCheaperToLaunch(least_host_us, a->host_us);
    const bool b_is_dear = IsCheaperToLaunch(least_host_us, b->host_us);
    return a_is_dear != b_is_dear ? b_is_dear : TieBefore(*a, *b);
  };
}

// Orders `timed`, which is not empty, class of ties by class of ties.
void OrderTimed(std::vector<const Candidate*>* timed) {
  std::sort(timed->begin(), timed->end(), FasterMedian);
  auto begin = timed->begin();
  while (begin != timed->end()) {
    const double bound = (*begin)->high_us;
    // Stable, so that what is not tied keeps its order by median.
    const auto end = std::stable_partition(
        begin, timed->end(), [bound](const Candidate* c) { return c->low_us <= bound; });
    std::sort(begin, end, TiedBefore(LeastHostTime(begin, end)));
    begin = end;
  }
}

}  // namespace

bool TieBefore(const Candidate& a, const Candidate& b) {
  if (a.workspace_bytes != b.workspace_bytes) return a.workspace_bytes < b.workspace_bytes;
  if (a.deterministic() != b.deterministic()) return a.deterministic();
  return ToText(a.id) < ToText(b.id);
}

bool HeuristicBefore(const Candidate& a, const Candidate& b) {
  if (IsListedBefore(a, b) || IsListedBefore(b, a)) return IsListedBefore(a, b);
  return ToText(a.id) < ToText(b.id);
}

const Candidate* PickWinner(const std::vector<const Candidate*>& eligible, const Candidate* stock) {
  const Candidate* fastest = nullptr;
  for (const Candidate* c : eligible) {
    if (c->timed() && (fastest == nullptr || FasterMedian(c, fastest))) fastest = c;
  }
  const Candidate* best = nullptr;
  if (fastest == nullptr) {
    for (const Candidate* c : eligible) {
      if (best == nullptr || HeuristicBefore(*c, *best)) best = c;
    }
    return best;
  }
  const bool has_stock = stock != nullptr && stock->timed() &&
                         std::find(eligible.begin(), eligible.end(), stock) != eligible.end();
  const double stock_us = has_stock ? StockAtBest(*stock, *fastest) : 0;
  if (has_stock && stock_us <= fastest->high_us) return stock;
  std::vector<const Candidate*> tied;
  for (const Candidate* c : eligible) {
    if (!c->timed() || c->low_us > fastest->high_us) continue;
    // Tied with the fastest, and known to be faster than the stock choice.
    if (has_stock && c->high_us >= stock_us && c != fastest) continue;
    tied.push_back(c);
  }
  return *std::min_element(tied.begin(), tied.end(),
                           TiedBefore(LeastHostTime(tied.begin(), tied.end())));
}

void RankCandidates(std::vector<Candidate>* candidates) {
  std::vector<const Candidate*> timed, finalized, rest;
  for (const Candidate& c : *candidates) {
    const int status_class = StatusClass(c);
    (status_class == 0 ? timed : status_class == 1 ? finalized : rest).push_back(&c);
  }
  const auto by_heuristic = [](const Candidate* a, const Candidate* b) {
    return HeuristicBefore(*a, *b);
  };
  OrderTimed(&timed);
  std::sort(finalized.begin(), finalized.end(), by_heuristic);
  std::sort(rest.begin(), rest.end(), by_heuristic);
  std::vector<const Candidate*> order = std::move(timed);
  order.insert(order.end(), finalized.begin(), finalized.end());
  const std::optional<size_t> stock = StockIndex(*candidates);
  const Candidate* winner = PickWinner(order, stock ? &(*candidates)[*stock] : nullptr);
  if (const auto it = std::find(order.begin(), order.end(), winner); it != order.end()) {
    std::rotate(order.begin(), it, it + 1);
  }
  order.insert(order.end(), rest.begin(), rest.end());
  std::vector<Candidate> ranked;
  ranked.reserve(order.size());
  for (const Candidate* c : order) {
    ranked.push_back(std::move((*candidates)[static_cast<size_t>(c - candidates->data())]));
  }
  *candidates = std::move(ranked);
}

bool IsBestWithinNoise(const Tuning& tuning, const CandidateId& id) {
  if (!tuning.candidates.empty() && tuning.candidates.front().id == id) return true;
  const Candidate* fastest = nullptr;
  const Candidate* its = nullptr;
  for (const Candidate& c : tuning.candidates) {
    if (!c.timed()) continue;
    if (fastest == nullptr || FasterMedian(&c, fastest)) fastest = &c;
    if (c.id == id) its = &c;
  }
  return its != nullptr && its->low_us <= fastest->high_us * (1 + kEquivalence);
}

bool Disagree(const Tuning& a, const Tuning& b) {
  if (a.candidates.empty() || b.candidates.empty()) return false;
  return !IsBestWithinNoise(a, b.candidates.front().id) &&
         !IsBestWithinNoise(b, a.candidates.front().id);
}

const Candidate* PickAllowed(const Tuning& tuning,
                             const std::function<bool(const Candidate&)>& allowed) {
  std::vector<const Candidate*> ran;
  for (const Candidate& c : tuning.candidates) {
    if (c.usable() && allowed(c)) ran.push_back(&c);
  }
  const auto stock = StockIndex(tuning.candidates);
  return PickWinner(ran, stock ? &tuning.candidates[*stock] : nullptr);
}

void AddBanEffect(const Tuning& tuning, const Pin* pin, const Bans& before, const Bans& after,
                  absl::Time now, int max_changes, v1::CreateBanResponse* effects) {
  effects->set_listed_count(effects->listed_count() + 1);
  if (pin != nullptr && HasExpired(pin->expire_time, now)) pin = nullptr;
  const auto answer_under = [&](const Bans& all) {
    const Bans bans = all.Of(tuning.key);
    const auto allowed = [&](const Candidate& c) { return bans.Find(c.id) == nullptr; };
    const Candidate* const pinned =
        pin == nullptr ? nullptr : PickAllowed(tuning, [&](const Candidate& c) {
          return c.id == pin->candidate && allowed(c);
        });
    return pinned != nullptr ? pinned : PickAllowed(tuning, allowed);
  };
  const Candidate* const was = answer_under(before);
  const Candidate* const is = answer_under(after);
  if (was == nullptr || was == is) return;
  effects->set_change_count(effects->change_count() + 1);
  if (is == nullptr) effects->set_lost_count(effects->lost_count() + 1);
  if (effects->changes_size() == max_changes) return;
  v1::BanChange& change = *effects->add_changes();
  change.set_problem_text(tuning.key.problem_text);
  change.set_environment(
      Environment::Parse(tuning.key.environment_text).value_or(Environment()).Name());
  change.set_before(ToText(was->id));
  change.set_pinned(pin != nullptr && was->id == pin->candidate);
  if (is == nullptr) return;
  change.set_after(ToText(is->id));
  if (was->timed() && is->timed()) change.set_ratio(is->median_us / was->median_us);
}

}  // namespace convtune
