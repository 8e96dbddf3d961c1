#include <cstring>
#include <string>
#include <thread>

#include <encore/c_api.h>
#include <gtest/gtest.h>

namespace {

constexpr encore_setting kOptions[] = {
    {"device", "cpu"}, {"max_batch_size", "2"}, {"max_num_tokens", "64"}, {"max_seq_len", "1024"}};

class CApi : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    ASSERT_EQ(encore_open(kOptions, std::size(kOptions), &engine), ENCORE_OK)
        << encore_error_text();
  }
  static void TearDownTestSuite() { encore_close(engine); }

  static encore_request* submit(const char* max_tokens) {
    const encore_setting parameters[] = {{"max_tokens", max_tokens}, {"ignore_eos", "on"}};
    encore_request* request = nullptr;
    EXPECT_EQ(encore_submit_text(engine, "Once", 4, parameters, 2, &request), ENCORE_OK)
        << encore_error_text();
    return request;
  }

  static encore_engine* engine;
};

encore_engine* CApi::engine = nullptr;

TEST_F(CApi, GivesTextWithItsLengthAndKeepsTheEnd) {
  encore_request* request = submit("12");
  std::string text;
  size_t num_tokens = 0;
  encore_update update{};
  do {
    ASSERT_EQ(encore_next(request, -1, &update), ENCORE_OK);
    EXPECT_EQ(update.text[update.text_bytes], '\0');
    text.append(update.text, update.text_bytes);
    num_tokens += update.num_tokens;
  } while (update.finish == ENCORE_FINISH_NONE);
  EXPECT_EQ(update.finish, ENCORE_FINISH_LENGTH);
  EXPECT_STREQ(update.error, "");
  EXPECT_EQ(num_tokens, 12U);
  EXPECT_FALSE(text.empty());
  ASSERT_EQ(encore_next(request, -1, &update), ENCORE_OK);
  EXPECT_EQ(update.finish, ENCORE_FINISH_LENGTH);
  EXPECT_EQ(update.num_tokens, 0U);
  EXPECT_EQ(update.text_bytes, 0U);
  encore_release(request);
}

TEST_F(CApi, ReleasingARequestAbortsIt) {
  encore_statistics before{};
  ASSERT_EQ(encore_get_statistics(engine, &before), ENCORE_OK);
  encore_release(submit("900"));
  // The second request ends after the first has been aborted. So statistics that are read after its
  // end count the end of the first.
  encore_request* next = submit("100");
  encore_update update{};
  do {
    ASSERT_EQ(encore_next(next, -1, &update), ENCORE_OK);
  } while (update.finish == ENCORE_FINISH_NONE);
  encore_release(next);
  encore_statistics after{};
  ASSERT_EQ(encore_get_statistics(engine, &after), ENCORE_OK);
  EXPECT_EQ(after.num_finished[ENCORE_FINISH_ABORTED],
            before.num_finished[ENCORE_FINISH_ABORTED] + 1);
  EXPECT_EQ(after.num_finished[ENCORE_FINISH_LENGTH],
            before.num_finished[ENCORE_FINISH_LENGTH] + 1);
}

TEST_F(CApi, AnErrorIsOfTheThreadThatMadeIt) {
  encore_engine* none = nullptr;
  const encore_setting wrong[] = {{"colour", "red"}};
  ASSERT_EQ(encore_open(wrong, 1, &none), ENCORE_USAGE);
  EXPECT_EQ(none, nullptr);
  const std::string here = encore_error_text();
  EXPECT_NE(here.find("colour"), std::string::npos) << here;
  std::thread([&] {
    EXPECT_STREQ(encore_error_text(), "");
    const encore_setting other[] = {{"flavour", "sweet"}};
    EXPECT_EQ(encore_open(other, 1, &none), ENCORE_USAGE);
    EXPECT_NE(std::strstr(encore_error_text(), "flavour"), nullptr);
  }).join();
  EXPECT_EQ(encore_error_text(), here);
}

TEST_F(CApi, NullIsAnErrorOrNothing) {
  encore_request* request = nullptr;
  encore_update update{};
  encore_statistics statistics{};
  int has_ended = 0;
  const encore_setting no_value[] = {{"seed", nullptr}};
  EXPECT_EQ(encore_open(nullptr, 0, nullptr), ENCORE_USAGE);
  EXPECT_EQ(encore_submit_text(nullptr, "x", 1, nullptr, 0, &request), ENCORE_USAGE);
  EXPECT_STREQ(encore_error_text(), "engine is null");
  EXPECT_EQ(encore_submit_text(engine, nullptr, 0, nullptr, 0, &request), ENCORE_USAGE);
  EXPECT_EQ(encore_submit_text(engine, "x", 1, nullptr, 1, &request), ENCORE_USAGE);
  EXPECT_EQ(encore_submit_text(engine, "x", 1, no_value, 1, &request), ENCORE_USAGE);
  EXPECT_STREQ(encore_error_text(), "the value of seed is null");
  EXPECT_EQ(encore_submit_tokens(engine, nullptr, 3, nullptr, 0, &request), ENCORE_USAGE);
  EXPECT_EQ(encore_next(nullptr, 0, &update), ENCORE_USAGE);
  EXPECT_EQ(encore_drain(nullptr, 0, &has_ended), ENCORE_USAGE);
  EXPECT_EQ(encore_get_statistics(engine, nullptr), ENCORE_USAGE);
  EXPECT_EQ(encore_get_statistics(nullptr, &statistics), ENCORE_USAGE);
  EXPECT_EQ(request, nullptr);
  encore_abort(nullptr);
  encore_release(nullptr);
  encore_close(nullptr);
}

}  // namespace
