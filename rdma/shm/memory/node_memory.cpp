// Creates and maps the memory file of a node, and allocates its rings and cells at their first use.
// make_node_transport.cpp creates the file; NodeRings and SenderCells reserve parts of it.
#include "rdma/shm/memory/node_memory.hpp"

#include "firehose/base/errno_text.hpp"
#include "firehose/base/machine/memory_file.hpp"
#include "firehose/base/uncancelled.hpp"
#include "rdma/shm/memory/global_membarrier.hpp"
#include "rdma/transport/guarded_memory.hpp"

#include <cerrno>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace hydrant::shm {
namespace {

Status fill(int fd, uint32_t ranks) noexcept {
  const NodeLayout layout(ranks);
  PageReserver reserver;
  const Status reserved = reserver.reserve(fd, 0, layout.common_bytes(), "the node's memory");
  if (reserved != Status::kOk) return reserved;
  NodeHeader header{};
  header.magic = kNodeMagic;
  header.version = kLayoutVersion;
  header.ranks = ranks;
  header.bytes = layout.bytes();
  const size_t bytes = offsetof(NodeHeader, bytes) + sizeof header.bytes;
  if (uncancelled::pwrite(fd, &header, bytes, 0) != static_cast<ssize_t>(bytes)) {
    return fail(Status::kResource, "pwrite to a memfd: %s", errno_text(errno));
  }
  return Status::kOk;
}

}  // namespace

Status NodeMemory::create(uint32_t node_size, int* fd) noexcept {
  if (node_size == 0 || node_size > kMaxNodeRanks) {
    return fail(Status::kBadArg, "a node of %u ranks: 1 to %u share memory", node_size,
                kMaxNodeRanks);
  }
  const uint64_t bytes = NodeLayout(node_size).bytes();
  const int made = make_memory_file("hydrant-node", bytes);
  if (made < 0) return refuse_memory_file("the memory that the node's ranks share", bytes);
  const Status filled = fill(made, node_size);
  if (filled != Status::kOk) {
    uncancelled::close(made);
    return filled;
  }
  *fd = made;
  return Status::kOk;
}

Status NodeMemory::map(int fd, uint64_t bytes) noexcept {
  std::byte* base = nullptr;
  if (const Status status = reserve_guarded(bytes, kPageBytes, GuardSize::kRoomy,
                                            {.what = "memory that the node's ranks share"}, &base);
      status != Status::kOk)
    return status;
  if (mmap(base, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE | MAP_FIXED, fd, 0) ==
      MAP_FAILED) {
    const int error = errno;
    (void)release_guarded(base);
    return fail(Status::kResource, "mmap of %llu bytes of the node's memory: %s (ulimit -v?)",
                static_cast<unsigned long long>(bytes), errno_text(error));
  }
  const int copy = fcntl(fd, F_DUPFD_CLOEXEC, 0);
  if (copy < 0) {
    const int error = errno;
    if (!release_guarded(base)) munmap(base, bytes);
    return fail(Status::kResource, "a descriptor for the node's memory: %s (ulimit -n)",
                errno_text(error));
  }
  // Excluded from core dumps, which would write out the holes of all ranks.
  madvise(base, bytes, MADV_DONTDUMP);
  base_ = base;
  fd_.keep(copy);
  return Status::kOk;
}

Status NodeMemory::attach(int fd, uint32_t node_rank) noexcept {
  detach();
  NodeHeader header{};
  struct stat file {};
  const size_t wanted = offsetof(NodeHeader, bytes) + sizeof header.bytes;
  if (fstat(fd, &file) != 0 ||
      uncancelled::pread(fd, &header, wanted, 0) != static_cast<ssize_t>(wanted) ||
      header.magic != kNodeMagic) {
    return fail(Status::kBroken, "descriptor %d is not the memory of a node", fd);
  }
  if (header.version != kLayoutVersion) {
    return fail(
        Status::kBroken,
        "the node's memory has layout %u, this process knows %u: all ranks must run the same "
        "version of Hydrant",
        header.version, kLayoutVersion);
  }
  const bool sane = header.ranks >= 1 && header.ranks <= kMaxNodeRanks &&
                    header.bytes == NodeLayout(header.ranks).bytes() &&
                    static_cast<uint64_t>(file.st_size) == header.bytes;
  if (!sane) {
    return fail(Status::kBroken,
                "the node's memory states %u ranks and %llu bytes, but its file has %lld bytes",
                header.ranks, static_cast<unsigned long long>(header.bytes),
                static_cast<long long>(file.st_size));
  }
  if (node_rank >= header.ranks) {
    return fail(Status::kBadArg, "rank %u of a node of %u", node_rank, header.ranks);
  }
  const Status mapped = map(fd, header.bytes);
  if (mapped != Status::kOk) return mapped;
  layout_ = NodeLayout(header.ranks);
  ranks_ = header.ranks;
  rank_ = node_rank;

  RankArea& self = area(node_rank);
  struct stat names {};
  if (stat("/proc/self/ns/pid", &names) == 0) {
    self.pid_namespace.store(names.st_ino, std::memory_order_relaxed);
  }
  self.senders_confirm.store(GlobalMembarrier::enable() ? 0 : 1, std::memory_order_relaxed);
  self.pid.store(static_cast<uint32_t>(getpid()), std::memory_order_relaxed);
  // Pairs with the acquire of readers of the pid.
  self.attached.store(1, std::memory_order_release);
  return Status::kOk;
}

void NodeMemory::detach() noexcept {
  if (base_ == nullptr) return;
  if (!release_guarded(base_)) munmap(base_, layout_.bytes());
  fd_.close();
  base_ = nullptr;
  ranks_ = 0;
}

NodeMemory::~NodeMemory() { detach(); }

Status NodeMemory::reserve(uint64_t offset, uint64_t bytes, const char* what,
                           Owner owner) noexcept {
  const uint64_t first = offset / kPageBytes * kPageBytes;
  const uint64_t end = (offset + bytes + kPageBytes - 1) / kPageBytes * kPageBytes;
  const int fd = fd_.get();
  if (fd < 0) return populate(first, end - first, what, owner);
  const Status reserved = owner == Owner::kOurs
                              ? reserver_.reserve(fd, first, end - first, what)
                              : reserver_.reserve_unchecked(fd, first, end - first, what);
#ifdef MADV_POPULATE_WRITE
  // Populates the page tables too, so that the first messages do not fault. An older kernel refuses; then
  // they fault. Pages that the other rank has reserved are there also where fallocate() is forbidden.
  if ((reserved == Status::kOk || owner == Owner::kTheirs) &&
      madvise(base_ + first, end - first, MADV_POPULATE_WRITE) == 0)
    return Status::kOk;
#endif
  return reserved;
}

// Used after the program has closed the descriptor. From Linux 5.14 on, the mapping allocates pages too, and
// fails as well if none are left.
Status NodeMemory::populate(uint64_t first, uint64_t bytes, const char* what,
                            Owner owner) noexcept {
  if (owner == Owner::kOurs) {
    const Status allowed = reserver_.allow(bytes, what);
    if (allowed != Status::kOk) return allowed;
  }
#ifdef MADV_POPULATE_WRITE
  int failed = 0;
  do {
    failed = madvise(base_ + first, bytes, MADV_POPULATE_WRITE) == 0 ? 0 : errno;
  } while (failed == EINTR);
  if (failed == 0) return Status::kOk;
#else
  const int failed = ENOSYS;
#endif
  return fail(Status::kResource,
              "%s needs %llu bytes of shared memory: the program has closed descriptor %d, the "
              "node's memory file, and its mapping gives no more: %s; close only descriptors that "
              "the program has opened",
              what, static_cast<unsigned long long>(bytes), fd_.number(), errno_text(failed));
}

Status NodeMemory::reserve_ring(uint32_t from, uint32_t to, Lane lane, Owner owner) noexcept {
  constexpr const char* kWhat = "a ring between two ranks";
  const Status control =
      reserve(layout_.control(from, to, lane), sizeof(RingControl), kWhat, owner);
  if (control != Status::kOk) return control;
  const uint64_t bytes = uint64_t{kRingLines[static_cast<uint32_t>(lane)]} * kLineBytes;
  return reserve(layout_.lines(from, to, lane), bytes, kWhat, owner);
}

Status NodeMemory::reserve_cells(uint32_t from, Lane lane, uint32_t cell, Owner owner) noexcept {
  constexpr const char* kWhat = "buffers for messages";
  const Status receipts = reserve(layout_.pool(from, lane), kReceiptsBytes, kWhat, owner);
  if (receipts != Status::kOk) return receipts;
  const bool small = cell < kSmallCells;
  const CellClass& kind = kCellClasses[small ? 0 : 1];
  const uint32_t base = small ? 0 : kSmallCells;
  const uint32_t first = base + (cell - base) / kind.chunk * kind.chunk;
  return reserve(layout_.cell(from, lane, first), uint64_t{kind.chunk} * kind.bytes, kWhat, owner);
}

Status NodeMemory::reserve_collective_block(uint32_t node_rank, uint32_t block) noexcept {
  const uint64_t offset =
      layout_.collectives(node_rank) + uint64_t{block} * MemoryAccess::kCollectiveBytes;
  return reserve(offset, MemoryAccess::kCollectiveBytes, "memory for collectives", Owner::kOurs);
}

uint64_t NodeMemory::reserved_bytes() const noexcept {
  struct stat file {};
  if (fstat(fd_.get(), &file) != 0) return 0;
  return static_cast<uint64_t>(file.st_blocks) * 512;
}

}  // namespace hydrant::shm
