// What BatchGet costs on the server for each problem, from the request's bytes
// to the reply's, beside a bare hash look-up of the same digest, for batches of
// distinct problems spread over the index; and the memory of a tuning beside
// that of its candidates. Prints one JSON object per line.
#include <CLI/CLI.hpp>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "convtune/v1/tuning_service.pb.h"
#include "server/decision/evidence.h"
#include "server/lookup/lookups.h"
#include "server/lookup/tuning_index.h"
#include "server/rpc/services/batch_get_handler.h"
#include "tests/bench/figure.h"
#include "tests/unit/rpc/fake_tuner.h"

namespace convtune::bench {
namespace {

Tuning TuningOf(const ConvProblem& problem, int candidates, std::mt19937* random) {
  Tuning tuning;
  tuning.key = {problem.ToText(), kEnvironment};
  for (int i = 0; i < candidates; ++i) {
    Candidate candidate;
    candidate.id = EngineConfig{i, {}};
    candidate.heuristic_rank = i;
    candidate.status = CandidateStatus::kTimed;
    candidate.workspace_bytes = static_cast<int64_t>((*random)() % 8) << 20;
    candidate.median_us = 20 + static_cast<double>((*random)() % 1000) / 10;
    candidate.q1_us = candidate.median_us * 0.995;
    candidate.q3_us = candidate.median_us * 1.005;
    candidate.sample_count = 30;
    tuning.candidates.push_back(std::move(candidate));
  }
  decision::FinishTuning({}, &tuning);
  return tuning;
}

// A tuner that has look-ups alone.
class IndexTuner : public rpc::FakeTuner {
 public:
  uint64_t Lookup(lookup::LookupRequest request, lookup::LookupCallback done) override {
    return lookups_.Start(std::move(request),
                          {rpc::TestEnvironment(), kEnvironment, "", nullptr, ""}, std::move(done));
  }
  lookup::TuningIndex& index() { return index_; }

 private:
  SystemClock clock_;
  lookup::TuningIndex index_;
  lookup::Lookups lookups_{&index_, &clock_, &jobs_};
};

template <typename T>
int64_t HeapBytes(const std::vector<T>& values) {
  return static_cast<int64_t>(values.capacity() * sizeof(T));
}

// Of the candidates that are kept of a tuning.
int64_t CandidateBytes(const std::vector<Candidate>& candidates) {
  int64_t bytes = HeapBytes(candidates);
  for (const Candidate& candidate : candidates) {
    bytes += HeapBytes(candidate.other_times) + HeapBytes(candidate.samples_ns);
    if (const auto* engine = std::get_if<EngineConfig>(&candidate.id)) {
      bytes += HeapBytes(engine->knobs);
    }
  }
  return bytes;
}

int64_t ResidentBytes() {
  std::ifstream in("/proc/self/statm");
  int64_t total = 0;
  int64_t resident = 0;
  in >> total >> resident;
  return resident * 4096;
}

// Median nanoseconds per item over `repeats` passes of `pass` over all items.
template <typename Pass>
double NanosecondsPerItem(size_t items, int repeats, const Pass& pass) {
  std::vector<double> times;
  for (int i = 0; i < repeats; ++i) {
    times.push_back(1e9 * Seconds(pass) / static_cast<double>(items));
  }
  return Median(times);
}

int Main(int argc, char** argv) {
  int tunings = 10000;
  int batch = 1477;
  int repeats = 31;
  int candidates = 40;
  CLI::App app("index look-ups beside bare hash look-ups");
  app.add_option("--tunings", tunings)->check(CLI::Range(1, 10'000'000));
  app.add_option("--batch", batch)->check(CLI::PositiveNumber);
  app.add_option("--candidates", candidates, "of each tuning")->check(CLI::Range(1, 10000));
  app.add_option("--repeats", repeats)->check(CLI::PositiveNumber);
  CLI11_PARSE(app, argc, argv);

  std::mt19937 random(1);
  IndexTuner tuner;
  const auto put = [&](int n) {
    tuner.index().Put(TuningOf(ProblemOf(n), candidates, &random), true);
  };
  // The first one brings pages of code and tables into memory, which are no tuning's.
  put(0);
  const int64_t before = ResidentBytes();
  for (int n = 0; n < tunings; ++n) put(n);
  const int64_t bytes = (ResidentBytes() - before) / tunings;
  int64_t candidate_bytes = 0;
  const auto listed = tuner.index().List("", static_cast<size_t>(tunings), {}, "");
  for (const auto& indexed : listed.tunings) {
    candidate_bytes += CandidateBytes(indexed->tuning.candidates);
  }
  candidate_bytes /= tunings;

  absl::flat_hash_map<TuningDigest, uint32_t> bare;
  for (int n = 0; n < tunings; ++n) {
    bare.emplace(TuningKey{ProblemOf(n).ToText(), kEnvironment}.Digest(), static_cast<uint32_t>(n));
  }
  v1::BatchGetRequest message;
  std::vector<TuningKey> keys;
  for (int i = 0; i < batch; ++i) {
    const ConvProblem problem = ProblemOf(static_cast<int>(int64_t{i} * 7919 % tunings));
    *message.add_problems()->mutable_problem() = problem.ToProto();
    keys.push_back({problem.ToText(), kEnvironment});
  }
  const std::string request = message.SerializeAsString();
  const auto answer = [&](rpc::services::BatchGetHandler* handler) {
    rpc::services::Batch asked = *handler->FindReady(request);
    if (!asked.complete()) {
      tuner.Lookup(std::move(asked.missing), [&](absl::StatusOr<lookup::LookupResponse> made) {
        handler->Complete(*std::move(made), &asked);
      });
    }
    const std::vector<std::string_view> reply = asked.Reply();
    size_t size = 0;
    for (const std::string_view piece : reply) size += piece.size();
    std::string out;
    out.reserve(size);
    for (const std::string_view piece : reply) out += piece;
    return out;
  };
  // Each time without anything that is ready, as for constraints that were never
  // asked for.
  const double first = NanosecondsPerItem(keys.size(), 5, [&] {
    rpc::services::BatchGetHandler unready(&tuner);
    answer(&unready);
  });
  rpc::services::BatchGetHandler handler(&tuner);
  std::string reply = answer(&handler);
  const double look_up =
      NanosecondsPerItem(keys.size(), repeats, [&] { reply = answer(&handler); });
  v1::BatchGetResponse response;
  size_t answered = 0;
  if (handler.FindReady(request)->complete() && response.ParseFromString(reply)) {
    for (const auto& row : response.results()) answered += row.has_answer() ? 1 : 0;
  }
  uint64_t sum = 0;
  const double hash = NanosecondsPerItem(keys.size(), repeats, [&] {
    for (const TuningKey& key : keys) {
      sum += bare.find(key.Digest())->second;
    }
  });
  if (answered != keys.size() || (sum == 0 && tunings > 1)) {
    std::fprintf(stderr, "a look-up was not answered\n");
    return 1;
  }
  const std::string at = absl::StrCat("\"tunings\": ", tunings, ", \"candidates\": ", candidates);
  const auto line = [&at](const char* figure, double value, double baseline) {
    Print(figure, at, value, baseline, value / baseline);
  };
  line("problem_ns", look_up, hash);
  line("problem_not_ready_ns", first, hash);
  line("index_bytes_per_tuning", static_cast<double>(bytes), static_cast<double>(candidate_bytes));
  return 0;
}

}  // namespace
}  // namespace convtune::bench

int main(int argc, char** argv) { return convtune::bench::Main(argc, argv); }
