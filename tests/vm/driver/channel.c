/* SPDX-License-Identifier: MIT */
/* Channels, from a port to itself: every packet is real, both ends are here. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "device.h"

static int channel_create(struct device* device, uint32_t sync_base, uint32_t sync_count,
                          struct drm_weft_channel_create* out) {
  *out = (struct drm_weft_channel_create){.size = sizeof(*out), .sync_base = sync_base, .sync_count = sync_count};
  return call(device->fd, DRM_IOCTL_WEFT_CHANNEL_CREATE, out);
}

static int channel_connect(struct device* device, uint32_t channel, const struct drm_weft_endpoint* remote) {
  struct drm_weft_channel_connect args = {.size = sizeof(args), .channel = channel, .remote = *remote};
  return call(device->fd, DRM_IOCTL_WEFT_CHANNEL_CONNECT, &args);
}

static int channel_destroy(struct device* device, uint32_t channel) {
  struct drm_weft_handle args = {.size = sizeof(args), .handle = channel};
  return call(device->fd, DRM_IOCTL_WEFT_CHANNEL_DESTROY, &args);
}

static struct drm_weft_channel_query channel_query(struct device* device, uint32_t channel) {
  struct drm_weft_channel_query args = {.size = sizeof(args), .channel = channel};
  CHECK_EQ(call(device->fd, DRM_IOCTL_WEFT_CHANNEL_QUERY, &args), 0);
  return args;
}

static struct weft_cmd cmd_write(uint32_t channel, const struct bo* from, const struct bo* to, uint32_t bytes,
                                 uint32_t immediate, uint32_t signal) {
  struct weft_cmd cmd = cmd_copy(from->va, from->key, to->va, to->key, bytes, signal);
  cmd.op = WEFT_OP_RDMA;
  cmd.arg0 = WEFT_RDMA_WRITE_IMM;
  cmd.addr[2] = immediate;
  cmd.key[2] = channel;
  return cmd;
}

void test_channel(void) {
  struct device a = device_open(), b = device_open();
  struct bo from, to;
  struct queue queue;
  CHECK_EQ(bo_create(&a, MIB(1), 0, &from), 0);
  CHECK_EQ(bo_create(&b, MIB(1), WEFT_BO_REMOTE_WRITE, &to), 0);
  CHECK_EQ(queue_create(&a, 64, 0, &queue), 0);
  const uint32_t done = sync_create(&a, 1);
  const uint32_t arrived = sync_create(&b, 4);
  struct drm_weft_channel_create ca, cb;
  CHECK_EQ(channel_create(&a, 0, 0, &ca), 0);
  CHECK_EQ(channel_create(&b, arrived, 4, &cb), 0);
  CHECK(ca.channel != cb.channel && ca.channel >= 2);
  CHECK_EQ(ca.local.qpn, ca.channel);
  CHECK(ca.local.psn <= 0xffffff && cb.local.psn <= 0xffffff);
  struct drm_weft_port port = {.size = sizeof(port)};
  CHECK_EQ(call(a.fd, DRM_IOCTL_WEFT_PORT, &port), 0);
  CHECK_EQ(memcmp(ca.local.mac, port.mac, 6), 0);
  static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
  CHECK_EQ(memcmp(ca.local.gid, mapped, sizeof(mapped)), 0);
  CHECK_EQ(memcmp(ca.local.gid + 12, port.ipv4, sizeof(port.ipv4)), 0);
  CHECK(port.ipv6[0] == 0xfe && port.ipv6[1] == 0x80); /* link-local */
  CHECK_EQ(128u << ca.local.mtu, port.mtu);
  CHECK_EQ(channel_query(&a, ca.channel).state, WEFT_QPS_INIT);
  CHECK_EQ(channel_connect(&a, ca.channel, &cb.local), 0);
  CHECK_EQ(channel_connect(&b, cb.channel, &ca.local), 0);
  CHECK_EQ(channel_query(&a, ca.channel).state, WEFT_QPS_RTS);
  CHECK_EQ(channel_connect(&a, ca.channel, &cb.local), -EISCONN);
  struct drm_weft_sync_destroy destroy = {.size = sizeof(destroy), .first = arrived + 3, .count = 1};
  CHECK_EQ(call(b.fd, DRM_IOCTL_WEFT_SYNC_DESTROY, &destroy), -EBUSY);

  uint8_t* bytes = from.map;
  for (size_t i = 0; i < from.bytes; ++i) bytes[i] = (uint8_t)(i * 13 + i / 257);
  static const uint32_t lengths[] = {1, 4095, 65536, 1000003};
  uint64_t sent = a.shadow[done];
  for (size_t i = 0; i < COUNT(lengths); ++i) {
    const uint64_t before = b.shadow[arrived + i];
    memset(to.map, 0, to.bytes);
    const struct weft_cmd cmd = cmd_write(ca.channel, &from, &to, lengths[i], (uint32_t)i, done);
    queue_put(&queue, &cmd);
    queue_ring(&queue);
    CHECK_EQ(sync_wait(&b, arrived + (uint32_t)i, before + 1, 20, NULL), 0);
    CHECK_EQ(memcmp(to.map, from.map, lengths[i]), 0);
    if (lengths[i] < to.bytes) CHECK_EQ(((uint8_t*)to.map)[lengths[i]], 0);
    CHECK_EQ(sync_wait(&a, done, ++sent, 20, NULL), 0);
  }

  /* The peer's object without REMOTE_WRITE: refused there, an error here, memory unchanged. */
  struct bo closed;
  CHECK_EQ(bo_create(&b, KIB(4), WEFT_BO_REMOTE_READ, &closed), 0);
  const struct weft_cmd cmd = cmd_write(ca.channel, &from, &closed, 16, 0, done);
  struct drm_weft_wait wait;
  queue_put(&queue, &cmd);
  queue_ring(&queue);
  CHECK_EQ(sync_wait(&a, done, sent + 1, 20, &wait), -EIO);
  CHECK_EQ(wait.error, WEFT_ERR_REMOTE_ACCESS);
  CHECK_EQ(((uint64_t*)closed.map)[0], 0);
  const uint32_t mine = ca.channel, theirs = cb.channel;
  CHECK_EQ(sync_wait_listed(&a, done, sent + 1, 10, (struct listed){NULL, 0, &mine, 1}, &wait), -EIO);
  CHECK_EQ(wait.error_type, WEFT_OBJECT_CHANNEL);
  CHECK_EQ(wait.object, ca.channel);
  CHECK_EQ(sync_wait_listed(&a, done, sent + 1, 0.2, (struct listed){NULL, 0, &theirs, 1}, NULL), -ETIME);
  CHECK_EQ(channel_query(&a, ca.channel).state, WEFT_QPS_ERR);

  CHECK_EQ(queue_destroy(&queue), 0);
  CHECK_EQ(channel_destroy(&a, ca.channel), 0);
  CHECK_EQ(channel_destroy(&a, ca.channel), -ENOENT);
  CHECK_EQ(sync_wait(&a, done, sent + 1, 0, NULL), -ETIME); /* no failed object is left */
  device_close(&a);
  device_close(&b);
}

void test_channel_wrong(void) {
  struct device device = device_open(), other = device_open();
  struct drm_weft_channel_create c, d;
  const uint32_t sync = sync_create(&device, 2);
  CHECK_EQ(channel_create(&device, sync + 1, 2, &c), -ENOENT); /* one of them was not created */
  /* A channel without sync objects keeps none. */
  CHECK_EQ(channel_create(&device, sync + 1, 0, &c), 0);
  struct drm_weft_sync_destroy destroy = {.size = sizeof(destroy), .first = sync, .count = 2};
  CHECK_EQ(call(device.fd, DRM_IOCTL_WEFT_SYNC_DESTROY, &destroy), 0);
  CHECK_EQ(channel_destroy(&device, c.channel), 0);
  CHECK_EQ(sync_create(&device, 2), sync);
  CHECK_EQ(channel_create(&device, UINT32_MAX, 2, &c), -ENOENT);
  c = (struct drm_weft_channel_create){.size = sizeof(c), .port = 99};
  CHECK_EQ(call(device.fd, DRM_IOCTL_WEFT_CHANNEL_CREATE, &c), -EINVAL);
  c = (struct drm_weft_channel_create){.size = sizeof(c), .flags = 1};
  CHECK_EQ(call(device.fd, DRM_IOCTL_WEFT_CHANNEL_CREATE, &c), -EINVAL);

  CHECK_EQ(channel_create(&device, sync, 2, &c), 0);
  CHECK_EQ(channel_create(&other, 0, 0, &d), 0);
  CHECK_EQ(channel_connect(&other, c.channel, &d.local), -ENOENT); /* another context's */
  CHECK_EQ(channel_destroy(&other, c.channel), -ENOENT);
  struct drm_weft_channel_query query = {.size = sizeof(query), .channel = c.channel};
  CHECK_EQ(call(other.fd, DRM_IOCTL_WEFT_CHANNEL_QUERY, &query), -ENOENT);

  struct drm_weft_channel_connect good = {.size = sizeof(good), .channel = c.channel, .remote = d.local}, args;
  for (int i = 0; i < 12; ++i) {
    args = good;
    switch (i) {
      case 0:
        args.flags = 1;
        break;
      case 1:
        args.reserved = 1;
        break;
      case 2:
        args.timeout = 32;
        break;
      case 3:
        args.retry_cnt = 8;
        break;
      case 4:
        args.remote.qpn = 1;
        break;
      case 5:
        args.remote.qpn = 1u << 24;
        break;
      case 6:
        args.remote.psn = 1u << 24;
        break;
      case 7:
        args.remote.mtu = 0;
        break;
      case 8:
        args.remote.mtu = 7;
        break;
      case 9:
        args.remote.mac[0] |= 1;
        break;
      case 10:
        memset(args.remote.mac, 0, 6);
        break;
      case 11:
        memset(args.remote.gid, 0, 16);
        break;
    }
    CHECK_EQ(call(device.fd, DRM_IOCTL_WEFT_CHANNEL_CONNECT, &args), -EINVAL);
  }
  CHECK_EQ(call(device.fd, DRM_IOCTL_WEFT_CHANNEL_CONNECT, &good), 0);
  device_close(&device);
  device_close(&other);
}

/* A peer that is not there: an error that names the channel or its queue, within the retries' time. */
void test_channel_silent(void) {
  struct device device = device_open();
  struct drm_weft_channel_create c;
  struct queue queue;
  struct bo bo;
  CHECK_EQ(bo_create(&device, KIB(4), 0, &bo), 0);
  CHECK_EQ(queue_create(&device, 16, 0, &queue), 0);
  const uint32_t sync = sync_create(&device, 1);
  CHECK_EQ(channel_create(&device, 0, 0, &c), 0);
  struct drm_weft_endpoint nobody = c.local;
  nobody.qpn = c.local.qpn == 1000 ? 1001 : 1000;
  struct drm_weft_channel_connect args = {.size = sizeof(args), .channel = c.channel, .timeout = 10, .retry_cnt = 3};
  args.remote = nobody;
  CHECK_EQ(call(device.fd, DRM_IOCTL_WEFT_CHANNEL_CONNECT, &args), 0);
  const struct weft_cmd cmd = cmd_write(c.channel, &bo, &bo, 64, 0, sync);
  struct drm_weft_wait wait;
  queue_put(&queue, &cmd);
  queue_ring(&queue);
  CHECK_EQ(sync_wait(&device, sync, device.shadow[sync] + 1, 20, &wait), -EIO);
  CHECK_EQ(wait.error, WEFT_ERR_RETRY_EXCEEDED);
  CHECK((wait.error_type == WEFT_EVENT_QUEUE_ERROR && wait.object == queue.number) ||
        (wait.error_type == WEFT_EVENT_QP_ERROR && wait.object == c.channel));
  CHECK_EQ(channel_query(&device, c.channel).error, WEFT_ERR_RETRY_EXCEEDED);
  CHECK_EQ(channel_destroy(&device, c.channel), 0);
  device_close(&device);
}
