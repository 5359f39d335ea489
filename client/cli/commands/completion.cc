#include <CLI/CLI.hpp>
#include <algorithm>
#include <functional>
#include <ostream>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "client/cli/app/settings.h"
#include "client/cli/commands/commands.h"

namespace convtune::cli::commands {
namespace {

using Apps = std::vector<const CLI::App*>;

Apps VerbsOf(const CLI::App& app) {
  return app.get_subcommands([](const CLI::App*) { return true; });
}

// "--long" names, and "-x" for options without one.
std::vector<std::string> NamesOf(const CLI::Option& option) {
  std::vector<std::string> names;
  for (const std::string& name : option.get_lnames()) names.push_back("--" + name);
  if (names.empty()) {
    for (const std::string& name : option.get_snames()) names.push_back("-" + name);
  }
  return names;
}

bool TakesValue(const CLI::Option& option) { return option.get_expected_max() > 0; }

// True of an option's value or a positional argument that is a path of this machine.
bool TakesFile(const CLI::Option& option) {
  for (const char* name : {"FILE", "DIR", "IN", "OUT", "PROGRAM..."}) {
    if (option.get_type_name() == name || option.get_single_name() == name) return true;
  }
  return false;
}

// "a b c" from a type name such as "TEXT:{a,b,c}".
std::string ValuesOf(const CLI::Option& option) {
  const std::string type = option.get_type_name();
  const size_t open = type.find('{');
  const size_t close = type.find('}');
  if (open == std::string::npos || close == std::string::npos || close < open) return "";
  return absl::StrReplaceAll(type.substr(open + 1, close - open - 1), {{",", " "}});
}

// Its own, and those that all commands have.
std::vector<const CLI::Option*> OptionsOf(const CLI::App& app) {
  auto options =
      app.get_options([](const CLI::Option* option) { return !NamesOf(*option).empty(); });
  if (app.get_parent() != nullptr) {
    for (const CLI::Option* option : app::CommonOptionsOf(app)) options.push_back(option);
  }
  return options;
}

// Its arguments without a name.
std::vector<const CLI::Option*> PositionalsOf(const CLI::App& app) {
  return app.get_options([](const CLI::Option* option) {
    return option->get_positional() && NamesOf(*option).empty();
  });
}

bool TakesFiles(const CLI::App& app) {
  const std::vector<const CLI::Option*> positionals = PositionalsOf(app);
  return std::any_of(positionals.begin(), positionals.end(),
                     [](const CLI::Option* option) { return TakesFile(*option); });
}

// Calls `visit` for every app of the tree, with the verbs that lead to it.
void Walk(const CLI::App& app, const std::string& path,
          const std::function<void(const CLI::App&, const std::string&)>& visit) {
  visit(app, path);
  for (const CLI::App* verb : VerbsOf(app)) {
    Walk(*verb, absl::StrCat(path, path.empty() ? "" : " ", verb->get_name()), visit);
  }
}

std::string Words(const CLI::App& app) {
  std::vector<std::string> words;
  for (const CLI::App* verb : VerbsOf(app)) words.push_back(verb->get_name());
  for (const CLI::Option* option : PositionalsOf(app)) {
    if (const std::string values = ValuesOf(*option); !values.empty()) words.push_back(values);
  }
  for (const CLI::Option* option : OptionsOf(app)) {
    for (const std::string& name : NamesOf(*option)) words.push_back(name);
  }
  return absl::StrJoin(words, " ");
}

// Text within single quotes, of every shell.
std::string Quoted(const std::string& text) {
  return absl::StrCat("'", absl::StrReplaceAll(text, {{"'", "'\\''"}}), "'");
}

// The shell function that bash and zsh share: sets `reply_words` to what can
// stand next, and `reply_files` to 1 where it can be a file, from the words
// typed so far.
std::string CandidatesFunction(const CLI::App& root) {
  std::string paths;
  std::string words;
  std::string values;
  Walk(root, "", [&](const CLI::App& app, const std::string& path) {
    if (!path.empty()) absl::StrAppend(&paths, paths.empty() ? "" : "|", Quoted(path));
    absl::StrAppend(&words, "    ", Quoted(path), ") reply_words=", Quoted(Words(app)),
                    TakesFiles(app) ? " reply_files=1" : "", " ;;\n");
    for (const CLI::Option* option : OptionsOf(app)) {
      if (!TakesValue(*option)) continue;
      for (const std::string& name : NamesOf(*option)) {
        absl::StrAppend(&values, "    ", Quoted(absl::StrCat(path, " ", name)),
                        ") reply_words=", Quoted(ValuesOf(*option)),
                        "; reply_files=", TakesFile(*option) ? 1 : 0, "; return ;;\n");
      }
    }
  });
  return absl::StrCat(
      "# $1: the word before the one to complete; the others: all words before it.\n"
      "_convtune_candidates() {\n"
      "  local previous=$1 path='' word\n"
      "  shift\n"
      "  reply_words='' reply_files=0\n"
      "  for word in \"$@\"; do\n"
      "    case \"${path:+$path }$word\" in\n"
      "      ",
      paths,
      ") path=\"${path:+$path }$word\" ;;\n"
      "    esac\n"
      "  done\n"
      "  case \"$path $previous\" in\n",
      values, "  esac\n  case \"$path\" in\n", words, "  esac\n}\n");
}

std::string BashCompletion(const CLI::App& root) {
  return absl::StrCat("# convtune completion for bash: source <(convtune completion bash)\n",
                      CandidatesFunction(root),
                      "_convtune() {\n"
                      "  local reply_words reply_files current=${COMP_WORDS[COMP_CWORD]}\n"
                      "  _convtune_candidates \"${COMP_WORDS[COMP_CWORD-1]}\" "
                      "\"${COMP_WORDS[@]:1:COMP_CWORD-1}\"\n"
                      "  if [ \"$reply_files\" = 1 ] && [ \"${current#-}\" = \"$current\" ]; then\n"
                      "    compopt -o filenames 2>/dev/null\n"
                      "    mapfile -t COMPREPLY < <(compgen -f -- \"$current\")\n"
                      "  else\n"
                      "    COMPREPLY=($(compgen -W \"$reply_words\" -- \"$current\"))\n"
                      "  fi\n"
                      "}\n"
                      "complete -F _convtune convtune\n");
}

std::string ZshCompletion(const CLI::App& root) {
  return absl::StrCat(
      "#compdef convtune\n"
      "# convtune completion for zsh: source <(convtune completion zsh)\n",
      CandidatesFunction(root),
      "_convtune() {\n"
      "  local reply_words reply_files\n"
      "  _convtune_candidates \"${words[CURRENT-1]}\" \"${(@)words[2,CURRENT-1]}\"\n"
      "  if [ \"$reply_files\" = 1 ] && [ \"${PREFIX#-}\" = \"$PREFIX\" ]; then\n"
      "    _files\n"
      "  else\n"
      "    compadd -- ${=reply_words}\n"
      "  fi\n"
      "}\n"
      "# A file that zsh loads for the first completion is to complete, too.\n"
      "if [ \"${funcstack[1]}\" = _convtune ]; then _convtune \"$@\"; "
      "else compdef _convtune convtune; fi\n");
}

std::string FishCompletion(const CLI::App& root) {
  std::string out =
      "# convtune completion for fish: convtune completion fish | source\n"
      "complete -c convtune -f\n";
  Walk(root, "", [&](const CLI::App& app, const std::string& path) {
    std::string condition = "__fish_use_subcommand";
    if (!path.empty()) {
      condition = "__fish_seen_subcommand_from " +
                  absl::StrReplaceAll(path, {{" ", "; and __fish_seen_subcommand_from "}});
    }
    for (const CLI::App* verb : VerbsOf(app)) {
      absl::StrAppend(&out, "complete -c convtune -n ", Quoted(condition), " -a ", verb->get_name(),
                      " -d ", Quoted(verb->get_description()), "\n");
    }
    if (TakesFiles(app)) {
      absl::StrAppend(&out, "complete -c convtune -n ", Quoted(condition), " -F\n");
    }
    for (const CLI::Option* option : PositionalsOf(app)) {
      const std::string values = ValuesOf(*option);
      if (values.empty()) continue;
      absl::StrAppend(&out, "complete -c convtune -n ", Quoted(condition), " -a ", Quoted(values),
                      " -d ", Quoted(option->get_description()), "\n");
    }
    for (const CLI::Option* option : OptionsOf(app)) {
      for (const std::string& name : NamesOf(*option)) {
        const bool is_long = name[1] == '-';
        absl::StrAppend(&out, "complete -c convtune -n ", Quoted(condition),
                        is_long ? " -l " : " -s ", name.substr(is_long ? 2 : 1),
                        TakesValue(*option) ? " -r" : "", TakesFile(*option) ? " -F" : "");
        const std::string values = ValuesOf(*option);
        if (!values.empty()) absl::StrAppend(&out, " -a ", Quoted(values));
        absl::StrAppend(&out, " -d ", Quoted(option->get_description()), "\n");
      }
    }
  });
  return out;
}

class CompletionCommand final : public app::Command {
 public:
  void Register(CLI::App& root) override {
    CLI::App* app =
        AddVerb(root, "completion", "script that completes this program's words", app::Rows::kNo);
    app->add_option("shell", shell_, "which shell")
        ->required()
        ->check(CLI::IsMember({"bash", "zsh", "fish"}));
  }

  absl::StatusOr<app::ExitCode> Run(app::Context& context) override {
    std::string script = FishCompletion(context.root());
    if (shell_ == "bash") script = BashCompletion(context.root());
    if (shell_ == "zsh") script = ZshCompletion(context.root());
    context.io().out << script;
    return app::ExitCode::kDone;
  }

 private:
  std::string shell_;
};

}  // namespace

std::unique_ptr<app::Command> NewCompletionCommand() {
  return std::make_unique<CompletionCommand>();
}

}  // namespace convtune::cli::commands
