// Strong integer ids. An id of one kind, such as a ValueId, does not convert to another, such as a
// NodeId.
#pragma once

#include <compare>
#include <cstdint>
#include <functional>

namespace encore {

template <typename Tag>
struct Id {
  int32_t index = -1;

  auto operator<=>(const Id&) const = default;  // NOLINT(modernize-use-nullptr): sees its 0
};

}  // namespace encore

template <typename Tag>
struct std::hash<encore::Id<Tag>> {
  size_t operator()(encore::Id<Tag> id) const noexcept { return std::hash<int32_t>{}(id.index); }
};
