#include "server/convtuned/probe.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "google/protobuf/struct.pb.h"
#include "google/protobuf/util/json_util.h"
#include "proto/convert/record_codec.h"
#include "proto/monitoring/log.h"

namespace convtune::convtuned {
namespace {

constexpr size_t kMaxOutput = 1 << 20;
constexpr int kPollMs = 100;

// False once all was read.
bool ReadSome(int fd, std::string* text) {
  char buffer[4096];
  const ssize_t count = read(fd, buffer, sizeof(buffer));
  if (count > 0) {
    text->append(buffer, std::min(static_cast<size_t>(count), kMaxOutput - text->size()));
  }
  return count > 0 || (count < 0 && errno == EINTR);
}

std::string StringField(const google::protobuf::Struct& object, const char* name) {
  const auto found = object.fields().find(name);
  return found == object.fields().end() ? "" : found->second.string_value();
}

std::string HostName() {
  char name[256] = {};
  return gethostname(name, sizeof(name) - 1) == 0 ? name : "";
}

// Adds a device. One whose name is taken has its cuDNN in its name; one with the same GPU or
// profile and the same environment as another is left out, since one worker does for both.
void Add(devices::DeviceSpec device, ProbeResult* result) {
  for (const devices::DeviceSpec& other : result->devices) {
    const bool same = other.name == device.name || other.worker_argv == device.worker_argv;
    if (!same || !(other.environment == device.environment)) continue;
    log::Info("$0 is there already, as $1 with the cuDNN of $2", device.name, other.name,
              other.cudnn.folder.empty() ? "the worker" : other.cudnn.folder);
    return;
  }
  if (absl::c_any_of(result->devices, [&device](const devices::DeviceSpec& other) {
        return other.name == device.name;
      })) {
    const Environment& with = device.environment;
    absl::StrAppend(&device.name, "@", with.cudnn.ToText());
    if (with.library != LibraryConfiguration::kFull) {
      absl::StrAppend(&device.name, "-", std::string(Name(with.library)));
    }
  }
  result->devices.push_back(std::move(device));
}

// Runs the worker once and adds what it finds. `subject` is "GPUs" or a profile's file, `named` as
// in LeftOut.
void ProbeOnce(const ProbeOptions& options, const std::string& subject,
               const std::vector<std::string>& arguments, bool named, ProbeResult* result) {
  std::vector<std::string> command = {options.worker, "--probe"};
  command.insert(command.end(), arguments.begin(), arguments.end());
  const ChildOutput output =
      RunProgram(command, StartLimits(), options.stop, options.cudnn.library_path);
  if (!output.status.ok()) {
    result->left_out.push_back(
        {absl::StrCat(subject, ": ", output.status.message()), named || options.worker_named});
  } else if (named && output.text.empty()) {
    result->left_out.push_back({absl::StrCat(subject, ": ", options.worker,
                                             " --probe said nothing: is it convtune-worker?"),
                                true});
  }
  for (const absl::string_view line : absl::StrSplit(output.text, '\n', absl::SkipEmpty())) {
    absl::StatusOr<devices::DeviceSpec> device = ParseProbeLine(std::string(line));
    if (!device.ok()) {
      result->left_out.push_back({std::string(device.status().message()), named});
      continue;
    }
    if (const std::string loaded = device->environment.cudnn.ToText();
        !options.cudnn.version.empty() && loaded != options.cudnn.version) {
      result->left_out.push_back(
          {absl::StrCat(device->name, ": ", options.worker, " loaded cuDNN ", loaded,
                        " in place of ", options.cudnn.version, " of ", options.cudnn.folder),
           true});
      continue;
    }
    device->provenance.node = options.node.empty() ? HostName() : options.node;
    device->cudnn = options.cudnn;
    if (device->environment.profile) {
      device->worker_argv = {options.worker, "--profile", subject};
    } else {
      device->gpu = device->name;
      device->worker_argv = {options.worker, "--device", device->name};
    }
    Add(*std::move(device), result);
  }
}

}  // namespace

ChildOutput RunProgram(const std::vector<std::string>& command, const StartLimits& limits,
                       const std::function<bool()>& stop, const std::string& library_path) {
  ChildOutput output;
  const auto process = WorkerProcess::Start(command, library_path, /*prints=*/true);
  output.status = process.status();
  StartTimeout timeout(limits, SteadyTime::Now());
  bool at_end = false;  // its output is closed; it may live on
  while (output.status.ok()) {
    pollfd polled = {at_end ? -1 : (*process)->fd(), POLLIN, 0};
    poll(&polled, 1, kPollMs);
    if (polled.revents != 0) at_end = !ReadSome(polled.fd, &output.text);
    if (at_end) {
      if (const auto end = (*process)->Poll()) {
        if (!end->success) {
          output.status = absl::InternalError(absl::StrCat("it ended with ", end->description));
        }
        break;
      }
    }
    const uint64_t work = WorkDone((*process)->pid()) + output.text.size();
    if (stop()) {
      output.status = absl::CancelledError("stopped");
    } else if (const std::string why = timeout.WhyOver(work, SteadyTime::Now()); !why.empty()) {
      output.status = absl::DeadlineExceededError(why);
    }
  }
  return output;
}

absl::StatusOr<devices::DeviceSpec> ParseProbeLine(std::string_view line) {
  const std::string json(line);
  google::protobuf::Struct object;
  v1::Provenance provenance;
  google::protobuf::util::JsonParseOptions among_others;
  among_others.ignore_unknown_fields = true;
  if (!google::protobuf::util::JsonStringToMessage(json, &object).ok() ||
      !google::protobuf::util::JsonStringToMessage(json, &provenance, among_others).ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the worker's answer is not a JSON object: ", json));
  }
  devices::DeviceSpec device;
  device.name = StringField(object, "name");
  const std::string error = StringField(object, "error");
  if (!error.empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat(device.name.empty() ? "device" : device.name, ": ", error));
  }
  if (device.name.empty()) {
    return absl::InvalidArgumentError("the worker's answer has no name");
  }
  absl::StatusOr<Environment> environment = Environment::Parse(StringField(object, "environment"));
  if (!environment.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat(device.name, ": environment: ", std::string(environment.status().message())));
  }
  device.environment = *std::move(environment);
  const std::string model = StringField(object, "gpu_model");
  if (!model.empty()) {
    if (Slug(model) != Slug(device.environment.gpu_model)) {
      return absl::InvalidArgumentError(
          absl::StrCat(device.name, ": gpu_model ", model, " does not belong to its environment"));
    }
    device.environment.gpu_model = model;
  }
  device.provenance = FromProto(provenance);
  device.pci_bus_id = StringField(object, "pci_bus_id");
  return device;
}

void ProbeDevices(const ProbeOptions& options, ProbeResult* result) {
  if (options.devices != "none") {
    ProbeOnce(options, "GPUs", {"--devices", options.devices}, options.devices != "all", result);
  }
  for (const std::string& profile : options.profiles) {
    ProbeOnce(options, profile, {"--devices", "none", "--profile", profile}, true, result);
  }
}

}  // namespace convtune::convtuned
