// Registers Active Message handlers. gex_EP_RegisterHandlers(), gasnet_attach() and extended/ call it;
// deliver.cpp reads the table.
#include "am/job/handler_table.hpp"

#include "am/wire/message.hpp"

#include <bitset>

namespace hydrant {
namespace {

constexpr uint32_t kLastIndex = 255;

Status check_entry(const gex_AM_Entry_t& entry, size_t row) noexcept {
  if (entry.gex_index != 0 && entry.gex_index < HandlerTable::kFirstClientIndex) {
    return fail(
        Status::kBadArg,
        "row %zu of the handler table has index %u; client indices are %u to 255, or 0 for any",
        row, entry.gex_index, HandlerTable::kFirstClientIndex);
  }
  if (entry.gex_fnptr == nullptr) {
    return fail(Status::kBadArg, "row %zu of the handler table has no function", row);
  }
  if (entry.gex_nargs > kMaxArgs && entry.gex_nargs != HandlerTable::kAnyNumber) {
    return fail(Status::kBadArg, "row %zu of the handler table has %u arguments; the limit is %u",
                row, entry.gex_nargs, kMaxArgs);
  }
  if ((entry.gex_flags & (GEX_FLAG_AM_SHORT | GEX_FLAG_AM_MEDLONG)) == 0 ||
      (entry.gex_flags & GEX_FLAG_AM_REQREP) == 0) {
    return fail(Status::kBadArg,
                "row %zu of the handler table has flags %#x, which name no category "
                "(GEX_FLAG_AM_SHORT, ...) or neither request nor reply",
                row, entry.gex_flags);
  }
  return Status::kOk;
}

}  // namespace

Status HandlerTable::check_locked(const gex_AM_Entry_t* entries, size_t count) noexcept {
  std::bitset<256> taken;
  size_t used = 0;
  for (uint32_t i = kFirstClientIndex; i <= kLastIndex; ++i) {
    taken[i] = entries_[i].gex_fnptr != nullptr;
    used += taken[i] ? 1 : 0;
  }
  for (size_t row = 0; row < count; ++row) {
    if (const Status status = check_entry(entries[row], row); status != Status::kOk) return status;
    const uint32_t index = entries[row].gex_index;
    if (index != 0 && taken[index]) {
      return fail(Status::kBadArg, "row %zu of the handler table has index %u, which is taken", row,
                  index);
    }
    if (index != 0) taken[index] = true;
  }
  if (used + count > kLastIndex + 1 - kFirstClientIndex) {
    return fail(Status::kResource, "%zu handlers are registered; %zu more exceed the limit of %u",
                used, count, kLastIndex + 1 - kFirstClientIndex);
  }
  return Status::kOk;
}

Status HandlerTable::add(gex_AM_Entry_t* entries, size_t count) noexcept {
  const MutexLock lock(mu_);
  if (const Status status = check_locked(entries, count); status != Status::kOk) return status;
  for (size_t row = 0; row < count; ++row) {
    if (entries[row].gex_index != 0) entries_[entries[row].gex_index] = entries[row];
  }
  uint32_t next = kLastIndex;
  for (size_t row = 0; row < count; ++row) {
    if (entries[row].gex_index != 0) continue;
    while (entries_[next].gex_fnptr != nullptr) --next;
    entries[row].gex_index = static_cast<gex_AM_Index_t>(next);
    entries_[next] = entries[row];
  }
  return Status::kOk;
}

void HandlerTable::add_internal(uint32_t index, gex_AM_Fn_t function, uint32_t nargs,
                                gex_Flags_t flags, const char* name) noexcept {
  const MutexLock lock(mu_);
  entries_[index] = {.gex_index = static_cast<gex_AM_Index_t>(index),
                     .gex_fnptr = function,
                     .gex_flags = flags,
                     .gex_nargs = nargs,
                     .gex_cdata = nullptr,
                     .gex_name = name};
}

}  // namespace hydrant
