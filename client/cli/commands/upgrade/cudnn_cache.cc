#include "client/cli/commands/upgrade/cudnn_cache.h"

#include <fcntl.h>
#include <sys/file.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <regex>
#include <system_error>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "proto/base/child_program.h"
#include "proto/base/default_paths.h"
#include "proto/base/errors.h"
#include "proto/base/status_macros.h"
#include "proto/base/unique_fd.h"
#include "proto/cudnn/program_cudnn.h"
#include "proto/model/text.h"

namespace convtune::cli::commands::upgrade {
namespace {

namespace fs = std::filesystem;

constexpr char kLibrary[] = "libcudnn.so.9";
// Wheels for CUDA 13 begin with this version.
constexpr int kFirstMinorForCuda13 = 12;
constexpr char kCudnnPackage[] = "nvidia-cudnn-cu";  // and the CUDA that it is for

// A version of cuDNN 9, "9.28", "9.28.1" or "9.28.1.4", and the CUDA that its wheel is for where
// the text names it, "9.28+cu12".
constexpr char kCudnnVersion[] = R"((9(?:\.\d{1,6}){1,3})(?:\+cu(1[23]))?)";

// True if `version` is `wanted` or one of its patches.
bool IsOneOf(const std::vector<int>& version, const std::vector<int>& wanted) {
  return version.size() >= wanted.size() &&
         std::equal(wanted.begin(), wanted.end(), version.begin());
}

// Where a wheel, a package or an archive of NVIDIA has the library; empty if it
// is in none of these.
std::string LibraryFolderBelow(const std::string& folder) {
  std::error_code error;
  for (const char* below : {"", "lib", "lib64", "nvidia/cudnn/lib", "cudnn/lib"}) {
    const fs::path candidate = fs::path(folder) / below;
    if (fs::exists(candidate / kLibrary, error)) {
      return fs::canonical(candidate, error).string();
    }
  }
  // A venv's: lib/python3.12/site-packages.
  for (const fs::directory_entry& entry : fs::directory_iterator(fs::path(folder) / "lib", error)) {
    const fs::path packages = entry.path() / "site-packages";
    if (fs::is_directory(packages, error)) {
      std::string found = LibraryFolderBelow(packages);
      if (!found.empty()) return found;
    }
  }
  return "";
}

// An error if the Python of a venv, `name`, loads a cuDNN of another folder, too.
absl::Status CheckIsTheOnly(const std::string& name, const std::string& folder) {
  std::error_code error;
  if (!fs::exists(fs::path(name) / "bin" / "python", error)) return absl::OkStatus();
  const absl::StatusOr<std::vector<LoadedCudnn>> loaded = FindCudnn("", name);
  if (!loaded.ok()) return absl::OkStatus();  // no package there is built for cuDNN
  for (const LoadedCudnn& cudnn : *loaded) {
    if (cudnn.folder.empty() || fs::equivalent(cudnn.folder, folder, error)) continue;
    return InvalidArgument("must name the folder of one cuDNN: ", name, " has that of ", folder,
                           ", and ", cudnn.by, " loads that of ", cudnn.folder);
  }
  return absl::OkStatus();
}

// Runs a pip that asks nobody and does not wait long. An empty index is pip's own.
absl::StatusOr<ProgramOutput> RunPip(const std::string& index, std::vector<std::string> words,
                                     const Variables& variables) {
  words.insert(words.begin(), {PythonInterpreter(), "-m", "pip"});
  words.insert(words.end(), {"--disable-pip-version-check", "--no-input", "--only-binary",
                             ":all:", "--retries", "1", "--timeout", "15"});
  if (!index.empty()) words.insert(words.end(), {"--index-url", index});
  auto ran = RunToEnd(words, variables, ChildErrors::kOutput);
  if (ran.ok()) return ran;
  return FailedPrecondition(ran.status().message(),
                            ": CONVTUNE_PYTHON must name a Python that has pip, or be left out");
}

// What pip's report says of a package that needs cuDNN.
struct ReportedPackage {
  std::string name, version;
  std::string requirement;  // "nvidia-cudnn-cu13==9.26.0.51; ..."; empty: it names no cuDNN
  std::string cudnn;        // "9.26.0.51+cu13"; empty: it pins none
};

ReportedPackage ReadReport(const std::string& output) {
  const size_t begin = output.find('{');  // a warning may stand around it
  const size_t end = output.rfind('}');
  ReportedPackage package;
  if (begin == std::string::npos || end < begin) return package;
  const auto report =
      nlohmann::json::parse(output.substr(begin, end + 1 - begin), nullptr, /*exceptions=*/false);
  const nlohmann::json::json_pointer metadata("/install/0/metadata");
  if (!report.is_object() || !report.contains(metadata)) return package;
  const nlohmann::json& said = report[metadata];
  if (!said.is_object()) return package;
  package.name = said.value("name", "");
  package.version = said.value("version", "");
  const std::regex pin(absl::StrCat(kCudnnPackage, R"((\d+) *\(?== *([\d.]+)(?![\d.*]).*)"));
  for (const nlohmann::json& needed : said.value("requires_dist", nlohmann::json::array())) {
    const std::string text = needed.is_string() ? needed.get<std::string>() : "";
    if (!absl::StartsWith(text, kCudnnPackage)) continue;
    package.requirement = text;
    std::smatch parts;
    if (std::regex_match(text, parts, pin)) {
      package.cudnn = absl::StrCat(parts[2].str(), "+cu", parts[1].str());
      return package;
    }
  }
  return package;
}

// Returns, as one line, the reason in pip's output for which `package` could not be
// installed. `folder` is the cache.
std::string ExplainPip(const std::string& package, const std::string& version,
                       const std::string& folder, const std::string& output) {
  const bool is_cudnn = absl::StartsWith(package, kCudnnPackage);
  const std::string mark = "(from versions: ";
  const size_t at = output.find(mark);
  if (at != std::string::npos && !absl::StartsWith(output.substr(at), "(from versions: none)")) {
    std::string known = output.substr(at + mark.size());
    known = known.substr(0, known.find(')'));
    std::vector<std::string> all = absl::StrSplit(known, ", ");  // in ascending order
    const std::regex version_9(kCudnnVersion);
    std::erase_if(
        all, [&](const std::string& one) { return is_cudnn && !std::regex_match(one, version_9); });
    if (!all.empty()) {
      return absl::StrCat("PyPI has no ", package, " ", version, ": it has ", all.front(), " to ",
                          all.back());
    }
  }
  const bool unreachable = absl::StrContains(output, "onnection");
  if (is_cudnn && (unreachable || at != std::string::npos)) {
    return absl::StrCat("PyPI cannot be reached, and no ", version, " is in ", folder,
                        ": name the folder of a cuDNN instead");
  }
  if (unreachable) return "PyPI cannot be reached: name a version of cuDNN, or its folder";
  if (at != std::string::npos) {
    return absl::StrCat("PyPI has no package ", package, " for this machine's Python");
  }
  // That pip is missing or too old, or that a disk is full, pip's last line says itself.
  const std::vector<std::string> lines =
      absl::StrSplit(output, absl::ByAnyChar("\r\n"), absl::SkipWhitespace());
  return absl::StrCat("pip could not get ", package, ": ",
                      lines.empty() ? "it gave no reason" : lines.back());
}

}  // namespace

CudnnCache::CudnnCache(Options options) : options_(std::move(options)) {
  if (options_.folder.empty()) options_.folder = UserFolder("XDG_CACHE_HOME", ".cache") + "/cudnn";
}

absl::StatusOr<CudnnToLoad> CudnnCache::Find(const std::string& option, const std::string& name) {
  if (name.empty()) return CudnnToLoad();
  absl::StatusOr<CudnnToLoad> found = FindNamed(name);
  // Errors of the cache itself name its own option.
  if (found.ok() || absl::StartsWith(found.status().message(), "--cache: ")) return found;
  return absl::Status(found.status().code(), absl::StrCat(option, ": ", found.status().message()));
}

absl::StatusOr<CudnnToLoad> CudnnCache::FindNamed(const std::string& name) {
  ASSIGN_OR_RETURN(const std::optional<Wheel> wheel, Read(name));
  CudnnToLoad found;
  if (wheel) {
    ASSIGN_OR_RETURN(found.folder, FindVersion(*wheel));
    found.version = wheel->version;
  } else {
    found.folder = LibraryFolderBelow(name);
    RETURN_IF_ERROR(CheckIsTheOnly(name, found.folder));
  }
  ASSIGN_OR_RETURN(const std::vector<std::string> cuda,
                   FindCuda(wheel ? wheel->cuda_major : OwnCuda()));
  found.library_path = LibraryPath(found.folder, cuda);
  return found;
}

int CudnnCache::OwnCuda() {
  AskWorker();
  return own_cuda_major_ > 0 ? own_cuda_major_ : 13;
}

absl::StatusOr<std::optional<CudnnCache::Wheel>> CudnnCache::Read(const std::string& name) {
  std::error_code error;
  if (fs::is_directory(name, error)) {
    if (!LibraryFolderBelow(name).empty()) return std::nullopt;
    return InvalidArgument("there is no ", kLibrary, " in ", name);
  }
  if (absl::StrContains(name, "==")) {
    ASSIGN_OR_RETURN(const std::string pinned, FindPin(name));
    return Read(pinned);
  }
  if (absl::StrContains(name, '/')) {
    return InvalidArgument("there is no folder ", name);
  }
  std::smatch parts;
  if (!std::regex_match(name, parts, std::regex(kCudnnVersion))) {
    return InvalidArgument(
        "must be cuDNN 9: a version such as 9.28, a package such as torch==2.15, or a folder; is ",
        name);
  }
  if (parts[2].matched) return Wheel{parts[1], parts[2] == "12" ? 12 : 13};
  return Wheel{name, VersionNumbers(name)[1] < kFirstMinorForCuda13 ? 12 : OwnCuda()};
}

absl::StatusOr<std::string> CudnnCache::FindPin(const std::string& requirement) const {
  options_.say(absl::StrCat("asking which cuDNN ", requirement, " needs"));
  ASSIGN_OR_RETURN(const ProgramOutput ran,
                   RunPip(options_.index,
                          {"install", "--dry-run", "--ignore-installed", "--no-deps", "--quiet",
                           "--report", "-", requirement},
                          {}));
  const auto [package, version] =
      std::pair<std::string, std::string>(absl::StrSplit(requirement, absl::MaxSplits("==", 1)));
  if (ran.exit_code != 0) {
    return absl::FailedPreconditionError(ExplainPip(package, version, options_.folder, ran.text));
  }
  const ReportedPackage found = ReadReport(ran.text);
  if (found.name.empty()) {
    return FailedPrecondition("pip gave no report of ", requirement);
  }
  if (found.cudnn.empty()) {
    return InvalidArgument(
        "must be a package that names one cuDNN; ", requirement,
        found.requirement.empty() ? " names none" : absl::StrCat(" names ", found.requirement),
        ": give a version such as 9.28");
  }
  options_.say(absl::StrCat(found.name, " ", found.version, " needs cuDNN ", found.cudnn));
  return found.cudnn;
}

absl::StatusOr<std::string> CudnnCache::FindVersion(const Wheel& wheel) {
  const std::string prefix = absl::StrCat("cu", wheel.cuda_major, "-");
  const std::vector<int> wanted = VersionNumbers(wheel.version);
  std::string folder;
  const auto is_there = [&] { return !(folder = CachedVersion(prefix, wanted)).empty(); };
  if (is_there()) return folder;
  RETURN_IF_ERROR(
      Fetch({absl::StrCat(kCudnnPackage, wheel.cuda_major)}, wheel.version, prefix, is_there));
  return folder;
}

std::string CudnnCache::CachedVersion(const std::string& prefix,
                                      const std::vector<int>& wanted) const {
  std::map<std::vector<int>, std::string> cached;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(options_.folder, error)) {
    const std::string name = entry.path().filename();
    if (!absl::StartsWith(name, prefix)) continue;
    const std::vector<int> numbers = VersionNumbers(name.substr(prefix.size()));
    const std::string folder = LibraryFolderBelow(entry.path());
    if (IsOneOf(numbers, wanted) && !folder.empty()) cached[numbers] = folder;
  }
  return cached.empty() ? "" : cached.rbegin()->second;
}

absl::Status CudnnCache::Fetch(const std::vector<std::string>& packages, const std::string& version,
                               const std::string& entry, const std::function<bool()>& is_there) {
  const fs::path cache = options_.folder;
  std::error_code error;
  fs::create_directories(cache, error);
  const std::string lock_path = cache / "lock";
  const UniqueFd lock(open(lock_path.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0644));
  bool locked = lock.valid() && flock(lock.get(), LOCK_EX | LOCK_NB) == 0;
  if (lock.valid() && !locked && errno == EWOULDBLOCK) {
    options_.say(absl::StrCat("waiting for another process that fills ", options_.folder));
    locked = flock(lock.get(), LOCK_EX) == 0;
  }
  if (!locked) {
    return FailedPrecondition("--cache: ", options_.folder,
                              " cannot be written: ", std::strerror(errno));
  }
  // Who had the lock before may have wanted the same.
  if (is_there()) return absl::OkStatus();

  const fs::path part = cache / absl::StrCat(entry, "new.part");
  fs::remove_all(part, error);  // of a process that did not come to its end
  fs::create_directories(part / "tmp", error);
  options_.say(absl::StrCat("getting ", absl::StrJoin(packages, " and "), " ", version,
                            " from PyPI into ", options_.folder));
  // Everything that pip writes, the unpacked wheel before it is moved as well, lies below `part`.
  std::vector<std::string> command = {"install", "--no-deps", "--no-compile", "--no-cache-dir"};
  command.insert(command.end(), {"--target", (part / "whole").string()});
  const char* const patches = VersionNumbers(version).size() == 4 ? "" : ".*";
  for (const std::string& package : packages) {
    command.push_back(absl::StrCat(package, "==", version, patches));
  }
  const auto ran = RunPip(options_.index, command, {{"TMPDIR", (part / "tmp").string()}});
  absl::Status status = ran.status();
  if (status.ok() && ran->exit_code != 0) {
    status =
        absl::FailedPreconditionError(ExplainPip(packages[0], version, options_.folder, ran->text));
  }
  std::string whole = cache / entry;
  if (status.ok() && absl::EndsWith(entry, "-")) {
    // The wheel says which version it is: nvidia_cudnn_cu13-9.28.1.4.dist-info.
    for (const fs::directory_entry& file : fs::directory_iterator(part / "whole", error)) {
      const std::string name = file.path().filename();
      const size_t dash = name.find('-');
      if (dash == std::string::npos || !absl::EndsWith(name, ".dist-info")) continue;
      whole = cache / absl::StrCat(entry, file.path().stem().string().substr(dash + 1));
    }
  }
  if (status.ok()) {
    // If there is such a folder, somebody took the library out of it.
    fs::remove_all(whole, error);
    if (!error) fs::rename(part / "whole", whole, error);
    if (error) {
      status = FailedPrecondition("--cache: ", whole, " cannot be made: ", error.message());
    }
  }
  fs::remove_all(part, error);
  RETURN_IF_ERROR(status);
  if (is_there()) return absl::OkStatus();
  return FailedPrecondition("--cache: there is no library in ", whole, ", into which pip put ",
                            absl::StrJoin(packages, " and "));
}

absl::StatusOr<std::vector<std::string>> CudnnCache::FindCuda(int cuda_major) {
  if (cuda_major == OwnCuda() && !own_folders_.empty()) return own_folders_;
  const std::string entry = absl::StrCat("cuda", cuda_major);
  std::vector<std::string> folders;
  const auto is_there = [&] {
    folders = CudaFoldersIn(fs::path(options_.folder) / entry / "nvidia");
    return !folders.empty();
  };
  if (is_there()) return folders;
  const std::string suffix = cuda_major == 12 ? "-cu12" : "";
  RETURN_IF_ERROR(
      Fetch({absl::StrCat("nvidia-cublas", suffix), absl::StrCat("nvidia-cuda-nvrtc", suffix)},
            absl::StrCat(cuda_major), entry, is_there));
  return folders;
}

void CudnnCache::AskWorker() {
  if (std::exchange(asked_, true)) return;
  // A worker without a cuDNN of its own does not even start.
  const auto said = RunToEnd({options_.worker, "--libraries"}, {}, ChildErrors::kOutput);
  if (!said.ok() || said->exit_code != 0) return;
  for (const absl::string_view line : absl::StrSplit(said->text, '\n')) {
    const std::pair<absl::string_view, absl::string_view> field =
        absl::StrSplit(line, absl::MaxSplits(' ', 1));
    if (field.first == "cuda" && !absl::SimpleAtoi(field.second, &own_cuda_major_)) return;
    if ((field.first == "cublaslt" || field.first == "nvrtc") && !field.second.empty()) {
      const std::string folder = fs::path(std::string(field.second)).parent_path();
      if (!absl::c_linear_search(own_folders_, folder)) own_folders_.push_back(folder);
    }
  }
}

}  // namespace convtune::cli::commands::upgrade
