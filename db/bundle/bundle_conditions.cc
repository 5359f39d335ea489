#include "db/bundle/bundle_conditions.h"

#include <cmath>

namespace convtune::db {

v1::BundleConditions ToBundleConditions(const Conditions& conditions) {
  v1::BundleConditions row;
  row.set_other_processes(conditions.other_processes);
  row.set_clock_reasons(conditions.clock_reasons);
  row.set_power_limit_watts(conditions.power_limit_watts);
  row.set_temperature_celsius(conditions.temperature_celsius);
  row.set_ecc_errors(conditions.ecc_errors);
  row.set_mig(conditions.mig);
  row.set_mps(conditions.mps);
  row.set_compute_mode(static_cast<int>(conditions.compute_mode));
  return row;
}

std::optional<Violation> FromBundleConditions(const v1::BundleConditions& row,
                                              Conditions* conditions) {
  conditions->known = true;
  conditions->other_processes = row.other_processes();
  conditions->clock_reasons = row.clock_reasons();
  conditions->power_limit_watts = row.power_limit_watts();
  conditions->temperature_celsius = row.temperature_celsius();
  conditions->ecc_errors = row.ecc_errors();
  conditions->mig = row.mig();
  conditions->mps = row.mps();
  conditions->compute_mode = static_cast<ComputeMode>(row.compute_mode());
  if (row.other_processes() < 0 || row.ecc_errors() < 0) {
    return Violation{"conditions", "must have counts of at least 0"};
  }
  if (!std::isfinite(row.power_limit_watts()) || row.power_limit_watts() < 0) {
    return Violation{"conditions.power_limit_watts", "must be finite and at least 0"};
  }
  if (row.compute_mode() < static_cast<int>(ComputeMode::kUnknown) ||
      row.compute_mode() > static_cast<int>(ComputeMode::kExclusiveProcess)) {
    return Violation{"conditions.compute_mode", "must be from 0 to 4"};
  }
  return std::nullopt;
}

}  // namespace convtune::db
