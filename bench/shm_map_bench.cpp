// Question: what does it cost to write to another process's memory that is mapped here, outside any segment?
//
// Unit: nanoseconds per call. A second process owns shared memory of libhydrant_alloc, exports a key and
// sleeps.
//   copy/via:map/bytes:N     memcpy into it through the imported key's mapping; bare: memcpy into small pages
//                            of this process. The goal is ratio <= 1.05 (0.95 of memcpy's bandwidth)
//   copy/via:kernel/bytes:N  process_vm_writev into the same memory; bare: the same memcpy
//   import/new               import and drop of the first key of a file: open, check, map, unmap; bare: a key
//                            within an existing mapping
//   pin                      pin, export and unpin of shared memory; bare is empty, so ours_ns is the cost
//
// ours_ns, bare_ns and ratio = ours / bare are medians of samples taken in turn in one repetition.
// Not included: page faults of a new mapping (rows of copy touch all of it first), messages.
#include <hydrant/alloc.h>

#include "bench/support/bench_main.hpp"
#include "bench/support/machine.hpp"
#include "bench/support/memory.hpp"
#include "bench/support/paired.hpp"
#include "firehose/base/status.hpp"
#include "rdma/shm/memory/cma_copy.hpp"
#include "rdma/shm/shm_registrar.hpp"

#include <cstring>
#include <memory>
#include <string>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

namespace hydrant::bench {
namespace {

constexpr size_t kOwnedBytes = 8 * kMiB;
constexpr size_t kBytesPerSample = 4 * kMiB;
constexpr int kImportsPerSample = 200;

using Blob = std::byte[shm::kShmBlobBytes];

std::unique_ptr<shm::ShmRegistrar> make_registrar() {
  std::unique_ptr<shm::ShmRegistrar> made;
  if (shm::ShmRegistrar::create(&made) != Status::kOk) die(last_error_text());
  return made;
}

bool export_range(shm::ShmRegistrar& registrar, MemoryRange range, Blob& blob) {
  std::byte key[sizeof(shm::ShmKey)];
  size_t len = sizeof blob;
  return registrar.pin(range, Access::kRemoteWrite, key) == Status::kOk &&
         registrar.export_key(range, key, blob, &len) == Status::kOk &&
         registrar.unpin(range, key) == UnpinResult::kDone;
}

// The owner process; ends with this object.
class Owner {
 public:
  Owner() {
    int to_me[2];
    int to_it[2];
    if (pipe(to_me) != 0 || pipe(to_it) != 0) die("pipe");
    pid_ = fork();
    if (pid_ == 0) {
      close(to_it[1]);
      own(to_me[1], to_it[0]);
    }
    close(to_me[1]);
    close(to_it[0]);
    ending_ = to_it[1];
    if (read(to_me[0], blob, sizeof blob) != static_cast<ssize_t>(sizeof blob)) die("the owner");
    close(to_me[0]);
  }
  ~Owner() {
    close(ending_);
    waitpid(pid_, nullptr, 0);
  }
  Owner(const Owner&) = delete;
  Owner& operator=(const Owner&) = delete;

  pid_t pid() const { return pid_; }
  Blob blob;

 private:
  [[noreturn]] static void own(int out, int ending) {
    void* p = hydrant_alloc_shared(kHugePageBytes, kOwnedBytes);
    std::memset(p, 1, kOwnedBytes);
    Blob blob;
    char nothing = 0;
    const bool good =
        export_range(*make_registrar(), {reinterpret_cast<uintptr_t>(p), kOwnedBytes}, blob) &&
        write(out, blob, sizeof blob) == static_cast<ssize_t>(sizeof blob) &&
        read(ending, &nothing, 1) == 0;
    _exit(good ? 0 : 1);
  }

  pid_t pid_ = -1;
  int ending_ = -1;
};

Owner& the_owner() {
  static Owner owner;
  return owner;
}

// `copy(offset)` copies `bytes` to the owner's memory.
template <typename Copy>
void compare(benchmark::State& state, size_t bytes, const Memory& source, Copy&& copy) {
  const OnCore here(0);
  const Memory own(kOwnedBytes, PageKind::kSmall);
  PairedSamples samples;
  size_t turn = 0;
  bool good = true;
  for (auto _ : state) {
    double ours = 0.0;
    double bare = 0.0;
    const auto mean = [&](auto&& one) {
      const size_t count = kBytesPerSample / bytes;
      return nanoseconds([&] {
               for (size_t i = 0; i < count; ++i) one(i * bytes);
             }) /
             static_cast<double>(count);
    };
    alternate(
        turn++, [&] { ours = mean([&](size_t offset) { good = copy(offset) && good; }); },
        [&] {
          bare = mean([&](size_t offset) {
            std::memcpy(own.at(offset), source.data(), bytes);
            benchmark::ClobberMemory();
          });
        });
    samples.add(ours, bare);
    state.SetIterationTime(ours * 1e-9);
  }
  samples.report(state);
  if (!good) state.SkipWithError("a copy failed");
}

void copy_by_map(benchmark::State& state, size_t bytes) {
  const auto registrar = make_registrar();
  std::byte key[sizeof(shm::ShmKey)];
  if (registrar->import_key(the_owner().blob, sizeof(Blob), key) != Status::kOk)
    return state.SkipWithError(last_error_text());
  const Memory source(bytes, PageKind::kSmall);
  const shm::ShmKey imported = shm::ShmKey::load(key);
  std::byte* const there = imported.find(imported.range.addr, kOwnedBytes);
  std::memset(there, 1, kOwnedBytes);
  compare(state, bytes, source, [&](size_t offset) {
    std::memcpy(there + offset, source.data(), bytes);
    benchmark::ClobberMemory();
    return true;
  });
  registrar->drop_import(key);
}

void copy_by_cma(benchmark::State& state, size_t bytes) {
  const Memory source(bytes, PageKind::kSmall);
  shm::ShmBlob there;
  if (shm::decode_shm_blob(the_owner().blob, sizeof(Blob), &there) != Status::kOk)
    return state.SkipWithError(last_error_text());
  compare(state, bytes, source, [&](size_t offset) {
    const iovec from{source.data(), bytes};
    const iovec to{reinterpret_cast<void*>(there.range.addr + offset), bytes};
    return process_vm_writev(the_owner().pid(), &from, 1, &to, 1, 0) == static_cast<ssize_t>(bytes);
  });
}

void import_new(benchmark::State& state, size_t) {
  const OnCore here(0);
  const auto fresh = make_registrar();
  const auto known = make_registrar();
  std::byte kept[sizeof(shm::ShmKey)];
  bool good = known->import_key(the_owner().blob, sizeof(Blob), kept) == Status::kOk;
  PairedSamples samples;
  size_t turn = 0;
  for (auto _ : state) {
    double ours = 0.0;
    double bare = 0.0;
    const auto mean = [&](shm::ShmRegistrar& registrar) {
      return nanoseconds([&] {
               for (int i = 0; i < kImportsPerSample; ++i) {
                 std::byte key[sizeof(shm::ShmKey)];
                 good = registrar.import_key(the_owner().blob, sizeof(Blob), key) == Status::kOk &&
                        good;
                 registrar.drop_import(key);
               }
             }) /
             kImportsPerSample;
    };
    alternate(
        turn++, [&] { ours = mean(*fresh); }, [&] { bare = mean(*known); });
    samples.add(ours, bare);
    state.SetIterationTime(ours * 1e-9);
  }
  samples.report(state);
  if (!good) return state.SkipWithError(last_error_text());
  known->drop_import(kept);
}

void pin_and_export(benchmark::State& state, size_t) {
  const OnCore here(0);
  const auto registrar = make_registrar();
  void* p = hydrant_alloc_shared(kHugePageBytes, kMiB);
  bool good = true;
  PairedSamples samples;
  for (auto _ : state) {
    Blob blob;
    const double ours =
        nanoseconds([&] {
          for (int i = 0; i < kImportsPerSample; ++i)
            good = export_range(*registrar, {reinterpret_cast<uintptr_t>(p), kMiB}, blob) && good;
        }) /
        kImportsPerSample;
    samples.add(ours, 0.0);
    state.SetIterationTime(ours * 1e-9);
  }
  samples.report(state);
  hydrant_free(p);
  if (!good) state.SkipWithError(last_error_text());
}

void add_row(const std::string& name, void (*body)(benchmark::State&, size_t), size_t bytes) {
  benchmark::RegisterBenchmark(name.c_str(), [=](benchmark::State& state) { body(state, bytes); })
      ->UseManualTime()
      ->Iterations(40)
      ->Unit(benchmark::kNanosecond);
}

void add_all_rows() {
  for (const size_t bytes : {4 * kKiB, 16 * kKiB, 64 * kKiB, 256 * kKiB, 1 * kMiB}) {
    add_row("copy/via:map/bytes:" + std::to_string(bytes), copy_by_map, bytes);
    add_row("copy/via:kernel/bytes:" + std::to_string(bytes), copy_by_cma, bytes);
  }
  add_row("import/new", import_new, 0);
  add_row("pin", pin_and_export, 0);
}

}  // namespace
}  // namespace hydrant::bench

int main(int argc, char** argv) {
  (void)hydrant::bench::the_owner();
  (void)hydrant::shm::allow_cma();
  hydrant::bench::add_all_rows();
  return hydrant::bench::run_program(argc, argv, "0.01");
}
