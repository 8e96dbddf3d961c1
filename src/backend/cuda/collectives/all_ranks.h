// A collective of all ranks as one launch, which rank 0's thread makes on every rank's GPU: the tuner times it so, while
// the other ranks' threads wait for rank 0's choice (Tuner::follow).
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "backend/cuda/device/device.h"
#include "backend/tuning.h"

namespace encore::cuda {

// Lifetime: the launches that it binds run before it ends. Threads: one, that of rank 0.
class AllRanks {
 public:
  // Binds one rank's part of a call.
  using Bind = std::function<BoundLaunch(CudaDevice& device, const KernelArgs& args)>;

  // Calls with such operands, in memory of their own on each GPU, which is taken when something is bound first.
  // REQUIRES: `first` is rank 0's where anything is bound.
  AllRanks(CudaDevice& first, const KernelArgs& args) : first_(first), args_(args) {}
  // Waits for the other GPUs.
  ~AllRanks();
  AllRanks(const AllRanks&) = delete;
  AllRanks& operator=(const AllRanks&) = delete;

  // Replays calls on all ranks, one after the other, in two exchange buffers in turns. `form` names what `bind` binds.
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
  std::vector<std::unique_ptr<OnRank>> ranks_;  // of the launches too
};

// The fastest of the forms of a collective, by measurement between all ranks; the first where nothing is measured.
// REQUIRES: asked on all ranks.
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
