// The Active Message handlers of an endpoint, 256 entries: 128 to 255 belong to the client, 1 to 127 to
// the library. Registration writes the table; deliver.cpp reads it.
//
// Threads: a mutex serialises registrations. A client must synchronise before another rank sends to an
// index that is being registered.
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
  // GASNet-1's tables do not contain the number of arguments.
  static constexpr uint32_t kAnyNumber = UINT32_MAX;

  // Registers all entries or none. Fixed indices come first. Then entries with index 0, in table order,
  // get the highest free index, which is written back. Errors: kBadArg: an index that is taken, used
  // twice or reserved for the library, too many arguments, no category; kResource: the table is full.
  Status add(gex_AM_Entry_t* entries, size_t count) noexcept;

  // Registers a handler of the library; `index` is in [1, 127].
  void add_internal(uint32_t index, gex_AM_Fn_t function, uint32_t nargs, gex_Flags_t flags,
                    const char* name) noexcept;

  // gex_fnptr is null for an unregistered index.
  const gex_AM_Entry_t& at(uint32_t index) const noexcept { return entries_[index & 0xff]; }

 private:
  Status check_locked(const gex_AM_Entry_t* entries, size_t count) noexcept HYDRANT_REQUIRES(mu_);

  Mutex mu_;
  std::array<gex_AM_Entry_t, 256> entries_ = {};
};

}  // namespace hydrant
