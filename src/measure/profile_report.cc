#include <algorithm>

#include <fmt/format.h>

#include "base/json.h"
#include "base/table.h"
#include "measure/profile.h"
#include "planning/ladder_report.h"

namespace encore::measure {
namespace {

// Returns the share that `us` microseconds are of the last mode's traced step, such as "12.3 %";
// returns "-" without a trace.
std::string share_of_step(const Profile& profile, double us) {
  const ModeProfile& last = profile.modes.back();
  return last.times ? percent(us / last.times->step_us) : "-";
}

std::string steps_table(const Profile& profile) {
  Table table({"mode", "step", "over floor", "device", "overhead", "traced", "kernels", "sampling",
               "copies", "gaps", "idle"});
  for (const ModeProfile& mode : profile.modes) {
    std::vector<std::string> row{
        mode.mode, fmt::format("{:.1f}", mode.step_us),
        profile.floor.us > 0 ? fmt::format("{:.2f}", mode.step_us / profile.floor.us) : "-",
        fmt::format("{:.1f}", mode.device_us)};
    if (mode.times) {
      row.push_back(fmt::format("{:.1f} %", *overhead(mode) * 100));
      const StepTimes& times = *mode.times;
      for (const double us : {times.step_us, times.kernels_us, sampling_us(times), times.copies_us,
                              times.gaps_us, times.idle_us})
        row.push_back(fmt::format("{:.1f}", us));
    }
    row.resize(11, "-");
    table.add(std::move(row));
  }
  return table.text();
}

// Lists the kinds of host calls that the host's table has columns for.
constexpr TraceKind kCallKinds[] = {TraceKind::kLaunchCall, TraceKind::kCopyCall,
                                    TraceKind::kAllocateCall, TraceKind::kWaitCall,
                                    TraceKind::kOtherCall};

SpanTime call_time(const StepTimes& times, TraceKind kind) {
  const auto place = times.calls.find(kind);
  return place == times.calls.end() ? SpanTime{} : place->second;
}

// Returns the time of kernels and copies that run inside the host's step, on the CPU device. On a
// GPU it is 0.
double computing_us(const Profile& profile, const StepTimes& times) {
  return profile.on_host ? times.kernels_us + times.copies_us : 0;
}

double host_rest_us(const Profile& profile, const StepTimes& times) {
  double rest = times.host_step_us - computing_us(profile, times);
  for (const TraceKind kind : kCallKinds)
    rest -= call_time(times, kind).total_us;
  return rest;
}

std::string host_table(const Profile& profile) {
  Table table({"mode", "enqueue", "cpu", "traced", "launches", "us", "copies", "us", "allocations",
               "us", "waits", "us", "others", "us", "computing us", "rest us"});
  for (const ModeProfile& mode : profile.modes) {
    std::vector<std::string> row{mode.mode, fmt::format("{:.1f}", mode.enqueue_us),
                                 fmt::format("{:.1f}", mode.cpu_us)};
    if (mode.times) row.push_back(fmt::format("{:.1f}", mode.times->host_step_us));
    for (const TraceKind kind : kCallKinds) {
      if (!mode.times) break;
      const SpanTime time = call_time(*mode.times, kind);
      row.push_back(fmt::format("{:.4g}", time.count));
      row.push_back(fmt::format("{:.1f}", time.total_us));
    }
    if (mode.times) {
      for (const double us :
           {computing_us(profile, *mode.times), host_rest_us(profile, *mode.times)})
        row.push_back(fmt::format("{:.1f}", us));
    }
    row.resize(16, "-");
    table.add(std::move(row));
  }
  return table.text();
}

std::string parts_table(const Profile& profile) {
  std::vector<std::string> header{"part"};
  for (const ModeProfile& mode : profile.modes) {
    header.push_back(mode.mode + " us");
    header.emplace_back("share");
  }
  header.emplace_back("what it depends on");
  Table table(header);
  std::vector<std::vector<StepPart>> parts;
  for (const ModeProfile& mode : profile.modes)
    parts.push_back(step_parts(profile, *mode.times));
  for (size_t i = 0; i < parts.front().size(); ++i) {
    std::vector<std::string> row{parts.front()[i].what};
    for (size_t mode = 0; mode < parts.size(); ++mode) {
      row.push_back(fmt::format("{:.1f}", parts[mode][i].us));
      row.push_back(percent(parts[mode][i].us / profile.modes[mode].times->step_us));
    }
    row.emplace_back(parts.front()[i].source);
    table.add(std::move(row));
  }
  return table.text();
}

std::string groups_table(const Profile& profile) {
  std::vector<std::string> header{"op", "nodes", "floor us"};
  for (const ModeProfile& mode : profile.modes)
    header.push_back(mode.mode + " us");
  header.emplace_back("share");
  header.emplace_back("kernels");
  header.emplace_back("over floor");
  Table table(header);
  for (const std::string& group : profile.groups()) {
    const auto floor = profile.floors.find(group);
    const bool known = floor != profile.floors.end();
    std::vector<std::string> row{group, known ? std::to_string(floor->second.nodes) : "-",
                                 known ? fmt::format("{:.1f}", floor->second.us) : "-"};
    SpanTime last;
    for (const ModeProfile& mode : profile.modes) {
      last = {};
      if (mode.times) {
        const auto place = mode.times->kernels.find(group);
        if (place != mode.times->kernels.end()) last = place->second;
      }
      row.push_back(mode.times ? fmt::format("{:.1f}", last.own_us) : "-");
    }
    row.push_back(share_of_step(profile, last.own_us));
    row.push_back(fmt::format("{:.4g}", last.count));
    row.push_back(known && floor->second.us > 0 && last.own_us > 0
                      ? fmt::format("{:.2f}", last.own_us / floor->second.us)
                      : "-");
    table.add(std::move(row));
  }
  return table.text();
}

json::object times_json(const Profile& profile, const StepTimes& times) {
  json::object kernels;
  for (const auto& [group, time] : times.kernels)
    kernels[group] = json::object{{"count", time.count},
                                  {"us", time.own_us},
                                  {"us_with_overlap", time.total_us},
                                  {"share", time.own_us / times.step_us}};
  json::object parts;
  for (const StepPart& part : step_parts(profile, times))
    parts[part.what] = json::object{
        {"us", part.us}, {"share", part.us / times.step_us}, {"depends_on", part.source}};
  json::object calls;
  for (const TraceKind kind : kCallKinds) {
    const SpanTime time = call_time(times, kind);
    calls[name(kind)] = json::object{{"count", time.count}, {"us", time.total_us}};
  }
  json::array sample;
  for (const TraceSpan& span : times.sample)
    sample.push_back(json::object{{"kind", name(span.kind)},
                                  {"op", span.op},
                                  {"name", span.name},
                                  {"start_ns", span.start_ns},
                                  {"end_ns", span.end_ns}});
  return {{"steps", times.num_steps},
          {"step_us", times.step_us},
          {"kernels_us", times.kernels_us},
          {"sampling_us", sampling_us(times)},
          {"copies_us", times.copies_us},
          {"gaps_us", times.gaps_us},
          {"idle_us", times.idle_us},
          {"kernels", std::move(kernels)},
          {"host_step_us", times.host_step_us},
          {"host_rest_us", host_rest_us(profile, times)},
          {"host_computing_us", computing_us(profile, times)},
          {"parts", std::move(parts)},
          {"host_calls", std::move(calls)},
          {"one_step", std::move(sample)}};
}

}  // namespace

std::vector<std::string> Profile::groups() const {
  std::map<std::string, double> times;
  for (const auto& [group, floor] : floors)
    times[group] = floor.us;
  for (const ModeProfile& mode : modes) {
    if (!mode.times) continue;
    for (const auto& [group, time] : mode.times->kernels)
      times[group] = time.own_us;  // the last mode overwrites earlier ones
  }
  std::vector<std::string> result;
  for (const auto& [group, us] : times)
    result.push_back(group);
  std::stable_sort(result.begin(), result.end(),
                   [&](const std::string& a, const std::string& b) { return times[a] > times[b]; });
  return result;
}

std::optional<double> overhead(const ModeProfile& mode) {
  if (!mode.times) return std::nullopt;
  return std::max(0.0, 1 - mode.times->kernels_us / mode.step_us);
}

std::vector<StepPart> step_parts(const Profile& profile, const StepTimes& times) {
  const planning::StepFloor& floor = profile.floor;
  return {{"reading weights", "memory bandwidth", floor.weights_us},
          {"reading K and V", "memory bandwidth", floor.kv_us},
          {"activations", "memory bandwidth", floor.activations_us},
          {"computing", "tensor cores, vector units", floor.compute_us},
          {"kernels beyond that", "the kernels", times.kernels_us - floor.us},
          {"copies", "inputs of the step", times.copies_us},
          {"gaps between kernels", "launching", times.gaps_us},
          {"idle between steps", "the host", times.idle_us}};
}

std::string load_and_compute_text(const Profile& profile) {
  const planning::StepFloor& floor = profile.floor;
  return fmt::format(
      "weights: {}, {:.1f} us of it; all {:.3g} GFLOP by themselves: {:.1f} us, {:.1f} of them "
      "where "
      "that takes longer than reading",
      bytes_text(floor.weight_bytes), floor.weights_us, static_cast<double>(floor.flops) / 1e9,
      floor.all_flops_us, floor.compute_us);
}

double sampling_us(const StepTimes& times) {
  const auto place = times.kernels.find("sample");
  return place == times.kernels.end() ? 0 : place->second.own_us;
}

std::string profile_text(const Profile& profile) {
  std::string text = fmt::format(
      "profile: {}\nfloor: {:.1f} us a step, {}\n{}\n\nA step, us\n{}\n{}The host, us a step\n{}\n"
      "Kernels by op, us a step\n{}",
      profile.what, profile.floor.us, profile.floor_text, load_and_compute_text(profile),
      steps_table(profile),
      profile.is_traced() ? "Where a traced step goes\n" + parts_table(profile) + "\n" : "",
      host_table(profile), groups_table(profile));
  if (!profile.no_tracer.empty()) text += fmt::format("\n  not traced: {}\n", profile.no_tracer);
  return text;
}

json::object profile_json(const Profile& profile) {
  json::object out;
  out["step"] = profile.step;
  out["floor"] = profile.floor_text;
  out["floor_us"] = profile.floor.us;
  out["weight_bytes"] = profile.floor.weight_bytes;
  out["weights_us"] = profile.floor.weights_us;
  out["flops"] = profile.floor.flops;
  out["flops_us"] = profile.floor.all_flops_us;
  json::object floors;
  for (const auto& [group, floor] : profile.floors)
    floors[group] = json::object{
        {"nodes", floor.nodes}, {"bytes", floor.bytes}, {"flops", floor.flops}, {"us", floor.us}};
  out["floors"] = std::move(floors);
  json::array modes;
  for (const ModeProfile& mode : profile.modes) {
    modes.push_back(
        json::object{{"mode", mode.mode},
                     {"ran", mode.ran_as},
                     {"step_us", mode.step_us},
                     {"device_us", mode.device_us},
                     {"host_enqueue_us", mode.enqueue_us},
                     {"host_cpu_us", mode.cpu_us},
                     {"overhead", json::optional_number(overhead(mode))},
                     {"traced", mode.times ? json::value(times_json(profile, *mode.times))
                                           : json::value(nullptr)}});
  }
  out["modes"] = std::move(modes);
  out["no_tracer"] =
      profile.no_tracer.empty() ? json::value(nullptr) : json::value(profile.no_tracer);
  return out;
}

}  // namespace encore::measure
