#include "client/cli/commands/commands.h"

#include <unistd.h>
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ostream>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "client/cli/app/settings.h"
#include "client/cli/commands/advise/advise.h"
#include "client/cli/commands/ban/bans.h"
#include "client/cli/commands/doctor/findings.h"
#include "client/cli/commands/explain/explain.h"
#include "client/cli/commands/lint/lint.h"
#include "client/cli/commands/run/run.h"
#include "client/cli/commands/upgrade/upgrade_changes.h"
#include "client/cli/commands/warm/warm.h"
#include "convtune/v1/release_service.pb.h"
#include "proto/base/child_program.h"
#include "proto/base/clock.h"
#include "proto/base/default_paths.h"

namespace convtune::cli::commands {
namespace {

// The longest wait for a publication: where the daemon says that it failed, and where it is under
// way. The daemon begins one half a second after a change.
constexpr absl::Duration kMostFailing = absl::Seconds(2);
constexpr absl::Duration kMostPublishing = absl::Seconds(30);
constexpr absl::Duration kPublicationLook = absl::Milliseconds(50);

// "--long" names, of which an argument without a name has none.
std::vector<std::string> NamesOf(const CLI::Option& option) {
  std::vector<std::string> names;
  for (const std::string& name : option.get_lnames()) names.push_back("--" + name);
  return names;
}

// True of an option's value or a positional argument that is a path of this machine.
bool TakesFile(const CLI::Option& option) {
  for (const char* name : {"FILE", "FOLDER", "DIR", "IN", "OUT", "PROGRAM..."}) {
    if (option.get_type_name() == name || option.get_single_name() == name) return true;
  }
  return false;
}

// "a", "b" and "c" of a type name such as "TEXT:{a,b,c}".
std::vector<std::string> ValuesOf(const CLI::Option& option) {
  const std::string type = option.get_type_name();
  const size_t open = type.find('{');
  const size_t close = type.find('}');
  if (open == std::string::npos || close == std::string::npos || close < open) return {};
  return absl::StrSplit(type.substr(open + 1, close - open - 1), ',');
}

// The options of the command, and those that all commands have.
std::vector<const CLI::Option*> OptionsOf(const CLI::App& app) {
  auto options =
      app.get_options([](const CLI::Option* option) { return !NamesOf(*option).empty(); });
  if (app.get_parent() != nullptr) {
    for (const CLI::Option* option : app::CommonOptionsOf(app)) options.push_back(option);
  }
  return options;
}

// The arguments of the command that have no name.
std::vector<const CLI::Option*> PositionalsOf(const CLI::App& app) {
  return app.get_options([](const CLI::Option* option) {
    return option->get_positional() && NamesOf(*option).empty();
  });
}

// The shells ask `convtune completion SHELL -- WORD...` what can stand in the place of the last
// word.
constexpr char kBash[] = R"(# convtune completion for bash: source <(convtune completion bash)
_convtune() {
  local IFS=$'\n' current=${COMP_WORDS[COMP_CWORD]} found program=${COMP_WORDS[0]/#\~/$HOME}
  type -P "$program" >/dev/null || program=convtune  # an alias
  found=$("$program" completion bash -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
  if [ "$found" = FILES ]; then
    compopt -o filenames 2>/dev/null
    mapfile -t COMPREPLY < <(compgen -f -- "$current")
  else
    COMPREPLY=($(compgen -W "$found" -- "$current"))
  fi
}
complete -F _convtune convtune
)";

constexpr char kZsh[] = R"(#compdef convtune
# convtune completion for zsh: source <(convtune completion zsh)
_convtune() {
  local -a found
  local program=${words[1]/#\~/$HOME}
  whence -p "$program" >/dev/null || program=convtune  # an alias
  found=("${(@f)$("$program" completion zsh -- "${(@)words[2,CURRENT]}" 2>/dev/null)}")
  if [ "${found[1]}" = FILES ]; then _files; else compadd -- "${found[@]}"; fi
}
# A file that zsh loads for the first completion is to complete, too.
if [ "${funcstack[1]}" = _convtune ]; then _convtune "$@"; else compdef _convtune convtune; fi
)";

constexpr char kFish[] = R"(# convtune completion for fish: convtune completion fish | source
function __convtune_candidates
  set -l found (convtune completion fish -- (commandline -opc)[2..-1] (commandline -ct))
  if test "$found" = FILES
    __fish_complete_path (commandline -ct)
  else
    printf '%s\n' $found
  end
end
complete -c convtune -f -a '(__convtune_candidates)'
)";

// What can stand in the place of the last of `words`: a word a line, with what it is if
// `described`. "FILES": a path.
std::string Candidates(const CLI::App& root, const std::vector<std::string>& words,
                       bool described) {
  const CLI::App* app = &root;
  std::string previous;
  for (size_t i = 0; i + 1 < words.size(); ++i) {
    previous = words[i];
    for (const CLI::App* verb : app->get_subcommands(nullptr)) {
      if (verb->get_name() != previous) continue;
      app = verb;
      break;
    }
  }
  std::string lines;
  const auto add = [&](const std::string& word, const std::string& description) {
    absl::StrAppend(&lines, word, described ? "\t" + description : "", "\n");
  };
  const auto add_values = [&](const CLI::Option& option) {
    for (const std::string& value : ValuesOf(option)) add(value, option.get_description());
  };
  const std::vector<const CLI::Option*> options = OptionsOf(*app);
  for (const CLI::Option* option : options) {
    const std::vector<std::string> names = NamesOf(*option);
    const bool is_previous = std::find(names.begin(), names.end(), previous) != names.end();
    if (!is_previous || option->get_expected_max() == 0) continue;
    if (TakesFile(*option)) return "FILES\n";
    add_values(*option);
    return lines;
  }
  const bool wants_option = !words.empty() && absl::StartsWith(words.back(), "-");
  for (const CLI::App* verb : app->get_subcommands(nullptr)) {
    add(verb->get_name(), verb->get_description());
  }
  for (const CLI::Option* option : PositionalsOf(*app)) {
    if (TakesFile(*option) && !wants_option) return "FILES\n";
    add_values(*option);
  }
  for (const CLI::Option* option : options) {
    for (const std::string& name : NamesOf(*option)) add(name, option->get_description());
  }
  return lines;
}

class CompletionCommand final : public app::Command {
 public:
  void Register(CLI::App& root) override {
    root_ = &root;
    CLI::App* app = AddVerb(root, "completion", "script that completes this program's words");
    app->add_option("shell", shell_, "which shell")
        ->required()
        ->check(CLI::IsMember({"bash", "zsh", "fish"}));
    app->add_option("words", words_, "what is typed so far: prints what can be the last word")
        ->type_name("WORD");
  }

  absl::StatusOr<app::ExitCode> Run(app::Context& context) override {
    std::ostream& out = context.io().out;
    if (!words_.empty()) {
      out << Candidates(*root_, words_, shell_ == "fish");
    } else {
      out << (shell_ == "bash" ? kBash : shell_ == "zsh" ? kZsh : kFish);
    }
    return app::ExitCode::kDone;
  }
  bool needs_settings() const override { return false; }

 private:
  const CLI::App* root_ = nullptr;
  std::string shell_;
  std::vector<std::string> words_;
};

constexpr char kProgram[] = "convtune-fleet";

// Becomes the program that has the fleet's commands: it alone knows PostgreSQL.
class FleetCommand final : public app::Command {
 public:
  void Register(CLI::App& root) override {
    CLI::App* const app = AddVerbGroup(
        root, "fleet", "the fleet's commands: everything behind it is convtune-fleet's");
    app->prefix_command();
    app->fallthrough(false);
    app->require_subcommand(0);
    app->set_help_flag();
    app_ = app;
  }

  bool warns_itself() const override { return true; }

  absl::StatusOr<app::ExitCode> Run(app::Context& context) override {
    const std::string beside = absl::StrCat(ProgramFolder(), "/", kProgram);
    std::vector<std::string> words = app_->remaining();
    if (words.empty()) words.emplace_back("--help");
    words.insert(words.begin(), kProgram);
    for (const CLI::Option* option : app::CommonOptionsOf(*app_)) {  // in front of the command
      if (option->count() == 0) continue;
      words.push_back(option->get_name());
      if (option->get_expected_max() > 0) words.push_back(option->results().front());
    }
    const std::vector<char*> argv = PointersTo(&words);
    if (access(beside.c_str(), X_OK) == 0) {
      execv(beside.c_str(), argv.data());
    } else {
      execvp(kProgram, argv.data());
    }
    context.SayError(kProgram, ": ", std::strerror(errno),
                     ": it is neither beside convtune nor in PATH (the package "
                     "convtune-fleet has it; in a checkout with libpq: cmake --build "
                     "build --target convtune-fleet)");
    return app::ExitCode::kFailed;
  }

 private:
  CLI::App* app_ = nullptr;
};

template <typename Verb>
std::unique_ptr<app::Command> New() {
  return std::make_unique<Verb>();
}

// One of each verb, registered with `root`, which must not outlive them.
std::vector<std::unique_ptr<app::Command>> RegisterCommands(CLI::App& root) {
  const std::pair<const char*, std::vector<app::NewVerb*>> groups[] = {
      {"Ask",
       {NewGetCommand, explain::NewExplainCommand, upgrade::NewWhyCommand, advise::NewAdviseCommand,
        lint::NewLintCommand, upgrade::NewUpgradeCheckCommand, NewListCommand, NewReportCommand,
        NewEnvironmentsCommand}},
      {"Tune",
       {NewTuneCommand, warm::NewWarmCommand, NewJobsCommand, NewPinCommand, NewUnpinCommand,
        ban::NewBanCommand, NewDeleteCommand}},
      {"Serve programs", {run::NewRunCommand, NewReleaseCommand, NewWantedCommand}},
      {"Move",
       {NewExportCommand, NewImportCommand, NewVerifyCommand, NewMergeCommand, New<FleetCommand>}},
      {"Look after",
       {NewStatsCommand, doctor::NewDoctorCommand, NewDbCommand, NewVersionCommand,
        New<CompletionCommand>}},
  };
  std::vector<std::unique_ptr<app::Command>> commands;
  for (const auto& [title, makers] : groups) {
    for (app::NewVerb* const make : makers) {
      commands.push_back(make());
      commands.back()->Register(root);
      commands.back()->verb().group(title);
    }
  }
  return commands;
}

}  // namespace

app::ExitCode AwaitPublished(app::Context& context) {
  const SteadyTime start = SteadyTime::Now();
  while (true) {
    const auto published = context.Call<v1::Publication>(v1::GetPublicationRequest());
    // A daemon without releases serves programs nothing.
    if (absl::IsUnimplemented(published.status())) return app::ExitCode::kDone;
    if (!published.ok()) return context.Fail(published.status());
    const std::string& error = published->error();
    if (error.empty() && !published->pending()) return app::ExitCode::kDone;
    // The error may be that of an earlier publication; a publication that succeeds clears it.
    if (SteadyTime::Now() - start >= (error.empty() ? kMostPublishing : kMostFailing)) {
      context.SayError("it is kept, but what programs are served lacks it: ",
                       error.empty() ? "the daemon is still publishing" : error);
      return app::ExitCode::kUnheeded;
    }
    absl::SleepFor(kPublicationLook);
  }
}

int RunCli(const std::vector<std::string>& arguments, output::Io& io) {
  app::SettingFlags flags;
  app::Program program;
  program.name = "convtune";
  program.description =
      "convtune: finds the fastest cuDNN algorithm of a convolution once and keeps it";
  program.footer =
      "Exit codes: 0 done, 1 failed, 2 usage or an invalid problem, 3 a miss or not found,\n"
      "4 daemon out of reach, 5 done, but not everywhere yet.\n"
      "`convtune COMMAND --help` says more.";
  program.register_options = [&](CLI::App& root) { app::RegisterSettings(root, &flags); };
  program.register_commands = RegisterCommands;
  program.settings = [&] { return app::Settings::Resolve(flags, io); };
  program.fail = [](app::Context& context, const absl::Status& status) {
    return context.Fail(status);
  };
  return static_cast<int>(app::RunProgram(program, arguments, io));
}

}  // namespace convtune::cli::commands
