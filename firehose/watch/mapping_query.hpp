// What is mapped where, from the kernel: one ioctl where it has that (Linux 6.11), else /proc/self/maps.
#pragma once

#include "firehose/base/memory_range.hpp"
#include "firehose/watch/file_identity.hpp"

namespace hydrant {

struct Mapping {
  MemoryRange range;
  bool anonymous_private;  // no file behind it, not shared: nobody else can change or shrink it
  bool file_private;       // of a file, but what is written to it is this process's alone
};

class MappingQuery {
 public:
  constexpr MappingQuery() noexcept = default;
  MappingQuery(const MappingQuery&) = delete;
  MappingQuery& operator=(const MappingQuery&) = delete;

  // False without /proc. Opens one descriptor.
  bool open() noexcept;
  void close() noexcept;

  // The mapping that contains addr; false if there is none, or /proc cannot be read. Does not allocate.
  // Threads: any. Cost: 0.3 us, or 0.2 us per mapping of the process on kernels before 6.11.
  bool find(uintptr_t addr, Mapping* out) const noexcept;
  // The same, but false where the kernel has no such question. Cost: 0.3 us.
  bool find_quickly(uintptr_t addr, Mapping* out) const noexcept;

 private:
  bool find_in_text(uintptr_t addr, Mapping* out) const noexcept;
  int fd_ = -1;
  FileIdentity identity_;
};

}  // namespace hydrant
