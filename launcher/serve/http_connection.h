// A client's connection as the HTTP library reads it, with limits that version 0.11 lacks: on the
// bytes and the time of a whole request.

#pragma once

#include <httplib.h>

#include <cstdint>
#include <string>

#include "absl/time/time.h"

namespace anyorder::launcher {

struct ConnectionLimits {
  int64_t max_head_bytes = 32 << 10;  // the first line and all headers
  absl::Duration head_time = absl::Seconds(10);
  absl::Duration body_time = absl::Seconds(30);
  absl::Duration write_time = absl::Seconds(30);  // that the client keeps answers waiting, in all
};

// Of one thread.
class Connection final : public httplib::Stream {
 public:
  // Borrows the socket.
  Connection(int socket, const ConnectionLimits& limits);

  // The head is read: `bytes` more may be read now, in a time of their own. `knows_interim`: the
  // client is of HTTP/1.1, so that it passes over an interim response.
  void BeginBody(int64_t bytes, bool knows_interim);
  // Whether the client is still there. A client that closed its sending side may still be reading.
  // To find out, an interim response is sent once; a closed client answers with a reset. Call only
  // before the answer begins.
  bool IsOpen();
  // Takes in what the client still sends, for a moment: closing a socket with unread bytes would
  // take back the answer.
  void Drain();

  bool is_readable() const override;
  // Whether there is time left to write: write itself waits.
  bool is_writable() const override { return write_left_ > absl::ZeroDuration(); }
  // What there is of `size` bytes; -1 beyond a limit.
  ssize_t read(char* data, size_t size) override;
  // All of it, or -1 if the client has left or does not take it in time.
  ssize_t write(const char* data, size_t size) override;
  void get_remote_ip_and_port(std::string& ip, int& port) const override;
  void get_local_ip_and_port(std::string& ip, int& port) const override;
  socket_t socket() const override { return socket_; }

 private:
  bool Fill();
  bool AwaitRoom();

  const int socket_;
  const ConnectionLimits limits_;
  absl::Time deadline_;  // of reading
  absl::Duration write_left_;
  int64_t left_bytes_;  // that may be read
  bool may_probe_ = false;
  char buffer_[8192];
  size_t begin_ = 0;  // of what was received and not read
  size_t end_ = 0;
};

}  // namespace anyorder::launcher
