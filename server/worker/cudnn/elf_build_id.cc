#include "server/worker/cudnn/elf_build_id.h"

#include <elf.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fstream>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace convtune::worker::cudnn {
namespace {

constexpr size_t kDigits = 12;
constexpr uint64_t kMostNotes = 1 << 20;
constexpr int kMostSegments = 256;

template <typename T>
bool ReadAt(std::ifstream* file, uint64_t offset, T* value) {
  file->clear();
  file->seekg(static_cast<std::streamoff>(offset));
  file->read(reinterpret_cast<char*>(value), sizeof(T));
  return file->gcount() == static_cast<std::streamsize>(sizeof(T));
}

// A note's parts are padded to the segment's alignment, which is 4 or 8.
uint64_t Padded(uint64_t size, uint64_t align) { return (size + align - 1) / align * align; }

std::string FindBuildId(const std::string& notes, uint64_t align) {
  uint64_t at = 0;
  while (at + sizeof(Elf64_Nhdr) <= notes.size()) {
    Elf64_Nhdr header;
    std::memcpy(&header, notes.data() + at, sizeof(header));
    const uint64_t name = at + sizeof(header);
    const uint64_t data = name + Padded(header.n_namesz, align);
    const uint64_t next = data + Padded(header.n_descsz, align);
    if (next < at || data + header.n_descsz > notes.size()) return "";
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
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file) return "";
  const auto size = static_cast<uint64_t>(std::max<std::streamoff>(file.tellg(), 0));
  Elf64_Ehdr header;
  if (!ReadAt(&file, 0, &header) || std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 ||
      header.e_ident[EI_CLASS] != ELFCLASS64) {
    return "";
  }
  for (int i = 0; i < std::min<int>(header.e_phnum, kMostSegments); ++i) {
    Elf64_Phdr segment;
    if (!ReadAt(&file, header.e_phoff + static_cast<uint64_t>(i) * sizeof(segment), &segment)) {
      return "";
    }
    if (segment.p_type != PT_NOTE || segment.p_filesz > kMostNotes) continue;
    std::string notes(segment.p_filesz, '\0');
    file.clear();
    file.seekg(static_cast<std::streamoff>(segment.p_offset));
    file.read(notes.data(), static_cast<std::streamsize>(notes.size()));
    const std::string id = FindBuildId(notes, segment.p_align == 8 ? 8 : 4);
    if (!id.empty()) return id;
  }
  return absl::StrCat("size-", size);
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

}  // namespace convtune::worker::cudnn
