#include "cli/systemd.h"

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <unistd.h>

#include <sys/socket.h>
#include <sys/un.h>

#include "base/log.h"

namespace encore::cli {

void Supervisor::notify(std::string_view state) const {
  if (address_.empty()) return;
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (address_.size() >= sizeof(address.sun_path))
    return log::warning("NOTIFY_SOCKET {}: the name is too long", address_);
  std::memcpy(address.sun_path, address_.data(), address_.size());
  // An address that begins with '@' is an abstract socket name, which is in no file system.
  if (address_.front() == '@') address.sun_path[0] = '\0';
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + address_.size());
  const int datagrams = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  const ssize_t sent = datagrams < 0 ? -1
                                     : sendto(datagrams, state.data(), state.size(), MSG_NOSIGNAL,
                                              reinterpret_cast<const sockaddr*>(&address), length);
  if (sent < 0) log::warning("NOTIFY_SOCKET {}: {}", address_, std::strerror(errno));
  if (datagrams >= 0) close(datagrams);
}

}  // namespace encore::cli
