// A segment is shared memory, so the node's registrar can pin it.
#include <gasnetex.h>

#include "rdma/transport/node_registrar.hpp"
#include "rdma/transport/shared_files.hpp"
#include "tests/support/child_process.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <unistd.h>

namespace hydrant {
namespace {

constexpr size_t kSharedBytes = size_t{1} << 20;

std::string pin_a_segment() {
  gex_Client_t client;
  gex_EP_t endpoint;
  gex_TM_t team;
  int argc = 0;
  char** argv = nullptr;
  if (gex_Client_Init(&client, &endpoint, &team, "SEGMENT", &argc, &argv, 0) != GASNET_OK)
    return "no job";
  gex_Segment_t segment;
  if (gex_Segment_Attach(&segment, team, kSharedBytes) != GASNET_OK) return "no segment";
  const auto addr = reinterpret_cast<uintptr_t>(gex_Segment_QueryAddr(segment));
  SharedFile file;
  if (!find_shared_file(addr, &file)) return "not announced";
  if (file.range != MemoryRange{addr, kSharedBytes}) return "announced as something else";
  if (ftruncate(file.descriptor, 0) == 0) return "its file can shrink";
  std::unique_ptr<Registrar> registrar;
  if (make_node_registrar(&registrar) != Status::kOk) return last_error_text();
  std::byte key[4096];
  std::byte blob[4096];
  std::byte imported[4096];
  size_t len = sizeof blob;
  if (registrar->pin(file.range, Access::kRemoteWrite, key) != Status::kOk ||
      registrar->export_key(file.range, key, blob, &len) != Status::kOk ||
      registrar->import_key(blob, len, imported) != Status::kOk)
    return last_error_text();
  std::byte* const there = address_by_node_key(imported, addr + 100, 1);
  if (there == nullptr) return "not mapped";
  *there = std::byte{7};
  if (*reinterpret_cast<std::byte*>(addr + 100) != std::byte{7}) return "other memory";
  registrar->drop_import(imported);
  return address_by_node_key(key, addr + kSharedBytes, 1) == nullptr ? ""
                                                                     : "a key of more than it has";
}

TEST(SegmentsShared, SegmentCanBePinnedForTheNode) {
  EXPECT_EQ(testing::run_in_child(pin_a_segment), "");
}

}  // namespace
}  // namespace hydrant
