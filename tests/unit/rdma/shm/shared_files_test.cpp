// Which memory of the process others can map: what is announced, and the arenas.
#include "rdma/transport/shared_files.hpp"

#include <hydrant/alloc.h>

#include "tests/support/child_process.hpp"
#include "tests/support/descriptors.hpp"
#include "tests/unit/rdma/shm/shared_memory.hpp"

namespace hydrant::testing {
namespace {

// A memory file that is mapped here from `offset` on.
struct MappedFile {
  MappedFile(size_t bytes, uint64_t offset, int seals = F_SEAL_SHRINK) : file(bytes, seals) {
    range.len = bytes - offset;
    void* p = mmap(nullptr, range.len, PROT_READ | PROT_WRITE, MAP_SHARED, file.fd(),
                   static_cast<off_t>(offset));
    EXPECT_NE(p, MAP_FAILED);
    range.addr = reinterpret_cast<uintptr_t>(p);
  }
  ~MappedFile() { munmap(reinterpret_cast<void*>(range.addr), range.len); }

  MemoryFile file;
  MemoryRange range;
};

TEST(SharedFiles, AnnouncedFileIsFoundUntilForgotten) {
  const MappedFile mapped(4 * kPage, kPage);
  SharedFile found;
  EXPECT_FALSE(find_shared_file(mapped.range.addr, &found));
  ASSERT_EQ(announce_shared_file(mapped.range, mapped.file.fd(), kPage), Status::kOk);
  ASSERT_TRUE(find_shared_file(mapped.range.addr + 2 * kPage + 5, &found));
  EXPECT_EQ(found.range, mapped.range);
  EXPECT_EQ(found.offset, kPage);
  EXPECT_NE(found.descriptor, mapped.file.fd());
  EXPECT_NE(fcntl(found.descriptor, F_GETFD) & FD_CLOEXEC, 0);
  EXPECT_FALSE(find_shared_file(mapped.range.end(), &found));
  EXPECT_EQ(announce_shared_file({mapped.range.addr, kPage}, mapped.file.fd(), kPage),
            Status::kBadArg);
  EXPECT_FALSE(forget_shared_file({mapped.range.addr, kPage}));
  EXPECT_TRUE(forget_shared_file(mapped.range));
  EXPECT_FALSE(find_shared_file(mapped.range.addr, &found));
  EXPECT_EQ(fcntl(found.descriptor, F_GETFD), -1);
}

TEST(SharedFiles, ShrinkableFileIsRejected) {
  const MappedFile mapped(kPage, 0, 0);
  EXPECT_EQ(announce_shared_file(mapped.range, mapped.file.fd(), 0), Status::kUnsupported);
  EXPECT_NE(std::string(last_error_text()).find("F_SEAL_SHRINK"), std::string::npos);
  EXPECT_EQ(announce_shared_file(mapped.range, -1, 0), Status::kUnsupported);
  const MappedFile good(kPage, 0);
  EXPECT_EQ(announce_shared_file({good.range.addr + 1, kPage}, good.file.fd(), 0), Status::kBadArg);
  EXPECT_EQ(announce_shared_file({good.range.addr, 0}, good.file.fd(), 0), Status::kBadArg);
}

TEST(SharedFiles, ChildForgetsTheParentsFiles) {
  const MappedFile mapped(kPage, 0);
  ASSERT_EQ(announce_shared_file(mapped.range, mapped.file.fd(), 0), Status::kOk);
  void* of_arena = hydrant_alloc_shared(1, kPage);
  EXPECT_EQ(run_in_child([&]() -> std::string {
              SharedFile found;
              if (find_shared_file(mapped.range.addr, &found)) return "announced by the parent";
              if (find_shared_file(reinterpret_cast<uintptr_t>(of_arena), &found)) return "arena";
              // Mapped by itself, it is the child's own.
              const Status status = announce_shared_file(mapped.range, mapped.file.fd(), 0);
              if (status != Status::kOk) return last_error_text();
              return find_shared_file(mapped.range.addr, &found) ? "" : "not found";
            }),
            "");
  hydrant_free(of_arena);
  EXPECT_TRUE(forget_shared_file(mapped.range));
}

TEST(SharedFiles, ArenasAreFoundByName) {
  void* shared = hydrant_alloc_shared(1, 100);
  void* own = hydrant_alloc(100);
  SharedFile found;
  ASSERT_TRUE(find_shared_file(reinterpret_cast<uintptr_t>(shared) + 50, &found));
  hydrant_alloc_location_t location{};
  ASSERT_EQ(hydrant_alloc_shared_location(shared, &location), GASNET_OK);
  EXPECT_EQ(found.descriptor, location.fd);
  EXPECT_EQ(found.offset + (reinterpret_cast<uintptr_t>(shared) - found.range.addr),
            location.offset);
  EXPECT_EQ(found.range.len, location.file_bytes);
  EXPECT_FALSE(find_shared_file(reinterpret_cast<uintptr_t>(own), &found));
  hydrant_free(own);
  hydrant_free(shared);
}

// The program's file is one that could be mapped just as well.
TEST(SharedFiles, ForeignFileUnderTheDescriptorIsNotExported) {
  const MappedFile mapped(kPage, 0);
  const MemoryFile of_program(kPage);
  ASSERT_EQ(announce_shared_file(mapped.range, mapped.file.fd(), 0), Status::kOk);
  SharedFile found;
  ASSERT_TRUE(find_shared_file(mapped.range.addr, &found));
  const auto registrar = make_shm_registrar();
  std::byte key[sizeof(shm::ShmKey)];
  EXPECT_EQ(registrar->pin(mapped.range, Access::kRemoteRead, key), Status::kOk);
  ASSERT_EQ(dup2(of_program.fd(), found.descriptor), found.descriptor);
  EXPECT_EQ(registrar->pin(mapped.range, Access::kRemoteRead, key), Status::kRefused);
  EXPECT_NE(std::string(last_error_text()).find("the program has closed descriptor"),
            std::string::npos)
      << last_error_text();
  EXPECT_TRUE(forget_shared_file(mapped.range));
  EXPECT_TRUE(is_open(found.descriptor));
  close(found.descriptor);
}

}  // namespace
}  // namespace hydrant::testing
