// Hunts in separate processes: with preloaded libraries, or with a defect that may crash the process.
#pragma once

#include "tests/stale/hunt/mutants.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace hydrant::stale {

// The hooks library of this build, and whether the hooks are in this process.
std::string hooks_library();
bool has_hooks() noexcept;

// Restarts this program in place with the libraries (separated by blanks) preloaded. Returns "" if they
// already are, else the reason of a failure.
std::string restart_with(const std::string& libraries, char** argv);

struct ProgramEnd {
  bool started = false;
  int status = 0;      // of waitpid()
  std::string output;  // both streams
};

// Runs a program with just these libraries preloaded. Killed a minute after `seconds`.
ProgramEnd run_program(const std::vector<std::string>& arguments, const std::string& libraries,
                       double seconds);

enum class MutantEnd : uint8_t { kCaught, kSurvived, kSkipped, kFailed };

struct MutantRun {
  MutantEnd end = MutantEnd::kFailed;
  uint64_t operations = 0;
  double seconds = 0;
  std::string text;  // the finding, or the reason for none
};

// Runs the hunt of one mutant in `program`, a stale_hunt with mutants, until it is caught, or for at least
// `operations`: in short processes with other seeds. A process may come to cache nothing any more, because
// pins beside steady releases stop waiting for a quiet moment. A time that only a hang or a far slower
// machine needs ends it, too.
MutantRun run_mutant(const std::string& program, const MutantHunt& mutant, uint64_t seed,
                     uint64_t operations);

// Path of the program with mutants beside this one, or of this one if it has mutants.
std::string program_with_mutants();
std::string beside_this_program(const std::string& name);

}  // namespace hydrant::stale
