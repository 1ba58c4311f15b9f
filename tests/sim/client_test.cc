// Clients on small workloads; times in seconds.
#include "sim/client.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

namespace kneepoint::sim {
namespace {

SimTime at(double seconds) { return SimTime(to_sim_duration(seconds)); }

Send request(std::uint64_t index, double arrival, std::uint64_t session = 0, bool after = false, double think = 0) {
  Send send;
  send.index = index;
  send.arrival = at(arrival);
  send.record.session = session;
  send.record.after_previous = after;
  send.record.think_time = to_sim_duration(think);
  return send;
}

class ListWorkload final : public Workload {
 public:
  explicit ListWorkload(std::vector<Send> sends) : sends_(std::move(sends)) {}
  bool next(Send& send) override {
    if (next_ == sends_.size()) {
      return false;
    }
    send = sends_[next_++];
    return true;
  }

 private:
  std::vector<Send> sends_;
  std::size_t next_ = 0;
};

std::unique_ptr<Client> open_loop(std::vector<Send> sends) {
  return std::make_unique<OpenLoopClient>(std::make_unique<ListWorkload>(std::move(sends)));
}

TEST(OpenLoopClient, SendsAtTheWorkloadsTimesWhateverTheServerDoes) {
  const auto client = open_loop({request(0, 1), request(1, 2)});
  Send send;
  EXPECT_EQ(client->next_send_time(), at(1));
  EXPECT_FALSE(client->next_send(at(0.5), send));
  ASSERT_TRUE(client->next_send(at(1), send));
  EXPECT_EQ(send.index, 0u);
  EXPECT_EQ(client->next_send_time(), at(2));
  ASSERT_TRUE(client->next_send(at(2), send));
  EXPECT_EQ(client->next_send_time(), kNever);
}

TEST(OpenLoopClient, ATurnWaitsForTheAnswerBeforeAndItsThinkTime) {
  const auto client = open_loop({request(0, 1, 7), request(1, 2, 7, true, 3), request(2, 2.5)});
  Send send;
  ASSERT_TRUE(client->next_send(at(1), send));
  EXPECT_FALSE(client->next_send(at(2), send)) << "turn 1 has no answer to follow yet";
  EXPECT_EQ(client->next_send_time(), at(2.5));
  ASSERT_TRUE(client->next_send(at(2.5), send));
  EXPECT_EQ(send.index, 2u) << "another request does not wait for the session";
  client->on_finished({0, 7, at(4)});
  EXPECT_EQ(client->next_send_time(), at(7)) << "4 + 3 of think time";
  ASSERT_TRUE(client->next_send(at(7), send));
  EXPECT_EQ(send.index, 1u);
  EXPECT_EQ(send.arrival, at(7));
}

TEST(OpenLoopClient, ATurnWhoseAnswerCameEarlyGoesAtItsOwnTime) {
  const auto client = open_loop({request(0, 1, 7), request(1, 9, 7, true, 3)});
  Send send;
  ASSERT_TRUE(client->next_send(at(1), send));
  client->on_finished({0, 7, at(2)});
  EXPECT_EQ(client->next_send_time(), at(9));
  ASSERT_TRUE(client->next_send(at(9), send));
  EXPECT_EQ(send.index, 1u);
}

TEST(SemaphoreClient, LetsSoManyBeUnderWayAndKeepsTheArrival) {
  SemaphoreClient client(open_loop({request(0, 0), request(1, 0), request(2, 0)}), 2);
  Send send;
  ASSERT_TRUE(client.next_send(at(0), send));
  ASSERT_TRUE(client.next_send(at(0), send));
  EXPECT_EQ(client.next_send_time(), kNever);
  EXPECT_FALSE(client.next_send(at(1), send));
  client.on_finished({0, 0, at(5)});
  EXPECT_EQ(client.next_send_time(), at(5));
  ASSERT_TRUE(client.next_send(at(5), send));
  EXPECT_EQ(send.arrival, at(0)) << "the task was created at 0 and waited for a slot";
}

TEST(SemaphoreClient, ASlotIsUsableAfterTheClientsThinkTime) {
  SemaphoreClient client(open_loop({request(0, 0), request(1, 0)}), 1, [] { return to_sim_duration(0.25); });
  Send send;
  ASSERT_TRUE(client.next_send(at(0), send));
  client.on_finished({0, 0, at(5)});
  EXPECT_EQ(client.next_send_time(), at(5.25));
  EXPECT_FALSE(client.next_send(at(5.2), send));
  EXPECT_TRUE(client.next_send(at(5.25), send));
}

}  // namespace
}  // namespace kneepoint::sim
