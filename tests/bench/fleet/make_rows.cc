// convtune-bench-fleet-rows FOLDER NODES PROBLEMS PER_NODE: the rows of a simulated
// fleet (tests/unit/report/simulated_fleet.h), as COPY in text form reads them:
// FOLDER/{environments,problems,candidates,nodes,provenances,evidence,report_groups}
// are files, or pipes that are opened one after the other, the last two together.
// FOLDER/facts.json says what a report has to find.
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/report/report_group.h"
#include "proto/convert/problem_order.h"
#include "tests/unit/report/simulated_fleet.h"

namespace convtune {
namespace {

class Table {
 public:
  Table(const std::string& folder, const char* name)
      : file_(std::fopen((folder + "/" + name).c_str(), "wb")) {
    if (file_ == nullptr) throw std::runtime_error(std::string(name) + " cannot be written");
    buffer_.resize(1 << 20);
    std::setvbuf(file_, buffer_.data(), _IOFBF, buffer_.size());
  }
  ~Table() { std::fclose(file_); }
  Table(const Table&) = delete;
  Table& operator=(const Table&) = delete;

  __attribute__((format(printf, 2, 3))) void Print(const char* format, ...) {
    va_list arguments;
    va_start(arguments, format);
    std::vfprintf(file_, format, arguments);
    va_end(arguments);
  }
  void Write(const std::string& text) { std::fwrite(text.data(), 1, text.size(), file_); }

 private:
  std::FILE* const file_;
  std::string buffer_;
};

class Rows {
 public:
  Rows(const report::FleetOptions& options, std::string folder)
      : folder_(std::move(folder)), fleet_(options) {
    std::vector<bool> has;
    for (int node = 0; node < fleet_.nodes(); ++node) {
      has.assign(fleet_.problems().size(), false);
      for (const int problem : fleet_.ProblemsOf(node)) has[static_cast<size_t>(problem)] = true;
      has_problem_.push_back(has);
      environments_of_.push_back(fleet_.EnvironmentsOf(node));
    }
  }

  void Write() {
    Names();
    {
      Table evidence(folder_, "evidence");
      Table groups(folder_, "report_groups");
      for (size_t e = 0; e < fleet_.environments().size(); ++e) {
        for (size_t p = 0; p < fleet_.problems().size(); ++p) {
          Group(static_cast<int>(e), static_cast<int>(p), &evidence, &groups);
        }
      }
    }
    Facts();
  }

 private:
  void Names() {
    {
      Table table(folder_, "environments");
      int id = 0;
      for (const Environment& e : fleet_.environments()) {
        table.Print("%d\t%s\t%s\tf\t%s\t%d\t%d\t%d\t\t%d\t%d\t%d\t1\n", ++id, e.ToText().c_str(),
                    e.Name().c_str(), e.gpu_model.c_str(), e.cc_major, e.cc_minor, e.sm_count,
                    e.cudnn.major, e.cudnn.minor, e.cudnn.patch);
      }
    }
    {
      Table table(folder_, "problems");
      int id = 0;
      for (const ConvProblem& p : fleet_.problems()) {
        table.Print("%d\t%s\t%d\t%d\t%d\t%.17g\t%lld\n", ++id, p.ToText().c_str(),
                    static_cast<int>(p.operation()), static_cast<int>(p.data_type()),
                    static_cast<int>(p.layout()), EstimatedFlops(p),
                    static_cast<long long>(p.TensorBytes()));
      }
    }
    {
      // Whatever any node lists: every candidate that the generator can make.
      Table table(folder_, "candidates");
      for (int engine = 20; engine < 44; ++engine) {
        const std::string text = ToText(EngineConfig{engine, {{2, (engine - 20) % 4}}});
        candidates_[text] = engine - 19;
        table.Print("%d\t%s\t2\t%d\n", engine - 19, text.c_str(), engine);
      }
    }
    {
      Table table(folder_, "nodes");
      for (int n = 0; n < fleet_.nodes(); ++n) {
        table.Print("%d\t%s\t2026-01-01\t1000\t900\n", n + 1,
                    report::SimulatedFleet::NodeName(n).c_str());
      }
    }
    Table table(folder_, "provenances");
    for (int n = 0; n < fleet_.nodes(); ++n) {
      const Provenance from =
          fleet_.Make(n, environments_of_[static_cast<size_t>(n)][0], 0).provenance;
      table.Print("%d\t%d\t%s\t%s\t%s\t%s\t%s\t%lld\n", n + 1, n + 1, from.driver_version.c_str(),
                  from.cuda_version.c_str(), from.cublaslt_build.c_str(), from.nvrtc_build.c_str(),
                  from.gpu_uuid.c_str(), static_cast<long long>(from.memory_bytes));
    }
  }

  void Group(int e, int p, Table* evidence, Table* groups) {
    std::vector<int> nodes;
    std::vector<Tuning> tunings;
    for (int n = 0; n < fleet_.nodes(); ++n) {
      if (!has_problem_[static_cast<size_t>(n)][static_cast<size_t>(p)]) continue;
      for (const int of_node : environments_of_[static_cast<size_t>(n)]) {
        if (of_node != e) continue;
        nodes.push_back(n);
        tunings.push_back(fleet_.Make(n, e, p));
      }
    }
    if (tunings.empty()) return;
    std::vector<report::GroupTuning> group;
    for (size_t i = 0; i < tunings.size(); ++i) {
      group.push_back({nodes[i] + 1, &tunings[i]});
      Evidence(nodes[i], e, p, tunings[i], evidence);
    }
    groups->Print("%d\t%d\t%zu\t\\\\x", e + 1, p + 1, group.size());
    groups->Write(absl::BytesToHexString(
        report::PackGroup(group, fleet_.environments()[static_cast<size_t>(e)])));
    groups->Write("\n");
  }

  void Evidence(int node, int e, int p, const Tuning& tuning, Table* table) {
    const Candidate& winner = tuning.candidates.front();
    const Candidate* stock = &winner;
    for (const Candidate& c : tuning.candidates) {
      if (c.heuristic_rank == 0) stock = &c;
    }
    const int64_t sequence = ++rows_;
    table->Print(
        "%d\t1\t%d\t%lld\t%d\t%d\t%d\t%s\t%d\t%.9g\t%.9g\t%.9g\t%d\t%.9g\t%.9g\t%.9g\t%.9g\t%lld"
        "\t%zu\t40\t1\tt\t%c\t%c\tt\t\\\\x%032llx\t\n",
        node + 1, e + 1, static_cast<long long>(sequence), p + 1, node + 1, Id(winner),
        absl::FormatTime("%Y-%m-%d %H:%M:%E6S+00", tuning.tune_time, absl::UTCTimeZone()).c_str(),
        Id(*stock), winner.median_us, winner.low_us, winner.high_us, winner.sample_count,
        stock->median_us, stock->low_us, stock->high_us, winner.sm_clock_mhz,
        static_cast<long long>(absl::ToInt64Milliseconds(tuning.elapsed)), tuning.candidates.size(),
        tuning.conditions.clean() ? 't' : 'f', tuning.conditions.throttled() ? 't' : 'f',
        static_cast<unsigned long long>(sequence));
  }

  int Id(const Candidate& candidate) { return candidates_.at(ToText(candidate.id)); }

  static std::string Json(const std::set<report::SimulatedFleet::Finding>& findings) {
    std::string text;
    for (const auto& [environment, problem] : findings) {
      absl::StrAppend(&text, text.empty() ? "" : ",", "[\"", environment, "\",\"", problem, "\"]");
    }
    return "[" + text + "]";
  }

  void Facts() {
    Table facts(folder_, "facts.json");
    std::string slow;
    for (int n = 0; n < fleet_.nodes(); ++n) {
      if (!report::SimulatedFleet::IsSlow(n)) continue;
      absl::StrAppend(&slow, slow.empty() ? "\"" : ",\"", report::SimulatedFleet::NodeName(n),
                      "\"");
    }
    facts.Write(absl::StrCat("{\"rows\":", rows_, ",\"slow_nodes\":[", slow,
                             "],\"disagreements\":", Json(fleet_.Disagreements()),
                             ",\"cudnn_regressions\":", Json(fleet_.CudnnRegressions()),
                             ",\"driver_regressions\":", Json(fleet_.DriverRegressions()), "}\n"));
  }

  const std::string folder_;
  const report::SimulatedFleet fleet_;
  std::vector<std::vector<bool>> has_problem_;
  std::vector<std::vector<int>> environments_of_;
  std::map<std::string, int> candidates_;
  int64_t rows_ = 0;
};

}  // namespace
}  // namespace convtune

int main(int argc, char** argv) {
  if (argc != 5) {
    std::fprintf(stderr, "usage: convtune-bench-fleet-rows FOLDER NODES PROBLEMS PER_NODE\n");
    return 2;
  }
  convtune::report::FleetOptions options;
  options.nodes = std::atoi(argv[2]);
  options.problems = std::atoi(argv[3]);
  options.problems_per_node = std::atoi(argv[4]);
  try {
    convtune::Rows(options, argv[1]).Write();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
