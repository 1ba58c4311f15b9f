// The entry of libFuzzer.
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "tests/fuzz/fuzz_target.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  kneepoint::fuzz::KNEEPOINT_FUZZ_TARGET({data, size});
  return 0;
}
