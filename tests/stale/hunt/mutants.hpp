// Which hunt finds which deliberate defect (firehose/watch/mutant.hpp): memory and a mix of operations
// that the defect alone endangers.
#pragma once

#include "tests/stale/hunt/hunt.hpp"
#include "tests/stale/hunt/hydrant_cache.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace hydrant::stale {

// What the process must have for the defect to be there at all.
enum class Needs : uint8_t { kReader, kHooks };

struct MutantHunt {
  std::string name;
  std::string what;
  Needs needs = Needs::kReader;
  uint32_t delay_us = 0;  // how long the defective library sleeps where its windows are
  HuntOptions hunt;       // without seed and end
};

// All defects but "none".
const std::vector<MutantHunt>& mutant_hunts();
const MutantHunt* find_mutant_hunt(const std::string& name);

// Whether this build can switch them on (HYDRANT_MUTANTS).
bool has_mutants();
// Switches the defect on in this process; "none" switches it off. False: not in this build.
bool set_mutant_by_name(const std::string& name, uint32_t delay_us);

// Whether this process has what is needed; if not, *reason says so.
bool has_needed(Needs needs, std::string* reason);

}  // namespace hydrant::stale
