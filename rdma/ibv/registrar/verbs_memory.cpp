// Maps and registers the buffers of the verbs transport itself. Peers, cells, rails and the datagram queue
// keep such memory for their life.
#include "rdma/ibv/registrar/verbs_memory.hpp"

#include "firehose/base/config/config_grammar.hpp"
#include "firehose/base/errno_text.hpp"
#include "firehose/base/machine/machine_limits.hpp"
#include "firehose/base/uncancelled.hpp"

#include <cerrno>
#include <sys/mman.h>
#include <unistd.h>

namespace hydrant::ibv {

size_t VerbsMemory::registered_bytes(size_t bytes) noexcept {
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return (bytes + page - 1) / page * page;
}

Status VerbsMemory::open(ibv_pd* pd, size_t bytes, int access, const char* what) noexcept {
  bytes_ = registered_bytes(bytes);
  void* mapped = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED)
    return fail(Status::kResource, "no memory for %s: %zu bytes: %s", what, bytes_,
                errno_text(errno));
  data_ = static_cast<std::byte*>(mapped);
  // A fork must not make the pages copy-on-write: a later write would give this process new pages, while the
  // adapter keeps using the old ones.
  (void)madvise(mapped, bytes_, MADV_DONTFORK);
  errno = 0;
  registration_.reset(uncancelled::call([&] { return ibv_reg_mr(pd, mapped, bytes_, access); }));
  if (registration_ != nullptr) return Status::kOk;
  const int error = errno;
  close();
  const MachineLimits limits = read_machine_limits();
  char memlock[32];
  return fail(Status::kResource,
              "%s: %zu bytes for %s cannot be registered: %s (memlock is %s%s: raise it with "
              "ulimit -l, hydrant-info says how much is needed; or the device's table of "
              "registrations is full)",
              pd->context->device->name, bytes_, what, errno_text(error),
              format_size_rounded(limits.memlock_bytes, memlock, sizeof memlock),
              limits.memlock_lifted ? ", but lifted by CAP_IPC_LOCK" : "");
}

void VerbsMemory::close() noexcept {
  registration_.reset();
  if (data_ != nullptr) munmap(data_, bytes_);
  data_ = nullptr;
}

}  // namespace hydrant::ibv
