// ElfBuildId tells which build of a library a file is, without loading it.
#pragma once

#include <string>
#include <vector>

namespace convtune::worker::cudnn {

// The first 12 digits of the GNU build ID of an ELF file (64 bit, of this
// machine's byte order), which no two versions of a library share; "size-N" for
// one without. Empty if the file cannot be read or is none.
std::string ElfBuildId(const std::string& path);

// Returns the path of `name` in the first of `folders` that has it, after those of
// $LD_LIBRARY_PATH, which the loader asks before them; empty if there is none.
std::string FindLibrary(const std::string& name, const std::vector<std::string>& folders);

}  // namespace convtune::worker::cudnn
