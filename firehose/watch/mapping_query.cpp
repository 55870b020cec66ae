// Queries the kernel for the mapping at an address, by ioctl on /proc/self/maps or by parsing its text. The
// monitor, ExtensionLimits and the mlock registrar call it.
#include "firehose/watch/mapping_query.hpp"

#include "firehose/base/uncancelled.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/types.h>
#include <unistd.h>

namespace hydrant {
namespace {

// linux/fs.h of 6.11; Debian 12's headers are older.
struct ProcmapQuery {
  uint64_t size, query_flags, query_addr, vma_start, vma_end, vma_flags, vma_page_size, vma_offset,
      inode;
  uint32_t dev_major, dev_minor, vma_name_size, build_id_size;
  uint64_t vma_name_addr, build_id_addr;
};
static_assert(sizeof(ProcmapQuery) == 104);
constexpr unsigned long kProcmapQuery = _IOWR('f', 17, ProcmapQuery);
constexpr uint64_t kVmaShared = 8;
constexpr uint64_t kContainingOrNext = 0x10;

// Parses one line of /proc/self/maps: "start-end perms offset major:minor inode path".
bool parse_line(const char* line, Mapping* out) {
  uintptr_t numbers[2] = {0, 0};
  const char* p = line;
  for (int i = 0; i < 2; ++i) {
    for (;; ++p) {
      unsigned digit = 0;
      if (*p >= '0' && *p <= '9') {
        digit = static_cast<unsigned>(*p - '0');
      } else if (*p >= 'a' && *p <= 'f') {
        digit = static_cast<unsigned>(*p - 'a') + 10;
      } else {
        break;
      }
      numbers[i] = numbers[i] << 4 | digit;
    }
    if (*p++ != (i == 0 ? '-' : ' ')) return false;
  }
  if (std::strlen(p) < 5) return false;
  const bool is_private = p[3] == 'p';
  // The inode is the third word from here on: perms, offset, device, inode.
  for (int words = 0; words < 3; ++words) {
    p = std::strchr(p, ' ');
    if (p == nullptr) return false;
    ++p;
  }
  const bool has_file = !(p[0] == '0' && (p[1] == ' ' || p[1] == '\0'));
  out->range = {numbers[0], numbers[1] - numbers[0]};
  out->anonymous_private = is_private && !has_file;
  out->file_private = is_private && has_file;
  return numbers[1] > numbers[0];
}

// Calls more(mapping) for each line of /proc/self/maps until it returns false. Returns false without /proc.
template <class More>
bool read_text(More more) noexcept {
  // Uses its own descriptor, because reads move the file position, which all threads would share.
  const int fd = uncancelled::open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  char buffer[8192];
  size_t have = 0;
  bool wanted = true;
  while (wanted) {
    const ssize_t got = uncancelled::read(fd, buffer + have, sizeof buffer - 1 - have);
    if (got <= 0) break;
    have += static_cast<size_t>(got);
    buffer[have] = '\0';
    char* line = buffer;
    for (char* end = nullptr; wanted && (end = std::strchr(line, '\n')) != nullptr;
         line = end + 1) {
      *end = '\0';
      Mapping mapping{};
      if (parse_line(line, &mapping)) wanted = more(mapping);
    }
    have -= static_cast<size_t>(line - buffer);
    std::memmove(buffer, line, have);
    if (have == sizeof buffer - 1) have = 0;  // a line longer than the buffer: not one that we need
  }
  uncancelled::close(fd);
  return true;
}

// Joins adjacent mappings inside `within`, and reports each run once.
class RunReporter {
 public:
  RunReporter(MemoryRange within, MappedRun each, void* context) noexcept
      : within_(within), each_(each), context_(context) {}
  ~RunReporter() { report(); }
  RunReporter(const RunReporter&) = delete;
  RunReporter& operator=(const RunReporter&) = delete;

  // Mappings come in address order. False when no later mapping can lie in `within`.
  bool add(MemoryRange mapping) noexcept {
    if (mapping.addr > within_.last()) return false;
    if (mapping.last() < within_.addr) return true;
    const uintptr_t start = std::max(mapping.addr, within_.addr);
    const uintptr_t last = std::min(mapping.last(), within_.last());
    if (run_.len == 0 || start != run_.end()) {
      report();
      run_.addr = start;
    }
    run_.len = last - run_.addr + 1;
    return last != within_.last();
  }

 private:
  void report() noexcept {
    if (run_.len != 0) each_(context_, run_);
    run_.len = 0;
  }

  const MemoryRange within_;
  const MappedRun each_;
  void* const context_;
  MemoryRange run_;
};

// Returns 0, or the errno of open() or of the ioctl, which kernels before 6.11 lack.
int query_runs(MemoryRange within, RunReporter& runs) noexcept {
  const int fd = uncancelled::open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return errno;
  int error = 0;
  for (uintptr_t at = within.addr;;) {
    ProcmapQuery query{};
    query.size = sizeof query;
    query.query_flags = kContainingOrNext;
    query.query_addr = at;
    if (ioctl(fd, kProcmapQuery, &query) != 0) {
      error = errno == ENOENT ? 0 : errno;  // no mapping at `at` or above
      break;
    }
    if (!runs.add({query.vma_start, query.vma_end - query.vma_start})) break;
    at = query.vma_end;
  }
  uncancelled::close(fd);
  return error;
}

}  // namespace

bool for_each_mapped(MemoryRange within, MappedRun each, void* context) noexcept {
  {
    RunReporter runs(within, each, context);
    if (query_runs(within, runs) == 0) return true;
  }
  RunReporter runs(within, each, context);
  return read_text([&](const Mapping& mapping) noexcept { return runs.add(mapping.range); });
}

bool MappingQuery::open() noexcept {
  fd_ = uncancelled::open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
  if (fd_ >= 0) identity_.note(fd_);
  return fd_ >= 0;
}

void MappingQuery::close() noexcept {
  if (identity_.is(fd_)) uncancelled::close(fd_);  // unless the number is another file's by now
  fd_ = -1;
}

bool MappingQuery::find_quickly(uintptr_t addr, Mapping* out) const noexcept {
  ProcmapQuery query{};
  query.size = sizeof query;
  query.query_addr = addr;
  const int error = ioctl(fd_, kProcmapQuery, &query) == 0 ? 0 : errno;
  // The number may be another file's by now, such as the maps of another process.
  errno = identity_.has_mark(fd_) ? error : EBADF;
  if (errno != 0) return false;
  out->range = {query.vma_start, query.vma_end - query.vma_start};
  const bool is_private = (query.vma_flags & kVmaShared) == 0;
  const bool has_file = query.inode != 0 || query.dev_major != 0 || query.dev_minor != 0;
  out->anonymous_private = is_private && !has_file;
  out->file_private = is_private && has_file;
  return true;
}

bool MappingQuery::find(uintptr_t addr, Mapping* out) const noexcept {
  if (fd_ < 0) return false;
  return find_quickly(addr, out) ||
         ((errno == ENOTTY || errno == EBADF) && find_in_text(addr, out));
}

bool MappingQuery::find_in_text(uintptr_t addr, Mapping* out) const noexcept {
  bool found = false;
  const bool read = read_text([&](const Mapping& mapping) noexcept {
    if (mapping.range.last() < addr) return true;
    found = mapping.range.addr <= addr;
    if (found) *out = mapping;
    return false;
  });
  return read && found;
}

}  // namespace hydrant
