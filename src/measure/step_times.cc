#include "measure/step_times.h"

#include <algorithm>
#include <iterator>
#include <set>

#include "base/error.h"

namespace encore::measure {
namespace {

constexpr double kNsPerUs = 1e3;

double us(int64_t ns) {
  return static_cast<double>(ns) / kNsPerUs;
}

bool is_kernel(const TraceSpan& span) {
  return span.kind == TraceKind::kKernel || span.kind == TraceKind::kFill ||
         span.kind == TraceKind::kReplay;
}

// Holds the work of one step on the device. Units: nanoseconds.
struct DeviceStep {
  std::vector<const TraceSpan*> work;  // ordered by start
  std::vector<int64_t> own;            // own times, in the order of `work`
  int64_t begin = 0;                   // time from which the device runs only this step's work
  int64_t gaps = 0;
  int64_t idle = 0;  // idle time after the step
};

std::vector<DeviceStep> device_steps(const Trace& trace) {
  std::vector<DeviceStep> steps(std::max<size_t>(trace.step_starts_ns.size(), 1) - 1);
  int64_t front = 0;  // end of the latest work seen so far
  DeviceStep* last = nullptr;
  for (const TraceSpan& span : trace.spans) {
    if (!span.on_device()) continue;
    DeviceStep* step = span.step < 0 ? nullptr : &steps.at(span.step);
    const int64_t free = last == nullptr ? 0 : std::max<int64_t>(0, span.start_ns - front);
    if (last != nullptr) (last == step ? last->gaps : last->idle) += free;
    const int64_t begin = std::max(span.start_ns, front);
    front = std::max(front, span.end_ns);
    last = step;
    if (step == nullptr) continue;
    if (step->work.empty()) step->begin = begin;
    step->work.push_back(&span);
    step->own.push_back(front - begin);
  }
  std::erase_if(steps, [](const DeviceStep& step) { return step.work.empty(); });
  return steps;
}

// Returns a name for each span of the step's work: for a kernel its group (see NodeGroup), for any
// other span its name or op.
std::vector<std::string> groups_of(const DeviceStep& step, const std::vector<NodeGroup>& groups) {
  std::map<std::string, std::vector<size_t>> kernels;  // key: op; value: positions in `work`
  std::vector<std::string> result(step.work.size());
  for (size_t i = 0; i < step.work.size(); ++i) {
    result[i] = step.work[i]->op.empty() ? step.work[i]->name : step.work[i]->op;
    if (is_kernel(*step.work[i])) kernels[step.work[i]->op].push_back(i);
  }
  for (const auto& [op, positions] : kernels) {
    std::vector<const NodeGroup*> nodes;
    for (const NodeGroup& node : groups) {
      if (node.op == op) nodes.push_back(&node);
    }
    std::set<int> launches;
    for (const size_t position : positions)
      launches.insert(step.work[position]->launch);
    if (launches.size() != nodes.size()) continue;
    for (const size_t position : positions) {
      const auto launch = launches.find(step.work[position]->launch);
      result[position] = nodes[std::distance(launches.begin(), launch)]->group;
    }
  }
  return result;
}

void add_device_step(const DeviceStep& step, int64_t next_begin,
                     const std::vector<NodeGroup>& groups, StepTimes& sum) {
  sum.step_us += us(next_begin - step.begin);
  sum.gaps_us += us(step.gaps);
  sum.idle_us += us(step.idle);
  const std::vector<std::string> names = groups_of(step, groups);
  for (size_t i = 0; i < step.work.size(); ++i) {
    const TraceSpan& span = *step.work[i];
    const double own = us(step.own[i]);
    if (!is_kernel(span)) {
      sum.copies_us += own;
      continue;
    }
    sum.kernels_us += own;
    SpanTime& time = sum.kernels[names[i]];
    time.count += 1;
    time.own_us += own;
    time.total_us += us(span.end_ns - span.start_ns);
  }
}

void divide(StepTimes& sum, int num_steps) {
  const auto count = static_cast<double>(num_steps);
  for (double* value : {&sum.step_us, &sum.kernels_us, &sum.copies_us, &sum.gaps_us, &sum.idle_us,
                        &sum.host_step_us}) {
    *value /= count;
  }
  const auto divide_all = [&](auto& times) {
    for (auto& [key, time] : times) {
      time.count /= count;
      time.own_us /= count;
      time.total_us /= count;
    }
  };
  divide_all(sum.kernels);
  divide_all(sum.calls);
}

std::vector<double> between(const std::vector<DeviceStep>& steps) {
  std::vector<double> result;
  int64_t last_end = 0;
  for (const DeviceStep& step : steps) {
    const auto first = std::find_if(step.work.begin(), step.work.end(),
                                    [](const TraceSpan* span) { return is_kernel(*span); });
    if (first == step.work.end()) continue;
    if (last_end > 0) result.push_back(us(std::max<int64_t>(0, (*first)->start_ns - last_end)));
    for (const TraceSpan* span : step.work) {
      if (is_kernel(*span)) last_end = std::max(last_end, span->end_ns);
    }
  }
  return result;
}

void take_sample(const Trace& trace, const DeviceStep& step, const std::vector<NodeGroup>& groups,
                 StepTimes& times) {
  const std::vector<std::string> names = groups_of(step, groups);
  const int number = step.work.front()->step;
  const int64_t start = std::min(trace.step_starts_ns[number], step.work.front()->start_ns);
  size_t num_work = 0;
  for (const TraceSpan& span : trace.spans) {
    if (span.step != number) continue;
    times.sample.push_back(span);
    TraceSpan& added = times.sample.back();
    added.start_ns -= start;
    added.end_ns -= start;
    if (span.on_device()) added.op = names[num_work++];
    times.sample_ns = std::max(times.sample_ns, span.end_ns - start);
  }
}

}  // namespace

StepTimes step_times(const Trace& trace, const std::vector<NodeGroup>& groups) {
  const std::vector<DeviceStep> steps = device_steps(trace);
  if (steps.size() < 2) {
    fail(ErrorKind::kDevice, "the trace shows work of {} steps: at least two are needed",
         steps.size());
  }
  std::vector<size_t> order(steps.size() - 1);
  for (size_t i = 0; i < order.size(); ++i)
    order[i] = i;
  const auto length = [&](size_t i) { return steps[i + 1].begin - steps[i].begin; };
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return length(a) < length(b); });

  StepTimes times;
  const size_t quarter = order.size() / 4;
  for (size_t i = quarter; i < order.size() - quarter; ++i) {
    const DeviceStep& step = steps[order[i]];
    add_device_step(step, steps[order[i] + 1].begin, groups, times);
    const int number = step.work.front()->step;
    times.host_step_us += us(trace.step_starts_ns[number + 1] - trace.step_starts_ns[number]);
    for (const TraceSpan& span : trace.spans) {
      if (span.on_device() || span.step != number) continue;
      SpanTime& call = times.calls[span.kind];
      call.count += 1;
      call.total_us += us(span.end_ns - span.start_ns);
      call.own_us += us(span.end_ns - span.start_ns);
    }
    ++times.num_steps;
  }
  divide(times, times.num_steps);
  times.between_us = between(steps);
  take_sample(trace, steps[order[order.size() / 2]], groups, times);
  return times;
}

}  // namespace encore::measure
