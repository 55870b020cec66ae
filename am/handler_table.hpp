// The handlers of an endpoint: 256 places, 128 to 255 the client's, 1 to 127 the library's own. Filled by
// registration, read by whoever delivers.
//
// Threads: registration excludes itself by a mutex; a delivery of an index that is being registered is the
// client's race (it has to synchronise before anybody may send).
#pragma once

#include <hydrant/gasnet/am.h>

#include "firehose/base/status.hpp"
#include "firehose/base/thread.hpp"

#include <array>
#include <cstddef>
#include <cstdint>

namespace hydrant {

class HandlerTable {
 public:
  static constexpr uint32_t kFirstClientIndex = GEX_AM_INDEX_BASE;
  // GASNet-1's tables do not say how many arguments a handler takes.
  static constexpr uint32_t kAnyNumber = UINT32_MAX;

  // All of them or none. Fixed indices first, then those of index 0, in the table's order, at the highest
  // free index, which is written back.
  // Errors: kBadArg: an index that is taken, named twice or not the client's, too many arguments, no
  // category; kResource: all places are taken.
  Status add(gex_AM_Entry_t* entries, size_t count) noexcept;

  // One of the library's own: `index` in [1, 127].
  void add_internal(uint32_t index, gex_AM_Fn_t function, uint32_t nargs, gex_Flags_t flags,
                    const char* name) noexcept;

  // gex_fnptr is null where nothing is registered.
  const gex_AM_Entry_t& at(uint32_t index) const noexcept { return entries_[index & 0xff]; }

 private:
  Status check_locked(const gex_AM_Entry_t* entries, size_t count) noexcept HYDRANT_REQUIRES(mu_);

  Mutex mu_;
  std::array<gex_AM_Entry_t, 256> entries_ = {};
};

}  // namespace hydrant
