// What benchmarks compute of their measurements, and how they print it.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/model/problem/conv_problem.h"

namespace convtune::bench {

inline constexpr char kEnvironment[] = "nvidia-h200,cc=9.0,sms=132,cudnn=9.19.0,lib=full";

// Distinct for n below 2^31.
inline ConvProblem ProblemOf(int64_t n) {
  return ConvProblem::Parse(absl::StrCat("fwd,x=", 1 + n / 10000, "x", 64 + n % 100, "x",
                                         7 + n / 100 % 100, "x56,w=64x", 64 + n % 100,
                                         "x3x3,pad=1,nhwc,f16"))
      .value();
}

template <typename Work>
double Seconds(const Work& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// 0 of nothing.
inline double Quantile(std::vector<double> values, double share) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  return values[static_cast<size_t>(share * static_cast<double>(values.size() - 1))];
}
inline double Median(std::vector<double> values) { return Quantile(std::move(values), 0.5); }

// A line of JSON. `at` says what it is a figure of: "\"tunings\": 10, \"clients\": 4".
inline void Print(const std::string& figure, const std::string& at, double value) {
  std::printf("{\"figure\": \"%s\", %s, \"value\": %.6g}\n", figure.c_str(), at.c_str(), value);
}
inline void Print(const std::string& figure, const std::string& at, double value, double baseline,
                  double ratio) {
  std::printf("{\"figure\": \"%s\", %s, \"value\": %.6g, \"baseline\": %.6g, \"ratio\": %.4g}\n",
              figure.c_str(), at.c_str(), value, baseline, ratio);
  std::fflush(stdout);
}

}  // namespace convtune::bench
