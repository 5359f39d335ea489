// Functions of `doctor --report`: they describe the system and take out names, so that the
// findings can stand in a public issue.
#pragma once

#include <string>
#include <vector>

#include "client/cli/app/address_check.h"
#include "convtune/v1/maintenance_service.pb.h"
#include "convtune/v1/tuning_service.pb.h"

namespace convtune::cli::commands::doctor {

// This machine's system, what the daemon has counted, and the environments.
std::vector<app::Finding> DescribeSystem(const v1::ServerInfo& server,
                                         const v1::ListEnvironmentsResponse& environments);

// This machine's host name, and the user's name and home.
std::vector<std::string> NamesOfThisMachine();

// `text` with PATH, ADDRESS, UUID or NAME in the place of absolute paths, of
// addresses of sockets and hosts, of GPUs' UUIDs and of each of `secrets`, and of
// the host in each that is an address, with and without its domain.
std::string Redact(std::string text, std::vector<std::string> secrets);

}  // namespace convtune::cli::commands::doctor
