#include "server/background.h"

#include <boost/asio/post.hpp>
#include <boost/asio/thread_pool.hpp>

namespace encore::server {

struct Background::Impl {
  explicit Impl(int num_threads) : threads(num_threads) {}
  boost::asio::thread_pool threads;
};

Background::Background(int num_threads) : impl_(std::make_unique<Impl>(num_threads)) {}

Background::~Background() {
  impl_->threads.stop();
  impl_->threads.join();
}

void Background::run(std::function<void()> work) {
  boost::asio::post(impl_->threads, std::move(work));
}

}  // namespace encore::server
