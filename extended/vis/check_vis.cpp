// Checks the arguments of vector, indexed and strided calls. vis_calls.cpp calls it before each transfer that
// its short way does not take.
#include "extended/vis/check_vis.hpp"

#include "am/call/hsl.hpp"
#include "am/call/thread_state.hpp"
#include "am/job/endpoints.hpp"
#include "am/job/job.hpp"
#include "am/job/resolve.hpp"
#include "am/segment/segment_check.hpp"
#include "extended/binding/device_memory.hpp"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <new>

namespace hydrant {
namespace {

Status null_list(const char* side, size_t count) noexcept {
  return fail(Status::kBadArg, "%scount is %zu, and %slist is NULL", side, count, side);
}

Status too_long(const char* side, size_t count) noexcept {
  return fail(Status::kBadArg, "the %zu pieces of %slist are longer than the address space", count,
              side);
}

Status check_piece(const VisTransfer& what, const EndpointPair& endpoints, const Piece& piece,
                   bool is_peers) noexcept {
  const char* side = is_peers == what.is_put() ? "dst" : "src";
  if (piece.addr == 0) return fail(Status::kBadArg, "%s: %zu bytes at NULL", side, piece.bytes);
  if (piece.addr + piece.bytes - 1 < piece.addr)
    return fail(Status::kBadArg, "%s: %zu bytes from %#zx on wrap around the address space", side,
                piece.bytes, static_cast<size_t>(piece.addr));
  if (is_peers && checks_segments())
    return check_in_segment(what.peer, endpoints.to, piece.addr, piece.bytes);
  if (!is_peers && is_device_memory(reinterpret_cast<const void*>(piece.addr)))
    return fail(Status::kBadArg, "%s: %#zx is memory of a device (GPU); VIS takes host memory",
                side, static_cast<size_t>(piece.addr));
  return Status::kOk;
}

Status check_pieces(const VisTransfer& what, const EndpointPair& endpoints, const Side& side,
                    bool is_peers) noexcept {
  for (Cursor cursor(side); !cursor.at_end(); cursor.advance(cursor.rest().bytes)) {
    const Status status = check_piece(what, endpoints, cursor.rest(), is_peers);
    if (status != Status::kOk) return status;
  }
  return Status::kOk;
}

// Above this the check would take seconds.
constexpr size_t kMostCompared = size_t{1} << 20;

// True if no two elements can meet: each dimension steps over all that the ones before it cover. The strides
// are sorted.
bool is_surely_disjoint(const GridPair& pair) noexcept {
  size_t covered = pair.element;
  for (uint32_t i = 0; i < pair.count; ++i) {
    const auto stride = static_cast<size_t>(pair.dimensions[i].dest);
    if (stride < covered) return false;
    covered += stride * (pair.dimensions[i].count - 1);
  }
  return true;
}

// Neighbours that overlap are found at once, however many elements there are.
Status check_neighbours(const GridPair& pair) noexcept {
  if (pair.count == 0) return Status::kOk;
  const auto stride = static_cast<size_t>(pair.dimensions[0].dest);
  if (stride >= pair.element) return Status::kOk;
  return fail(Status::kBadArg, "the destinations overlap: %zu bytes at %#zx, the next %zu behind",
              pair.element, static_cast<size_t>(pair.dest), stride);
}

Status check_overlap(const VisTransfer& what) noexcept {
  if (what.grids != nullptr && is_surely_disjoint(*what.grids)) return Status::kOk;
  const size_t count = what.dest->count;
  if (count < 2 || count > kMostCompared) return Status::kOk;
  const std::unique_ptr<Piece[]> pieces(new (std::nothrow) Piece[count]);
  if (pieces == nullptr) return Status::kOk;
  size_t found = 0;
  for (Cursor cursor(*what.dest); !cursor.at_end(); cursor.advance(cursor.rest().bytes))
    pieces[found++] = cursor.rest();
  std::sort(pieces.get(), pieces.get() + found,
            [](const Piece& a, const Piece& b) { return a.addr < b.addr; });
  for (size_t i = 1; i < found; ++i) {
    const Piece& before = pieces[i - 1];
    if (before.addr + before.bytes <= pieces[i].addr) continue;
    return fail(Status::kBadArg,
                "the destinations overlap: %zu bytes at %#zx and %zu bytes at %#zx", before.bytes,
                static_cast<size_t>(before.addr), pieces[i].bytes,
                static_cast<size_t>(pieces[i].addr));
  }
  return Status::kOk;
}

}  // namespace

Status total_of(const gex_Memvec_t* list, size_t count, const char* side, size_t* bytes) noexcept {
  *bytes = 0;
  if (count == 0) return Status::kOk;
  if (list == nullptr) return null_list(side, count);
  size_t sum = 0;
  bool is_too_long = false;
  for (size_t i = 0; i < count; ++i) {
    is_too_long |= __builtin_add_overflow(sum, list[i].gex_len, &sum);
    if (list[i].gex_addr == nullptr && list[i].gex_len != 0)
      return fail(Status::kBadArg, "piece %zu of %slist is %zu bytes at NULL", i, side,
                  list[i].gex_len);
  }
  *bytes = sum;
  return is_too_long || sum > size_t{PTRDIFF_MAX} ? too_long(side, count) : Status::kOk;
}

Status total_of(void* const* list, size_t count, size_t piece, const char* side,
                size_t* bytes) noexcept {
  *bytes = 0;
  if (count == 0 || piece == 0) return Status::kOk;
  if (list == nullptr) return null_list(side, count);
  const bool is_too_long =
      __builtin_mul_overflow(count, piece, bytes) || *bytes > size_t{PTRDIFF_MAX};
  return is_too_long ? too_long(side, count) : Status::kOk;
}

Status check_strided(const StridedArguments& arguments, const SideNames& names, Direction direction,
                     GridPair& pair, MemoryRange* peer_box) noexcept {
  Status status = canonicalise(arguments, pair);
  if (status != Status::kOk || pair.bytes == 0) return status;
  if (arguments.dest == nullptr || arguments.source == nullptr)
    return fail(Status::kBadArg, "%zu bytes, and %s is NULL", pair.bytes,
                arguments.dest == nullptr ? names.dest : names.source);
  MemoryRange dest;
  MemoryRange source;
  status = dest_box(pair, &dest);
  if (status == Status::kOk) status = source_box(pair, &source);
  if (status == Status::kOk) *peer_box = direction == Direction::kPut ? dest : source;
  return status;
}

Status check_vis(gex_TM_t tm, gex_Rank_t rank, VisTransfer& what) noexcept {
  if (!is_wired()) return fail(Status::kNotInit, "no client is initialised");
  if (handler_depth != 0) return fail(Status::kBadArg, "a handler must not put or get");
  if (const Status status = resolve(tm, rank, &what.peer); status != Status::kOk) return status;
  if (job().debug) check_no_locks("a put or get is started");
  if (what.bytes == 0) return Status::kOk;
  if (!job().debug && find_pointer_query() == nullptr) return Status::kOk;
  const EndpointPair endpoints = endpoints_of(tm);
  const Side& peers = what.is_put() ? *what.dest : *what.source;
  const Side& own = what.is_put() ? *what.source : *what.dest;
  Status status = Status::kOk;
  if (job().debug && what.grids != nullptr) status = check_neighbours(*what.grids);
  if (status == Status::kOk) status = check_pieces(what, endpoints, peers, true);
  if (status == Status::kOk) status = check_pieces(what, endpoints, own, false);
  if (status == Status::kOk && job().debug) status = check_overlap(what);
  return status;
}

}  // namespace hydrant
