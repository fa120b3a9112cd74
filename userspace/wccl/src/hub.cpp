// SPDX-License-Identifier: MIT
#include "hub.hpp"

#include <cstring>

#include "masked_thread.hpp"
#include "verdict.hpp"

namespace weft::ccl {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

struct Hub::Session : wire::Stream {
  using Stream::Stream;
  std::uint32_t rank = UINT32_MAX;
  bool bye = false;
  wire::Hello who;
};

namespace {

std::string text_of(const wire::Hello& who) { return std::string(who.host) + ", process " + std::to_string(who.pid); }

}  // namespace

Hub::Hub(const tcp::endpoint& address, const wire::Hello& me, std::chrono::milliseconds timeout)
    : acceptor_(context_),
      timer_(context_),
      grace_(context_),
      beat_(context_),
      me_(me),
      agreed_(me.nonce == decltype(me.nonce){}),
      opened_(Clock::now()),
      timeout_(timeout) {
  acceptor_.open(address.protocol());
  acceptor_.set_option(tcp::acceptor::reuse_address(true));
  acceptor_.bind(address);
  acceptor_.listen(4096);
  port_ = acceptor_.local_endpoint().port();
  accept();
  arm();
  beat();
  thread_ = masked_thread([this] {
    context_.run();
    ended_ = true;
  });
}

Hub::~Hub() {
  context_.stop();
  thread_.join();
}

void Hub::accept() {
  acceptor_.async_accept([this](error_code error, tcp::socket socket) {
    if (error) return;
    const auto session = std::make_shared<Session>(std::move(socket));
    session->limit_payload(sizeof(wire::Hello));
    strangers_.insert(session);
    const auto self = [raw = session.get()] { return std::static_pointer_cast<Session>(raw->shared_from_this()); };
    session->start([this, self] { handle(self()); }, [this, self](error_code ended) { gone(self(), ended); });
    accept();
  });
}

void Hub::handle(const SessionPtr& session) {
  if (session->rank == UINT32_MAX) {
    return session->head().type == wire::Type::kHello ? hello(session) : refuse(session, "no hello");
  }
  const std::uint32_t a = session->head().a;
  switch (session->head().type) {
    case wire::Type::kGather:
      return gather(session);
    case wire::Type::kMessage:
      if (a >= ranks_ || joined_ < ranks_) return refuse(session, "message to no rank");
      if (members_[a]) members_[a]->send(wire::pack(wire::Type::kMessage, session->rank, 0, session->payload()));
      return;
    case wire::Type::kFailed:
      return failed(a, wire::as_text(session->payload()), session.get());
    case wire::Type::kSuspect:
      return suspect(session);
    case wire::Type::kBye:
      session->bye = ending_ = true;
      return;
    case wire::Type::kBeat:
      return;
    default:
      return refuse(session, "message out of place");
  }
}

void Hub::hello(const SessionPtr& session) {
  const std::uint32_t rank = session->head().a, ranks = session->head().b;
  wire::Hello& who = session->who;
  if (session->payload().size() != sizeof who) return refuse(session, "another version of wccl");
  std::memcpy(&who, session->payload().data(), sizeof who);
  who.host[sizeof who.host - 1] = 0;
  const std::string name = "rank " + std::to_string(rank);
  if (who.nonce != me_.nonce) return refuse(session, "this address serves another communicator");
  if (agreed_ && who.job != me_.job) {
    return refuse(session, "this address serves another job, of " + text_of(me_) +
                               ": give each job a WCCL_COMM_ID (or MASTER_PORT) of its own");
  }
  if (ranks == 0 || ranks > 65536 || rank >= ranks) return refuse(session, "rank or number of ranks out of range");
  if (!conflict_.empty()) return refuse(session, conflict_);
  if (ranks_ == 0) {
    ranks_ = ranks;
    members_.resize(ranks);
  }
  if (ranks != ranks_) {
    return conflict(session, rank,
                    name + " (" + text_of(who) + ") says " + std::to_string(ranks) + " ranks, others say " +
                        std::to_string(ranks_));
  }
  if (ending_ || (failed_ && joined_ == ranks_)) {
    session->send(wire::pack(wire::Type::kLater, 0, 0, {}));
    return session->close_when_sent();
  }
  if (agreed_ && rank == 0 && who.process != me_.process) {
    return conflict(session, rank, "rank 0 came twice: " + text_of(me_) + " and " + text_of(who));
  }
  if (members_[rank]) {
    return conflict(session, rank, name + " came twice: " + text_of(members_[rank]->who) + " and " + text_of(who));
  }
  session->rank = rank;
  session->limit_payload(wire::kPayloadMax);
  members_[rank] = session;
  busy_ = true;
  if (who.process == me_.process && own_rank_ == 0) own_rank_ = rank + 1;
  session->send(wire::pack(wire::Type::kWelcome, 0, 0, {}));
  const std::chrono::milliseconds limit(who.limit_ms);
  if (limit.count() > 0 && limit < timeout_) {
    timeout_ = limit;
    arm();
  }
  strangers_.erase(session);
  ++joined_;
}

// Somebody comes who does not fit those who came before. At an agreed address two jobs may have met, and then nobody
// knows who belongs to whom, as long as ranks may still be on their way: nobody goes on.
void Hub::conflict(const SessionPtr& session, std::uint32_t rank, const std::string& text) {
  const bool same_process = rank < ranks_ && members_[rank] && members_[rank]->who.process == session->who.process;
  const std::string cure = !agreed_       ? text
                           : same_process ? text + ": one address serves one communicator at a time"
                                          : "two jobs meet at one address: " + text +
                                                "; give each job a WCCL_COMM_ID (or MASTER_PORT) of its own";
  refuse(session, cure);
  if (!agreed_ || same_process || Clock::now() - opened_ > timeout_) return;
  conflict_ = cure;
  failed(kNobody, cure, nullptr);
  arm();                                // stays until nobody can be on the way any more, to refuse them too
  for (SessionPtr member : members_) {  // a copy: it may go meanwhile
    if (member) member->close_when_sent();
  }
}

void Hub::gather(const SessionPtr& session) {
  if (session->head().a != round_ || !gathered_.emplace(session->rank, std::move(session->payload())).second) {
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
  const auto message = wire::pack(wire::Type::kTable, round_++, own_rank_, table);
  timer_.cancel();
  for (const auto& member : members_) {
    if (member) member->send(message);
  }
}

void Hub::refuse(const SessionPtr& session, const std::string& text) {
  session->send(wire::pack(wire::Type::kRefused, 0, 0, wire::as_bytes(text)));
  session->close_when_sent();
}

void Hub::gone(const SessionPtr& session, const error_code& error) {
  strangers_.erase(session);
  if (session->rank == UINT32_MAX) return;
  members_[session->rank] = nullptr;
  ++left_;
  if (!session->bye) {
    const bool process = error == asio::error::eof || error == asio::error::connection_reset;
    const std::string who = "rank " + std::to_string(session->rank);
    failed(session->rank, process ? "the process of " + who + " is gone" : who + " is gone: " + wire::why_ended(error),
           session.get());
  }
  end_if_over();
}

void Hub::failed(std::uint32_t culprit, const std::string& text, const Session* except) {
  if (failed_) return;
  failed_ = true;
  const auto message = wire::pack(wire::Type::kFailed, culprit, 0, wire::as_bytes(text));
  for (const auto& member : members_) {
    if (member && member.get() != except) member->send(message);
  }
}

void Hub::suspect(const SessionPtr& session) {
  Suspicion s;
  s.from = session->rank;
  s.peer = session->head().a;
  s.definite = session->head().b;
  if (s.peer >= ranks_ || session->payload().size() < sizeof s.order) return refuse(session, "suspicion of no rank");
  std::memcpy(&s.order, session->payload().data(), sizeof s.order);
  s.text = wire::as_text(std::span(session->payload()).subspan(sizeof s.order));
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

void Hub::beat() {
  beat_.expires_after(wire::kBeatEvery);
  beat_.async_wait([this](error_code error) {
    if (error) return;
    for (const auto& member : members_) {
      if (member && member->idle()) member->send(wire::pack(wire::Type::kBeat, 0, 0, {}));
    }
    beat();
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
  for (const auto& stranger : strangers) stranger->close();
  for (SessionPtr member : members_) {  // a copy: it may go meanwhile
    if (member) member->close_when_sent();
  }
  end_if_over();
}

// All who came are gone again: those who did not come need not.
void Hub::end_if_over() {
  if (left_ < joined_) return;
  busy_ = false;
  if (acceptor_.is_open() && (joined_ == 0 || !conflict_.empty())) return;
  context_.stop();
}

}  // namespace weft::ccl
