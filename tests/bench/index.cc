// A look-up in the in-memory index beside a bare hash look-up of the same
// digest, for batches of distinct problems spread over the index. Prints one
// JSON object per line.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <random>
#include <string>
#include <variant>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "server/tuner/answer.h"
#include "server/tuner/ranking.h"
#include "server/tuner/tuning_index.h"

namespace convtune::bench {
namespace {

constexpr char kEnvironment[] = "nvidia-h200,cc=9.0,sms=132,cudnn=9.19.0,lib=full";
constexpr int kCandidates = 40;

// Distinct for n below 2^31.
ConvProblem ProblemOf(int n) {
  return ConvProblem::Parse(absl::StrCat("fwd,x=", 1 + n / 10000, "x", 64 + n % 100, "x",
                                         7 + n / 100 % 100, "x56,w=64x", 64 + n % 100,
                                         "x3x3,pad=1,nhwc,f16"))
      .value();
}

Tuning TuningOf(const ConvProblem& problem, std::mt19937* random) {
  Tuning tuning;
  tuning.key = {problem.ToText(), kEnvironment};
  for (int i = 0; i < kCandidates; ++i) {
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
  FinishTuning({}, &tuning);
  return tuning;
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
    const auto start = std::chrono::steady_clock::now();
    pass();
    const std::chrono::duration<double, std::nano> took = std::chrono::steady_clock::now() - start;
    times.push_back(took.count() / static_cast<double>(items));
  }
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

int Main(int argc, char** argv) {
  int tunings = 10000;
  int batch = 1477;
  int repeats = 31;
  CLI::App app("index look-ups beside bare hash look-ups");
  app.add_option("--tunings", tunings)->check(CLI::Range(1, 10'000'000));
  app.add_option("--batch", batch)->check(CLI::PositiveNumber);
  app.add_option("--repeats", repeats)->check(CLI::PositiveNumber);
  CLI11_PARSE(app, argc, argv);

  std::mt19937 random(1);
  const int64_t before = ResidentBytes();
  TuningIndex index;
  for (int n = 0; n < tunings; ++n) {
    index.Publish(TuningOf(ProblemOf(n), &random), true);
  }
  const int64_t bytes = (ResidentBytes() - before) / tunings;

  absl::flat_hash_map<TuningDigest, uint32_t> bare;
  for (int n = 0; n < tunings; ++n) {
    bare.emplace(TuningKey{ProblemOf(n).ToText(), kEnvironment}.Digest(), static_cast<uint32_t>(n));
  }
  std::vector<ConvProblem> problems;
  std::vector<TuningKey> keys;
  for (int i = 0; i < batch; ++i) {
    problems.push_back(ProblemOf(static_cast<int>(int64_t{i} * 7919 % tunings)));
    keys.push_back({problems.back().ToText(), kEnvironment});
  }
  const absl::Time now = absl::Now();
  size_t answered = 0;
  const double look_up = NanosecondsPerItem(problems.size(), repeats, [&] {
    for (const ConvProblem& problem : problems) {
      const TuningKey key{problem.ToText(), kEnvironment};
      const IndexHit hit = index.FindServing(problem, key);
      const auto outcome =
          MakeAnswer(*hit.tuning, hit.pin.get(), Constraints(), problem.data_type(), now);
      answered += std::holds_alternative<Answer>(outcome) ? 1 : 0;
    }
  });
  uint64_t sum = 0;
  const double hash = NanosecondsPerItem(keys.size(), repeats, [&] {
    for (const TuningKey& key : keys) {
      sum += bare.find(key.Digest())->second;
    }
  });
  if (answered != problems.size() * static_cast<size_t>(repeats) || (sum == 0 && tunings > 1)) {
    std::fprintf(stderr, "a look-up was not answered\n");
    return 1;
  }
  std::printf(
      "{\"figure\": \"index_look_up_ns\", \"tunings\": %d, \"value\": %.5g, \"baseline\": %.5g, "
      "\"ratio\": %.4g}\n",
      tunings, look_up, hash, look_up / hash);
  std::printf("{\"figure\": \"index_bytes_per_tuning\", \"tunings\": %d, \"value\": %lld}\n",
              tunings, static_cast<long long>(bytes));
  return 0;
}

}  // namespace
}  // namespace convtune::bench

int main(int argc, char** argv) { return convtune::bench::Main(argc, argv); }
