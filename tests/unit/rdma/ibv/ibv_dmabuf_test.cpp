// Memory of other devices, by dma-buf, over the fake: a memory file passes for a buffer.
#include "firehose/registrars/ibv/ibv_registrar.hpp"
#include "tests/unit/rdma/ibv/ibv_rails_world.hpp"

#include <gmock/gmock.h>

#include <cerrno>
#include <cstring>
#include <sys/mman.h>
#include <unistd.h>
#include <vector>

namespace hydrant {
namespace {

using fake_verbs::Call;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using testing::IbvWorld;
using ::testing::Not;
using testing::PinnedMemory;

constexpr size_t kDmabufBytes = 4 * testing::kStripe;
constexpr uint64_t kOffset = 8192;

struct Buffer {
  Buffer() : fd(memfd_create("dmabuf", MFD_CLOEXEC)) {
    EXPECT_EQ(ftruncate(fd, kSize), 0);
    whole =
        static_cast<std::byte*>(mmap(nullptr, kSize, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
    EXPECT_NE(static_cast<void*>(whole), MAP_FAILED);
  }
  ~Buffer() {
    munmap(whole, kSize);
    if (fd >= 0) ::close(fd);
  }
  MemoryRange range() const { return {reinterpret_cast<uintptr_t>(whole) + kOffset, kDmabufBytes}; }
  static constexpr size_t kSize = kDmabufBytes + 65536;
  int fd;
  std::byte* whole = nullptr;
};

class IbvDmabuf : public testing::RailTest {
 protected:
  void open(const fake_verbs::Device& device) {
    fake_verbs::add_device(device);
    ASSERT_EQ(IbvRegistrar::open(nullptr, &registrar_), Status::kOk);
  }
  void TearDown() override {
    registrar_.reset();
    RailTest::TearDown();
  }
  Status pin(int fd, uint64_t offset, MemoryRange range, Access access = Access::kLocalWrite) {
    return registrar_->pin_dmabuf(fd, offset, range, access, key_);
  }
  std::unique_ptr<IbvRegistrar> registrar_;
  alignas(IbvKey) std::byte key_[sizeof(IbvKey)] = {};
};

TEST_F(IbvDmabuf, IsRegisteredUnderTheNameThatItIsGiven) {
  open({});
  Buffer buffer;
  ASSERT_EQ(pin(buffer.fd, 4096, {0x70000, 8192}, Access::kRemoteWrite), Status::kOk)
      << last_error_text();
  const auto last = fake_verbs::last_registration();
  EXPECT_EQ(last.addr, 0x70000U);
  EXPECT_EQ(last.len, 8192U);
  EXPECT_EQ(last.access, unsigned{IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_LOCAL_WRITE});
  EXPECT_EQ(fake_verbs::calls(Call::kRegMr), 0U);
  EXPECT_EQ(registrar_->unpin({0x70000, 8192}, key_), UnpinResult::kDone);
}

TEST_F(IbvDmabuf, MissingFeaturesAreReported) {
  open({.dmabuf = false});
  Buffer buffer;
  EXPECT_EQ(pin(buffer.fd, kOffset, buffer.range()), Status::kUnsupported);
  EXPECT_THAT(last_error_text(), HasSubstr("rdma-core 34, Linux 5.12, and a driver"));
  // An old kernel, and a library without the call, which is handled in the same way.
  for (const int error : {ENOSYS, ENOTTY, EPROTONOSUPPORT}) {
    fake_verbs::fail_call(Call::kRegDmabufMr, error);
    EXPECT_EQ(pin(buffer.fd, kOffset, buffer.range()), Status::kUnsupported) << error;
  }
  // (Others are told by the default of the door.)
  EXPECT_EQ(registrar_->Registrar::pin_dmabuf(buffer.fd, kOffset, buffer.range(),
                                              Access::kLocalRead, key_),
            Status::kUnsupported);
  EXPECT_THAT(last_error_text(), HasSubstr("ibv"));
}

TEST_F(IbvDmabuf, BadArgumentsAndRefusalsMapToStatuses) {
  open({.max_mr_size = 1 << 20, .atomics = false});
  Buffer buffer;
  EXPECT_EQ(pin(-1, kOffset, buffer.range()), Status::kBadArg);
  EXPECT_THAT(last_error_text(), HasSubstr("descriptor -1"));
  const uintptr_t start = buffer.range().addr;
  EXPECT_EQ(pin(buffer.fd, kOffset + 1, buffer.range()), Status::kBadArg);
  EXPECT_THAT(last_error_text(), HasSubstr("whole pages"));
  for (const MemoryRange& range : {MemoryRange{start, 0}, {start, 100}, {start + 8, 4096}})
    EXPECT_EQ(pin(buffer.fd, kOffset, range), Status::kBadArg) << range.addr << " " << range.len;
  EXPECT_EQ(pin(buffer.fd, kOffset, {buffer.range().addr, 2 << 20}), Status::kResource);
  EXPECT_EQ(pin(buffer.fd, kOffset, buffer.range(), Access::kRemoteAtomic), Status::kRefused);
  const struct {
    int error;
    Status status;
  } rows[] = {{EFAULT, Status::kRefused}, {ENOMEM, Status::kNotReady}, {EIO, Status::kBroken}};
  for (const auto& row : rows) {
    fake_verbs::fail_call(Call::kRegDmabufMr, row.error);
    EXPECT_EQ(pin(buffer.fd, kOffset, buffer.range()), row.status) << row.error;
    EXPECT_THAT(last_error_text(), ContainsRegex("dma-?buf"));
    EXPECT_THAT(last_error_text(), Not(HasSubstr("memlock"))) << "nothing is charged to it";
  }
  const uintptr_t last_page = ~uintptr_t{4095};
  for (const auto& [offset, addr] : {std::pair<uint64_t, uintptr_t>{kOffset, last_page},
                                     std::pair<uint64_t, uintptr_t>{last_page, start}}) {
    EXPECT_EQ(pin(buffer.fd, offset, {addr, 8192}), Status::kBadArg);
    EXPECT_THAT(last_error_text(), HasSubstr("wraps around"));
  }
  EXPECT_EQ(fake_verbs::live().mrs, 0U);
}

// Puts and gets by peers and by the owner, with one device and with two. The descriptor is not needed.
TEST_F(IbvDmabuf, TransfersLikeOtherPinnedMemory) {
  fake_verbs::Device able = fake_verbs::adapter();
  able.dmabuf = true;
  for (const uint32_t devices : {1U, 2U}) {
    fake_verbs::reset();
    add_devices(devices, able);
    IbvWorld world(2, testing::rail_options());
    ASSERT_TRUE(settle(world, devices));
    Buffer buffer;
    const MemoryRange range = buffer.range();
    std::unique_ptr<Registrar> owner = world[1].transport->pinned()->make_registrar();
    alignas(8) std::byte key[128] = {};
    ASSERT_EQ(owner->pin_dmabuf(buffer.fd, kOffset, range,
                                Access::kRemoteWrite | Access::kRemoteRead, key),
              Status::kOk);
    EXPECT_EQ(fake_verbs::calls(Call::kRegDmabufMr), devices);
    ::close(std::exchange(buffer.fd, -1));

    PinnedMemory here(*world[0].transport, Access::kLocalWrite, kDmabufBytes);
    fill(here, 7);
    std::byte blob[64];
    size_t length = sizeof blob;
    ASSERT_EQ(owner->export_key(range, key, blob, &length), Status::kOk);
    alignas(8) std::byte imported[128] = {};
    ASSERT_EQ(here.registrar->import_key(blob, length, imported), Status::kOk);
    ASSERT_EQ(put(world, {range.addr, imported}, here.local(), kDmabufBytes), Status::kOk);
    EXPECT_EQ(std::memcmp(buffer.whole + kOffset, here.data.get(), kDmabufBytes), 0);
    buffer.whole[kOffset] = std::byte{0x5a};
    ASSERT_EQ(get(world, {range.addr, imported}, here.local(), kDmabufBytes), Status::kOk);
    EXPECT_EQ(here.data.get()[0], std::byte{0x5a});
    EXPECT_EQ(owner->unpin(range, key), UnpinResult::kDone);
  }
}

// All devices or none.
TEST_F(IbvDmabuf, RefusalByOneDeviceIsUndoneOnTheOther) {
  add_devices(2);
  IbvWorld world(2, testing::rail_options());
  Buffer buffer;
  std::unique_ptr<Registrar> owner = world[0].transport->pinned()->make_registrar();
  alignas(8) std::byte key[128] = {};
  const size_t before = fake_verbs::live().mrs;
  fake_verbs::fail_call(Call::kRegDmabufMr, EOPNOTSUPP, 2);
  EXPECT_EQ(owner->pin_dmabuf(buffer.fd, kOffset, buffer.range(), Access::kLocalRead, key),
            Status::kUnsupported);
  EXPECT_EQ(fake_verbs::live().mrs, before);
}

}  // namespace
}  // namespace hydrant
