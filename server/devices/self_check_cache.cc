#include "server/devices/self_check_cache.h"

#include <fstream>
#include <sstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "convtune/worker/worker.pb.h"
#include "proto/base/replace_file.h"
#include "proto/convert/record_codec.h"
#include "proto/monitoring/log.h"

namespace convtune::devices {

std::string SelfCheckCache::KeyOf(const DeviceSpec& device) {
  const Provenance& at = device.provenance;
  return absl::StrCat(device.environment.ToText(), ";gpu=", at.gpu_uuid,
                      ";driver=", at.driver_version, ";cuda=", at.CudaText(),
                      ";convtune=", CONVTUNE_VERSION, ";check=", kSelfCheckVersion);
}

SelfCheckCache::SelfCheckCache(std::string path) : path_(std::move(path)) {
  if (path_.empty()) return;
  std::ifstream file(path_, std::ios::binary);
  if (!file) return;
  std::stringstream bytes;
  bytes << file.rdbuf();
  worker::v1::KeptSelfChecks kept;
  if (!kept.ParseFromString(bytes.str())) {
    log::Warn("$0: cannot be read, workers check themselves anew", path_);
    return;
  }
  MutexLock lock(mutex_);
  for (const auto& [key, passed] : kept.passed()) {
    if (passed.failed().empty()) entries_[key].passed = FromProto(passed);
  }
}

void SelfCheckCache::Note(const std::string& key, const SelfCheck& check) {
  const bool passed = check.mask == MaskOf(SelfCheckBit::kRun);
  MutexLock lock(mutex_);
  const auto found = entries_.find(key);
  if (!passed && (found == entries_.end() || !found->second.passed.known())) return;
  Entry& entry = entries_[key];
  const SelfCheck before = std::exchange(entry.passed, passed ? check : SelfCheck());
  if (entry.passed != before) Write();
}

void SelfCheckCache::NoteLost(const std::string& key, uint32_t step) {
  MutexLock lock(mutex_);
  Entry& entry = entries_[key];
  entry.lost_steps |= step;
  if (std::exchange(entry.passed, SelfCheck()).known()) Write();
}

void SelfCheckCache::Write() const {
  if (path_.empty()) return;
  worker::v1::KeptSelfChecks kept;
  for (const auto& [key, entry] : entries_) {
    if (entry.passed.known()) (*kept.mutable_passed())[key] = ToProto(entry.passed);
  }
  const absl::Status written = ReplaceFile(path_, kept.SerializeAsString());
  if (!written.ok()) log::Warn("$0", std::string(written.message()));
}

}  // namespace convtune::devices
