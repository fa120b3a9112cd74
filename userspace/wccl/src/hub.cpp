// SPDX-License-Identifier: MIT
#include "hub.hpp"

#include <boost/asio/buffer.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/write.hpp>
#include <csignal>
#include <cstring>

#include "verdict.hpp"

namespace weft::ccl {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

struct Hub::Session {
  explicit Session(tcp::socket s) : socket(std::move(s)) {}
  tcp::socket socket;
  wire::Head head;
  Bytes payload;
  std::deque<std::vector<std::byte>> out;
  std::uint32_t rank = UINT32_MAX;
  bool bye = false, open = true, close_when_sent = false;
};

Hub::Hub(const tcp::endpoint& address, const std::array<std::uint8_t, 16>& nonce, std::chrono::milliseconds timeout)
    : acceptor_(context_), timer_(context_), grace_(context_), nonce_(nonce), timeout_(timeout) {
  acceptor_.open(address.protocol());
  acceptor_.set_option(tcp::acceptor::reuse_address(true));
  acceptor_.bind(address);
  acceptor_.listen(4096);
  port_ = acceptor_.local_endpoint().port();
  accept();
  arm();
  // Signals are the program's business, not this thread's.
  sigset_t all, old;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &old);
  thread_ = std::thread([this] { run(); });
  pthread_sigmask(SIG_SETMASK, &old, nullptr);
}

Hub::~Hub() {
  // Ranks that leave in good order do so at about the same time: let them, before connections break.
  for (int i = 0; i < 100 && !ended_; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  context_.stop();
  thread_.join();
}

void Hub::run() {
  context_.run();
  ended_ = true;
}

void Hub::accept() {
  acceptor_.async_accept([this](error_code error, tcp::socket socket) {
    if (error) return;
    error_code ignored;
    socket.set_option(tcp::no_delay(true), ignored);
    socket.set_option(asio::socket_base::keep_alive(true), ignored);
    auto session = std::make_shared<Session>(std::move(socket));
    strangers_.insert(session);
    read_head(session);
    accept();
  });
}

void Hub::read_head(const std::shared_ptr<Session>& session) {
  asio::async_read(session->socket, asio::buffer(&session->head, sizeof session->head),
                   [this, session](error_code error, std::size_t) {
                     if (error) return gone(session);
                     const bool stranger = session->rank == UINT32_MAX;
                     if (!wire::valid(session->head) || (stranger && session->head.length > 64)) {
                       return refuse(session, "not a message of wccl");
                     }
                     session->payload.resize(session->head.length);
                     read_payload(session);
                   });
}

void Hub::read_payload(const std::shared_ptr<Session>& session) {
  asio::async_read(session->socket, asio::buffer(session->payload), [this, session](error_code error, std::size_t) {
    if (error) return gone(session);
    handle(session);
    if (session->open && !session->close_when_sent) read_head(session);
  });
}

void Hub::handle(const std::shared_ptr<Session>& session) {
  if (session->rank == UINT32_MAX) {
    return session->head.type == wire::Type::kHello ? hello(session) : refuse(session, "no hello");
  }
  switch (session->head.type) {
    case wire::Type::kGather:
      return gather(session);
    case wire::Type::kMessage: {
      const std::uint32_t to = session->head.a;
      if (to >= ranks_ || !complete_) return refuse(session, "message to no rank");
      if (members_[to]) send(members_[to], wire::pack(wire::Type::kMessage, session->rank, 0, session->payload));
      return;
    }
    case wire::Type::kFailed:
      return failed(std::min(session->head.a, ranks_ - 1), wire::as_text(session->payload), session.get());
    case wire::Type::kSuspect:
      return suspect(session);
    case wire::Type::kBye:
      session->bye = true;
      return;
    default:
      return refuse(session, "message out of place");
  }
}

void Hub::hello(const std::shared_ptr<Session>& session) {
  const std::uint32_t rank = session->head.a, ranks = session->head.b;
  if (session->payload.size() != nonce_.size() ||
      std::memcmp(session->payload.data(), nonce_.data(), nonce_.size()) != 0) {
    return refuse(session, "this address serves another communicator");
  }
  if (ranks == 0 || ranks > 65536 || rank >= ranks) return refuse(session, "rank or number of ranks out of range");
  if (ranks_ == 0) {
    ranks_ = ranks;
    members_.resize(ranks);
  }
  if (ranks != ranks_) {
    return refuse(session, "rank " + std::to_string(rank) + " says " + std::to_string(ranks) + " ranks, others say " +
                               std::to_string(ranks_));
  }
  if (members_[rank]) return refuse(session, "rank " + std::to_string(rank) + " came twice");
  session->rank = rank;
  members_[rank] = session;
  const std::chrono::milliseconds limit(session->head.c);
  if (limit.count() > 0 && limit < timeout_) {
    timeout_ = limit;
    arm();
  }
  strangers_.erase(session);
  if (++joined_ == ranks_) {
    complete_ = true;
    error_code ignored;
    acceptor_.close(ignored);  // the address is free for the next communicator
    const std::set<std::shared_ptr<Session>> strangers = std::move(strangers_);
    for (const auto& stranger : strangers) refuse(stranger, "all ranks have come already");
  }
}

void Hub::gather(const std::shared_ptr<Session>& session) {
  if (session->head.a != round_ || !gathered_.emplace(session->rank, std::move(session->payload)).second) {
    return refuse(session, "gather out of step");
  }
  if (gathered_.size() == 1 && round_ > 0) arm();
  if (gathered_.size() < ranks_) return;
  Bytes table;
  for (const auto& [rank, bytes] : gathered_) {
    const auto length = static_cast<std::uint32_t>(bytes.size());
    const auto* at = reinterpret_cast<const std::byte*>(&length);
    table.insert(table.end(), at, at + sizeof length);
    table.insert(table.end(), bytes.begin(), bytes.end());
  }
  gathered_.clear();
  const auto message = wire::pack(wire::Type::kTable, round_++, 0, table);
  timer_.cancel();
  for (const auto& member : members_) {
    if (member) send(member, message);
  }
}

void Hub::send(const std::shared_ptr<Session>& session, std::vector<std::byte> message) {
  if (!session->open) return;
  session->out.push_back(std::move(message));
  if (session->out.size() == 1) write(session);
}

void Hub::write(const std::shared_ptr<Session>& session) {
  asio::async_write(session->socket, asio::buffer(session->out.front()),
                    [this, session](error_code error, std::size_t) {
                      if (error) return gone(session);
                      session->out.pop_front();
                      if (!session->out.empty()) return write(session);
                      if (session->close_when_sent) {
                        error_code ignored;
                        session->socket.shutdown(tcp::socket::shutdown_both, ignored);
                        gone(session);
                      }
                    });
}

void Hub::refuse(const std::shared_ptr<Session>& session, const std::string& text) {
  session->close_when_sent = true;
  send(session, wire::pack(wire::Type::kRefused, 0, 0, wire::as_bytes(text)));
}

void Hub::gone(const std::shared_ptr<Session>& session) {
  if (!session->open) return;
  session->open = false;
  error_code ignored;
  session->socket.close(ignored);
  strangers_.erase(session);
  if (session->rank == UINT32_MAX) return;
  members_[session->rank] = nullptr;
  ++left_;
  if (!session->bye) {
    failed(session->rank, "the process of rank " + std::to_string(session->rank) + " is gone", session.get());
  }
  end_if_over();
}

void Hub::failed(std::uint32_t culprit, const std::string& text, const Session* except) {
  if (failed_) return;
  failed_ = true;
  const auto message = wire::pack(wire::Type::kFailed, culprit, 0, wire::as_bytes(text));
  for (const auto& member : members_) {
    if (member && member.get() != except) send(member, message);
  }
}

void Hub::suspect(const std::shared_ptr<Session>& session) {
  Suspicion s;
  s.from = session->rank;
  s.peer = session->head.a;
  s.definite = session->head.b;
  if (s.peer >= ranks_ || session->payload.size() < sizeof s.order) return refuse(session, "suspicion of no rank");
  std::memcpy(&s.order, session->payload.data(), sizeof s.order);
  s.text = wire::as_text(std::span(session->payload).subspan(sizeof s.order));
  suspicions_.push_back(std::move(s));
  if (suspicions_.size() > 1) return;
  grace_.expires_after(wire::kGrace);
  grace_.async_wait([this](error_code error) {
    if (error) return;
    if (const auto note = decide(suspicions_)) failed(note->culprit, note->text, nullptr);
    suspicions_.clear();
  });
}

void Hub::arm() {
  timer_.expires_after(timeout_);
  timer_.async_wait([this](error_code error) {
    if (!error) time_out();
  });
}

void Hub::time_out() {
  std::string missing;
  std::uint32_t shown = 0, culprit = 0;
  for (std::uint32_t rank = 0; rank < ranks_; ++rank) {
    if (gathered_.contains(rank)) continue;
    if (shown == 0) culprit = rank;
    if (++shown <= 8) missing += (missing.empty() ? "" : ", ") + std::to_string(rank);
  }
  if (shown > 8) missing += " and " + std::to_string(shown - 8) + " more";
  const std::string text = (shown == 1 ? "rank " : "ranks ") + missing + " did not come within " +
                           std::to_string(timeout_.count() / 1000) + " s";
  failed(culprit, text, nullptr);
  error_code ignored;
  acceptor_.close(ignored);
  const auto strangers = std::move(strangers_);
  for (const auto& stranger : strangers) gone(stranger);
  for (const auto& member : members_) {
    if (member) member->close_when_sent = true;
  }
  end_if_over();
}

void Hub::end_if_over() {
  if (!acceptor_.is_open() && left_ == joined_) {
    timer_.cancel();
    context_.stop();
  } else if (left_ == joined_ && joined_ > 0) {
    // Those who came went again before all were there: do not wait for the rest.
    failed_ = true;
    error_code ignored;
    acceptor_.close(ignored);
    timer_.cancel();
    context_.stop();
  }
}

}  // namespace weft::ccl
