#include "server/worker/cudnn/cudnn_library.h"

#include <cudnn.h>
#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "proto/base/status_macros.h"
#include "proto/cudnn/elf_file.h"
#include "server/worker/cudnn/cudnn_status.h"

namespace convtune::worker::cudnn {
namespace {

// Folder of the library; empty if it is not known.
std::filesystem::path LibraryFolder() {
  // Not the address that our own linkage gives: that may be a stub of ours.
  void* symbol = dlsym(RTLD_DEFAULT, "cudnnGetVersion");
  Dl_info where = {};
  if (symbol == nullptr || dladdr(symbol, &where) == 0 || where.dli_fname == nullptr) {
    return {};
  }
  std::error_code error;
  const std::filesystem::path library = std::filesystem::weakly_canonical(where.dli_fname, error);
  return (error ? std::filesystem::path(where.dli_fname) : library).parent_path();
}

bool IsCudnn(const std::string& file_name) {
  return absl::StartsWith(file_name, "libcudnn.so") || absl::StartsWith(file_name, "libcudnn_");
}

int AddCudnnFile(dl_phdr_info* info, size_t /*size*/, void* files) {
  std::error_code error;
  const std::filesystem::path real = std::filesystem::canonical(info->dlpi_name, error);
  if (!error && IsCudnn(std::filesystem::path(info->dlpi_name).filename())) {
    static_cast<std::vector<std::string>*>(files)->push_back(real.string());
  }
  return 0;
}

// "9.19.0" of "libcudnn_ops.so.9.19.0"; empty where the name has the major
// number alone.
std::string VersionInName(const std::string& file) {
  const size_t at = file.rfind(".so.");
  if (at == std::string::npos) return "";
  const std::string version = file.substr(at + 4);
  return absl::StrContains(version, '.') ? version : "";
}

// Returns "a of folder X, and b, c of folder Y", the odd ones first, where the files' keys differ.
// `of_file` gives the key of a file, and `of` is the word for it, "folder". Files without a key are
// left out.
std::string DescribeOdd(const std::vector<std::string>& files, absl::string_view of,
                        const std::function<std::string(const std::string&)>& of_file) {
  std::map<std::string, std::vector<std::string>> names;
  for (const std::string& file : files) {
    const std::string key = of_file(file);
    if (!key.empty()) names[key].push_back(std::filesystem::path(file).filename());
  }
  if (names.size() < 2) return "";
  std::vector<std::pair<std::string, std::vector<std::string>>> groups(names.begin(), names.end());
  std::stable_sort(groups.begin(), groups.end(),
                   [](const auto& a, const auto& b) { return a.second.size() < b.second.size(); });
  return absl::StrJoin(groups, ", and ", [of](std::string* out, const auto& group) {
    absl::StrAppend(out, absl::StrJoin(group.second, ", "), " of ", of, " ", group.first);
  });
}

// Asks cuDNN for the versions of its libraries that can tell.
absl::Status AskVersions(const std::vector<std::string>& files) {
  const std::pair<absl::string_view, cudnnStatus_t (*)()> asked[] = {
      {"libcudnn_graph.", cudnnGraphVersionCheck},
      {"libcudnn_ops.", cudnnOpsVersionCheck},
      {"libcudnn_cnn.", cudnnCnnVersionCheck},
      {"libcudnn_adv.", cudnnAdvVersionCheck}};
  for (const auto& library : asked) {
    // Asking would load it.
    const auto file = std::find_if(files.begin(), files.end(), [&](const std::string& path) {
      return absl::StartsWith(std::filesystem::path(path).filename().string(), library.first);
    });
    if (file != files.end()) RETURN_IF_ERROR(ToStatus(library.second(), *file));
  }
  return absl::OkStatus();
}

constexpr size_t kDigits = 12;

// A note's parts are padded to the segment's alignment, which is 4 or 8.
uint64_t Padded(uint64_t size, uint64_t align) { return (size + align - 1) / align * align; }

std::string FindBuildId(absl::string_view notes, uint64_t align) {
  uint64_t at = 0;
  while (at + sizeof(Elf64_Nhdr) <= notes.size()) {
    Elf64_Nhdr header;
    std::memcpy(&header, notes.data() + at, sizeof(header));
    const uint64_t name = at + sizeof(header);
    const uint64_t data = name + Padded(header.n_namesz, align);
    const uint64_t next = data + Padded(header.n_descsz, align);
    if (data + header.n_descsz > notes.size()) return "";
    if (header.n_type == NT_GNU_BUILD_ID && header.n_namesz == 4 &&
        notes.compare(name, 4, std::string("GNU\0", 4)) == 0) {
      return absl::BytesToHexString(notes.substr(data, header.n_descsz)).substr(0, kDigits);
    }
    at = next;
  }
  return "";
}

}  // namespace

std::string ElfBuildId(const std::string& path) {
  const ElfFile file(path);
  const std::optional<Elf64_Ehdr> header = file.Header();
  if (!header) return "";
  for (uint64_t i = 0; i < header->e_phnum; ++i) {
    Elf64_Phdr segment;
    if (!file.Read(header->e_phoff + i * sizeof(segment), &segment)) return "";
    if (segment.p_type != PT_NOTE || segment.p_offset > file.bytes().size()) continue;
    std::string id = FindBuildId(file.bytes().substr(segment.p_offset, segment.p_filesz),
                                 segment.p_align == 8 ? 8 : 4);
    if (!id.empty()) return id;
  }
  return absl::StrCat("size-", file.bytes().size());
}

std::string FindLibrary(const std::string& name, const std::vector<std::string>& folders) {
  std::vector<std::string> all;
  if (const char* first = std::getenv("LD_LIBRARY_PATH"); first != nullptr) {
    all = absl::StrSplit(first, absl::ByAnyChar(":;"), absl::SkipEmpty());
  }
  all.insert(all.end(), folders.begin(), folders.end());
  for (const std::string& folder : all) {
    std::string path = absl::StrCat(folder, "/", name);
    if (access(path.c_str(), R_OK) == 0) return path;
  }
  return "";
}

std::vector<std::string> LoadedCudnnFiles() {
  std::vector<std::string> files;
  dl_iterate_phdr(AddCudnnFile, &files);
  return files;
}

std::string DescribeMixture(const std::vector<std::string>& files) {
  const std::string folders = DescribeOdd(files, "folder", [](const std::string& file) {
    return std::filesystem::path(file).parent_path().string();
  });
  return folders.empty() ? DescribeOdd(files, "version", VersionInName) : folders;
}

absl::Status CheckLoadedCudnn() {
  const std::vector<std::string> files = LoadedCudnnFiles();
  std::string mixture = DescribeMixture(files);
  if (mixture.empty()) mixture = std::string(AskVersions(files).message());
  if (mixture.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("cuDNN's libraries are mixed: ", mixture,
                   "; see that LD_LIBRARY_PATH names one folder that has them all"));
}

void LoadLegacyLibraries() {
  cudnnOpsVersionCheck();
  cudnnCnnVersionCheck();
}

LibraryConfiguration LoadedLibraryConfiguration() {
  const std::filesystem::path folder = LibraryFolder();
  if (folder.empty()) {
    return LibraryConfiguration::kUnknown;
  }
  return access((folder / "libcudnn_engines_precompiled.so.9").c_str(), R_OK) == 0
             ? LibraryConfiguration::kFull
             : LibraryConfiguration::kGraphJitOnly;
}

CudaLibraries LocateCudaLibraries() {
  CudaLibraries found;
  const int major = static_cast<int>(cudnnGetCudartVersion()) / 1000;
  const std::filesystem::path folder = LibraryFolder();
  found.cuda_major = major;
  found.cudnn_folder = folder.string();
  // As the libraries of cuDNN's engines say in their RUNPATH; then where Debian
  // and NVIDIA's packages have them.
  std::vector<std::string> folders;
  for (const std::filesystem::path& where :
       {folder, folder / "../../cublas/lib", folder / "../../cuda_nvrtc/lib",
        folder / absl::StrCat("../../cu", major, "/lib"),
        std::filesystem::path("/usr/lib/x86_64-linux-gnu"),
        std::filesystem::path("/usr/lib/aarch64-linux-gnu"),
        std::filesystem::path("/usr/local/cuda/lib64")}) {
    folders.push_back(where.string());
  }
  found.cublaslt = FindLibrary(absl::StrCat("libcublasLt.so.", major), folders);
  found.nvrtc = FindLibrary(absl::StrCat("libnvrtc.so.", major), folders);
  return found;
}

void KeepNvrtcLoaded() {
  const CudaLibraries found = LocateCudaLibraries();
  constexpr int kFlags = RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE;
  if (!found.nvrtc.empty() && dlopen(found.nvrtc.c_str(), kFlags) != nullptr) return;
  // Else from where the loader looks.
  dlopen(absl::StrCat("libnvrtc.so.", found.cuda_major).c_str(), kFlags);
}

}  // namespace convtune::worker::cudnn
