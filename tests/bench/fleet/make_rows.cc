// convtune-bench-fleet-rows FOLDER NODES PROBLEMS PER_NODE: the rows of a simulated
// fleet (tests/unit/report/simulated_fleet.h), as COPY in text form reads them:
// FOLDER/{environments,problems,nodes,provenances,pooled} are files, or pipes that are
// opened one after the other.
// FOLDER/facts.json says what a report has to find.
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/report/report_group.h"
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
      Table groups(folder_, "pooled");
      for (size_t e = 0; e < fleet_.environments().size(); ++e) {
        for (size_t p = 0; p < fleet_.problems().size(); ++p) {
          Group(static_cast<int>(e), static_cast<int>(p), &groups);
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
        table.Print("%d\t%s\t%s\t%s\n", ++id, e.ToText().c_str(), e.Name().c_str(),
                    e.gpu_model.c_str());
      }
    }
    {
      Table table(folder_, "problems");
      int id = 0;
      for (const ConvProblem& p : fleet_.problems()) {
        table.Print("%d\t%s\n", ++id, p.ToText().c_str());
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

  void Group(int e, int p, Table* groups) {
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
    }
    rows_ += std::ssize(group);
    groups->Print("%d\t%d\t{}\t{}\t%zu\t40\t\\\\x%032d\t\\\\x", e + 1, p + 1, group.size(), 0);
    groups->Write(absl::BytesToHexString(
        report::PackGroup(group, fleet_.environments()[static_cast<size_t>(e)])));
    groups->Write("\n");
  }

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
