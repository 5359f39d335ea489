#include "client/cli/commands/doctor/daemon_findings.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <ostream>

#include "absl/strings/str_cat.h"
#include "client/cli/commands/commands.h"
#include "client/cli/commands/doctor/issue_report.h"
#include "client/cli/commands/doctor/machine_findings.h"
#include "client/cli/commands/doctor/program_findings.h"
#include "client/cli/output/value.h"
#include "convtune/v1/fleet_service.pb.h"
#include "convtune/v1/release_service.pb.h"
#include "proto/base/status_macros.h"

namespace convtune::cli::commands::doctor {
namespace {

class DoctorCommand final : public app::Command {
 public:
  void Register(CLI::App& root) override {
    CLI::App* app =
        AddVerb(root, "doctor", "what is wrong, and what to do about it", app::Rows::kNo);
    app->add_flag("--report", report_,
                  "print what an issue needs: the system too, without names, paths and addresses");
    app->add_option("--program", program_,
                    "also say which cuDNN this program loads, whether it is whole, and whether the "
                    "daemon has answers for it: a program, a Python, or a venv's folder. Of a "
                    "Python its packages are looked at. The program is not run, but a Python is "
                    "asked where its packages are")
        ->type_name("FILE");
  }

  absl::StatusOr<app::ExitCode> Run(app::Context& context) override {
    std::vector<LoadedCudnn> programs_cudnn;
    if (!program_.empty()) {
      ASSIGN_OR_RETURN(programs_cudnn, FindCudnn(program_));
    }
    std::vector<app::Finding> findings =
        app::ExamineAddress(context.settings().client.address, context.settings().client.tls);
    ASSIGN_OR_RETURN(const auto client, context.Connect());
    v1::ServerInfo server;
    v1::ListEnvironmentsResponse environments;
    v1::Publication seen;
    const bool reached = Examine(*client, &server, &environments, &findings);
    if (reached) {
      ExaminePublished(*client, &seen, &findings);
      const MachineFacts facts =
          LookAtMachine(server, seen, context.settings().client.address.unix_socket);
      Add(ExamineDisk(server, facts), &findings);
      Add(ExamineClock(server, facts), &findings);
      Add(ExamineInterposer(facts), &findings);
      ExamineFleetState(*client, &findings);
    }
    if (!program_.empty()) {
      Add(ExamineProgram(program_, programs_cudnn, reached ? &environments : nullptr), &findings);
    }
    if (report_) {
      std::vector<app::Finding> facts = DescribeSystem(server, environments);
      findings.insert(findings.begin(), facts.begin(), facts.end());
      std::vector<std::string> secrets = NamesOfThisMachine();
      secrets.insert(secrets.end(), {context.settings().client.address.target, server.state_dir(),
                                     seen.folder(), server.metrics_url()});
      for (app::Finding& finding : findings) {
        finding.what = Redact(finding.what, secrets);
        finding.advice = Redact(finding.advice, secrets);
      }
    }
    Print(context, findings);
    if (!reached) return app::ExitCode::kUnreachable;
    return HasProblem(findings) ? app::ExitCode::kFailed : app::ExitCode::kDone;
  }

 private:
  static bool HasProblem(const std::vector<app::Finding>& findings) {
    return std::any_of(findings.begin(), findings.end(), [](const app::Finding& finding) {
      return finding.severity == app::Severity::kProblem;
    });
  }

  static void Add(const std::vector<app::Finding>& more, std::vector<app::Finding>* findings) {
    findings->insert(findings->end(), more.begin(), more.end());
  }

  static void AddFailure(const std::string& what, const absl::Status& status,
                         std::vector<app::Finding>* findings) {
    findings->push_back(app::Problem(absl::StrCat(what, ": ", std::string(status.message())),
                                     "see the daemon's log"));
  }

  // Adds the findings that `examine` makes of the daemon's answer. Where the call failed,
  // adds one finding that says so.
  template <typename Response, typename Examine>
  static void AddAnswer(const absl::StatusOr<Response>& answer, const char* failure,
                        const Examine& examine, std::vector<app::Finding>* findings) {
    if (!answer.ok()) return AddFailure(failure, answer.status(), findings);
    Add(examine(*answer), findings);
  }

  // False if the daemon is out of reach.
  static bool Examine(client::Client& client, v1::ServerInfo* info,
                      v1::ListEnvironmentsResponse* known, std::vector<app::Finding>* findings) {
    const auto server = client.Call<v1::ServerInfo>(v1::GetServerInfoRequest());
    if (server.ok()) *info = *server;
    if (absl::IsUnavailable(server.status())) {
      const bool named = HasProblem(*findings);
      findings->push_back(app::Problem(
          absl::StrCat("no answer from the daemon at ", client.address().ToText(), ": ",
                       std::string(server.status().message())),
          named ? "" : "start one with `convtuned`, or say where it is with --address"));
      return false;
    }
    ExamineHealth(client, kLivenessService, "is not alive", findings);
    ExamineHealth(client, kReadinessService, "is not ready to answer", findings);
    const auto examine_server = [](const v1::ServerInfo& said) {
      return ExamineServer(said, CONVTUNE_VERSION);
    };
    AddAnswer(server, "the daemon does not say what it is", examine_server, findings);
    AddAnswer(client.Call<v1::ListDevicesResponse>(v1::ListDevicesRequest()),
              "the devices cannot be listed", ExamineDevices, findings);
    const auto environments =
        client.CallPages<v1::ListEnvironmentsResponse>(v1::ListEnvironmentsRequest());
    if (environments.ok()) {
      *known = *environments;
      Add(ExamineLibraries(*environments), findings);
    }
    AddAnswer(environments, "the environments cannot be listed", ExamineEnvironments, findings);
    const auto bans = client.Call<v1::ListBansResponse>(v1::ListBansRequest());
    if (!absl::IsUnimplemented(bans.status())) {
      AddAnswer(bans, "the bans cannot be listed", ExamineBans, findings);
    }
    return true;
  }

  static void ExamineFleetState(client::Client& client, std::vector<app::Finding>* findings) {
    v1::GetFleetStateRequest request;
    request.set_observer(true);  // the daemon measures the silence of agents
    const auto state = client.Call<v1::FleetState>(request);
    if (absl::IsUnimplemented(state.status()) || absl::IsPermissionDenied(state.status())) return;
    AddAnswer(state, "the daemon does not say what waits for the fleet", ExamineFleet, findings);
  }

  static void ExaminePublished(client::Client& client, v1::Publication* seen,
                               std::vector<app::Finding>* findings) {
    const auto publication = client.Call<v1::Publication>(v1::GetPublicationRequest());
    if (absl::IsUnimplemented(publication.status())) return;
    if (publication.ok()) *seen = *publication;
    AddAnswer(publication, "the daemon does not say how the snapshot is", ExaminePublication,
              findings);
  }

  static void ExamineHealth(client::Client& client, const std::string& service,
                            const std::string& words, std::vector<app::Finding>* findings) {
    const auto serving = client.IsServing(service);
    if (!serving.ok()) {
      AddFailure(absl::StrCat("health ", service), serving.status(), findings);
    } else if (!*serving) {
      findings->push_back(
          app::Problem(absl::StrCat("the daemon ", words),
                       "wait a little if it has just been started; else see its log"));
    } else {
      findings->push_back(app::Fine(absl::StrCat("health ", service, ": serving")));
    }
  }

  static void Print(app::Context& context, const std::vector<app::Finding>& findings) {
    const auto word_of = [](app::Severity severity) -> std::string {
      if (severity == app::Severity::kFine) return "ok";
      return severity == app::Severity::kNotice ? "notice" : "problem";
    };
    const auto fields_of = [&](const app::Finding& finding) -> output::Fields {
      return {{"severity", "", word_of(finding.severity)},
              {"what", "", finding.what},
              {"advice", "", finding.advice}};
    };
    context.PrintJson({{"findings", output::JsonRows(findings, fields_of)}});
    if (context.format() == app::Format::kJson) return;
    std::ostream& out = context.io().out;
    for (const app::Finding& finding : findings) {
      const std::string word = word_of(finding.severity);
      const output::Color color = finding.severity == app::Severity::kFine ? output::Color::kGreen
                                  : finding.severity == app::Severity::kNotice
                                      ? output::Color::kYellow
                                      : output::Color::kRed;
      out << output::Paint(word, color, context.out_color()) << std::string(9 - word.size(), ' ')
          << finding.what << "\n";
      if (!finding.advice.empty()) out << std::string(9, ' ') << "-> " << finding.advice << "\n";
    }
  }

  bool report_ = false;
  std::string program_;
};

}  // namespace

std::unique_ptr<app::Command> NewDoctorCommand() { return std::make_unique<DoctorCommand>(); }

}  // namespace convtune::cli::commands::doctor
