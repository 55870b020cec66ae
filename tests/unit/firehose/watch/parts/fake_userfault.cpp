// Replaces the system calls of Userfault by a set of pages and replies that a test sets.
#include "tests/unit/firehose/watch/parts/fake_userfault.hpp"

#include "tests/support/sizes.hpp"

#include <algorithm>
#include <cerrno>

namespace hydrant {

using testing::fake_userfault;
using testing::kPage;

namespace testing {

FakeUserfault& fake_userfault() {
  static FakeUserfault fake;
  return fake;
}

bool FakeUserfault::is_registered(MemoryRange range) const {
  for (uintptr_t at = range.addr; at < range.end(); at += kPage) {
    if (registered.count(at) == 0) return false;
  }
  return true;
}

bool FakeUserfault::is_refused(MemoryRange range) const {
  const auto first = refused.lower_bound(range.addr);
  return first != refused.end() && *first < range.end();
}

}  // namespace testing

int Userfault::open(const char**) noexcept { return 0; }
void Userfault::close() noexcept { abandon(); }

bool Userfault::watch(MemoryRange range) const noexcept {
  if (fake_userfault().is_refused(range)) return false;
  ++fake_userfault().registrations;
  for (uintptr_t at = range.addr; at < range.end(); at += kPage)
    fake_userfault().registered.insert(at);
  return true;
}

bool Userfault::unwatch(MemoryRange range) const noexcept {
  if (fake_userfault().is_refused(range)) return false;
  auto& registered = fake_userfault().registered;
  registered.erase(registered.lower_bound(range.addr), registered.lower_bound(range.end()));
  if (fake_userfault().unwatched) fake_userfault().unwatched();
  return true;
}

bool Userfault::usable() const noexcept { return fake_userfault().is_usable; }

bool Userfault::is_open() const noexcept { return fake_userfault().is_open; }

bool Userfault::change_under_way() const noexcept {
  return fake_userfault().change_under_way && fake_userfault().change_under_way();
}

bool Userfault::has_reports() const noexcept { return fake_userfault().has_reports; }

size_t Userfault::read(MemoryChange* changes, size_t n, int* error) const noexcept {
  auto& pending = fake_userfault().pending;
  n = std::min(n, pending.size());
  *error = n > 0 ? 0 : EAGAIN;
  std::copy_n(pending.begin(), n, changes);
  pending.erase(pending.begin(), pending.begin() + static_cast<std::ptrdiff_t>(n));
  return n;
}

}  // namespace hydrant
