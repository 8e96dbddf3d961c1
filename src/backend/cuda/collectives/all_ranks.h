// Launches a collective on every rank's GPU from rank 0's thread, as one launch. The tuner times a
// collective in this way while the other ranks' threads wait for rank 0's choice (Tuner::follow).
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "backend/cuda/device/device.h"
#include "backend/tuning.h"

namespace encore::cuda {

// Launches calls of one collective on the GPUs of all ranks, from rank 0's thread. Lifetime: the
// launches that it binds must run before it ends. Threads: one, rank 0's.
class AllRanks {
 public:
  // Binds one rank's part of a call of the collective.
  using Bind = std::function<BoundLaunch(CudaDevice& device, const KernelArgs& args)>;

  // Prepares calls with operands like those in `args`. Each GPU gets memory of its own for the
  // operands when bind() is first called. REQUIRES: `first` is rank 0's device if bind() is called.
  AllRanks(CudaDevice& first, const KernelArgs& args) : first_(first), args_(args) {}
  // Waits for the work of the other GPUs.
  ~AllRanks();
  AllRanks(const AllRanks&) = delete;
  AllRanks& operator=(const AllRanks&) = delete;

  // Returns a launch that replays calls on all ranks, one after the other, and alternates between
  // two exchange buffers. `form` is the name of the variant that `bind` binds.
  BoundLaunch bind(const std::string& form, const Bind& bind);

 private:
  struct OnRank {
    CudaDevice& device;
    std::unique_ptr<Stream> stream;
    std::vector<Memory> memory;
    KernelArgs args;
    std::map<std::string, std::unique_ptr<Recording>> recordings;  // by form
  };

  void add_rank(CudaDevice& device);
  static std::unique_ptr<Recording> record(const OnRank& rank, const Bind& bind);

  CudaDevice& first_;
  const KernelArgs& args_;
  std::vector<std::unique_ptr<OnRank>> ranks_;  // shared with the launches that bind() returns
};

// Returns the fastest of the `forms` of a collective, as measured between all ranks, or the first
// form where the tuner does not measure. REQUIRES: every rank calls it.
template <typename Form>
Form fastest_form(CudaDevice& device, const std::string& kernel, const KernelArgs& args,
                  const std::vector<Form>& forms,
                  const std::function<std::string(const Form& form)>& text,
                  const std::function<BoundLaunch(const Form& form, CudaDevice& device,
                                                  const KernelArgs& args)>& bind) {
  AllRanks all(device, args);
  const KernelArgs own_operands;
  const auto bind_on_all = [&](const Form& form, const KernelArgs&) {
    return all.bind(text(form),
                    [&](CudaDevice& rank, const KernelArgs& on) { return bind(form, rank, on); });
  };
  return choose_way<Form>(device.tuner(), {.launch = tuning_text(kernel, args),
                                           .args = own_operands,
                                           .ways = forms,
                                           .text = text,
                                           .bind = bind_on_all});
}

}  // namespace encore::cuda
