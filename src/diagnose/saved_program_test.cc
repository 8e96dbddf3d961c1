#include "diagnose/saved_program.h"

#include <fstream>
#include <sstream>

#include <gtest/gtest.h>

#include "base/testing/message_of.h"
#include "base/testing/temp_dir.h"
#include "diagnose/debug.h"
#include "engine/testing/tiny_model.h"
#include "listing/listing.h"

namespace encore::diagnose {
namespace {

namespace fs = std::filesystem;

loader::LoadOptions saved_options() {
  loader::LoadOptions options;
  options.limits = {.max_num_tokens = 16, .max_batch_size = 4, .max_q = 1, .max_seq_len = 64};
  options.kv_tokens = 1024;
  options.sequences = runtime::Ladder({2, 4});
  options.tokens = runtime::Ladder({16});
  return options;
}

std::vector<fs::path> files_in(const fs::path& directory) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(directory))
    files.push_back(entry.path());
  return files;
}

TEST(SavedProgram, HoldsTheProgramAndItsRecordings) {
  const TempDir dir;
  const fs::path directory = dir.path() / "programs";
  const auto device = create_cpu_device({.num_threads = 1});
  const model::ModelSource source = engine::testing::tiny_model(engine::testing::Tiny::kLlama);
  const auto model = load_model(*device, source, saved_options(), {.save_programs = directory});
  const auto again = load_model(*device, source, saved_options(), {.save_programs = directory});
  ASSERT_EQ(files_in(directory).size(), 1U);
  std::ostringstream text;
  text << std::ifstream(files_in(directory).front()).rdbuf();
  EXPECT_EQ(text.str().find(listing::print(model->program())), 0U) << text.str();
  for (const char* line :
       {"\nfull step of 2 sequences, q = 1: ", "\nfull step of 4 sequences, q = 1: ",
        "\nmixed step of 16 tokens, 4 sequences: "}) {
    EXPECT_NE(text.str().find(line), std::string::npos) << line << text.str();
  }

  loader::LoadOptions split = saved_options();
  split.compile.add_split_op("gather_rows");
  const auto other = load_model(*device, source, split, {.save_programs = directory});
  EXPECT_EQ(files_in(directory).size(), 2U);
}

TEST(SavedProgram, SaysWhyItCannotBeWritten) {
  const auto device = create_cpu_device({.num_threads = 1});
  const std::string message = message_of(ErrorKind::kUsage, [&] {
    (void)load_model(*device, engine::testing::tiny_model(engine::testing::Tiny::kLlama),
                     saved_options(), {.save_programs = "/dev/null/programs"});
  });
  EXPECT_NE(message.find("/dev/null/programs"), std::string::npos) << message;
}

}  // namespace
}  // namespace encore::diagnose
