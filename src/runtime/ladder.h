// A ladder: the ordered sizes that have recordings. A size is padded up to the next bucket.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace encore::runtime {

class Ladder {
 public:
  Ladder() = default;
  // Sorts and removes duplicates. Errors: kUsage when a size is not positive.
  explicit Ladder(std::vector<int64_t> sizes);

  // 1, 2, 4, 8 to 256 by 8, 272 to 512 by 16: the 51 decode sizes; capped at `max`, which is
  // included.
  static Ladder sequences(int64_t max);
  // 4 to 32 by 4, 48 to 256 by 16, 288 to 512 by 32, 576 to 1024 by 64, 1280 to 4096 by 256, then
  // by 512; capped at `max`, which is included.
  static Ladder tokens(int64_t max);
  // "1,2,4,8". Errors: kUsage.
  static Ladder parse(const std::string& text);

  // The smallest bucket that holds `size`; nothing above the largest. Binary search.
  [[nodiscard]] std::optional<int64_t> bucket(int64_t size) const;
  [[nodiscard]] const std::vector<int64_t>& sizes() const { return sizes_; }
  [[nodiscard]] bool empty() const { return sizes_.empty(); }

 private:
  std::vector<int64_t> sizes_;
};

}  // namespace encore::runtime
