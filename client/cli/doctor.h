// What is wrong with a daemon, and what to do about it.
#pragma once

#include <string>
#include <vector>

#include "client/cpp/client.h"
#include "convtune/v1/release_service.pb.h"

namespace convtune {

enum class Severity { kFine, kNotice, kProblem };

// Value type.
struct Finding {
  Severity severity = Severity::kFine;
  std::string what;
  std::string advice;  // empty if there is nothing to do
};

// Names under which the daemon's health is asked for.
inline constexpr char kLivenessService[] = "liveness";
inline constexpr char kReadinessService[] = "readiness";

// Pure functions of what the daemon said.
std::vector<Finding> ExamineServer(const v1::ServerInfo& server, const std::string& own_version);
std::vector<Finding> ExamineDevices(const v1::ListDevicesResponse& devices);
std::vector<Finding> ExamineEnvironments(const v1::ListEnvironmentsResponse& environments);
std::vector<Finding> ExaminePublication(const v1::Publication& publication);
// Of a socket's path, before any call.
std::vector<Finding> ExamineAddress(const Address& address);

}  // namespace convtune
