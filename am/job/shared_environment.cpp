// Distributes rank 0's environment through the job's store. Called by wire_up() (am/start_job.cpp);
// read by gasnet_getenv() (am/system.cpp).
#include "am/job/shared_environment.hpp"

#include "firehose/base/config/config.hpp"
#include "firehose/base/log.hpp"
#include "firehose/base/thread.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <unistd.h>

namespace hydrant {
namespace {

constexpr const char* kHead = "environment";
constexpr uint64_t kWaitNs = 10'000'000'000;
constexpr const char* kOfOneRank[] = {"HYDRANT_JOB_", "PMI",   "OMPI_", "PRTE_",    "SLURM_",
                                      "HYDRA_",       "HYDI_", "MPIR_", "MPIEXEC_", "PALS_",
                                      "FLUX_",        "ALPS_", "_="};

// The header that rank 0 publishes before the parts of its environment.
struct Head {
  uint64_t bytes = 0;
  uint64_t sum = 0;
};

uint64_t checksum(std::string_view text) noexcept {
  uint64_t sum = 0xcbf29ce484222325;
  for (const char c : text) sum = (sum ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return sum;
}

class ValueKey {
 public:
  explicit ValueKey(size_t index) noexcept {
    std::snprintf(text_, sizeof text_, "%s.%zu", kHead, index);
  }
  std::string_view text() const noexcept { return text_; }

 private:
  char text_[32];
};

}  // namespace

std::string SharedEnvironment::shared_part(const char* const* variables) {
  std::string part;
  for (; variables != nullptr && *variables != nullptr; ++variables) {
    const std::string_view entry = *variables;
    if (std::any_of(std::begin(kOfOneRank), std::end(kOfOneRank),
                    [&](const char* prefix) { return entry.starts_with(prefix); })) {
      continue;
    }
    part += entry;
    part += '\0';
  }
  return part;
}

Status SharedEnvironment::publish(Bootstrap& bootstrap) noexcept {
  const std::string own = shared_part(environ);
  Head head = {.bytes = own.size(), .sum = checksum(own)};
  if (own.size() > kMaxBytes) {
    log_warning(
        "the environment of rank 0 has %zu bytes, more than the %zu that can be shared: "
        "gasnet_getenv() returns each rank's own values",
        own.size(), kMaxBytes);
    head = {};
  }
  const std::span<const std::byte> bytes = std::as_bytes(std::span(own.data(), head.bytes));
  for (size_t at = 0; at < bytes.size(); at += Bootstrap::kMaxValueBytes) {
    const size_t part = std::min(Bootstrap::kMaxValueBytes, bytes.size() - at);
    const ValueKey key(at / Bootstrap::kMaxValueBytes);
    if (bootstrap.put(key.text(), bytes.subspan(at, part)) == Status::kOk) continue;
    log_warning(
        "the launcher rejected the environment of rank 0: %s; gasnet_getenv() returns each "
        "rank's own values",
        last_error_text());
    head = {};
    break;
  }
  return bootstrap.put(kHead, std::as_bytes(std::span(&head, 1)));
}

Status SharedEnvironment::fetch(Bootstrap& bootstrap) noexcept {
  Head head;
  size_t received = 0;
  const uint64_t deadline = now_ns() + kWaitNs;
  Status status =
      bootstrap.get(0, kHead, std::as_writable_bytes(std::span(&head, 1)), &received, deadline);
  if (status != Status::kOk) return status;
  if (received != sizeof head || head.bytes > kMaxBytes)
    return fail(Status::kBroken, "malformed environment header of %zu bytes from rank 0", received);
  if (head.bytes == 0) return Status::kOk;
  const std::string own = shared_part(environ);
  if (own.size() == head.bytes && checksum(own) == head.sum) return Status::kOk;
  std::string theirs(head.bytes, '\0');
  for (size_t at = 0; at < theirs.size() && status == Status::kOk;
       at += Bootstrap::kMaxValueBytes) {
    const size_t part = std::min(Bootstrap::kMaxValueBytes, theirs.size() - at);
    status = bootstrap.get(0, ValueKey(at / Bootstrap::kMaxValueBytes).text(),
                           std::as_writable_bytes(std::span(theirs.data() + at, part)), &received,
                           deadline);
    if (status == Status::kOk && received != part)
      return fail(Status::kBroken, "rank 0's environment is incomplete: %zu bytes of %zu", received,
                  part);
  }
  if (status != Status::kOk) return status;
  if (checksum(theirs) != head.sum)
    return fail(Status::kBroken, "checksum mismatch in rank 0's environment");
  variables_ = std::move(theirs);
  return Status::kOk;
}

void SharedEnvironment::warn_of_own_values() noexcept {
  for_each_knob([this](const KnobInfo& knob) {
    if (differs(knob.name)) warn_of_rejected(knob);
  });
}

bool SharedEnvironment::differs(const char* name) noexcept {
  if (variables_.empty()) return false;
  const char* own = std::getenv(name);
  const char* theirs = find(name);
  if (own == nullptr || theirs == nullptr) return own != theirs;
  return std::strcmp(own, theirs) != 0;
}

void SharedEnvironment::adopt(Bootstrap& bootstrap) noexcept {
  if (fetch(bootstrap) == Status::kOk) return warn_of_own_values();
  log_warning(
      "cannot read rank 0's environment: %s; gasnet_getenv() returns this rank's own values",
      last_error_text());
}

char* SharedEnvironment::find(const char* name) noexcept {
  const size_t len = std::strlen(name);
  for (size_t at = 0; at < variables_.size(); at += std::strlen(&variables_[at]) + 1) {
    char* const entry = &variables_[at];
    if (std::strncmp(entry, name, len) == 0 && entry[len] == '=') return entry + len + 1;
  }
  return nullptr;
}

SharedEnvironment& shared_environment() noexcept {
  // Never destroyed, because clients keep pointers into it.
  static SharedEnvironment* const the_job_s = new SharedEnvironment;
  return *the_job_s;
}

}  // namespace hydrant
