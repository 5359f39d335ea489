#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <set>
#include <system_error>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "client/cli/output/atomic_file.h"
#include "client/fleet/commands.h"
#include "db/bundle/bundle_writer.h"
#include "db/fleet/reports.h"
#include "proto/base/status_macros.h"

namespace convtune::fleet {
namespace {

using NumberedNode = db::fleet::Numbered<std::string>;  // its name

// The node's name where it can be one; else what is left of it, with its number.
std::string BundleName(const NumberedNode& node) {
  std::string plain = node.value;
  for (char& c : plain) {
    if (!absl::ascii_isalnum(c) && c != '.' && c != '-' && c != '_') c = '_';
  }
  const bool kept = plain == node.value && plain.front() != '.';
  return absl::StrCat(kept ? plain : absl::StrCat("node-", node.id, "-", plain), ".bundle");
}

class ExportNodesCommand final : public FleetCommand {
 public:
  using FleetCommand::FleetCommand;
  void Register(CLI::App& root) override {
    CLI::App* const app =
        AddVerb(root, "export", "write what each node measured itself to a bundle of its own");
    app->add_option("folder", folder_, "made if need be; gets NODE.bundle")
        ->type_name("FOLDER")
        ->required();
    app->add_option("--node", nodes_, "of this node alone; repeatable")->type_name("NAME");
  }

  absl::StatusOr<cli::app::ExitCode> Run(cli::app::Context& context) override {
    ASSIGN_OR_RETURN(const std::unique_ptr<db::postgres::Connection> postgres, Connect());
    // All bundles are of one moment.
    ASSIGN_OR_RETURN(db::postgres::Transaction transaction,
                     db::postgres::Transaction::BeginRead(*postgres));
    ASSIGN_OR_RETURN(const std::vector<NumberedNode> all, db::fleet::ListMeasuringNodes(*postgres));
    for (const std::string& name : nodes_) {
      if (std::none_of(all.begin(), all.end(),
                       [&](const NumberedNode& node) { return node.value == name; })) {
        return absl::NotFoundError(absl::StrCat("--node: ", name, " has delivered nothing"));
      }
    }
    std::error_code made;
    std::filesystem::create_directories(folder_, made);
    const std::set<std::string> chosen(nodes_.begin(), nodes_.end());
    int64_t bundles = 0, tunings = 0;
    for (const NumberedNode& node : all) {
      if (!chosen.empty() && !chosen.contains(node.value)) continue;
      ASSIGN_OR_RETURN(const int64_t written, Write(*postgres, node));
      ++bundles;
      tunings += written;
    }
    return PrintOutcome(
        context, {{"bundles", bundles}, {"tunings", tunings}},
        absl::StrCat("wrote ", tunings, " tunings of ", bundles, " nodes to ", folder_));
  }

 private:
  absl::StatusOr<int64_t> Write(db::postgres::Connection& postgres,
                                const NumberedNode& node) const {
    ASSIGN_OR_RETURN(
        const std::unique_ptr<cli::output::AtomicFile> file,
        cli::output::AtomicFile::Create(absl::StrCat(folder_, "/", BundleName(node)), "FOLDER"));
    db::bundle::BundleWriter writer([&](std::string_view bytes) { return file->Write(bytes); },
                                    /*with_samples=*/false);
    RETURN_IF_ERROR(db::fleet::ReadNodeTunings(
        postgres, node.value, [&](const Tuning& tuning, const Environment& environment) {
          return writer.Add(tuning, environment);
        }));
    RETURN_IF_ERROR(writer.Finish());
    RETURN_IF_ERROR(file->Commit());
    return writer.tunings();
  }

  std::string folder_;
  std::vector<std::string> nodes_;
};

}  // namespace

std::unique_ptr<cli::app::Command> NewExportNodesCommand(const PostgresFlags& flags) {
  return std::make_unique<ExportNodesCommand>(flags);
}

}  // namespace convtune::fleet
