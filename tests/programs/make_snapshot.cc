// Writes a snapshot from lines of tab-separated fields on standard input:
//   release N [canary N permille N]
//   environment TEXT
//   choice ENVIRONMENT stable|canary PROBLEM FIELD...
// where a field is "candidate=ID;notes=N;workspace=N;time=US",
// "stock=;notes=N;workspace=N" or "evidence=NAME;pinned=yes|no"; without the last one the
// evidence is measured.
//
// usage: convtune-make-snapshot FILE
#include <cstdlib>
#include <iostream>
#include <map>
#include <string>
#include <vector>

#include "db/snapshot/snapshot_writer.h"
#include "proto/base/strings.h"

namespace convtune {
namespace {

using Values = std::map<std::string, std::string>;

Values ReadField(std::string_view field) {
  Values values;
  for (const std::string_view part : Split(field, ';')) {
    const size_t equals = part.find('=');
    values[std::string(part.substr(0, equals))] = std::string(part.substr(equals + 1));
  }
  return values;
}

[[noreturn]] void Fail(std::string_view line, std::string_view why) {
  std::cerr << line << ": " << why << "\n";
  std::exit(2);
}

template <typename T>
T Must(std::string_view line, absl::StatusOr<T> value) {
  if (!value.ok()) {
    Fail(line, std::string(value.status().message()));
  }
  return *std::move(value);
}

snapshot::SnapshotChoice ReadChoice(std::string_view line,
                                    const std::vector<std::string_view>& fields) {
  snapshot::SnapshotChoice choice(Must(line, ConvProblem::Parse(fields[3])));
  choice.evidence = Evidence::kMeasured;
  for (size_t i = 4; i < fields.size(); ++i) {
    Values values = ReadField(fields[i]);
    if (values.count("evidence") > 0) {
      choice.evidence = ParseEvidence(values["evidence"]).value();
      choice.pinned = values["pinned"] == "yes";
      continue;
    }
    const auto notes = static_cast<uint32_t>(std::stoul(values["notes"]));
    const int64_t workspace = std::stoll(values["workspace"]);
    if (values.count("stock") > 0) {
      choice.stock = snapshot::StockChoice{1, notes, 0, 0, workspace};
      continue;
    }
    Candidate candidate;
    candidate.id = Must(line, ParseCandidateId(values["candidate"]));
    candidate.numerical_notes = notes;
    candidate.workspace_bytes = workspace;
    candidate.median_us = values.count("time") > 0 ? std::stod(values["time"]) : 0;
    choice.candidates.push_back(candidate);
  }
  return choice;
}

int Main(const std::string& path) {
  snapshot::SnapshotWriter::Options options;
  std::vector<std::string> lines;
  for (std::string line; std::getline(std::cin, line);) {
    const std::vector<std::string_view> words = Split(line, '\t');
    if (words[0] == "release") {
      options.release = std::stoul(std::string(words[1]));
      if (words.size() > 5) {
        options.canary_release = std::stoul(std::string(words[3]));
        options.canary_permille = static_cast<uint32_t>(std::stoul(std::string(words[5])));
      }
    } else {
      lines.push_back(line);
    }
  }
  snapshot::SnapshotWriter writer(options);
  for (const std::string& line : lines) {
    const std::vector<std::string_view> fields = Split(line, '\t');
    const Environment environment = Must(line, Environment::Parse(fields.at(1)));
    const absl::Status status =
        fields[0] == "environment"
            ? writer.AddEnvironment(environment)
            : writer.Add(environment,
                         fields.at(2) == "canary" ? snapshot::Channel::kCanary
                                                  : snapshot::Channel::kStable,
                         ReadChoice(line, fields));
    if (!status.ok()) {
      Fail(line, std::string(status.message()));
    }
  }
  const absl::Status status = writer.Write(path);
  if (!status.ok()) {
    Fail(path, std::string(status.message()));
  }
  return 0;
}

}  // namespace
}  // namespace convtune

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: convtune-make-snapshot FILE\n";
    return 2;
  }
  return convtune::Main(argv[1]);
}
