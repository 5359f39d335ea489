#include "client/cli/commands/doctor/findings.h"

#include <gnu/libc-version.h>
#include <pwd.h>
#include <sys/utsname.h>
#include <unistd.h>
#include <CLI/CLI.hpp>
#include <algorithm>
#include <fstream>
#include <ostream>
#include <regex>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "client/cli/output/fields.h"
#include "client/cli/output/units.h"
#include "convtune/v1/fleet_service.pb.h"
#include "convtune/v1/release_service.pb.h"
#include "proto/base/status_macros.h"

namespace convtune::cli::commands::doctor {
namespace {

// What a secret that is a path becomes first. kWords then redacts the whole word that has it.
constexpr char kPath[] = "/PATH";
constexpr char kDottedQuad[] = R"(\d+(?:\.\d+){3})";

// Words that are redacted whatever the machine, by regular expressions in which ~ is any byte of a
// word; the first that fits counts.
constexpr std::pair<const char*, const char*> kWords[] = {
    {"UUID", "(?:GPU|MIG)-~*?"},
    {"ADDRESS", "unix:~*?|~*?://~*?"},
    {"ADDRESS", kDottedQuad},
    // HOST:PORT, which "gpu:0" is not, nor a time.
    {"ADDRESS", R"((?:~*\.~*|~*\]):\d+|~*[A-Za-z]~*:\d{3,})"},
    // IPv6: with "::" or five colons, which a time has not.
    {"ADDRESS", R"((?:[\da-fA-F:.\[\]]*::|(?:[\da-fA-F.\[]+:){5})[\da-fA-F:.\]]*(?:%~*?)?)"},
    {"PATH", "/~+?|~*?/PATH~*?"},
};

// `text` with `instead` for the words that `pattern` fits, but for their colons and full stops at
// the end.
std::string ReplaceWords(const std::string& text, const std::string& pattern,
                         const std::string& instead) {
  const std::regex words(
      absl::StrCat(R"((^|[ \n\t,;()'"=])(?:)", pattern, R"()(?=[:.]*(?:[ \n\t,;()'"=]|$)))"));
  return std::regex_replace(text, words, "$1" + instead);
}

// "Debian GNU/Linux 12 (bookworm)".
std::string Distribution() {
  std::ifstream file("/etc/os-release");
  std::string line;
  while (std::getline(file, line)) {
    absl::string_view value(line);
    if (absl::ConsumePrefix(&value, "PRETTY_NAME=")) {
      return absl::StrReplaceAll(value, {{"\"", ""}});
    }
  }
  return "unknown distribution";
}

// `secrets` that are not empty, and the hosts among them without port and without domain.
std::vector<std::string> WithHosts(const std::vector<std::string>& secrets) {
  std::vector<std::string> all;
  for (const std::string& secret : secrets) {
    if (secret.empty()) continue;
    all.push_back(secret);
    absl::string_view host = secret;
    if (const size_t scheme = host.find("://"); scheme != absl::string_view::npos) {
      host.remove_prefix(scheme + 3);
    }
    host = host.substr(0, host.find_first_of(":/"));
    if (host.empty() || std::regex_match(std::string(host), std::regex(kDottedQuad))) continue;
    all.emplace_back(host);
    all.emplace_back(host.substr(0, host.find('.')));
  }
  return all;
}

// This machine's system, what the daemon has counted, and the environments.
app::Findings DescribeSystem(const v1::ServerInfo& server,
                             const v1::ListEnvironmentsResponse& environments) {
  utsname kernel{};
  uname(&kernel);
  const std::string release = kernel.release;
  app::Findings facts;
  const auto add = [&facts](const std::string& what) { facts.Fine(what); };
  add(absl::StrCat(Distribution(), ", Linux ",
                   release.substr(0, release.find_first_not_of("0123456789.")), " ", kernel.machine,
                   ", glibc ", gnu_get_libc_version(), ", convtune " CONVTUNE_VERSION));
  if (server.version().empty()) return facts;
  add(absl::StrCat("database schema ", server.schema_version(), ", ", server.tuning_count(),
                   " tunings; ", server.lookups(), " look-ups, ", server.hits(), " hits, ",
                   server.worker_requests(), " requests to workers, ", server.worker_starts(),
                   " worker starts, ", server.queue_depth(), " queued since ",
                   output::FormatTimestamp(server.start_time())));
  for (const v1::Environment& environment : environments.environments()) {
    add(absl::StrCat("environment ", environment.text(), ": ", environment.tuning_count(),
                     " tunings", environment.current() ? ", has a device" : ""));
  }
  return facts;
}

// This machine's host name, and the user's name and home.
std::vector<std::string> NamesOfThisMachine() {
  std::vector<std::string> names;
  utsname kernel{};
  if (uname(&kernel) == 0) {
    names.emplace_back(kernel.nodename);
  }
  if (const passwd* user = getpwuid(getuid()); user != nullptr) {
    names.push_back(user->pw_name);
    names.push_back(user->pw_dir);
  }
  return names;
}

class DoctorCommand final : public app::Command {
 public:
  void Register(CLI::App& root) override {
    CLI::App* app = AddVerb(root, "doctor", "what is wrong, and what to do about it");
    app->add_flag("--report", report_,
                  "print what an issue needs: the system too, without names, paths and addresses");
    app->add_option("--program", program_,
                    "also say which cuDNN this program loads, whether it is whole, and whether the "
                    "daemon has answers for it: a program, a Python, or the folder of a venv "
                    "or of libcudnn.so.9. Of a Python its packages are looked at. The program is "
                    "not run, but a Python is "
                    "asked where its packages are")
        ->type_name("FILE");
  }

  absl::StatusOr<app::ExitCode> Run(app::Context& context) override {
    std::vector<LoadedCudnn> programs_cudnn;
    if (!program_.empty()) {
      ASSIGN_OR_RETURN(programs_cudnn, FindCudnn("--program", program_));
    }
    findings_ =
        app::ExamineAddress(context.settings().client.address, context.settings().client.tls);
    ASSIGN_OR_RETURN(client_, context.Connect());
    const bool reached = ExamineDaemon();
    if (reached) {
      ExaminePublished();
      const MachineFacts facts =
          LookAtMachine(server_, published_, context.settings().client.address.unix_socket);
      findings_.Add(ExamineDisk(server_, facts));
      findings_.Add(ExamineClock(server_, facts));
      findings_.Add(ExamineInterposer(facts));
      ExamineFleetState();
    }
    if (!program_.empty()) {
      findings_.Add(ExamineProgram(program_, programs_cudnn, reached ? &environments_ : nullptr));
    }
    if (report_) {
      const app::Findings facts = DescribeSystem(server_, environments_);
      findings_.insert(findings_.begin(), facts.begin(), facts.end());
      std::vector<std::string> secrets = NamesOfThisMachine();
      secrets.insert(secrets.end(), {context.settings().client.address.target, server_.state_dir(),
                                     published_.folder(), server_.metrics_url(), agent_trouble_});
      for (app::Finding& finding : findings_) {
        finding.what = Redact(finding.what, secrets);
        finding.advice = Redact(finding.advice, secrets);
      }
    }
    Print(context, findings_);
    if (!reached) return app::ExitCode::kUnreachable;
    return HasProblem() ? app::ExitCode::kFailed : app::ExitCode::kDone;
  }

 private:
  bool HasProblem() const {
    return std::ranges::count(findings_, app::Severity::kProblem, &app::Finding::severity) > 0;
  }

  void AddFailure(const std::string& what, const absl::Status& status) {
    findings_.Problem(absl::StrCat(what, ": ", status.message()), "see the daemon's log");
  }

  // Adds the findings that `examine` makes of the daemon's answer. Where the call failed,
  // adds one finding that says so, unless the daemon is older than the call.
  template <typename Response, typename Examine>
  void AddAnswer(const absl::StatusOr<Response>& answer, const char* failure,
                 const Examine& examine) {
    if (absl::IsUnimplemented(answer.status())) return;
    if (!answer.ok()) return AddFailure(failure, answer.status());
    findings_.Add(examine(*answer));
  }

  // False if the daemon is out of reach.
  bool ExamineDaemon() {
    const auto server = client_->Call<v1::ServerInfo>(v1::GetServerInfoRequest());
    if (server.ok()) server_ = *server;
    if (absl::IsUnavailable(server.status())) {
      findings_.Problem(absl::StrCat("no answer from the daemon at ", client_->address().ToText(),
                                     ": ", server.status().message()),
                        HasProblem() ? "" : app::HowToStart());
      return false;
    }
    ExamineHealth("liveness", "is not alive");
    ExamineHealth("readiness", "is not ready to answer");
    const auto examine_server = [](const v1::ServerInfo& said) {
      return ExamineServer(said, CONVTUNE_VERSION);
    };
    AddAnswer(server, "the daemon does not say what it is", examine_server);
    AddAnswer(client_->Call<v1::ListDevicesResponse>(v1::ListDevicesRequest()),
              "the devices cannot be listed", ExamineDevices);
    const auto environments =
        client_->CallPages<v1::ListEnvironmentsResponse>(v1::ListEnvironmentsRequest());
    if (environments.ok()) environments_ = *environments;
    findings_.Add(ExamineLibraries(environments_));
    AddAnswer(environments, "the environments cannot be listed", ExamineEnvironments);
    AddAnswer(client_->Call<v1::ListBansResponse>(v1::ListBansRequest()),
              "the bans cannot be listed", ExamineBans);
    return true;
  }

  void ExamineFleetState() {
    v1::GetFleetStateRequest request;
    request.set_observer(true);  // the daemon measures the silence of agents
    const auto state = client_->Call<v1::FleetState>(request);
    if (absl::IsPermissionDenied(state.status())) return;
    if (state.ok()) agent_trouble_ = state->agent_trouble();
    AddAnswer(state, "the daemon does not say what waits for the fleet", ExamineFleet);
  }

  void ExaminePublished() {
    const auto publication = client_->Call<v1::Publication>(v1::GetPublicationRequest());
    if (publication.ok()) published_ = *publication;
    AddAnswer(publication, "the daemon does not say how the snapshot is", ExaminePublication);
  }

  void ExamineHealth(const std::string& service, const std::string& words) {
    const auto serving = client_->IsServing(service);
    if (!serving.ok()) {
      AddFailure(absl::StrCat("health ", service), serving.status());
    } else if (!*serving) {
      findings_.Problem(absl::StrCat("the daemon ", words),
                        "wait a little if it has just been started; else see its log");
    } else {
      findings_.Fine(absl::StrCat("health ", service, ": serving"));
    }
  }

  static void Print(app::Context& context, const app::Findings& findings) {
    using Word = std::pair<std::string, output::Color>;
    const Word words[] = {{"ok", output::Color::kGreen},
                          {"notice", output::Color::kYellow},
                          {"problem", output::Color::kRed}};
    const auto word_of = [&](const app::Finding& finding) {
      return words[static_cast<size_t>(finding.severity)];
    };
    const auto fields_of = [&](const app::Finding& finding) -> output::Fields {
      return {{"severity", "", word_of(finding).first},
              {"what", "", finding.what},
              {"advice", "", finding.advice}};
    };
    context.PrintJson({{"findings", output::JsonRows(findings, fields_of)}});
    if (context.format() == app::Format::kJson) return;
    std::ostream& out = context.io().out;
    for (const app::Finding& finding : findings) {
      const auto [word, color] = word_of(finding);
      out << output::Paint(word, color, context.out_color()) << std::string(9 - word.size(), ' ')
          << finding.what << "\n";
      if (!finding.advice.empty()) out << std::string(9, ' ') << "-> " << finding.advice << "\n";
    }
  }

  bool report_ = false;
  std::string program_;

  // As far as the daemon said them.
  client::Client* client_ = nullptr;
  v1::ServerInfo server_;
  v1::ListEnvironmentsResponse environments_;
  v1::Publication published_;
  std::string agent_trouble_;  // of PostgreSQL, perhaps with hosts and logins
  app::Findings findings_;
};

}  // namespace

std::string Redact(std::string text, std::vector<std::string> secrets) {
  secrets = WithHosts(secrets);
  // The longest first: a folder's name may begin with another folder's.
  std::sort(secrets.begin(), secrets.end(),
            [](const std::string& a, const std::string& b) { return a.size() > b.size(); });
  // Paths as wholes: they may have spaces.
  for (const std::string& secret : secrets) {
    if (secret.size() > 1 && absl::StrContains(secret, '/')) {
      text = absl::StrReplaceAll(text, {{secret, kPath}});
    }
  }
  std::vector<std::string> names;
  for (const std::string& secret : secrets) {
    names.push_back(std::regex_replace(secret, std::regex(R"([^\w])"), R"(\$&)"));
  }
  if (!names.empty()) text = ReplaceWords(text, absl::StrJoin(names, "|"), "NAME");
  for (const auto& [instead, pattern] : kWords) {
    const std::string in_word = absl::StrReplaceAll(pattern, {{"~", R"([^ \n\t,;()'"=])"}});
    text = ReplaceWords(text, in_word, instead);
  }
  return text;
}

std::unique_ptr<app::Command> NewDoctorCommand() { return std::make_unique<DoctorCommand>(); }

}  // namespace convtune::cli::commands::doctor
