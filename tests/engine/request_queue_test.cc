// The waiting queue against a sorted list, and the flat map against std::map.
#include "engine/request_queue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/random/mersenne_twister.hpp>
#include <boost/random/uniform_int_distribution.hpp>
#include <deque>
#include <map>
#include <vector>

#include "engine/flat_map.h"

namespace kneepoint::engine {
namespace {

using testing::ElementsAre;

Request waiting(RequestId id, std::int32_t priority = 0, std::int64_t arrival = 0, bool deferred = false) {
  Request r;
  r.id = id;
  r.priority = priority;
  r.arrival = arrival;
  r.deferred = deferred;
  return r;
}

TEST(RequestQueue, FcfsIgnoresPriorities) {
  RequestQueue queue(SchedulingPolicy::kFcfs);
  queue.push_back(0, waiting(10, 5));
  queue.push_back(1, waiting(11, 1));
  queue.push_front(2, waiting(12, 9));
  queue.push_front(3, waiting(13, 9));
  EXPECT_THAT(queue.in_order(), ElementsAre(3, 2, 0, 1));
  EXPECT_EQ(queue.pop_front(), 3);
  queue.remove(0);
  EXPECT_THAT(queue.in_order(), ElementsAre(2, 1));
}

// (priority, arrival, id), smaller first; the front is no place of its own.
TEST(RequestQueue, PriorityOrdersByPriorityArrivalAndId) {
  RequestQueue queue(SchedulingPolicy::kPriority);
  queue.push_back(0, waiting(10, 1, 5));
  queue.push_back(1, waiting(11, 0, 9));
  queue.push_front(2, waiting(12, 1, 4));
  queue.push_front(3, waiting(9, 1, 5));
  queue.push_back(4, waiting(13, -1, 99));
  EXPECT_THAT(queue.in_order(), ElementsAre(4, 1, 2, 3, 0));
}

TEST(RequestQueue, CountsThoseSetAside) {
  RequestQueue queue(SchedulingPolicy::kFcfs);
  queue.push_back(0, waiting(10));
  queue.push_front(1, waiting(11, 0, 0, true));
  EXPECT_EQ(queue.num_deferred(), 1);
  EXPECT_EQ(queue.size(), 2);
  EXPECT_EQ(queue.pop_front(), 1);
  EXPECT_EQ(queue.num_deferred(), 0);
}

TEST(RequestQueue, AgreesWithADequeOnRandomCalls) {
  boost::random::mt19937_64 random(1);
  const auto below = [&](int n) { return boost::random::uniform_int_distribution<int>(0, n - 1)(random); };
  RequestQueue queue(SchedulingPolicy::kFcfs);
  std::deque<Slot> model;
  std::vector<Slot> vacant;
  for (Slot slot = 0; slot < 40; ++slot) {
    vacant.push_back(slot);
  }
  for (int i = 0; i < 20'000; ++i) {
    const int call = below(4);
    if (call < 2 && !vacant.empty()) {
      const Slot slot = vacant.back();
      vacant.pop_back();
      call == 0 ? queue.push_back(slot, waiting(1)) : queue.push_front(slot, waiting(1));
      call == 0 ? model.push_back(slot) : model.push_front(slot);
    } else if (call == 2 && !model.empty()) {
      const auto place = model.begin() + below(static_cast<int>(model.size()));
      queue.remove(*place);
      vacant.push_back(*place);
      model.erase(place);
    } else if (call == 3 && !model.empty()) {
      ASSERT_EQ(queue.pop_front(), model.front());
      vacant.push_back(model.front());
      model.pop_front();
    }
    ASSERT_EQ(queue.empty(), model.empty());
    if (i % 50 == 0) {
      ASSERT_EQ(queue.in_order(), std::vector<Slot>(model.begin(), model.end()));
    }
  }
}

/// Few distinct values, so that nearly every key stands in another one's way.
struct CrowdedHash {
  std::uint64_t operator()(int key) const { return static_cast<std::uint64_t>(key % 7 + 12); }
};

TEST(FlatMap, AgreesWithMapOnRandomCallsAndCrowdedHashes) {
  boost::random::mt19937_64 random(2);
  FlatMap<int, int, CrowdedHash> map;
  std::map<int, int> model;
  for (int i = 0; i < 50'000; ++i) {
    const int key = boost::random::uniform_int_distribution<int>(0, 60)(random);
    if (const auto found = model.find(key); found != model.end()) {
      ASSERT_NE(map.find(key), nullptr);
      ASSERT_EQ(*map.find(key), found->second);
      map.erase(key);
      model.erase(found);
    } else {
      ASSERT_EQ(map.find(key), nullptr);
      map.insert(key, i);
      model[key] = i;
    }
    ASSERT_EQ(map.size(), model.size());
  }
}

TEST(RequestTable, ReusesTheSlotsOfThoseWhoLeft) {
  RequestTable table;
  NewRequest request;
  request.prompt_tokens = 3;
  for (RequestId id = 0; id < 100'000; ++id) {
    request.id = id * 40'009;  // Sparse.
    const Slot slot = table.add(request);
    ASSERT_LT(slot, 3);
    ASSERT_EQ(table.find(request.id), slot);
    if (id >= 2) {
      table.remove(table.find((id - 2) * 40'009));
    }
  }
  EXPECT_EQ(table.size(), 2U);
  EXPECT_EQ(table.find(0), kNoSlot);
}

}  // namespace
}  // namespace kneepoint::engine
