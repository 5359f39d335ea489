// Findings about a daemon: what is wrong, and what to do about it.
#pragma once

#include <string>
#include <vector>

#include "client/cli/app/address_check.h"
#include "convtune/v1/release_service.pb.h"
#include "convtune/v1/tuning_service.pb.h"

namespace convtune::cli::commands::doctor {

// Names under which the daemon's health is asked for.
inline constexpr char kLivenessService[] = "liveness";
inline constexpr char kReadinessService[] = "readiness";

// Pure functions of what the daemon said.
std::vector<app::Finding> ExamineServer(const v1::ServerInfo& server,
                                        const std::string& own_version);
std::vector<app::Finding> ExamineDevices(const v1::ListDevicesResponse& devices);
std::vector<app::Finding> ExamineEnvironments(const v1::ListEnvironmentsResponse& environments);
std::vector<app::Finding> ExamineBans(const v1::ListBansResponse& bans);
std::vector<app::Finding> ExaminePublication(const v1::Publication& publication);

}  // namespace convtune::cli::commands::doctor
