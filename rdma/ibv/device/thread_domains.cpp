// Makes and releases the domains of a transport in the single-threaded mode. ibv_transport_open.cpp calls it.
#include "rdma/ibv/device/thread_domains.hpp"

#include "firehose/base/errno_text.hpp"
#include "firehose/base/log.hpp"
#include "firehose/base/uncancelled.hpp"

#include <cerrno>

namespace hydrant::ibv {
namespace {

// Stores `domain` in the ports of the device of port `first`, which share one.
void share_domain(Ports* ports, uint32_t first, ibv_pd* domain) noexcept {
  const ibv_context* const context = ports->all[first].device.context;
  for (uint32_t i = first; i < ports->count; ++i) {
    if (ports->all[i].device.context == context) ports->all[i].device.pd = domain;
  }
}

bool is_first_of_device(const Ports& ports, uint32_t port) noexcept {
  for (uint32_t i = 0; i < port; ++i) {
    if (ports.all[i].device.context == ports.all[port].device.context) return false;
  }
  return true;
}

}  // namespace

void ThreadDomains::open(Ports* ports) noexcept {
  for (uint32_t i = 0; i < ports->count; ++i) {
    if (!is_first_of_device(*ports, i)) continue;
    const OpenDevice& device = ports->all[i].device;
    ibv_td_init_attr no_attributes{};
    errno = 0;
    ibv_td* const thread = uncancelled::call(ibv_alloc_td, device.context, &no_attributes);
    ibv_pd* domain = nullptr;
    if (thread != nullptr) {
      ibv_parent_domain_init_attr attributes{};
      attributes.pd = device.pd;
      attributes.td = thread;
      domain = uncancelled::call(ibv_alloc_parent_domain, device.context, &attributes);
    }
    if (domain == nullptr) {
      log_info("verbs: %s has no thread domain: %s", ports->all[i].name, errno_text(errno));
      if (thread != nullptr) (void)uncancelled::call(ibv_dealloc_td, thread);
      continue;
    }
    domains_[i] = {thread, device.pd};
    share_domain(ports, i, domain);
  }
}

void ThreadDomains::close(Ports* ports) noexcept {
  for (uint32_t i = 0; i < ports->count; ++i) {
    Domain& own = domains_[i];
    if (own.thread == nullptr) continue;
    const int error = uncancelled::call(ibv_dealloc_pd, ports->all[i].device.pd);
    if (error != 0)
      log_warning("%s: the thread domain could not be released: %s", ports->all[i].name,
                  errno_text(error));
    (void)uncancelled::call(ibv_dealloc_td, own.thread);
    share_domain(ports, i, own.plain);
    own = {};
  }
}

}  // namespace hydrant::ibv
