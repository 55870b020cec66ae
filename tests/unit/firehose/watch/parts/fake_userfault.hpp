// The kernel's side of a userfaultfd as a test sets it: fake_userfault.cpp replaces the functions of
// Userfault.
#pragma once

#include "firehose/watch/userfault.hpp"

#include <cstdint>
#include <functional>
#include <set>
#include <vector>

namespace hydrant::testing {

struct FakeUserfault {
  bool is_usable = true;
  bool is_open = true;
  bool has_reports = false;
  // Whether a change is under way; empty: none is.
  std::function<bool()> change_under_way;
  std::set<uintptr_t> registered;   // addresses of pages
  std::set<uintptr_t> refused;      // the kernel refuses ranges with one of these pages
  std::function<void()> unwatched;  // called after the end of a registration
  std::vector<MemoryChange> pending;
  size_t registrations = 0;

  bool is_registered(MemoryRange range) const;
  bool is_refused(MemoryRange range) const;
};

// The fake of the process. Tests set it to {} before they use it.
FakeUserfault& fake_userfault();

}  // namespace hydrant::testing
