// The object behind hydrant_operation_t: a put or get that is started again and again.
//
// Threads: one at a time.
#pragma once

#include <hydrant/persistent.h>

#include "extended/event/completion_counter.hpp"
#include "extended/rma/common/transfer.hpp"
#include "extended/rma/pinned/rma_pinned_piece.hpp"

#include <cstddef>
#include <memory>

namespace hydrant {

// A transfer that is not one put or get.
class PreparedTransfer {
 public:
  virtual ~PreparedTransfer() = default;
  // Executes or starts it, and reports what is under way to `counter`. Errors: as transfer().
  virtual Status start(CompletionCounter& counter) noexcept = 0;
};

}  // namespace hydrant

struct hydrant_operation_s {
  hydrant::Transfer what;
  std::byte* mapped = nullptr;  // the remote memory, if it is mapped permanently
  hydrant::CompletionCounter counter;
  // Null: not between pinned memory, or too long.
  std::unique_ptr<hydrant::PersistentPiece> persistent;
  // Null: `what` is the transfer; otherwise `what` has no bytes.
  std::unique_ptr<hydrant::PreparedTransfer> prepared;
};
