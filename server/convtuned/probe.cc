#include "server/convtuned/probe.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <list>
#include <memory>
#include <utility>

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

struct Running {
  std::unique_ptr<WorkerProcess> process;
  StartTimeout timeout;
  ChildOutput* output;
  bool at_end = false;  // its output is closed; it may live on
};

// False once all was read.
bool ReadSome(int fd, std::string* text) {
  char buffer[4096];
  const ssize_t count = read(fd, buffer, sizeof(buffer));
  if (count > 0) {
    text->append(buffer, std::min(static_cast<size_t>(count), kMaxOutput - text->size()));
  }
  return count > 0 || (count < 0 && errno == EINTR);
}

// True if the program has ended or is not waited for any more.
bool IsOver(bool readable, bool stopped, Running* one) {
  ChildOutput* output = one->output;
  if (readable && !one->at_end) one->at_end = !ReadSome(one->process->fd(), &output->text);
  if (one->at_end) {
    if (const auto end = one->process->Poll()) {
      if (!end->success) {
        output->status = absl::InternalError(absl::StrCat("it ended with ", end->description));
      }
      return true;
    }
  }
  const uint64_t work = WorkDone(one->process->pid()) + output->text.size();
  if (stopped) {
    output->status = absl::CancelledError("stopped");
  } else if (const std::string why = one->timeout.WhyOver(work, SteadyTime::Now()); !why.empty()) {
    output->status = absl::DeadlineExceededError(why);
  }
  return !output->status.ok();
}

std::string StringField(const google::protobuf::Struct& object, const char* name) {
  const auto found = object.fields().find(name);
  return found == object.fields().end() ? "" : found->second.string_value();
}

std::string HostName() {
  char name[256] = {};
  return gethostname(name, sizeof(name) - 1) == 0 ? name : "";
}

}  // namespace

std::vector<ChildOutput> RunPrograms(const std::vector<std::vector<std::string>>& commands,
                                     const StartLimits& limits, const std::function<bool()>& stop,
                                     const std::string& library_path) {
  std::vector<ChildOutput> outputs(commands.size());
  std::list<Running> running;
  for (size_t i = 0; i < commands.size(); ++i) {
    auto process = WorkerProcess::Start(commands[i], library_path, /*prints=*/true);
    outputs[i].status = process.status();
    if (process.ok()) {
      running.push_back({*std::move(process), {limits, SteadyTime::Now()}, &outputs[i], false});
    }
  }
  while (!running.empty()) {
    std::vector<pollfd> polled;
    for (const Running& one : running) {
      polled.push_back({one.at_end ? -1 : one.process->fd(), POLLIN, 0});
    }
    poll(polled.data(), polled.size(), kPollMs);
    const bool stopped = stop();
    size_t i = 0;
    std::erase_if(running,
                  [&](Running& one) { return IsOver(polled[i++].revents != 0, stopped, &one); });
  }
  return outputs;
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

ProbeResult ProbeDevices(const ProbeOptions& options) {
  ProbeResult result;
  const std::string node = options.node.empty() ? HostName() : options.node;
  std::vector<std::vector<std::string>> commands;
  std::vector<std::string> subjects;
  const bool gpus_named = options.devices != "all";
  if (options.devices != "none") {
    commands.push_back({options.worker, "--probe", "--devices", options.devices});
    subjects.push_back("GPUs");
  }
  for (const std::string& profile : options.profiles) {
    commands.push_back({options.worker, "--probe", "--devices", "none", "--profile", profile});
    subjects.push_back(profile);
  }
  const std::vector<ChildOutput> outputs =
      RunPrograms(commands, options.limits, options.stop, options.cudnn.library_path);
  for (size_t i = 0; i < outputs.size(); ++i) {
    const bool named = i > 0 || gpus_named;
    if (!outputs[i].status.ok()) {
      result.left_out.push_back(
          {absl::StrCat(subjects[i], ": ", std::string(outputs[i].status.message())),
           named || options.worker_named});
    } else if (named && outputs[i].text.empty()) {
      result.left_out.push_back({absl::StrCat(subjects[i], ": ", options.worker,
                                              " --probe said nothing: is it convtune-worker?"),
                                 true});
    }
    for (const absl::string_view line : absl::StrSplit(outputs[i].text, '\n', absl::SkipEmpty())) {
      absl::StatusOr<devices::DeviceSpec> device = ParseProbeLine(std::string(line));
      if (!device.ok()) {
        result.left_out.push_back({std::string(device.status().message()), named});
        continue;
      }
      if (const std::string loaded = device->environment.cudnn.ToText();
          !options.cudnn.version.empty() && loaded != options.cudnn.version) {
        result.left_out.push_back(
            {absl::StrCat(device->name, ": ", options.worker, " loaded cuDNN ", loaded,
                          " in place of ", options.cudnn.version, " of ", options.cudnn.folder),
             true});
        continue;
      }
      const bool doubled =
          std::any_of(result.devices.begin(), result.devices.end(),
                      [&](const devices::DeviceSpec& other) { return other.name == device->name; });
      if (doubled) {
        log::Warn("$0 is there twice", device->name);
        continue;
      }
      device->provenance.node = node;
      device->cudnn = options.cudnn;
      if (!device->environment.profile) device->gpu = device->name;
      device->worker_argv =
          device->environment.profile
              ? std::vector<std::string>{options.worker, "--profile", subjects[i]}
              : std::vector<std::string>{options.worker, "--device", device->name};
      result.devices.push_back(*std::move(device));
    }
  }
  return result;
}

void AddProbe(ProbeResult more, ProbeResult* result) {
  for (devices::DeviceSpec& device : more.devices) {
    const std::string plain = device.name;
    const auto has = [result](const auto& same) {
      return std::any_of(result->devices.begin(), result->devices.end(), same);
    };
    if (has([&device](const devices::DeviceSpec& other) {
          return other.worker_argv == device.worker_argv && other.environment == device.environment;
        })) {
      log::Info("$0 has the cuDNN of $1 already, in another folder", plain, device.cudnn.folder);
      continue;
    }
    if (has([&plain](const devices::DeviceSpec& other) { return other.name == plain; })) {
      const Environment& with = device.environment;
      device.name = absl::StrCat(plain, "@", with.cudnn.ToText());
      if (with.library != LibraryConfiguration::kFull) {
        device.name += absl::StrCat("-", std::string(Name(with.library)));
      }
    }
    result->devices.push_back(std::move(device));
  }
  std::move(more.left_out.begin(), more.left_out.end(), std::back_inserter(result->left_out));
}

}  // namespace convtune::convtuned
