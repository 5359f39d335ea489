#include "proto/model/release/release.h"

#include "proto/base/strings.h"

namespace convtune {

uint64_t Portfolio::Fingerprint() const {
  std::string text;
  for (const Choice& choice : choices) {
    const uint32_t roles = choice.roles & kServedRoles;
    if (roles != 0) AppendTo(&text, ToText(choice.candidate.id), " ", roles, "\n");
  }
  return Checksum64(text);
}

}  // namespace convtune
