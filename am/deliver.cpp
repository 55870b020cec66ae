#include "am/deliver.hpp"

#include "am/call_handler.hpp"
#include "am/hsl.hpp"
#include "am/job.hpp"
#include "am/thread_state.hpp"
#include "am/token.hpp"

#include <cstring>

namespace hydrant {
namespace {

[[gnu::cold]] void refuse(const Tag& tag, const gex_AM_Entry_t& entry, Rank from, bool is_request) {
  if (entry.gex_fnptr == nullptr) {
    fatal("rank %u sent a %s for handler %u, and nothing is registered there", from,
          is_request ? "request" : "reply", tag.handler);
  }
  fatal("rank %u sent a %s with %u arguments for handler %u (%s), which is registered with %u",
        from, is_request ? "request" : "reply", tag.nargs, tag.handler,
        entry.gex_name != nullptr ? entry.gex_name : "no name", entry.gex_nargs);
}

// A debug client's handlers are called as they were registered, or not at all.
[[gnu::cold]] void check_use(const Tag& tag, const gex_AM_Entry_t& entry, Rank from,
                             bool is_request) {
  const gex_Flags_t category = tag.category == Category::kShort    ? GEX_FLAG_AM_SHORT
                               : tag.category == Category::kMedium ? GEX_FLAG_AM_MEDIUM
                                                                   : GEX_FLAG_AM_LONG;
  const gex_Flags_t direction = is_request ? GEX_FLAG_AM_REQUEST : GEX_FLAG_AM_REPLY;
  if ((entry.gex_flags & category) == 0 || (entry.gex_flags & direction) == 0) {
    fatal(
        "rank %u sent handler %u (%s) a message of a kind that it is not registered for (flags "
        "%#x)",
        from, tag.handler, entry.gex_name != nullptr ? entry.gex_name : "no name", entry.gex_flags);
  }
}

// Does the message have all that its tag and its own length promise?
bool fits(const Tag& tag, const Incoming& message) noexcept {
  if (tag.nargs > kMaxArgs || tag.category > Category::kLong) return false;
  if (head_bytes(tag.category, tag.nargs) > message.head_room) return false;
  const bool has_payload =
      tag.category == Category::kMedium || (tag.category == Category::kLong && tag.deposit);
  if (!has_payload) return true;
  const uint32_t bytes = read_length(message.head, tag.category);
  if (message.payload != nullptr) return bytes <= message.payload_room;
  return bytes == 0 ||
         uint64_t{bytes} + payload_offset(tag.category, tag.nargs) <= message.head_room;
}

// `call` runs the function of the entry for the token that it gets.
template <typename Call>
inline void with_token(const Tag& tag, Rank from, bool is_request, Call call) noexcept {
  const Job& the_job = job();
  const gex_AM_Entry_t& entry = the_job.handlers.at(tag.handler);
  if (entry.gex_nargs != tag.nargs || entry.gex_fnptr == nullptr) [[unlikely]] {
    if (entry.gex_nargs != HandlerTable::kAnyNumber) refuse(tag, entry, from, is_request);
  }
  const bool debug = the_job.debug;
  if (debug) [[unlikely]]
    check_use(tag, entry, from, is_request);
  hydrant_token token = {.from = from,
                         .is_request = is_request,
                         .is_long = tag.category == Category::kLong,
                         .replied = false,
                         .entry = &entry};
  ++handler_depth;
  call(entry.gex_fnptr, &token);
  if (debug) [[unlikely]]
    check_no_locks("a handler returns");
  --handler_depth;
}

void run_short(const Tag& tag, Rank from, bool is_request, const int32_t* args) noexcept {
  with_token(tag, from, is_request, [&](gex_AM_Fn_t function, hydrant_token* token) noexcept {
    call_handler<gex_Token_t>(function, tag.nargs, args, token);
  });
}

void run_with_payload(const Tag& tag, Rank from, bool is_request, const int32_t* args,
                      void* payload, size_t bytes) noexcept {
  with_token(tag, from, is_request, [&](gex_AM_Fn_t function, hydrant_token* token) noexcept {
    call_handler<gex_Token_t, void*, size_t>(function, tag.nargs, args, token, payload, bytes);
  });
}

// Arguments of a message: heads are aligned to 8, and arguments stand at a multiple of 4.
const int32_t* args_of(const Incoming& message, Category category) noexcept {
  const void* place = message.head + args_offset(category);
  return static_cast<const int32_t*>(place);
}

void deliver_with_payload(const Tag& tag, const Incoming& message, bool is_request) noexcept {
  const uint32_t bytes = read_length(message.head, tag.category);
  std::byte* payload = message.payload;
  if (payload == nullptr) {
    // The head is const because it is not for the handler; what stands behind it is.
    payload = const_cast<std::byte*>(message.head) + payload_offset(tag.category, tag.nargs);
  }
  if (tag.category == Category::kLong) {
    auto* dest = reinterpret_cast<std::byte*>(read_dest(message.head));
    if (tag.deposit) std::memcpy(dest, payload, bytes);
    if (tag.deposit && tag.handler == 0) return;
    payload = dest;
  }
  run_with_payload(tag, message.from, is_request, args_of(message, tag.category), payload, bytes);
}

}  // namespace

void run_handler(const Tag& tag, Rank from, bool is_request, const int32_t* args, void* payload,
                 size_t bytes) noexcept {
  if (tag.category == Category::kShort) {
    run_short(tag, from, is_request, args);
  } else {
    run_with_payload(tag, from, is_request, args, payload, bytes);
  }
}

void AmReceiver::deliver(const Incoming& message) noexcept {
  const Tag tag = Tag::unpack(message.tag);
  if (!fits(tag, message)) [[unlikely]] {
    fatal("rank %u sent a message that cannot be one (tag %#x, %u bytes, cell of %u)", message.from,
          message.tag, message.head_room, message.payload_room);
  }
  const bool is_request = message.lane == Lane::kRequest;
  if (tag.category == Category::kShort) {
    run_short(tag, message.from, is_request, args_of(message, Category::kShort));
  } else {
    deliver_with_payload(tag, message, is_request);
  }
}

AmReceiver& am_receiver() noexcept {
  static AmReceiver receiver;
  return receiver;
}

}  // namespace hydrant
