// Implements persistent strided operations (hydrant/persistent.h): the checks and the canonical form are made
// once, and each start takes the path of the call without them (vis_transfer.cpp).
#include "am/call/in_call.hpp"
#include "extended/rma/common/rma_errors.hpp"
#include "extended/rma/persistent_operation.hpp"
#include "extended/vis/check_vis.hpp"
#include "extended/vis/one_firehose.hpp"

#include <new>

using namespace hydrant;

namespace {

class StridedOperation final : public PreparedTransfer {
 public:
  // Errors: kBadArg, kNotInit: see hydrant/persistent.h.
  Status prepare(gex_TM_t tm, gex_Rank_t rank, Direction direction,
                 const StridedArguments& arguments) noexcept {
    what_.direction = direction;
    constexpr const char* kLocal = "the local memory";
    constexpr const char* kRemote = "the remote memory";
    const SideNames names =
        what_.is_put() ? SideNames{kRemote, kLocal} : SideNames{kLocal, kRemote};
    Status status = check_strided(arguments, names, direction, pair_, &what_.peer_box);
    if (status != Status::kOk || pair_.bytes == 0) return status;
    dest_grid(pair_, dest_grid_);
    source_grid(pair_, source_grid_);
    dest_ = Side::of(dest_grid_);
    source_ = Side::of(source_grid_);
    what_.dest = &dest_;
    what_.source = &source_;
    what_.grids = &pair_;
    what_.bytes = pair_.bytes;
    status = check_vis(tm, rank, what_);
    if (status == Status::kOk) request_one_firehose(what_);
    return status;
  }

  Status start(CompletionCounter& counter) noexcept override {
    return what_.bytes != 0 ? start_vis(what_, counter) : Status::kOk;
  }

 private:
  GridPair pair_;
  Grid dest_grid_;
  Grid source_grid_;
  Side dest_;
  Side source_;
  VisTransfer what_;
};

int make_operation(gex_TM_t tm, gex_Rank_t rank, Direction direction,
                   const StridedArguments& arguments, hydrant_operation_t* operation,
                   const char* call) noexcept {
  if (operation == nullptr)
    return return_or_abort(fail(Status::kBadArg, "the pointer to the operation is NULL"), call,
                           true);
  std::unique_ptr<StridedOperation> strided(new (std::nothrow) StridedOperation);
  std::unique_ptr<hydrant_operation_s> made(new (std::nothrow) hydrant_operation_s);
  if (strided == nullptr || made == nullptr)
    return return_or_abort(fail(Status::kResource, "no memory for an operation"), call, true);
  const Status status = strided->prepare(tm, rank, direction, arguments);
  if (status != Status::kOk) return return_or_abort(status, call, true);
  made->counter.returns_errors = true;
  made->prepared = std::move(strided);
  *operation = made.release();
  return GASNET_OK;
}

}  // namespace

extern "C" {

int hydrant_put_strided_init(gex_TM_t tm, gex_Rank_t rank, void* remote,
                             const ptrdiff_t remote_strides[], const void* local,
                             const ptrdiff_t local_strides[], size_t element, const size_t count[],
                             size_t levels, hydrant_operation_t* operation) {
  constexpr const char* kCall = "hydrant_put_strided_init";
  const InCall in_call(kCall, CallKind::kLocal);
  const StridedArguments arguments = {remote,  remote_strides, local, local_strides,
                                      element, count,          levels};
  return make_operation(tm, rank, Direction::kPut, arguments, operation, kCall);
}

int hydrant_get_strided_init(gex_TM_t tm, gex_Rank_t rank, const void* remote,
                             const ptrdiff_t remote_strides[], void* local,
                             const ptrdiff_t local_strides[], size_t element, const size_t count[],
                             size_t levels, hydrant_operation_t* operation) {
  constexpr const char* kCall = "hydrant_get_strided_init";
  const InCall in_call(kCall, CallKind::kLocal);
  const StridedArguments arguments = {local,   local_strides, remote, remote_strides,
                                      element, count,         levels};
  return make_operation(tm, rank, Direction::kGet, arguments, operation, kCall);
}

}  // extern "C"
