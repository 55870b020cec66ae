// Explains why a memory file cannot be created. Creation itself is inline in memory_file.hpp. The node's
// memory and the segments report failures with this text.
#include "firehose/base/machine/memory_file.hpp"

#include "firehose/base/errno_text.hpp"

namespace hydrant {

Status refuse_memory_file(const char* purpose, uint64_t bytes) noexcept {
  const int error = errno;
  const auto wanted = static_cast<unsigned long long>(bytes);
  rlimit limit{};
  if (error == EFBIG && getrlimit(RLIMIT_FSIZE, &limit) == 0) {
    return fail(Status::kResource,
                "a memory file of %llu bytes for %s is larger than the limit on file sizes, %llu "
                "bytes: ulimit -f unlimited",
                wanted, purpose, static_cast<unsigned long long>(limit.rlim_cur));
  }
  const bool is_full = error == EMFILE || error == ENFILE;  // the table of descriptors
  return fail(Status::kResource, "cannot create a memory file of %llu bytes for %s: %s%s", wanted,
              purpose, errno_text(error), is_full ? " (ulimit -n)" : "");
}

}  // namespace hydrant
