// Opens and closes verbs devices, reads their attributes, and notices when the program has closed their
// descriptors. ibv_port.cpp opens the transport's devices here; ibv_registrar.cpp opens one of its own
// without a transport.
#include "firehose/registrars/ibv/ibv_device.hpp"

#include "firehose/base/errno_text.hpp"
#include "firehose/base/log.hpp"
#include "firehose/base/uncancelled.hpp"

#include <infiniband/verbs.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <unistd.h>

namespace hydrant {
namespace {

Status open_one(ibv_device* device, OpenDevice* opened) noexcept {
  const char* name = ibv_get_device_name(device);
  errno = 0;
  ibv_context* context = uncancelled::call(ibv_open_device, device);
  if (context == nullptr) {
    return fail(
        Status::kUnsupported,
        "verbs device %s cannot be opened: %s (are /dev/infiniband/uverbs* there and writable "
        "for this user?)",
        name, errno_text(errno));
  }
  errno = 0;
  ibv_pd* pd = uncancelled::call(ibv_alloc_pd, context);
  if (pd == nullptr) {
    const int error = errno;
    uncancelled::call(ibv_close_device, context);
    return fail(Status::kUnsupported, "verbs device %s: cannot allocate a protection domain: %s",
                name, errno_text(error));
  }
  *opened = {context, pd};
  return Status::kOk;
}

Status no_device(const char* wanted, int found) noexcept {
  if (found > 0) {
    return fail(Status::kUnsupported, "there is no verbs device named %s among the %d found",
                wanted, found);
  }
  return fail(Status::kUnsupported,
              "no verbs device: /sys/class/infiniband lists none that a provider library knows "
              "(load the adapter's driver, install ibverbs-providers)");
}

}  // namespace

Status open_ibv_device(const char* wanted, OpenDevice* opened) noexcept {
  int found = 0;
  errno = 0;
  ibv_device** devices = uncancelled::call(ibv_get_device_list, &found);
  if (devices == nullptr) {
    return fail(Status::kUnsupported,
                "verbs devices cannot be listed: %s (is the kernel module ib_uverbs loaded?)",
                errno_text(errno));
  }
  bool is_found = false;
  Status status = Status::kUnsupported;
  for (int i = 0; i < found && status != Status::kOk; ++i) {
    if (wanted[0] != '\0' && std::strcmp(ibv_get_device_name(devices[i]), wanted) != 0) continue;
    is_found = true;
    status = open_one(devices[i], opened);
  }
  uncancelled::call(ibv_free_device_list, devices);
  if (!is_found) return no_device(wanted, found);
  return status;
}

void close_ibv_device(const OpenDevice& opened) noexcept {
  const char* name = ibv_get_device_name(opened.context->device);
  const int pd_error = uncancelled::call(ibv_dealloc_pd, opened.pd);
  if (pd_error != 0) {
    log_warning("%s: the protection domain could not be released: %s (registrations still alive?)",
                name, errno_text(pd_error));
  }
  if (uncancelled::call(ibv_close_device, opened.context) != 0)
    log_warning("%s: the device could not be closed", name);
}

void DeviceDescriptors::note(const ibv_context& context) noexcept {
  is_noted_ = true;
  commands_.note(context.cmd_fd);
  events_.note(context.async_fd);
}

bool DeviceDescriptors::keep_ours(ibv_context* context) const noexcept {
  if (!is_noted_) return true;
  bool all = true;
  const auto check = [&](int& number, const FileIdentity& identity) {
    // Other threads may check at the same time.
    const std::atomic_ref<int> fd(number);
    if (identity.is(fd.load(std::memory_order_relaxed))) return;
    fd.store(-1, std::memory_order_relaxed);
    all = false;
  };
  check(context->cmd_fd, commands_);
  check(context->async_fd, events_);
  return all;
}

bool DeviceDescriptors::keep_commands(ibv_context* context) const noexcept {
  const std::atomic_ref<int> fd(context->cmd_fd);
  const int number = fd.load(std::memory_order_relaxed);
  if (!is_noted_ || (number >= 0 && commands_.has_mark(number))) return true;
  fd.store(-1, std::memory_order_relaxed);
  return false;
}

void DeviceDescriptors::close_in_child(const ibv_context& context) const noexcept {
  if (commands_.is(context.cmd_fd)) uncancelled::close(context.cmd_fd);
  if (events_.is(context.async_fd)) uncancelled::close(context.async_fd);
}

void CommandDescriptor::note(const ibv_context& context) noexcept {
  commands_.note_file(context.cmd_fd);
}

bool CommandDescriptor::is_open(ibv_context* context) const noexcept {
  // The transport's DeviceDescriptors may write it meanwhile.
  const std::atomic_ref<int> fd(context->cmd_fd);
  return commands_.is_file(fd.load(std::memory_order_relaxed));
}

Status device_is_closed(const char* name) noexcept {
  return fail(
      Status::kBroken,
      "verbs device %s is unusable: the program has closed its descriptors, which libibverbs "
      "opened; close only descriptors that the program has opened",
      name);
}

Status query_ibv_device(ibv_context* context, DeviceAttributes* found) noexcept {
  const char* name = ibv_get_device_name(context->device);
  ibv_device_attr_ex attributes{};
  const int error = uncancelled::call(ibv_query_device_ex, context, nullptr, &attributes);
  if (error != 0) {
    return fail(Status::kUnsupported, "verbs device %s: ibv_query_device failed: %s", name,
                errno_text(error));
  }
  const ibv_device_attr& basic = attributes.orig_attr;
  DeviceAttributes read;
  std::snprintf(read.name, sizeof read.name, "%s", name);
  // Some drivers leave fields that mean "no limit" at zero or below.
  if (basic.max_mr > 0) read.max_regions = static_cast<uint64_t>(basic.max_mr);
  if (basic.max_mr_size > 0) {
    read.max_region_bytes = static_cast<size_t>(std::min<uint64_t>(basic.max_mr_size, SIZE_MAX));
  }
  read.atomics = basic.atomic_cap != IBV_ATOMIC_NONE;
  constexpr uint64_t kImplicit = IBV_ODP_SUPPORT | IBV_ODP_SUPPORT_IMPLICIT;
  constexpr uint32_t kPutAndGet = IBV_ODP_SUPPORT_WRITE | IBV_ODP_SUPPORT_READ;
  const ibv_odp_caps& paging = attributes.odp_caps;
  const bool puts_and_gets = (paging.per_transport_caps.rc_odp_caps & kPutAndGet) == kPutAndGet;
  read.explicit_odp = puts_and_gets && (paging.general_caps & IBV_ODP_SUPPORT) != 0;
  read.implicit_odp = puts_and_gets && (paging.general_caps & kImplicit) == kImplicit;
  *found = read;
  return Status::kOk;
}

}  // namespace hydrant
