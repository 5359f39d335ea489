#include "client/cli/commands/report.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "client/cli/commands/commands.h"
#include "client/cli/input/options.h"
#include "client/cli/input/problem_args.h"
#include "client/cli/output/atomic_file.h"
#include "client/cli/output/progress.h"
#include "client/cli/output/units.h"
#include "convtune/v1/release_service.pb.h"
#include "db/bundle/bundle_codec.h"
#include "db/bundle/bundle_reader.h"
#include "proto/base/clock.h"
#include "proto/base/status_macros.h"
#include "proto/convert/problem_list.h"

namespace convtune::cli::commands {
namespace {

using output::Fields;
using output::Value;

// The least number of problems by which a GPU is compared with others of its model.
constexpr int kLeastCompared = 8;

std::string TimesWord(const std::optional<double>& ratio) {
  return ratio ? absl::StrFormat("%.2fx", *ratio) : "-";
}

// The headline, and a table for each section that has anything, of `top` rows at
// most.
class Tables {
 public:
  Tables(app::Context& context, const report::ReportData& data, const report::Report& report,
         size_t top)
      : data_(data),
        report_(report),
        top_(top),
        width_(context.table_width()),
        color_(context.out_color()) {}

  std::string Make() {
    Headline();
    if (report_.headline.rows > 0) {
      Shares();
      Stock();
      Disagreements();
      for (const report::ReportUpgrade& upgrade : report_.upgrades) Upgrade(upgrade);
      Gpus();
      Section("Best that was attained", report_.roofs, [](const report::ReportRoof& r) -> Fields {
        return {{"", "GPU", r.gpu_model},
                {"", "TYPE", Name(r.data_type)},
                {"", "PROBLEMS", r.pairs},
                {"", "TFLOP/S", Digits(r.tflops)},
                {"", "GB/S", Digits(r.gbytes_per_second)}};
      });
    }
    Section("Most wanted", report_.wanted, [](const report::ReportWanted& w) -> Fields {
      return {{"", "PROBLEM", input::ShortProblem(w.problem)},
              {"", "ENVIRONMENT", w.environment},
              {"", "MISSES", w.misses},
              {"", "WHY NOT", w.last_error.empty() ? "-" : w.last_error}};
    });
    return std::move(out_);
  }

 private:
  void Headline() {
    const report::ReportHeadline& h = report_.headline;
    output::Table table(HeadlineFields("", "", ""));
    const auto add = [&table](const char* name, const Value& number, const std::string& words) {
      table.Add(HeadlineFields(name, number, words));
    };
    // "-" where there was nothing to compare.
    const auto add_bad = [&add](const char* name, bool known, int count, const char* words) {
      add(name,
          Value(known ? absl::StrCat(count) : "-")
              .In(count > 0 ? output::Color::kRed : output::Color::kNone),
          words);
    };
    add("tunings", h.rows,
        absl::StrCat(h.problems, " problems, ", h.nodes, " nodes, ", h.environments,
                     " environments; measured ", h.measured, ", incomplete ", h.incomplete,
                     ", observed ", h.observed, ", heuristic ", h.heuristic));
    for (const convtune::Environment& e : data_.environments()) {
      if (!e.simulated()) continue;
      add("simulated", "-",
          absl::StrCat(e.Name(), ": a GPU made of software, which says nothing about a card"));
    }
    add("coverage", output::FormatShare(h.coverage),
        absl::StrCat(h.timed_pairs, " of ", h.pairs + h.wanted_pairs, " problems timed"));
    add("hit ratio", output::FormatShare(h.hit_ratio),
        h.hit_ratio ? "of look-ups since the daemon started"
                    : "no look-ups are known; bundles do not say");
    add("faster than stock",
        Value(TimesWord(h.gain))
            .In(h.gain && *h.gain > 1.005 ? output::Color::kGreen : output::Color::kNone),
        h.gain ? absl::StrCat("geometric mean of ", h.compared_pairs,
                              " problems; stock is best in ", output::FormatShare(h.stock_is_best))
               : "stock choice and winner were not both timed");
    add("search time", FormatSeconds(h.search_seconds),
        "what the tunings took, on all nodes together");
    add("stale", output::FormatShare(h.stale),
        absl::StrCat("older than ", output::FormatAge(report_.options.stale_after),
                     ", or of a cuDNN that its GPU has left"));
    add_bad("disagreements", IsShared(), h.disagreements,
            "problems on which nodes differ beyond noise");
    add_bad("regressions", !report_.upgrades.empty(), h.regressions,
            "problems that an upgrade made slower");
    add_bad("slow GPUs", IsCompared(), h.slow_gpus, "against others of their model");
    out_ += table.Render(width_, color_);
    if (h.rows > 0 && h.timed_pairs == 0) {
      out_ +=
          "\nNothing was timed: winners are choices of heuristics or of programs, not results "
          "of measurements.\n";
    }
  }

  static Fields HeadlineFields(const char* name, Value number, const std::string& words) {
    return {{"", "HEADLINE", name}, {"", " ", number.Right()}, {"", " ", words}};
  }

  bool IsShared() const {
    return std::any_of(report_.pairs.begin(), report_.pairs.end(),
                       [](const report::ReportPair& pair) { return pair.timed_nodes > 1; });
  }
  bool IsCompared() const {
    return std::any_of(report_.gpus.begin(), report_.gpus.end(),
                       [](const report::ReportGpu& gpu) { return gpu.compared >= kLeastCompared; });
  }

  void Shares() {
    Section("Which algorithms win", report_.shares, [](const report::ReportShare& s) -> Fields {
      return {{"", "GPU", s.gpu_model},       {"", "TYPE", Name(s.data_type)},
              {"", "LAYOUT", Name(s.layout)}, {"", "OPERATION", Name(s.operation)},
              {"", "PROBLEMS", s.pairs},      {"", "WINNERS BY ENGINE", Engines(s)}};
    });
  }

  static std::string Engines(const report::ReportShare& share) {
    std::string words;
    for (size_t i = 0; i < share.engines.size() && i < 4; ++i) {
      absl::StrAppend(
          &words, i > 0 ? ", " : "", share.engines[i].first, " ",
          output::FormatShare(static_cast<double>(share.engines[i].second) / share.pairs));
    }
    if (share.engines.size() > 4) absl::StrAppend(&words, ", +", share.engines.size() - 4);
    return words;
  }

  void Stock() {
    std::vector<report::ReportPair> slower;
    for (const report::ReportPair& pair : report_.pairs) {
      if (pair.winner_us > 0 && pair.stock_us > pair.winner_us) slower.push_back(pair);
    }
    std::stable_sort(slower.begin(), slower.end(),
                     [](const report::ReportPair& a, const report::ReportPair& b) {
                       return a.stock_us - a.winner_us > b.stock_us - b.winner_us;
                     });
    Section("Stock choice against measured, most time first", slower,
            [this](const report::ReportPair& p) -> Fields {
              return {{"", "PROBLEM", Problem(p)},
                      {"", "ENVIRONMENT", Environment(p)},
                      {"", "STOCK", output::Micros(p.stock_us)},
                      {"", "WINNER", output::Micros(p.winner_us)},
                      {"", "GAIN", Times(p.stock_us / p.winner_us)},
                      {"", "WINNER", Candidate(p.winner)}};
            });
  }

  void Disagreements() {
    Section("Nodes that disagree, dearest first", report_.disagreements,
            [this](const report::ReportDisagreement& d) -> Fields {
              size_t differ = 0;
              double worst = 1;
              for (const auto& other : d.others) {
                differ += other.places.size();
                worst = std::max(worst, other.cost_ratio);
              }
              return {{"", "PROBLEM", Problem(d)},
                      {"", "ENVIRONMENT", Environment(d)},
                      {"", "NODES", Value(absl::StrCat(differ, " of ", d.nodes)).Right()},
                      {"", "WORST", Times(worst)},
                      {"", "COMMON WINNER", Candidate(d.winner)},
                      {"", "FOUND BETTER", Candidate(d.others[0].candidate)}};
            });
  }

  void Upgrade(const report::ReportUpgrade& upgrade) {
    std::vector<report::ReportUpgrade::Point> slower;
    for (const report::ReportUpgrade::Point& point : upgrade.points) {
      if (point.beyond_noise && point.to_us > point.from_us) slower.push_back(point);
    }
    const bool cudnn = upgrade.kind == report::ReportUpgrade::Kind::kCudnn;
    const std::string title = absl::StrCat(
        cudnn ? "cuDNN " : "Driver ", upgrade.from, " to ", upgrade.to, ", ", upgrade.subject, ": ",
        upgrade.points.size(), " problems, ", upgrade.regressions, " slower, ",
        upgrade.improvements, " faster, ", TimesWord(upgrade.ratio), " of the time");
    if (slower.empty()) {
      absl::StrAppend(&out_, "\n", output::Paint(title, output::Color::kBold, color_), "\n");
    }
    Section(title, slower, [this](const report::ReportUpgrade::Point& p) -> Fields {
      return {{"", "PROBLEM", Problem(p)},
              {"", "BEFORE", output::Micros(p.from_us)},
              {"", "AFTER", output::Micros(p.to_us)},
              {"", "RATIO", Times(p.to_us / p.from_us)},
              {"", "BEFORE", Candidate(p.from_winner)},
              {"", "AFTER", Candidate(p.to_winner)}};
    });
  }

  void Gpus() {
    std::vector<report::ReportGpu> slow;
    std::copy_if(report_.gpus.begin(), report_.gpus.end(), std::back_inserter(slow),
                 [](const report::ReportGpu& gpu) { return gpu.slow; });
    const auto clock = [](double mhz) {
      return Value(mhz > 0 ? absl::StrFormat("%.0f MHz", mhz) : "-").Right();
    };
    Section("Slow GPUs", slow, [&](const report::ReportGpu& g) -> Fields {
      return {{"", "NODE", g.node},
              {"", "MODEL", g.gpu_model},
              {"", "RATIO", Times(g.ratio)},
              {"", "PROBLEMS", g.compared},
              {"", "CLOCK", clock(g.clock_mhz)},
              {"", "MODEL'S", clock(g.model_clock_mhz)},
              {"", "THROTTLED", Value(output::FormatShare(g.throttled)).Right()},
              {"", "GPU", g.gpu_uuid.empty() ? "-" : g.gpu_uuid}};
    });
  }

  // The first rows of them; nothing where there is nothing.
  template <typename Row, typename FieldsOf>
  void Section(const std::string& title, const std::vector<Row>& rows, const FieldsOf& fields_of) {
    if (rows.empty()) return;
    const std::vector<Row> shown(rows.begin(), rows.begin() + std::min(top_, rows.size()));
    absl::StrAppend(
        &out_, "\n", output::Paint(title, output::Color::kBold, color_),
        rows.size() > top_ ? absl::StrCat(" (the first ", top_, " of ", rows.size(), ")") : "",
        "\n", output::TableOf(shown, fields_of, rows[0]).Render(width_, color_));
  }

  static Value Digits(double value) { return Value(absl::StrFormat("%.4g", value)).Right(); }
  static Value Times(double ratio) { return Value(TimesWord(ratio)).Right(); }
  static std::string FormatSeconds(double seconds) {
    // As on the page.
    if (seconds < 120) return absl::StrFormat("%.3g s", seconds);
    if (seconds < 7200) return absl::StrFormat("%.3g min", seconds / 60);
    if (seconds < 48 * 3600) return absl::StrFormat("%.3g h", seconds / 3600);
    return absl::StrFormat("%.3g d", seconds / 86'400);
  }
  template <typename Row>
  std::string Problem(const Row& row) const {
    return input::ShortProblem(data_.ProblemOf(row).text);
  }
  template <typename Row>
  std::string Environment(const Row& row) const {
    const convtune::Environment& environment = data_.EnvironmentOf(row);
    return absl::StrCat(environment.Name(), " ", environment.cudnn.ToText());
  }
  std::string Candidate(int number) const {
    return number < 0 ? "-" : data_.candidates()[static_cast<size_t>(number)];
  }

  const report::ReportData& data_;
  const report::Report& report_;
  const size_t top_;
  const int width_;
  const bool color_;
  std::string out_;
};

output::Fields RowFields(const report::ReportRow& row, const report::ReportData& data) {
  const convtune::Environment& environment = data.EnvironmentOf(row);
  const report::ReportPlace& place = data.places()[static_cast<size_t>(row.place)];
  const auto number = [](double value) { return Value(absl::StrFormat("%.7g", value)); };
  const auto time = [&](double value) { return value > 0 ? number(value) : Value(""); };
  const auto candidate = [&](int of) {
    return of < 0 ? Value("") : Value(data.candidates()[static_cast<size_t>(of)]);
  };
  return {{"problem", "", data.ProblemOf(row).text},
          {"environment", "", environment.ToText()},
          {"gpu_model", "", environment.gpu_model},
          {"cudnn", "", environment.cudnn.ToText()},
          {"node", "", place.node},
          {"gpu_uuid", "", place.gpu_uuid},
          {"driver", "", place.driver},
          {"cuda", "", place.cuda},
          {"evidence", "", Name(row.evidence)},
          {"winner", "", candidate(row.winner)},
          {"winner_us", "", time(row.winner_us())},
          {"stock", "", candidate(row.stock)},
          {"stock_us", "", time(row.stock_us())},
          {"sm_clock_mhz", "", time(row.sm_clock_mhz)},
          {"throttled", "", row.throttled ? Value(*row.throttled) : Value("")},
          {"workspace_bytes", "", row.workspace_bytes},
          {"candidates", "", row.candidate_count},
          {"tuned", "",
           absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", absl::FromUnixMicros(row.tune_time_us),
                            absl::UTCTimeZone())},
          {"search_seconds", "", number(row.elapsed_seconds())}};
}

constexpr int kMostWanted = 1000;

class ReportCommand final : public app::Command {
 public:
  void Register(CLI::App& root) override {
    CLI::App* app =
        AddVerb(root, "report", "what wins, what it gains, who disagrees, what got slower",
                ReportOutput::Columns());
    app->add_option("bundles", bundles_,
                    "bundles of any number of nodes; without one, the daemon is asked")
        ->type_name("FILE");
    output_.Register(*app);
  }

  absl::StatusOr<app::ExitCode> Run(app::Context& context) override {
    report::ReportData data(output_.Filter());
    if (bundles_.empty()) {
      RETURN_IF_ERROR(AskDaemon(context, &data));
    }
    for (const std::string& bundle : bundles_) {
      RETURN_IF_ERROR(Read(context, bundle, bundle, &data));
    }
    RETURN_IF_ERROR(output_.Write(std::move(data), context));
    return app::ExitCode::kDone;
  }

 private:
  // Adds what the bundle has. `name` is for words.
  static absl::Status Read(app::Context& context, const std::string& path, const std::string& name,
                           report::ReportData* data) {
    output::ProgressBar bar(context.io());
    ASSIGN_OR_RETURN(const std::unique_ptr<db::bundle::BundleReader> reader,
                     db::bundle::BundleReader::Open(path));
    const absl::Time now = SystemClock().Now();
    int64_t refused = 0;
    db::bundle::BundleEntry entry;
    while (true) {
      ASSIGN_OR_RETURN(const bool more, reader->Next(&entry));
      if (!more) break;
      const absl::StatusOr<Tuning> tuning =
          db::bundle::FromBundleTuning(*entry.row, *entry.environment, now);
      if (tuning.ok()) {
        data->Add(*tuning, entry.environment->environment);
      } else {
        ++refused;
      }
      bar.ShowBytes(absl::StrCat("reading ", name), reader->offset());
    }
    if (refused > 0) {
      context.Say(name, ": left out ", output::Counted(refused, "row"),
                  " that break a rule; `convtune verify` names them");
    }
    return absl::OkStatus();
  }

  // A node is what it would export, with its counters and what it misses.
  absl::Status AskDaemon(app::Context& context, report::ReportData* data) const {
    ASSIGN_OR_RETURN(client::Client* const client, context.Connect());
    ASSIGN_OR_RETURN(const auto info, client->Call<v1::ServerInfo>(v1::GetServerInfoRequest()));
    data->AddCounters(info.lookups(), info.hits());
    const char* folder = std::getenv("TMPDIR");
    const std::filesystem::path path =
        std::filesystem::path(folder != nullptr && *folder != '\0' ? folder : "/tmp") /
        "convtune-report";
    // Never committed, so nothing of it stays.
    ASSIGN_OR_RETURN(const std::unique_ptr<output::AtomicFile> file,
                     output::AtomicFile::Create(path.string(), "TMPDIR"));
    auto request = context.NewRequest<v1::ExportBundleRequest>();
    request.set_omit_samples(true);
    request.set_include_simulated(true);
    RETURN_IF_ERROR(client->ExportBundle(
        request, [&](const std::string& piece) { return file->Write(piece); },
        context.long_timeout()));
    RETURN_IF_ERROR(Read(context, file->temporary_path(), "the daemon's tunings", data));
    return AddWanted(context, data);
  }

  static absl::Status AddWanted(app::Context& context, report::ReportData* data) {
    auto request = context.NewRequest<v1::ListWantedRequest>();
    request.set_max_problems(kMostWanted);
    const auto response = context.CallPages<v1::ListWantedResponse>(request, kMostWanted);
    // A daemon that publishes nothing has no such list.
    if (absl::IsUnimplemented(response.status())) return absl::OkStatus();
    if (!response.ok()) return response.status();
    for (const v1::WantedProblem& wanted : response->wanted()) {
      data->AddWanted({wanted.problem_text(), wanted.environment(), wanted.miss_count(), 1,
                       wanted.last_error()});
    }
    return absl::OkStatus();
  }

  std::vector<std::string> bundles_;
  ReportOutput output_;
};

}  // namespace

void ReportOutput::Register(CLI::App& app) {
  app.add_option("--html", html_, "write one page that needs nothing else")->type_name("FILE");
  app.add_option("--gpu", filter_.gpu, "only GPU models whose name contains this")
      ->type_name("TEXT");
  app.add_option("--filter", filter_.problem, "only problems whose text form contains this")
      ->type_name("TEXT");
  app.add_option_function<std::string>(
         "--op", [this](const std::string& word) { filter_.operation = ParseOperation(word); },
         "only this operation")
      ->check(CLI::IsMember(OperationNames()));
  app.add_option_function<std::string>(
         "--dtype", [this](const std::string& word) { filter_.data_type = ParseDataType(word); },
         "only this type of the inputs")
      ->check(CLI::IsMember(InputTypeNames()));
  app.add_option_function<std::string>(
         "--layout",
         [this](const std::string& word) {
           filter_.layout = ParseLooseLayout(word).value_or(TensorLayout::kStrided);
         },
         "only this layout")
      ->check(CLI::IsMember({"nchw", "nhwc", "strided"}));
  input::AddTime(app, "--stale-after", "age from which a tuning is stale",
                 [this](absl::Duration age) { options_.stale_after = age; })
      ->default_str("4320h");
  app.add_option("--top", top_, "rows of each table on the terminal")
      ->check(CLI::Range(1, 1'000'000))
      ->capture_default_str();
}

// Those of some row.
output::Fields ReportOutput::Columns() {
  report::ReportData any;
  report::ReportRow row;
  row.environment = any.AddEnvironment("", {});
  row.problem = any.AddProblem("fwd,x=1x1x1x1,w=1x1x1x1");
  row.place = any.AddPlace({});
  return RowFields(row, any);
}

absl::Status ReportOutput::Write(report::ReportData data, app::Context& context) const {
  output::Io& io = context.io();
  const app::Format format = context.format();
  if (format == app::Format::kCsv) {
    WriteReportCsv(data, io.out);
    if (html_.empty()) return absl::OkStatus();
  }
  report::ReportOptions options = options_;
  options.now = SystemClock().Now();
  const report::Report report = report::MakeReport(options, &data);
  if (!html_.empty()) {
    const std::string page = report::ReportHtml(data, report);
    RETURN_IF_ERROR(output::AtomicFile::WriteWhole(html_, "--html", page));
    io.err << "wrote " << html_ << ", " << output::FormatBytes(static_cast<int64_t>(page.size()))
           << "\n";
  }
  if (format == app::Format::kJson) {
    io.out << report::ReportJson(data, report) << "\n";
  } else if (format == app::Format::kTable && html_.empty()) {
    io.out << Tables(context, data, report, top_).Make();
  }
  return absl::OkStatus();
}

void WriteReportCsv(const report::ReportData& data, std::ostream& out) {
  out << output::CsvHeading(ReportOutput::Columns());
  for (const auto& [key, rows] : data.pairs()) {
    for (const report::ReportRow& row : rows) out << output::CsvRow(RowFields(row, data));
  }
}

std::unique_ptr<app::Command> NewReportCommand() { return std::make_unique<ReportCommand>(); }

}  // namespace convtune::cli::commands
