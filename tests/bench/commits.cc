// Acknowledged results per second through the committer, with one writer and
// with many, beside a bare SQLite loop that writes the same rows, one
// transaction for each tuning, with the same sync. With --bans: how long a ban
// takes, and commits and look-ups meanwhile. Prints one JSON object per line.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "db/sqlite/database.h"
#include "db/store/sqlite_store.h"
#include "proto/base/clock.h"
#include "proto/base/status_macros.h"
#include "proto/monitoring/log.h"
#include "server/commit/committer.h"
#include "server/decision/evidence.h"
#include "server/lookup/answer.h"
#include "tests/bench/figure.h"

namespace convtune::bench {
namespace {

constexpr int kCandidates = 12;
constexpr int kKnobs = 100;              // a hundredth of the tunings has each setting
constexpr int kCheckpointFrames = 1024;  // as in the store

Environment TestEnvironment() { return Environment::Parse(kEnvironment).value(); }

TuningKey KeyOf(int n) {
  return {absl::StrCat("fwd,x=", n + 1, "x64x56x56,w=64x64x3x3,pad=1,nhwc,f16"), kEnvironment};
}

// Eight of its candidates are timed, three of them to the end.
Tuning TuningOf(int n) {
  Tuning tuning;
  tuning.key = KeyOf(n);
  for (int i = 0; i < kCandidates; ++i) {
    Candidate candidate;
    candidate.id = EngineConfig{i, {{2, i}, {13, n % kKnobs}}};
    candidate.heuristic_rank = i;
    candidate.workspace_bytes = int64_t{i} << 12;
    candidate.status = CandidateStatus::kUnsupported;
    if (i < 8) {
      candidate.status = CandidateStatus::kTimed;
      candidate.samples_ns.assign(i < 3 ? 30 : 5, 20'000 + 1000 * i);
      SummarizeSamples(&candidate);
    }
    tuning.candidates.push_back(std::move(candidate));
  }
  decision::FinishTuning({}, &tuning);
  return tuning;
}

[[noreturn]] void Die(const absl::Status& status) {
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  std::exit(1);
}

std::unique_ptr<db::store::SqliteStore> OpenStore(const std::string& folder, const Clock* clock) {
  db::store::SqliteStore::Options options;
  options.state_dir = folder;
  options.clock = clock;
  auto store = db::store::SqliteStore::Open(std::move(options));
  if (!store.ok()) Die(store.status());
  return *std::move(store);
}

// Commits `tunings`, each thread its share; results per second.
double CommitRate(const std::string& folder, const Clock* clock, const std::vector<Tuning>& tunings,
                  int writers) {
  const auto store = OpenStore(folder, clock);
  lookup::TuningIndex index;
  commit::Committer committer(store.get(), &index, clock);
  std::atomic<size_t> next{0};
  std::atomic<bool> refused{false};
  const double seconds = Seconds([&] {
    std::vector<std::thread> threads;
    for (int i = 0; i < writers; ++i) {
      threads.emplace_back([&] {
        for (size_t n = next++; n < tunings.size(); n = next++) {
          if (!committer.Commit(tunings[n], TestEnvironment(), false)) refused = true;
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
  });
  if (refused) Die(absl::InternalError("a result was not written"));
  committer.Stop();
  if (const absl::Status closed = store->Close(); !closed.ok()) Die(closed);
  return static_cast<double>(tunings.size()) / seconds;
}

// The rows of `source`, tuning by tuning, into a new database: no value is
// made, checked or converted.
absl::StatusOr<double> BareRate(const std::string& folder, const std::string& source,
                                const Clock* clock, size_t tunings) {
  RETURN_IF_ERROR(OpenStore(folder, clock)->Close());
  ASSIGN_OR_RETURN(const auto database,
                   db::sqlite::Database::Open({.path = folder + "/convtune.db"}));
  RETURN_IF_ERROR(database->EnableWal());
  RETURN_IF_ERROR(database->Execute(absl::StrCat("ATTACH '", source, "/convtune.db' AS source")));
  RETURN_IF_ERROR(
      database->Execute("INSERT INTO main.environments SELECT * FROM source.environments"));
  std::vector<db::sqlite::Statement> inserts;
  {
    // Parents before their rows: in the order in which they were made.
    ASSIGN_OR_RETURN(db::sqlite::Statement tables,
                     database->Prepare("SELECT m.name FROM main.sqlite_master m, "
                                       "pragma_table_info(m.name) c WHERE m.type = 'table' AND "
                                       "c.name = 'tuning_id' ORDER BY m.rowid"));
    while (true) {
      ASSIGN_OR_RETURN(const bool more, tables.Step());
      if (!more) break;
      const std::string table(tables.Text(0));
      ASSIGN_OR_RETURN(
          db::sqlite::Statement insert,
          database->Prepare(absl::StrCat("INSERT INTO main.", table, " SELECT * FROM source.",
                                         table, " WHERE tuning_id = ?")));
      inserts.push_back(std::move(insert));
    }
  }
  absl::Status status;
  const double seconds = Seconds([&] {
    status = [&]() -> absl::Status {
      for (size_t n = 1; n <= tunings; ++n) {
        ASSIGN_OR_RETURN(db::sqlite::Transaction transaction,
                         db::sqlite::Transaction::Begin(*database));
        for (db::sqlite::Statement& insert : inserts) {
          RETURN_IF_ERROR(insert.Bind(n).Run());
        }
        RETURN_IF_ERROR(transaction.Commit());
        if (database->wal_frames() >= kCheckpointFrames) {
          RETURN_IF_ERROR(database->Checkpoint(/*truncate=*/false));
        }
      }
      return absl::OkStatus();
    }();
  });
  RETURN_IF_ERROR(status);
  ASSIGN_OR_RETURN(const int64_t rows, database->QueryInt("SELECT COUNT(*) FROM main.tunings"));
  if (rows != static_cast<int64_t>(tunings)) return absl::InternalError("rows are missing");
  return static_cast<double>(tunings) / seconds;
}

// Seconds; of the CPU, those of the calling thread.
struct Took {
  double wall = 0;
  double cpu = 0;
};

Took Time(const std::function<void()>& work) {
  const auto cpu = [] {
    timespec now{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) / 1e9;
  };
  Took took;
  took.cpu = -cpu();
  took.wall = Seconds(work);
  took.cpu += cpu();
  return took;
}

// Milliseconds that commits and look-ups took while something else went on.
struct Latencies {
  std::vector<double> commits;
  std::vector<double> look_ups;
};

// A store of so many tunings, all of which list engine 0 as their winner.
class BanBench {
 public:
  BanBench(const std::string& folder, int tunings, const Clock* clock)
      : tunings_(tunings),
        next_(tunings),
        store_(OpenStore(folder, clock)),
        committer_(store_.get(), &index_, clock) {
    constexpr int kInTransaction = 10'000;
    for (int n = 0; n < tunings;) {
      const int end = std::min(tunings, n + kInTransaction);
      const auto imported =
          committer_.Import([&]() -> absl::StatusOr<std::optional<db::TuningRecord>> {
            if (n == end) return std::nullopt;
            return db::TuningRecord{TuningOf(n++), TestEnvironment()};
          });
      if (!imported.ok()) Die(imported.status());
    }
  }

  // Ends with `work`, which may be a wait.
  Latencies Beside(const std::function<void()>& work) {
    Latencies latencies;
    std::atomic<bool> ended{false};
    std::thread commits([&] {
      while (!ended) {
        Tuning tuning = TuningOf(next_++);
        latencies.commits.push_back(
            1e3 * Seconds([&] { committer_.Commit(std::move(tuning), TestEnvironment(), false); }));
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
      }
    });
    std::thread look_ups([&] {
      for (int64_t n = 0; !ended; ++n) {
        const TuningKey key = KeyOf(static_cast<int>(n * 7919 % tunings_));
        const ConvProblem problem = ConvProblem::Parse(key.problem_text).value();
        latencies.look_ups.push_back(1e3 * Seconds([&] {
                                       const lookup::IndexHit hit = index_.Find(key);
                                       lookup::MakeAnswer(*hit.tuning, hit.pin.get(), {}, problem,
                                                          absl::Now());
                                     }));
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
    });
    work();
    ended = true;
    commits.join();
    look_ups.join();
    return latencies;
  }

  // The rows of the store, read and unpacked once.
  Took ReadAll() {
    absl::Status status;
    const Took took = Time([&] {
      status = store_->ForEachStored(
          [&](const db::StoredTuning& stored) { return stored.decode().ok(); },
          [](const std::string&) {});
    });
    if (!status.ok()) Die(status);
    return took;
  }

  void Measure(const std::string& pattern, const char* share) {
    Ban ban;
    ban.candidate = CandidatePattern::Parse(pattern).value();
    const Took read = ReadAll();
    const Latencies bare = Beside([] { std::this_thread::sleep_for(std::chrono::seconds(3)); });
    PrintCall("dry_run", share, read, bare,
              [&] { committer_.AddBan(&ban, kChanges, /*dry_run=*/true).IgnoreError(); });
    PrintCall("create", share, read, bare, [&] {
      if (const auto made = committer_.AddBan(&ban, kChanges); !made.ok()) Die(made.status());
    });
    PrintCall("delete", share, read, bare, [&] {
      if (const absl::Status gone = committer_.DeleteBan(ban.number, 0); !gone.ok()) Die(gone);
    });
  }

 private:
  static constexpr size_t kChanges = 1000;  // as the command line asks for

  void PrintCall(const char* call, const char* share, const Took& read, const Latencies& bare,
                 const std::function<void()>& work) {
    Took took;
    const Latencies busy = Beside([&] { took = Time(work); });
    const std::string at =
        absl::StrCat("\"tunings\": ", tunings_, ", \"state\": \"", call, ", ", share, " listed\"");
    const auto line = [&](const std::string& figure, double value, double baseline) {
      Print("ban_" + figure, at, value, baseline, value / baseline);
    };
    line("s", took.wall, read.wall);
    line("cpu_s", took.cpu, read.cpu);
    for (const double of : {0.5, 0.99, 1.0}) {
      const std::string name = of == 0.5 ? "p50" : of == 0.99 ? "p99" : "most";
      line("commit_" + name + "_ms", Quantile(busy.commits, of), Quantile(bare.commits, of));
      line("lookup_" + name + "_ms", Quantile(busy.look_ups, of), Quantile(bare.look_ups, of));
    }
  }

  const int tunings_;
  int next_;  // to be committed
  lookup::TuningIndex index_;
  const std::unique_ptr<db::store::SqliteStore> store_;
  commit::Committer committer_;
};

int Main(int argc, char** argv) {
  int tunings = 400;
  int rounds = 5;
  std::vector<int> writers = {1, 4, 32};
  std::string folder;
  CLI::App app("acknowledged results per second beside a bare SQLite loop");
  app.add_option("--tunings", tunings, "in each round")->check(CLI::Range(1, 1'000'000));
  app.add_option("--rounds", rounds)->check(CLI::PositiveNumber);
  app.add_option("--writers", writers)->check(CLI::PositiveNumber);
  bool bans = false;
  app.add_option("--folder", folder, "on the disk to be measured")->required();
  app.add_flag("--bans", bans, "bans over so many tunings instead");
  CLI11_PARSE(app, argc, argv);
  // Standard output has the figures alone.
  log::Init(/*json=*/false, "warn");

  const SystemClock clock;
  if (bans) {
    BanBench bench(folder, tunings, &clock);
    bench.Measure("eng0", "all");
    bench.Measure("eng0,k13=7", "1%");
    return 0;
  }
  std::vector<Tuning> all;
  for (int n = 0; n < tunings; ++n) all.push_back(TuningOf(n));
  std::vector<double> bare;
  std::vector<std::vector<double>> rates(writers.size());
  std::vector<std::vector<double>> ratios(writers.size());
  for (int round = 0; round < rounds; ++round) {
    const std::string base = absl::StrCat(folder, "/", round, "-");
    std::vector<std::string> made;
    for (size_t i = 0; i < writers.size(); ++i) {
      made.push_back(absl::StrCat(base, writers[i]));
      rates[i].push_back(CommitRate(made.back(), &clock, all, writers[i]));
    }
    const auto rate = BareRate(base + "bare", made[0], &clock, all.size());
    if (!rate.ok()) Die(rate.status());
    bare.push_back(*rate);
    for (size_t i = 0; i < writers.size(); ++i) ratios[i].push_back(rates[i].back() / *rate);
    made.push_back(base + "bare");
    for (const std::string& path : made) std::filesystem::remove_all(path);
  }
  for (size_t i = 0; i < writers.size(); ++i) {
    Print("commits_per_second", absl::StrCat("\"writers\": ", writers[i]), Median(rates[i]),
          Median(bare), Median(ratios[i]));
  }
  return 0;
}

}  // namespace
}  // namespace convtune::bench

int main(int argc, char** argv) { return convtune::bench::Main(argc, argv); }
