// SPDX-License-Identifier: MIT
// Messages between the hub and the ranks: a head of 24 bytes and a payload, little-endian; and a connection of them.
#pragma once

#include <array>
#include <boost/asio/ip/tcp.hpp>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace weft::ccl::wire {

inline constexpr std::uint32_t kMagic = 0x544f4257;  // "WBOT"
inline constexpr std::uint16_t kVersion = 2;
inline constexpr std::uint32_t kPayloadMax = 64u << 20;

enum class Type : std::uint16_t {
  kHello = 1,     // rank -> hub; a: rank, b: ranks; payload: Hello
  kGather = 2,    // rank -> hub; a: round; payload: the rank's bytes
  kTable = 3,     // hub -> ranks; a: round, b: 1 + rank in the hub's process, 0: none; for each rank u32 length, bytes
  kMessage = 4,   // a: destination (to the hub) or source (from it); payload
  kFailed = 5,    // a: culprit; payload: text; to the hub and from it
  kRefused = 6,   // hub -> rank: text; the rank does not belong here
  kBye = 7,       // rank -> hub: ends in good order
  kSuspect = 8,   // rank -> hub; a: suspected rank, b: definite; payload: u64 order, text
  kBeat = 9,      // both ways, about once a second: data that the network must answer for, or say that nobody is there
  kWelcome = 10,  // hub -> rank: the hello is accepted
  kLater = 11,    // hub -> rank: the communicator here is ending, its address will be free: come again
};

struct Head {
  std::uint32_t magic = kMagic;
  std::uint16_t version = kVersion;
  Type type = Type::kHello;
  std::uint32_t length = 0;  // of the payload
  std::uint32_t a = 0, b = 0, c = 0;
};
static_assert(sizeof(Head) == 24);

// Who comes.
struct Hello {
  std::array<std::uint8_t, 16> nonce{};  // of the unique id
  std::uint64_t job = 0;                 // hash of what the launcher calls the job; 0: it says nothing
  std::uint64_t process = 0;             // a random number of the process
  std::uint32_t pid = 0;
  std::uint32_t limit_ms = 0;
  char host[64] = {};
};
static_assert(sizeof(Hello) == 104);

std::vector<std::byte> pack(Type type, std::uint32_t a, std::uint32_t b, std::span<const std::byte> payload);

// Two suspicions that come within this belong together.
inline constexpr std::chrono::milliseconds kGrace{500};
inline constexpr std::chrono::milliseconds kBeatEvery{1000};

inline std::span<const std::byte> as_bytes(std::string_view text) { return std::as_bytes(std::span(text)); }
inline std::string as_text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// One TCP connection of messages, held by shared_ptr. All calls and handlers run in one thread at a time.
class Stream : public std::enable_shared_from_this<Stream> {
 public:
  using error_code = boost::system::error_code;
  explicit Stream(boost::asio::ip::tcp::socket socket);
  virtual ~Stream() = default;

  // Reads from now on. `message` is called for each message in head() and payload(), `end` once when the connection
  // breaks or the peer closes it, not after close().
  void start(std::function<void()> message, std::function<void(error_code)> end);
  void send(std::vector<std::byte> message);
  // Sends what waits, then ends.
  void close_when_sent();
  void close();

  const Head& head() const { return head_; }
  std::vector<std::byte>& payload() { return payload_; }
  bool open() const { return open_; }
  bool closing() const { return closing_; }
  bool idle() const { return out_.empty(); }  // nothing waits to be sent
  int descriptor() { return socket_.native_handle(); }
  void limit_payload(std::uint32_t bytes) { payload_max_ = bytes; }

 private:
  void read();
  void write();
  void ended(error_code error);
  bool is_gone(error_code error);

  boost::asio::ip::tcp::socket socket_;
  Head head_;
  std::vector<std::byte> payload_;
  bool in_payload_ = false;
  std::size_t have_ = 0;  // bytes of the head or the payload
  std::uint32_t payload_max_ = kPayloadMax;
  std::deque<std::vector<std::byte>> out_;
  std::size_t sent_ = 0;  // bytes of out_.front()
  bool open_ = true, closing_ = false;
  std::function<void()> message_;
  std::function<void(error_code)> end_;
};

// In words: how a connection ended.
std::string why_ended(const boost::system::error_code& error);

}  // namespace weft::ccl::wire
