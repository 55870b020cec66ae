// This process as rank 0 of a job of three ranks, over a fake transport, with one handler per kind of
// message that records its calls.
#pragma once

#include <hydrant/gasnet/am_calls.h>

#include "am/call/thread_state.hpp"
#include "am/job/job.hpp"
#include "tests/unit/am/fake_transport.hpp"

#include <gtest/gtest.h>

#include <functional>
#include <vector>

namespace hydrant::test {

struct Call {
  std::vector<int32_t> args;
  std::vector<std::byte> payload;
  void* address = nullptr;
  gex_Token_Info_t info = {};
};

// Calls recorded by the handlers below, and a hook inside them; reset by the fixture.
inline std::vector<Call> calls;
inline std::function<void(gex_Token_t)> in_handler;

inline void note(gex_Token_t token, void* payload, size_t bytes, std::vector<int32_t> args) {
  Call call = {.args = std::move(args), .payload = {}, .address = payload, .info = {}};
  const auto* from = static_cast<const std::byte*>(payload);
  if (bytes != 0) call.payload.assign(from, from + bytes);
  gex_Token_Info(token, &call.info, GEX_TI_ALL);
  calls.push_back(call);
  if (in_handler) in_handler(token);
}
inline void on_short0(gex_Token_t token) { note(token, nullptr, 0, {}); }
inline void on_short2(gex_Token_t token, int32_t a, int32_t b) { note(token, nullptr, 0, {a, b}); }
inline void on_payload1(gex_Token_t token, void* payload, size_t bytes, int32_t a) {
  note(token, payload, bytes, {a});
}

class JobFixture : public ::testing::Test {
 protected:
  static constexpr gex_AM_Index_t kShort0 = 200;
  static constexpr gex_AM_Index_t kShort2 = 201;
  static constexpr gex_AM_Index_t kMedium1 = 202;
  static constexpr gex_AM_Index_t kLong1 = 203;
  static constexpr gex_AM_Index_t kUnregisteredHandler = 210;

  void SetUp() override {
    Job& the_job = job();
    hydrant_job_info.rank = 0;
    hydrant_job_info.size = 3;
    auto owned = std::make_unique<FakeTransport>();
    transport = owned.get();
    ASSERT_EQ(the_job.use(std::move(owned)), Status::kOk);
    the_job.debug = false;
    the_job.checks_calls = false;
    the_job.ending = false;
    the_job.client = {};
    the_job.endpoint = {};
    the_job.endpoint.client = &the_job.client;
    hydrant_world.ep = &the_job.endpoint;
    hydrant_world.size = 3;
    the_job.state = JobState::kWired;
    static const bool registered = add_handlers();
    ASSERT_TRUE(registered);
    calls.clear();
    in_handler = nullptr;
  }
  void TearDown() override {
    EXPECT_EQ(transport->cells_out, 0u) << "a cell was neither sent nor returned";
    EXPECT_EQ(job().use(nullptr), Status::kOk);
    job().state = JobState::kNew;
  }

  static bool add_handlers() {
    const auto row = [](gex_AM_Index_t index, auto* function, gex_Flags_t flags, unsigned nargs) {
      return gex_AM_Entry_t{index,
                            reinterpret_cast<gex_AM_Fn_t>(function),
                            flags | GEX_FLAG_AM_REQREP,
                            nargs,
                            nullptr,
                            "noted"};
    };
    gex_AM_Entry_t rows[] = {row(kShort0, on_short0, GEX_FLAG_AM_SHORT, 0),
                             row(kShort2, on_short2, GEX_FLAG_AM_SHORT, 2),
                             row(kMedium1, on_payload1, GEX_FLAG_AM_MEDIUM, 1),
                             row(kLong1, on_payload1, GEX_FLAG_AM_LONG, 1)};
    return job().handlers.add(rows, std::size(rows)) == Status::kOk;
  }

  gex_TM_t team() { return &hydrant_world; }
  // Delivers every sent message to this process as if rank 1 had sent it.
  void deliver_sent() {
    std::vector<SentMessage> messages;
    messages.swap(transport->sent);
    for (const SentMessage& message : messages) FakeTransport::deliver(am_receiver(), message);
  }

  FakeTransport* transport = nullptr;
};

inline std::vector<std::byte> pattern(size_t bytes, unsigned seed = 1) {
  std::vector<std::byte> data(bytes);
  for (size_t i = 0; i < bytes; ++i) data[i] = static_cast<std::byte>((i * 7 + seed) & 0xff);
  return data;
}

}  // namespace hydrant::test
