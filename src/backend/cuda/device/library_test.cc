#include "backend/cuda/device/library.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace encore::cuda {
namespace {

TEST(Library, ThatIsMissingTellsWhereItWasLookedForAndWhatToDo) {
  try {
    const Library library("libencore-has-no-such-library.so.1");
    FAIL() << "opened " << library.path();
  } catch (const Error& error) {
    const std::string message = error.what();
    EXPECT_EQ(error.kind(), ErrorKind::kDevice);
    EXPECT_NE(message.find("libencore-has-no-such-library.so.1"), std::string::npos);
    EXPECT_NE(message.find("system's default places"), std::string::npos);
    EXPECT_NE(message.find("./dev setup"), std::string::npos);
    for (const auto& directory : library_directories()) {
      EXPECT_NE(message.find(directory.string()), std::string::npos);
    }
  }
}

TEST(Library, GivesFunctionsAndItsPath) {
  const Library library("libm.so.6");
  double (*cosine)(double) = nullptr;
  library.look_up(cosine, "cos");
  EXPECT_EQ(cosine(0.0), 1.0);
  EXPECT_NE(library.path().find('/'), std::string::npos);
  EXPECT_THROW(library.look_up(cosine, "no_such_function"), Error);
}

}  // namespace
}  // namespace encore::cuda
