// Supplies the defaults of MemoryAccess: no memory is reached, and pieces are copied one by one.
#include "rdma/transport/memory_access.hpp"

namespace hydrant {
namespace {

struct NoMemory final : MemoryAccess {};
constinit NoMemory no_memory;

Status refuse() noexcept {
  return fail_literal(Status::kUnsupported, "this transport has no one-sided operations");
}

}  // namespace

MemoryAccess& MemoryAccess::none() noexcept { return no_memory; }

std::byte* MemoryAccess::shared_block(Rank) const noexcept { return nullptr; }

std::byte* MemoryAccess::start_block(Rank) const noexcept { return nullptr; }

std::byte* MemoryAccess::collective_blocks(Rank) const noexcept { return nullptr; }

Status MemoryAccess::reserve_collective_block(uint32_t) noexcept { return Status::kUnsupported; }

Status MemoryAccess::add_segment(Rank, uintptr_t, size_t, void*) noexcept { return Status::kOk; }

void* MemoryAccess::mapped(Rank, uintptr_t, size_t) const noexcept { return nullptr; }

Status MemoryAccess::write(Rank, uintptr_t, const void*, size_t) noexcept { return refuse(); }

Status MemoryAccess::put(Rank, uintptr_t, const void*, size_t, Completion*) noexcept {
  return refuse();
}

Status MemoryAccess::get(Rank, uintptr_t, void*, size_t, Completion*) noexcept { return refuse(); }

Status MemoryAccess::put_pieces(Rank peer, std::span<const Piece> pieces) noexcept {
  for (const Piece& piece : pieces) {
    const Status status = put(peer, piece.remote, piece.local, piece.bytes, nullptr);
    if (status != Status::kOk) return status;
  }
  return Status::kOk;
}

Status MemoryAccess::get_pieces(Rank peer, std::span<const Piece> pieces) noexcept {
  for (const Piece& piece : pieces) {
    const Status status = get(peer, piece.remote, piece.local, piece.bytes, nullptr);
    if (status != Status::kOk) return status;
  }
  return Status::kOk;
}

}  // namespace hydrant
