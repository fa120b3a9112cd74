// SPDX-License-Identifier: MIT
#include "port.hpp"

namespace weft::model::nic {

void Port::set_defaults(std::string_view serial, std::uint32_t number) {
  // FNV-1a; ports of one device are neighbours, so that two devices differ or agree as a whole.
  std::uint64_t hash = 0xcbf29ce484222325u;
  for (const char c : serial) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  hash ^= hash >> 32;
  hash ^= hash >> 24;

  mac = {0x02,
         0x57,
         static_cast<std::uint8_t>(hash >> 16),
         static_cast<std::uint8_t>(hash >> 8),
         static_cast<std::uint8_t>(hash),
         static_cast<std::uint8_t>(number)};
  // 169.254.1.0 to 169.254.254.255 (RFC 3927, section 2.1).
  constexpr std::uint32_t kFirst = 256;
  constexpr std::uint32_t kCount = 254 * 256;
  const auto host = static_cast<std::uint32_t>(kFirst + ((hash >> 8) % kCount + number) % kCount);
  addresses.assign(2, {});
  addresses[0].type = WEFT_GID_ROCE_V2_IPV4;
  addresses[0].gid = gid_of_ipv4(
      std::array<std::uint8_t, 4>{169, 254, static_cast<std::uint8_t>(host >> 8), static_cast<std::uint8_t>(host)});
  // Link-local from the MAC (RFC 4291, appendix A).
  addresses[1].type = WEFT_GID_ROCE_V2_IPV6;
  Gid& ipv6 = addresses[1].gid;
  ipv6 = {0xfe, 0x80};
  ipv6[8] = mac[0] ^ 0x02;
  ipv6[9] = mac[1];
  ipv6[10] = mac[2];
  ipv6[11] = 0xff;
  ipv6[12] = 0xfe;
  ipv6[13] = mac[3];
  ipv6[14] = mac[4];
  ipv6[15] = mac[5];
}

Error Port::make_address(const weft_mbox_gid& entry, Address& out) {
  out = {};
  std::copy(std::begin(entry.gid), std::end(entry.gid), out.gid.begin());
  std::copy(std::begin(entry.mac), std::end(entry.mac), out.mac.begin());
  switch (entry.type) {
    case WEFT_GID_NONE:
      return out.gid == Gid{} && out.mac == Mac{} && entry.vlan == 0 ? WEFT_ERR_OK : WEFT_ERR_BAD_FIELD;
    case WEFT_GID_ROCE_V2_IPV4:
      // A host's own address is neither "this network" nor multicast nor reserved (RFC 1122, section 3.2.1.3).
      if (!is_ipv4(out.gid) || out.gid[12] == 0 || out.gid[12] >= 224) return WEFT_ERR_BAD_GID;
      break;
    case WEFT_GID_ROCE_V2_IPV6:
      if (is_ipv4(out.gid) || out.gid[0] == 0xff || out.gid == Gid{}) return WEFT_ERR_BAD_GID;
      break;
    default:
      return WEFT_ERR_BAD_FIELD;
  }
  if ((out.mac[0] & 1) != 0 || (entry.vlan >= 0xfff && entry.vlan != kNoVlan)) return WEFT_ERR_BAD_FIELD;
  out.type = static_cast<weft_gid_type>(entry.type);
  out.vlan = entry.vlan;
  return WEFT_ERR_OK;
}

}  // namespace weft::model::nic
