#include "backend/litmus.h"

#include <memory>
#include <set>
#include <string>
#include <utility>

#include <gtest/gtest.h>

#include "base/error.h"

namespace encore::litmus {
namespace {

TEST(LitmusForms, HaveNamesThatOccurOnceInAScope) {
  std::set<std::string> names;
  for (const Form& form : forms()) {
    const std::string full = std::string(name(form.scope)) + "." + std::string(form.name);
    EXPECT_TRUE(names.insert(full).second) << full;
    EXPECT_EQ(find_form(form.scope, form.name), &form);
  }
  EXPECT_EQ(find_form(Scope::kDevice, "no_such_form"), nullptr);
}

TEST(LitmusForms, ComeInEveryScopeWithTwinsOfCorrectForms) {
  for (const Scope scope : kScopes) {
    int correct = 0;
    int twins = 0;
    for (const Form& form : forms()) {
      if (form.scope != scope) continue;
      ++(form.is_correct() ? correct : twins);
      if (form.is_correct()) continue;
      const Form* original = find_form(scope, form.twin_of);
      ASSERT_NE(original, nullptr) << form.name;
      EXPECT_TRUE(original->is_correct()) << form.name;
    }
    EXPECT_GE(correct, 5) << name(scope);
    EXPECT_GT(twins, correct) << name(scope);
  }
}

TEST(LitmusForms, ArePricedAgainstATwinOfTheSameScope) {
  for (const Form& form : forms()) {
    EXPECT_EQ(form.baseline.empty(), !form.is_correct()) << form.name;
    if (form.baseline.empty()) continue;
    const Form* baseline = find_form(form.scope, form.baseline);
    ASSERT_NE(baseline, nullptr) << form.name;
    EXPECT_FALSE(baseline->is_correct()) << form.name;
  }
}

TEST(LitmusForms, NameTheirScopeInTheirInstructions) {
  EXPECT_EQ(find_form(Scope::kBlock, "release_acquire")->ptx, "st.release.cta / ld.acquire.cta");
  EXPECT_EQ(find_form(Scope::kSystem, "no_release")->ptx, "st.relaxed.sys / ld.acquire.sys");
  EXPECT_EQ(find_form(Scope::kDevice, "lock")->ptx, "atom.acquire.gpu.cas ... st.release.gpu");
  // The scope of the test decides which scope is too narrow for it. At block scope there is no such
  // test, since no scope is narrower than a block.
  EXPECT_EQ(find_form(Scope::kDevice, "narrow_scope")->ptx, "st.release.cta / ld.acquire.cta");
  EXPECT_EQ(find_form(Scope::kSystem, "narrow_scope")->ptx, "st.release.gpu / ld.acquire.gpu");
  EXPECT_EQ(find_form(Scope::kBlock, "narrow_scope"), nullptr);
  EXPECT_EQ(find_form(Scope::kDevice, "one_way_flags")->ptx,
            "fence.release.gpu; 4 x st.relaxed.gpu / ld.relaxed.gpu; fence.acquire.gpu");
  EXPECT_EQ(find_form(Scope::kCluster, "exchange")->ptx, "atom.acq_rel.cluster.exch");
  EXPECT_EQ(find_form(Scope::kCluster, "narrow_wait")->ptx,
            "mbarrier.arrive.release.cluster / spin mbarrier.try_wait.acquire.cta");
}

TEST(LitmusForms, AskWhatHalfAnAtomicAndOneThreadsOwnAccessesOrder) {
  for (const Scope scope : {Scope::kBlock, Scope::kCluster, Scope::kDevice}) {
    for (const auto& [broken, correct] : {std::pair{"acquire_only_queue", "work_queue"},
                                          {"release_only_queue", "work_queue"},
                                          {"two_addresses", "same_address"}}) {
      const Form* twin = find_form(scope, broken);
      ASSERT_NE(twin, nullptr) << name(scope) << "." << broken;
      EXPECT_EQ(twin->twin_of, correct);
    }
  }
  EXPECT_EQ(find_form(Scope::kDevice, "acquire_only_queue")->ptx, "atom.acquire.gpu.add");
  EXPECT_EQ(find_form(Scope::kBlock, "two_addresses")->ptx,
            "st.relaxed.cta a; st.relaxed.cta b / ld.relaxed.cta b; ld.relaxed.cta a");
}

TEST(LitmusForms, AskWhatEachSideOfARelaysFenceOrders) {
  EXPECT_EQ(find_form(Scope::kDevice, "relay")->ptx,
            "fence.release.gpu; st.relaxed.gpu / ld.relaxed.gpu; fence.acq_rel.gpu; st.relaxed.gpu "
            "/ ld.relaxed.gpu; fence.acquire.gpu");
  for (const char* broken : {"relay_release_only", "relay_acquire_only", "relaxed_relay"})
    EXPECT_EQ(find_form(Scope::kDevice, broken)->twin_of, "relay");
}

TEST(LitmusForms, AskWhatRanksOrderBetweenTwoCalls) {
  const Form* const places = find_form(Scope::kDevice, "places");
  ASSERT_NE(places, nullptr);
  EXPECT_TRUE(places->is_correct());
  for (const char* broken : {"late_empty", "relaxed_places"})
    EXPECT_EQ(find_form(Scope::kDevice, broken)->twin_of, "places");
  EXPECT_EQ(find_form(Scope::kCluster, "places"), nullptr);
}

class LitmusSuiteCuda : public testing::Test {
 protected:
  void SetUp() override {
    try {
      suite_ = open_suite();
    } catch (const Error& error) {
      GTEST_SKIP() << error.what();
    }
  }

  std::unique_ptr<Suite> suite_;
};

TEST_F(LitmusSuiteCuda, HoldsEveryCorrectFormAndPricesIt) {
  for (const Form& form : forms()) {
    if (!form.is_correct()) continue;
    const Counts counts = suite_->stress(form, 1'000'000, 5);
    EXPECT_GE(counts.rounds, 1'000) << name(form.scope) << "." << form.name;
    EXPECT_EQ(counts.violations(), 0) << name(form.scope) << "." << form.name;
    EXPECT_GT(suite_->price(form).ns, 0) << name(form.scope) << "." << form.name;
  }
}

TEST_F(LitmusSuiteCuda, CatchesTwinsThatReadWhatL1StillHolds) {
  for (const char* twin : {"no_acquire", "narrow_scope", "plain_flag", "relaxed_queue",
                           "relaxed_exchange", "relay_release_only", "relaxed_relay"}) {
    const Counts counts = suite_->stress(*find_form(Scope::kDevice, twin), 10'000'000, 10);
    EXPECT_GT(counts.violations(), 0) << twin;
  }
}

TEST_F(LitmusSuiteCuda, CatchesPlacesThatAreEmptiedTooLate) {
  const Counts counts = suite_->stress(*find_form(Scope::kDevice, "late_empty"), 10'000'000, 10);
  EXPECT_GT(counts.violations(), 0);
}

TEST_F(LitmusSuiteCuda, CatchesArrivalsThatComeTooEarly) {
  for (const char* twin : {"early_arrive", "early_return"}) {
    for (const Scope scope : {Scope::kBlock, Scope::kCluster}) {
      const Counts counts = suite_->stress(*find_form(scope, twin), 10'000'000, 10);
      EXPECT_GT(counts.violations(), 0) << name(scope) << "." << twin;
    }
  }
}

}  // namespace
}  // namespace encore::litmus
