// Finding and opening a verbs device, and the few attributes of it that a registrar needs.
#pragma once

#include "firehose/base/machine/file_identity.hpp"
#include "firehose/base/status.hpp"

#include <cstddef>
#include <cstdint>

struct ibv_context;
struct ibv_pd;

namespace hydrant {

struct OpenDevice {
  ibv_context* context = nullptr;
  ibv_pd* pd = nullptr;
};

// Opens the named device and allocates a protection domain on it; with "" the first device where both
// work. Errors: kUnsupported, with a text that says for the last device tried what failed, or why there is
// none at all. *opened is unchanged on failure.
Status open_ibv_device(const char* wanted, OpenDevice* opened) noexcept;
// Gives both back; reports what could not be undone (registrations that are still there).
void close_ibv_device(const OpenDevice& opened) noexcept;

// The descriptors of an open device are libibverbs' own, and it uses them by number. Before calls of it that
// do, the numbers are looked at: one that the program has closed is taken out of the context.
class DeviceDescriptors {
 public:
  // `context` has just been opened.
  void note(const ibv_context& context) noexcept;
  // False if one is lost: libibverbs' calls answer EBADF from then on, and touch no file of the program's.
  // Any thread. Cost: four system calls, 0.45 us.
  bool keep_ours(ibv_context* context) const noexcept;
  // In the child of a fork: closes those that are still the device's.
  void close_in_child(const ibv_context& context) const noexcept;

 private:
  bool is_noted_ = false;
  FileIdentity commands_;
  FileIdentity events_;
};

// kBroken, and the text for it.
Status device_is_closed(const char* name) noexcept;

struct DeviceAttributes {
  char name[64] = "";
  size_t max_region_bytes = SIZE_MAX;
  uint64_t max_regions = UINT64_MAX;
  bool atomics = false;
  bool implicit_odp =
      false;  // one registration can stand for all of memory, for writes and reads (RC)
};

// Errors: kUnsupported (the device does not answer).
Status query_ibv_device(ibv_context* context, DeviceAttributes* found) noexcept;

}  // namespace hydrant
