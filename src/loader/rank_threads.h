// Runs the ranks of a model other than rank 0. Each has a thread, which loads the rank's share of
// the model on its device and then makes the calls that rank 0 posts.
#pragma once

#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "backend/device.h"
#include "loader/loaded_model.h"
#include "runtime/followers.h"

namespace encore::loader {

// The threads of the other ranks, owned by rank 0. Threads: only the thread of rank 0 calls it.
class RankThreads final : public runtime::Followers {
 public:
  // Begins to load the model on every peer of `first`. An error there is thrown by rank 0's next
  // meeting with the other ranks.
  RankThreads(Device& first, const model::ModelSource& source, const LoadOptions& options);
  // Waits for the threads to end. Where a rank has failed, it waits for each no longer than the
  // ranks' timeout. A thread that has not ended by then is detached, and keeps everything that it
  // uses.
  ~RankThreads() override;
  RankThreads(const RankThreads&) = delete;
  RankThreads& operator=(const RankThreads&) = delete;

  void post(Call call) override;
  // From now on, the other ranks watch rank 0: where they have ended a step and rank 0's `ring`
  // does not show its end within the ranks' timeout, they give rank 0 up. No collective would
  // notice this, because nobody waits for rank 0 after the last collective of a step. `ring` must
  // live until unwatch(), after which no rank reads it.
  void watch(const runtime::TokenRing& ring);
  void unwatch();
  // Has every other rank make this call with its LoadedModel soon, after the calls that were posted
  // before. Errors: where a rank has failed, the error that it failed with.
  void post_to_models(std::function<void(LoadedModel& model)> call);
  void fail(const Error& error) noexcept override;
  // Returns the adapter slots of the other ranks, in rank order. Waits until the ranks have loaded.
  // Errors: where a rank has failed, the error that it failed with.
  std::vector<std::shared_ptr<AdapterShare>> adapter_shares();

 private:
  class Mailbox;
  class Watched;

  // Throws the error of the rank that has failed. Does nothing where no rank has failed.
  void check();
  // Tells the threads of the other ranks that rank 0 knows of the failure.
  void set_noticed() noexcept;

  std::shared_ptr<Communicator> communicator_;       // shared by all ranks
  std::vector<std::shared_ptr<Mailbox>> mailboxes_;  // each shared with its thread
  std::shared_ptr<Watched> watched_;                 // shared with all threads
  std::vector<std::thread> threads_;
};

}  // namespace encore::loader
