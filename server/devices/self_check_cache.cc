#include "server/devices/self_check_cache.h"

#include <fstream>
#include <utility>

#include "absl/strings/str_cat.h"
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
  std::ifstream file(path_, std::ios::binary);
  if (!file || kept_.ParseFromIstream(&file)) return;
  log::Warn("$0: cannot be read, workers check themselves anew", path_);
  kept_.Clear();
}

SelfCheckCache::Entry SelfCheckCache::Find(const std::string& key) const {
  Entry entry;
  MutexLock lock(mutex_);
  if (const auto kept = kept_.passed().find(key);
      kept != kept_.passed().end() && kept->second.failed().empty()) {
    entry.passed = FromProto(kept->second);
  }
  if (const auto lost = lost_steps_.find(key); lost != lost_steps_.end()) {
    entry.lost_steps = lost->second;
  }
  return entry;
}

void SelfCheckCache::Note(const std::string& key, const SelfCheck& check) {
  const SelfCheck passed = check.mask == MaskOf(SelfCheckBit::kRun) ? check : SelfCheck();
  if (Find(key).passed == passed) return;
  MutexLock lock(mutex_);
  if (passed.known()) {
    (*kept_.mutable_passed())[key] = ToProto(passed);
  } else {
    kept_.mutable_passed()->erase(key);
  }
  Write();
}

void SelfCheckCache::NoteLost(const std::string& key, uint32_t step) {
  MutexLock lock(mutex_);
  lost_steps_[key] |= step;
  if (kept_.mutable_passed()->erase(key) > 0) Write();
}

void SelfCheckCache::Write() const {
  if (path_.empty()) return;
  const absl::Status written = ReplaceFile(path_, kept_.SerializeAsString());
  if (!written.ok()) log::Warn("$0", std::string(written.message()));
}

}  // namespace convtune::devices
