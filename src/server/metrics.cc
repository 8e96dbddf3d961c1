#include "server/metrics.h"

#include <algorithm>

#include <fmt/format.h>

namespace encore::server {
namespace {

std::string label_text(const Labels& labels) {
  std::string text;
  for (const auto& [name, value] : labels) {
    text += fmt::format("{}{}=\"", text.empty() ? "{" : ",", name);
    for (const char c : value) {
      if (c == '\\' || c == '"') text += '\\';
      if (c == '\n') {
        text += "\\n";
      } else {
        text += c;
      }
    }
    text += '"';
  }
  return text.empty() ? text : text + "}";
}

}  // namespace

void Histogram::observe(double value, int64_t times) {
  const auto bound = std::lower_bound(bounds_.begin(), bounds_.end(), value);
  counts_[bound - bounds_.begin()] += times;
  sum_ += value * static_cast<double>(times);
}

Metrics::Family& Metrics::family(std::string_view name, std::string_view help,
                                 std::string_view type) {
  for (Family& family : families_) {
    if (family.name == name) return family;
  }
  return families_.emplace_back(Family{std::string(name), std::string(help), type, {}, {}});
}

double& Metrics::counter(std::string_view name, std::string_view help, const Labels& labels) {
  return family(name, help, "counter").values[label_text(labels)];
}

double& Metrics::gauge(std::string_view name, std::string_view help, const Labels& labels) {
  return family(name, help, "gauge").values[label_text(labels)];
}

double& Metrics::info(std::string_view name, std::string_view help, const Labels& labels) {
  auto& values = family(name, help, "gauge").values;
  values.clear();
  return values[label_text(labels)];
}

Histogram& Metrics::histogram(std::string_view name, std::string_view help,
                              std::vector<double> bounds) {
  auto& histograms = family(name, help, "histogram").histograms;
  if (histograms.empty()) histograms.emplace_back(std::move(bounds));
  return histograms.front();
}

std::string Metrics::text() {
  for (const auto& collect : collectors_)
    collect();
  std::string text;
  for (const Family& family : families_)
    text += text_of(family, family.name);
  for (const auto& [name, of] : aliases_) {
    for (const Family& family : families_) {
      if (family.name == of) text += text_of(family, name);
    }
  }
  return text;
}

std::string Metrics::text_of(const Family& family, std::string_view name) {
  std::string text =
      fmt::format("# HELP {0} {1}\n# TYPE {0} {2}\n", name, family.help, family.type);
  for (const auto& [labels, value] : family.values)
    text += fmt::format("{}{} {}\n", name, labels, value);
  for (const Histogram& histogram : family.histograms) {
    int64_t count = 0;
    for (size_t i = 0; i < histogram.counts_.size(); ++i) {
      count += histogram.counts_[i];
      const std::string bound = i < histogram.bounds_.size()
                                    ? fmt::format("{}", histogram.bounds_[i])
                                    : std::string("+Inf");
      text += fmt::format("{}_bucket{{le=\"{}\"}} {}\n", name, bound, count);
    }
    text += fmt::format("{0}_sum {1}\n{0}_count {2}\n", name, histogram.sum_, count);
  }
  return text;
}

}  // namespace encore::server
