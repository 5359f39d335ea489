#include "client/cli/app/command.h"

#include <CLI/CLI.hpp>
#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace convtune::cli::app {

bool Command::chosen() const { return verb_ != nullptr && verb_->parsed(); }

bool Command::prints_rows() const {
  return std::any_of(with_rows_.begin(), with_rows_.end(),
                     [](const CLI::App* app) { return app->parsed(); });
}

CLI::App* Command::AddVerb(CLI::App& root, const std::string& name, const std::string& description,
                           Rows rows) {
  verb_ = AddVerbBelow(&root, name, description, rows);
  return verb_;
}

CLI::App* Command::AddVerbGroup(CLI::App& root, const std::string& name,
                                const std::string& description) {
  verb_ = root.add_subcommand(name, description);
  verb_->require_subcommand(1);
  return verb_;
}

CLI::App* Command::AddVerbBelow(CLI::App* verb, const std::string& name,
                                const std::string& description, Rows rows) {
  CLI::App* app = verb->add_subcommand(name, description);
  if (rows == Rows::kYes) with_rows_.push_back(app);
  return app;
}

void SayColumns(CLI::App* verb, const output::Fields& row, const std::string& when) {
  constexpr size_t kWidth = 78;
  const std::string names(absl::StripAsciiWhitespace(output::CsvHeading(row)));
  std::string text = absl::StrCat(verb->get_footer(), verb->get_footer().empty() ? "" : "\n",
                                  "CSV columns", when, ":");
  size_t used = text.size() - (text.rfind('\n') + 1);
  std::string comma;
  for (const absl::string_view name : absl::StrSplit(names, ',')) {
    const bool fits = used + name.size() + 2 <= kWidth;
    absl::StrAppend(&text, comma, fits ? " " : "\n  ", name);
    used = (fits ? used : 0) + name.size() + 2;
    comma = ",";
  }
  verb->footer(text);
}

}  // namespace convtune::cli::app
