// From a document's items to plain values, with errors that name the line.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "config/yaml.h"

namespace encore::config {

// Throws kUsage "WHERE:LINE: KEY is WANTED, not ..." with what the item is.
[[noreturn]] void fail_type(const Item& item, const std::string& where, std::string_view key,
                            std::string_view wanted);
// These read a value; each throws kUsage "WHERE:LINE: KEY ..." on the wrong type.
bool read_bool(const Item& item, const std::string& where, std::string_view key);
int64_t read_int(const Item& item, const std::string& where, std::string_view key);
double read_number(const Item& item, const std::string& where, std::string_view key);
std::string read_text(const Item& item, const std::string& where, std::string_view key);
// Reads numbers as they are given: in a list, as "1,2,4", or a single one.
std::vector<int64_t> read_list(const Item& item, const std::string& where, std::string_view key);
// Reads positive numbers and sorts them. Refuses one given twice.
std::vector<int64_t> read_sizes(const Item& item, const std::string& where, std::string_view key);
// Reads names, from a list or "a,b". Refuses one given twice.
std::vector<std::string> read_names(const Item& item, const std::string& where,
                                    std::string_view key);
// Reads texts as they are: of a list, or a single one.
std::vector<std::string> read_texts(const Item& item, const std::string& where,
                                    std::string_view key);

// Turns "a|b|c" into "a, b or c".
std::string choices_text(std::string_view choices);
// Is `text` one of the choices? A choice that ends in ":N" takes any number there.
bool is_choice(std::string_view choices, std::string_view text);
// ", did you mean 'x'?" with the nearest of `names`, or nothing when none is near.
std::string suggestion(std::string_view wrong, const std::vector<std::string_view>& names);

}  // namespace encore::config
