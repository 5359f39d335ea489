#include "server/worker/device/nvml_watch.h"

#include <dlfcn.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "proto/base/status_macros.h"

namespace convtune::worker::device {
namespace {

// Of NVML's API (nvml.h), as far as it is used; its numbers are fixed.
using Return = int;
using Device = void*;
using EventSet = void*;
constexpr Return kSuccess = 0;
constexpr Return kNotSupported = 3;
constexpr Return kTimeout = 10;
constexpr Return kGpuIsLost = 15;
constexpr Return kResetRequired = 16;
constexpr uint64_t kXidEvent = 8;
constexpr unsigned kRecoveryActionField = 230;  // from driver 570 on

struct EventData {
  Device device;
  unsigned long long type;  // NOLINT(google-runtime-int): NVML's, as those below
  unsigned long long data;
  unsigned gpu_instance_id;
  unsigned compute_instance_id;
};

struct FieldValue {
  unsigned field;
  unsigned scope;
  long long timestamp;
  long long latency_us;
  int value_type;
  Return result;
  union {
    double real;
    unsigned number;
    unsigned long long wide;
  } value;
};

// nvmlDeviceGpuRecoveryAction_t. What concerns other GPUs is none of ours.
const char* RecoveryAction(unsigned action) {
  switch (action) {
    case 1:
      return "has to be reset";
    case 2:
    case 7:
      return "needs a reboot of the machine";
    case 4:
      return "has to be drained and reset";
    case 6:
      return "needs a reset of its PCIe bus";
    default:
      return nullptr;
  }
}

constexpr absl::Duration kXidTimeout = absl::Seconds(5);
constexpr absl::Duration kPauseAfterError = absl::Milliseconds(200);
constexpr int kMostErrors = 10;  // in a row

}  // namespace

struct NvmlWatch::Functions {
  Return (*init)() = nullptr;
  Return (*shutdown)() = nullptr;
  const char* (*error_string)(Return) = nullptr;
  Return (*handle_by_pci_bus_id)(const char*, Device*) = nullptr;
  Return (*field_values)(Device, int, FieldValue*) = nullptr;
  Return (*create_events)(EventSet*) = nullptr;
  Return (*free_events)(EventSet) = nullptr;
  Return (*supported_events)(Device,
                             unsigned long long*) = nullptr;  // NOLINT(google-runtime-int): NVML's
  Return (*register_events)(Device, unsigned long long,       // NOLINT(google-runtime-int): NVML's
                            EventSet) = nullptr;
  Return (*wait)(EventSet, EventData*, unsigned) = nullptr;

  // Those that the library does not have stay null.
  explicit Functions(void* library) {
    Load(library, "nvmlInit_v2", &init);
    Load(library, "nvmlShutdown", &shutdown);
    Load(library, "nvmlErrorString", &error_string);
    Load(library, "nvmlDeviceGetHandleByPciBusId_v2", &handle_by_pci_bus_id);
    Load(library, "nvmlDeviceGetFieldValues", &field_values);
    Load(library, "nvmlEventSetCreate", &create_events);
    Load(library, "nvmlEventSetFree", &free_events);
    Load(library, "nvmlDeviceGetSupportedEventTypes", &supported_events);
    Load(library, "nvmlDeviceRegisterEvents", &register_events);
    Load(library, "nvmlEventSetWait_v2", &wait);
  }

  template <typename Function>
  static void Load(void* library, const char* name, Function* function) {
    *function = reinterpret_cast<Function>(dlsym(library, name));
  }

  bool complete() const {
    return init != nullptr && shutdown != nullptr && handle_by_pci_bus_id != nullptr &&
           create_events != nullptr && free_events != nullptr && register_events != nullptr &&
           wait != nullptr;
  }

  absl::Status ToStatus(Return result, const char* what) const {
    if (result == kSuccess) return absl::OkStatus();
    const std::string words =
        absl::StrCat("NVML: ", what, ": ",
                     error_string != nullptr ? error_string(result) : absl::StrCat(result));
    if (result == kGpuIsLost || result == kResetRequired) return absl::DataLossError(words);
    return result == kNotSupported ? absl::UnimplementedError(words)
                                   : absl::UnavailableError(words);
  }
};

NvmlWatch::NvmlWatch(std::string pci_bus_id) : pci_bus_id_(std::move(pci_bus_id)) {}

absl::StatusOr<std::unique_ptr<NvmlWatch>> NvmlWatch::Open(const std::string& pci_bus_id) {
  std::unique_ptr<NvmlWatch> watch(new NvmlWatch(pci_bus_id));
  RETURN_IF_ERROR(watch->Start());
  return watch;
}

absl::Status NvmlWatch::Start() {
  library_ = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library_ == nullptr) return absl::UnimplementedError(absl::StrCat("NVML: ", dlerror()));
  auto functions = std::make_unique<Functions>(library_);
  if (!functions->complete()) return absl::UnimplementedError("NVML: the library is too old");
  RETURN_IF_ERROR(functions->ToStatus(functions->init(), "start"));
  functions_ = std::move(functions);
  RETURN_IF_ERROR(Look());
  unsigned long long supported = kXidEvent;  // NOLINT(google-runtime-int): NVML's
  if (functions_->supported_events != nullptr) {
    RETURN_IF_ERROR(functions_->ToStatus(functions_->supported_events(device_, &supported),
                                         "ask for its events"));
  }
  if ((supported & kXidEvent) == 0) {
    return absl::UnimplementedError("NVML: the GPU does not report its errors");
  }
  RETURN_IF_ERROR(
      functions_->ToStatus(functions_->create_events(&events_), "make a set of events"));
  return functions_->ToStatus(functions_->register_events(device_, kXidEvent, events_),
                              "register for events");
}

NvmlWatch::~NvmlWatch() {
  if (functions_ != nullptr) {
    if (events_ != nullptr) functions_->free_events(events_);
    functions_->shutdown();
  }
  if (library_ != nullptr) dlclose(library_);
}

absl::Status NvmlWatch::FindDevice() const {
  return functions_->ToStatus(functions_->handle_by_pci_bus_id(pci_bus_id_.c_str(), &device_),
                              pci_bus_id_.c_str());
}

absl::Status NvmlWatch::Look() const {
  RETURN_IF_ERROR(FindDevice());
  if (functions_->field_values == nullptr) return absl::OkStatus();
  FieldValue field = {};
  field.field = kRecoveryActionField;
  const Return result = functions_->field_values(device_, 1, &field);
  if (result == kGpuIsLost || result == kResetRequired) {
    return functions_->ToStatus(result, "ask for its recovery action");
  }
  if (result != kSuccess || field.result != kSuccess) return absl::OkStatus();  // an older driver
  const char* action = RecoveryAction(field.value.number);
  return action == nullptr ? absl::OkStatus()
                           : absl::DataLossError(absl::StrCat("the driver says that it ", action));
}

absl::StatusOr<int64_t> NvmlWatch::NextXid(absl::Duration timeout) {
  EventData event = {};
  const Return result = functions_->wait(
      events_, &event,
      static_cast<unsigned>(std::max<int64_t>(absl::ToInt64Milliseconds(timeout), 1)));
  if (result == kTimeout) return 0;
  RETURN_IF_ERROR(functions_->ToStatus(result, "wait for events"));
  return event.type == kXidEvent ? static_cast<int64_t>(event.data) : 0;
}

namespace {

absl::Status Say(int fd, const std::string& line) {
  const std::string text = line + "\n";
  size_t sent = 0;
  while (sent < text.size()) {
    const ssize_t count = send(fd, text.data() + sent, text.size() - sent, MSG_NOSIGNAL);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return absl::ErrnoToStatus(errno, "the daemon does not listen");
    sent += static_cast<size_t>(count);
  }
  return absl::OkStatus();
}

absl::Status SayWhy(int fd, const absl::Status& why) {
  const char* word = absl::IsDataLoss(why)        ? "lost "
                     : absl::IsUnimplemented(why) ? "unwatchable "
                                                  : "away ";
  return Say(fd, absl::StrCat(word, std::string(why.message())));
}

}  // namespace

absl::Status WatchDevice(const std::string& pci_bus_id, int fd) {
  const absl::StatusOr<std::unique_ptr<NvmlWatch>> watch = NvmlWatch::Open(pci_bus_id);
  if (!watch.ok()) return SayWhy(fd, watch.status());
  RETURN_IF_ERROR(Say(fd, "watching"));
  int errors = 0;
  while (true) {
    const absl::StatusOr<int64_t> xid = (*watch)->NextXid(kXidTimeout);
    if (xid.ok() && *xid == 0) {
      errors = 0;
      continue;
    }
    if (xid.ok()) {
      errors = 0;
      RETURN_IF_ERROR(Say(fd, absl::StrCat("xid ", *xid)));
    } else if (absl::IsDataLoss(xid.status()) || ++errors == kMostErrors) {
      return SayWhy(fd, xid.status());
    } else {
      absl::SleepFor(kPauseAfterError);
    }
    const absl::Status look = (*watch)->Look();
    if (!look.ok()) return SayWhy(fd, look);
  }
}

}  // namespace convtune::worker::device
