// Assigns to each deliberate defect (firehose/watch/mutant.hpp) a hunt that finds it: sources and operations
// that the defect affects.
#pragma once

#include "tests/stale/hunt/hunt.hpp"
#include "tests/stale/hunt/hydrant_cache.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace hydrant::stale {

// Requirements of the process for the defect to have an effect.
enum class Needs : uint8_t { kReader, kHooks };

struct MutantHunt {
  std::string name;
  std::string what;
  Needs needs = Needs::kReader;
  uint32_t delay_us = 0;  // how long the defective library sleeps in its race windows
  HuntOptions hunt;       // without seed and limits
  HydrantCacheOptions cache;
};

// All defects but "none".
const std::vector<MutantHunt>& mutant_hunts();
const MutantHunt* find_mutant_hunt(const std::string& name);

// Whether this build can enable them (HYDRANT_MUTANTS).
bool has_mutants();
// Enables the defect in this process; "none" disables it. False if this build has no such defect.
bool set_mutant_by_name(const std::string& name, uint32_t delay_us);

// Whether this process meets the requirement; if not, *reason has the cause.
bool has_needed(Needs needs, std::string* reason);

}  // namespace hydrant::stale
