#include "server/worker/device/nvml_watch.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "proto/base/framing.h"
#include "proto/base/status_macros.h"
#include "server/worker/device/nvml_library.h"

namespace convtune::worker::device {
namespace {

// These are of NVML's API, see nvml_library.h.
using EventSet = void*;
using Wide = unsigned long long;  // NOLINT(google-runtime-int): NVML's
constexpr Wide kXidEvent = 8;
constexpr unsigned kRecoveryActionField = 230;  // from driver 570 on

struct EventData {
  NvmlDevice device;
  Wide type;
  Wide data;
  unsigned gpu_instance_id;
  unsigned compute_instance_id;
};

struct FieldValue {
  unsigned field;
  unsigned scope;
  long long timestamp;   // NOLINT(google-runtime-int): NVML's
  long long latency_us;  // NOLINT(google-runtime-int): NVML's
  int value_type;
  NvmlReturn result;
  union {
    double real;
    unsigned number;
    Wide wide;
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

// One GPU in libnvidia-ml.so.1. Not thread-safe.
class NvmlWatch {
 public:
  explicit NvmlWatch(const std::string& pci_bus_id) : pci_bus_id_(pci_bus_id) {}
  ~NvmlWatch() {
    if (events_ != nullptr) nvml_->Call("nvmlEventSetFree", events_);
  }
  NvmlWatch(const NvmlWatch&) = delete;
  NvmlWatch& operator=(const NvmlWatch&) = delete;

  // Before all others. UNIMPLEMENTED: there is no such library, it is too old, or the GPU
  // reports no events: nothing can be watched. DATA_LOSS: the GPU is lost, or has to
  // be reset. UNAVAILABLE: anything else that NVML refuses, in its words.
  absl::Status Start() {
    ASSIGN_OR_RETURN(nvml_, NvmlLibrary::Open());
    RETURN_IF_ERROR(Look());
    ASSIGN_OR_RETURN(const NvmlDevice device, nvml_->FindDevice(pci_bus_id_));
    RETURN_IF_ERROR(
        nvml_->ToStatus(nvml_->Call("nvmlEventSetCreate", &events_), "make a set of events"));
    return nvml_->ToStatus(nvml_->Call("nvmlDeviceRegisterEvents", device, kXidEvent, events_),
                           "register for events");
  }

  // DATA_LOSS if the GPU is lost or the driver asks for a reset.
  absl::Status Look() const {
    ASSIGN_OR_RETURN(const NvmlDevice device, nvml_->FindDevice(pci_bus_id_));
    FieldValue field = {};
    field.field = kRecoveryActionField;
    const NvmlReturn result = nvml_->Call("nvmlDeviceGetFieldValues", device, 1, &field);
    if (result == kNvmlGpuIsLost || result == kNvmlResetRequired) {
      return nvml_->ToStatus(result, "ask for its recovery action");
    }
    // An older driver.
    if (result != kNvmlSuccess || field.result != kNvmlSuccess) return absl::OkStatus();
    const char* action = RecoveryAction(field.value.number);
    return action == nullptr
               ? absl::OkStatus()
               : absl::DataLossError(absl::StrCat("the driver says that it ", action));
  }

  // Waits for an Xid of this GPU; 0 after `timeout`. Those that came before
  // Start are not told. Errors as Start.
  absl::StatusOr<int64_t> NextXid(absl::Duration timeout) {
    EventData event = {};
    const auto milliseconds = std::max<int64_t>(absl::ToInt64Milliseconds(timeout), 1);
    const NvmlReturn result =
        nvml_->Call("nvmlEventSetWait_v2", events_, &event, static_cast<unsigned>(milliseconds));
    if (result == kNvmlTimeout) return 0;
    RETURN_IF_ERROR(nvml_->ToStatus(result, "wait for events"));
    return event.type == kXidEvent ? static_cast<int64_t>(event.data) : 0;
  }

 private:
  const std::string pci_bus_id_;
  std::unique_ptr<NvmlLibrary> nvml_;
  EventSet events_ = nullptr;
};

absl::Status SayWhy(int fd, const absl::Status& why) {
  const char* word = absl::IsDataLoss(why)        ? "lost "
                     : absl::IsUnimplemented(why) ? "unwatchable "
                                                  : "away ";
  return WriteFrame(fd, absl::StrCat(word, why.message()));
}

}  // namespace

absl::Status WatchDevice(const std::string& pci_bus_id, int fd) {
  NvmlWatch watch(pci_bus_id);
  if (const absl::Status started = watch.Start(); !started.ok()) return SayWhy(fd, started);
  RETURN_IF_ERROR(WriteFrame(fd, "watching"));
  int errors = 0;
  while (true) {
    const absl::StatusOr<int64_t> xid = watch.NextXid(kXidTimeout);
    if (xid.ok() && *xid == 0) {
      errors = 0;
      continue;
    }
    if (xid.ok()) {
      errors = 0;
      RETURN_IF_ERROR(WriteFrame(fd, absl::StrCat("xid ", *xid)));
    } else if (absl::IsDataLoss(xid.status()) || ++errors == kMostErrors) {
      return SayWhy(fd, xid.status());
    } else {
      absl::SleepFor(kPauseAfterError);
    }
    const absl::Status look = watch.Look();
    if (!look.ok()) return SayWhy(fd, look);
  }
}

}  // namespace convtune::worker::device
