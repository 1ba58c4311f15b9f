// The tool itself: exit status, one line on stderr, no half-written file, the
// same bytes from anywhere.
#include <gmock/gmock.h>

#include <sys/wait.h>

#include <cstdlib>

#include "tests/traces/traces_support.h"
#include "traces/sha256.h"

namespace kneepoint::traces {
namespace {

using testing::HasSubstr;

struct Outcome {
  int status = 0;
  std::string out, err;
};

Outcome run(const TempFolder& folder, const std::string& arguments) {
  const std::string command = "cd '" + (folder / "").string() + "' && '" KNEEPOINT_TRACES_TOOL "' " +
                              arguments + " >out.txt 2>err.txt";
  const int status = std::system(command.c_str());
  Outcome outcome{WEXITSTATUS(status), file_bytes(folder / "out.txt"), file_bytes(folder / "err.txt")};
  std::filesystem::remove(folder / "out.txt");
  std::filesystem::remove(folder / "err.txt");
  return outcome;
}

const char* const kWrongUses[] = {
    "",
    "genrate",
    "generate",
    "generate --arrivals poisson --rate 1 --requests 10",
    "generate --arrivals poisson --rate one --requests 10 out.pb",
    "generate --arrivals poisson --rat 1 --requests 10 out.pb",
    "generate --arrivals poisson --rate -1 --requests 10 out.pb",
    "generate --arrivals poisson --rate 1 --requests 10 --prompt-tokens 0 out.pb",
    "generate --arrivals poisson --rate 1 --requests 10 missing/out.pb",
    "generate --arrivals poisson --rate 1e-9 --requests 1000 out.pb",
    "convert missing.csv out.pb",
    "convert bad.csv out.pb",
    "convert bad.csv out.txt",
    "convert --from azur bad.csv out.pb",
    "convert --time-unit h bad.csv out.pb",
    "convert --seed 3 bad.csv out.pb",
    "info bad.csv",
    "verify missing.pb",
    "fit bad.csv",
    "transform bad.csv out.pb",
    "transform --mix bad.csv out.pb",
};

TEST(Tool, WrongUseIsOneLineExitTwoAndNoFile) {
  for (const char* arguments : kWrongUses) {
    const TempFolder folder;
    (void)folder.write("bad.csv", "arrival_s,prompt_tokens,output_tokens\n0,1,1\n1,-1,1\n");
    const Outcome outcome = run(folder, arguments);
    EXPECT_EQ(outcome.status, 2) << arguments;
    EXPECT_EQ(std::ranges::count(outcome.err, '\n'), 1) << arguments << ": " << outcome.err;
    EXPECT_THAT(outcome.err, testing::StartsWith("traces")) << arguments;
    EXPECT_EQ(outcome.out, "") << arguments;
    EXPECT_EQ(folder.num_files(), 1U) << arguments;
  }
}

TEST(Tool, EverySubcommandHasHelpWithAnExample) {
  const TempFolder folder;
  for (const std::string name : {"convert", "fit", "generate", "info", "transform", "verify"}) {
    const Outcome outcome = run(folder, name + " --help");
    EXPECT_EQ(outcome.status, 0) << name;
    EXPECT_THAT(outcome.out, HasSubstr("traces " + name)) << name;
    EXPECT_THAT(outcome.out, HasSubstr("Example")) << name;
    EXPECT_THAT(run(folder, "--help").out, HasSubstr(name));
  }
}

// Pins, not derivations: what these compilers, this Boost and this C library
// made once is what every other one must make. A change here changes every
// workload that people have generated.
TEST(Tool, GeneratesTheSameBytesEverywhere) {
  const struct {
    const char* arguments;
    const char* sha256;
  } kPins[] = {
      {"--arrivals gamma --burstiness 0.2 --rate 25 --requests 5000 --random-range-ratio 0.5",
       "dbca997db075f3d708b1a8d5a713e7b663307d690db76161f9787b72be40a033"},
      {"--arrivals mmpp --states 1:50,10:5 --rate 9 --requests 5000 --diurnal 0.5:0.25,0.2:0 --period 300 "
       "--prompt-tokens lognormal:900:1.3 --output-tokens zipf:1.1:4000 --length-correlation 0.4",
       "aad16425086a441c5fe506fbe2915067cdb167f5b99e0660b5f8d8fccd7d34a9"},
      {"--arrivals weibull --cv 3 --rate 2 --requests 5000 --turns uniform:1:9 --tool-calls zipf:1:6 "
       "--system-prompts 7 --system-prompt-tokens 300 --ramp 0.5:2:100",
       "df85dd67e7b708f306fa896d7fb04e1c9de2364c737fd54e83915f9f0bfbbf30"},
      {"--arrivals vllm-bench --burstiness 0.7 --rate 3 --requests 5000 --spike 10:5:4",
       "d2cf47b540f6ecf2134800e63bc5f497fd067787c000f4ee4d277b68227cff0f"},
      {"--arrivals pareto --shape 1.7 --rate 3 --requests 5000",
       "aca0a9781aaa297d75edfc7a766636b91c2298bbc47f58b716842f38c9052c2b"},
  };
  const TempFolder folder;
  for (const auto& pin : kPins) {
    ASSERT_EQ(run(folder, std::string("generate ") + pin.arguments + " t.pb").status, 0) << pin.arguments;
    EXPECT_EQ(sha256_file(folder / "t.pb"), pin.sha256) << pin.arguments;
  }
}

TEST(Tool, NamesOfFoldersDoNotReachTheBytes) {
  const TempFolder folder;
  std::filesystem::create_directories(folder / "sub");
  (void)folder.write("t.csv", "arrival_s,prompt_tokens,output_tokens\n0,1,1\n1,1,1\n");
  ASSERT_EQ(run(folder, "convert t.csv a.pb").status, 0);
  ASSERT_EQ(run(folder, "convert sub/../t.csv sub/b.pb").status, 0);
  EXPECT_EQ(file_bytes(folder / "a.pb"), file_bytes(folder / "sub/b.pb"));
  ASSERT_EQ(run(folder, "transform --mix a.pb:1 sub/b.pb:2 c.pb").status, 0);
  ASSERT_EQ(run(folder, "transform --mix ./a.pb:1 ./sub/b.pb:2 sub/c.pb").status, 0);
  EXPECT_EQ(file_bytes(folder / "c.pb"), file_bytes(folder / "sub/c.pb"));
}

TEST(Tool, FitPrintsALineThatGenerateTakes) {
  const TempFolder folder;
  ASSERT_EQ(run(folder,
                "generate --arrivals gamma --burstiness 0.4 --rate 5 --requests 2000 --prompt-tokens "
                "lognormal:500:1 t.pb")
                .status,
            0);
  const Outcome fit = run(folder, "fit t.pb");
  ASSERT_EQ(fit.status, 0);
  const std::size_t line = fit.out.rfind("traces generate ");
  ASSERT_NE(line, std::string::npos);
  std::string arguments = fit.out.substr(line + std::string("traces ").size());
  arguments.pop_back();
  EXPECT_THAT(arguments, HasSubstr("--arrivals gamma --burstiness 0.4"));
  EXPECT_EQ(run(folder, arguments).status, 0);
  EXPECT_EQ(run(folder, "verify OUT.pb").status, 0);
}

}  // namespace
}  // namespace kneepoint::traces
