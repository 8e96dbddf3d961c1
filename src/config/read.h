// Reads a document's items as plain values, with errors that name the line.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "config/yaml.h"

namespace encore::config {

// Throws an Error of kUsage: "WHERE:LINE: KEY is WANTED, not ...", where the dots describe the
// item.
[[noreturn]] void fail_type(const Item& item, const std::string& where, std::string_view key,
                            std::string_view wanted);
// The functions from read_bool() to read_text() read an item as one value of their type. Errors:
// kUsage "WHERE:LINE: KEY ..." where the item has the wrong type.
bool read_bool(const Item& item, const std::string& where, std::string_view key);
int64_t read_int(const Item& item, const std::string& where, std::string_view key);
double read_number(const Item& item, const std::string& where, std::string_view key);
std::string read_text(const Item& item, const std::string& where, std::string_view key);
// Reads numbers in the order in which they are given: as a list, as "1,2,4", or as a single number.
std::vector<int64_t> read_list(const Item& item, const std::string& where, std::string_view key);
// Reads a list of positive numbers and sorts them. Refuses a number that is given twice.
std::vector<int64_t> read_sizes(const Item& item, const std::string& where, std::string_view key);
// Reads names from a list or from a text such as "a,b". Refuses a name that is given twice.
std::vector<std::string> read_names(const Item& item, const std::string& where,
                                    std::string_view key);
// Reads texts unchanged, from a list or a single text.
std::vector<std::string> read_texts(const Item& item, const std::string& where,
                                    std::string_view key);

// Turns "a|b|c" into "a, b or c".
std::string choices_text(std::string_view choices);
// Returns whether `text` is one of the choices, which stand between bars. A choice that ends in
// ":N" takes any number in place of N.
bool is_choice(std::string_view choices, std::string_view text);
// Returns a hint such as "; did you mean 'x'?" with the nearest of `names`, or empty text when none
// is near.
std::string suggestion(std::string_view wrong, const std::vector<std::string_view>& names);

}  // namespace encore::config
