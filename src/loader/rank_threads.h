// The ranks behind rank 0 of a model: a thread each, which loads its share of the model on its device
// and then makes the calls that rank 0 posts.
#pragma once

#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "backend/device.h"
#include "loader/loaded_model.h"
#include "runtime/followers.h"

namespace encore::loader {

// Threads: one, that of rank 0.
class RankThreads final : public runtime::Followers {
 public:
  // Begins to load on every peer of `first`. What goes wrong there ends rank 0's next meeting with it.
  RankThreads(Device& first, const model::ModelSource& source, const LoadOptions& options);
  // Waits for the threads; where a rank has failed, no longer than the ranks' timeout. A thread that
  // has not come back by then stays behind, with all that it uses.
  ~RankThreads() override;
  RankThreads(const RankThreads&) = delete;
  RankThreads& operator=(const RankThreads&) = delete;

  void post(Call call) override;
  // From now on the other ranks give rank 0 up where it has not ended a step, by its `ring`, for the ranks' timeout after
  // they have: behind a step's last collective nobody waits for it. Until unwatch(), which no rank reads it behind.
  void watch(const runtime::TokenRing& ring);
  void unwatch();
  // As post(), for calls to the other ranks' models.
  void post_to_models(std::function<void(LoadedModel& model)> call);
  void fail(const Error& error) noexcept override;
  // The other ranks' slots of adapters, by rank; waits until they have loaded. Errors: what a rank has failed
  // with.
  std::vector<std::shared_ptr<AdapterShare>> adapter_shares();

 private:
  class Mailbox;
  class Watched;

  // Has a rank failed? Errors: what it has failed with.
  void check();
  // Tells the other ranks that this one knows of the failure.
  void set_noticed() noexcept;

  std::shared_ptr<Communicator> communicator_;       // shared by all ranks
  std::vector<std::shared_ptr<Mailbox>> mailboxes_;  // each shared with its thread
  std::shared_ptr<Watched> watched_;                 // shared with all threads
  std::vector<std::thread> threads_;
};

}  // namespace encore::loader
