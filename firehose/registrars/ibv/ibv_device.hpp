// Finds and opens a verbs device, and reads the few attributes of it that a registrar needs.
#pragma once

#include "firehose/base/file_identity.hpp"
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

// Opens the named device and allocates a protection domain on it; with "", uses the first device on which
// both succeed. Errors: kUnsupported, with the cause for the last device tried, or the reason why there is no
// device. *opened is unchanged on failure.
Status open_ibv_device(const char* wanted, OpenDevice* opened) noexcept;
// Releases both; logs a failure, for example because registrations remain.
void close_ibv_device(const OpenDevice& opened) noexcept;

// Guards against a program that closes the descriptors of an open device. libibverbs owns them and uses them
// by number, and the number may be another file of the program by now. So keep_ours() runs before each such
// call: it removes a descriptor from the context if its number no longer is the file that libibverbs opened.
// For contexts that the library has opened: it marks their descriptors (FileIdentity) and writes to them.
// CommandDescriptor is for a client's.
class DeviceDescriptors {
 public:
  // Remembers the descriptors of `context`, which the library has just opened.
  void note(const ibv_context& context) noexcept;
  // False if one was closed: libibverbs' calls fail with EBADF from then on, and touch no file of the
  // program. Any thread. Cost: four system calls, 0.45 us.
  bool keep_ours(ibv_context* context) const noexcept;
  // The same before frequent calls that use the command descriptor alone, by the file's mark. Cost: one
  // system call, 0.09 us.
  bool keep_commands(ibv_context* context) const noexcept;
  // In the child of a fork: closes the descriptors that still are the device's.
  void close_in_child(const ibv_context& context) const noexcept;

 private:
  bool is_noted_ = false;
  FileIdentity commands_;
  FileIdentity events_;
};

// The same for a context that the client has opened: reads it and its descriptors, and changes neither. The
// client may have set the signal of either descriptor (F_SETSIG). Compares device and inode of the command
// descriptor, which registrations use: a device file has an inode of its own. A second context of the same
// device under the number is not noticed.
class CommandDescriptor {
 public:
  void note(const ibv_context& context) noexcept;
  // False if the descriptor was closed: libibverbs must not be called. Any thread. Cost: one system call,
  // 0.16 us.
  bool is_open(ibv_context* context) const noexcept;

 private:
  FileIdentity commands_;
};

// Sets the error text for a device whose descriptors were closed. Returns kBroken.
Status device_is_closed(const char* name) noexcept;

struct DeviceAttributes {
  char name[64] = "";
  size_t max_region_bytes = SIZE_MAX;
  uint64_t max_regions = UINT64_MAX;
  bool atomics = false;
  // On-demand paging for RDMA writes and reads of reliable connections: of single registrations, and of one
  // that stands for all of memory.
  bool explicit_odp = false;
  bool implicit_odp = false;
};

// Errors: kUnsupported: the query failed.
Status query_ibv_device(ibv_context* context, DeviceAttributes* found) noexcept;

}  // namespace hydrant
