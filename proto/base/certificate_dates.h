// The dates of a certificate, as times and as words.
#pragma once

#include <openssl/x509.h>

#include <ctime>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "proto/base/clock.h"

namespace convtune {

// Returns the start of 1970 where `time` cannot be read.
inline absl::Time CertificateTime(const ASN1_TIME* time) {
  tm parts{};
  return ASN1_TIME_to_tm(time, &parts) == 1 ? absl::FromTM(parts, absl::UTCTimeZone())
                                            : absl::UnixEpoch();
}

// Why the certificate does not hold now: "ended on 2026-11-01 12:00:00Z". Empty if it holds.
inline std::string CertificateDateFault(const X509* certificate) {
  const absl::Time begin = CertificateTime(X509_get0_notBefore(certificate));
  const absl::Time end = CertificateTime(X509_get0_notAfter(certificate));
  const auto words = [](const char* what, absl::Time time) {
    return absl::StrCat(what, absl::FormatTime(" %Y-%m-%d %H:%M:%SZ", time, absl::UTCTimeZone()));
  };
  if (SystemClock().Now() >= end) return words("ended on", end);
  return SystemClock().Now() < begin ? words("begins on", begin) : "";
}

}  // namespace convtune
