// SPDX-License-Identifier: MIT
#include "provider.hpp"

#include <dlfcn.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "device_filter.hpp"
#include "error.hpp"

namespace weft::ofi {
namespace {

constexpr std::array<Provider, 3> kProviders{{
    {"efa-direct", "efa", "efa-direct", true, false},
    {"efa", "efa", "efa", true, true},
    {"tcp", "tcp", nullptr, false, true},
}};

std::string joined(const std::vector<std::string>& names) {
  std::string all;
  for (const std::string& name : names) all += (all.empty() ? "" : ", ") + name;
  return all;
}

std::string own_file() {
  Dl_info self;
  if (dladdr(reinterpret_cast<void*>(&own_file), &self) == 0 || self.dli_fname == nullptr) return WEFT_OFI_LIBRARY;
  return self.dli_fname;
}

// Why fi_getinfo found nothing.
int explain(const Provider& provider, const char* domain, const char* address, int error) {
  const char* text = fi_strerror(error);
  if (const char* only = std::getenv("FI_PROVIDER");
      only != nullptr && std::strstr(only, provider.libfabric) == nullptr)
    return fail(ENODEV, "libfabric has no provider %s: FI_PROVIDER=%s leaves it out", provider.libfabric, only);
  if (!provider.is_efa)
    return fail(ENODEV, "libfabric has no domain of provider %s%s%s%s%s: %s", provider.name, domain ? ", domain " : "",
                domain ? domain : "", address ? ", address " : "", address ? address : "", text);

  const VerbsDevices devices = verbs_devices("/sys/class/infiniband");
  const std::string efa = joined(devices.efa), foreign = joined(devices.foreign);
  if (devices.efa.empty())
    return fail(ENODEV, "no RDMA device is driven by efa (is efa.ko loaded?)%s%s%s",
                foreign.empty() ? "" : "; others: ", foreign.c_str(), foreign.empty() ? "" : ", which are not EFA");
  if (!devices.foreign.empty() && !libfabric_sees_filter())
    return fail(
        ENODEV,
        "libfabric dropped the EFA device %s because of the foreign RDMA device %s: the program loaded libfabric "
        "or libibverbs before us, so it cannot be hidden. Run with LD_PRELOAD=%s, or take the provider's .driver "
        "file of %s out of /etc/libibverbs.d",
        efa.c_str(), foreign.c_str(), own_file().c_str(), foreign.c_str());
  if (domain != nullptr)
    return fail(ENODEV, "libfabric has no domain %s of provider %s (RDMA devices driven by efa: %s)", domain,
                provider.name, efa.c_str());
  return fail(
      ENODEV,
      "libfabric's efa provider does not offer %s with RMA for %s: %s (needs rdma-read, rdma-write and unsolicited "
      "receive of the device, and /dev/infiniband/uverbs*; FI_LOG_LEVEL=warn says more)",
      provider.name, efa.c_str(), text);
}

}  // namespace

const Provider* find_provider(const char* name) {
  if (name != nullptr)
    for (const Provider& provider : kProviders)
      if (std::strcmp(provider.name, name) == 0) return &provider;
  fail(EINVAL, "unknown provider %s: it is efa-direct, efa or tcp", name != nullptr ? name : "(none)");
  return nullptr;
}

int find_domains(const Provider& provider, const char* domain, const char* address, unsigned flags, Info* out) {
  initialise_libfabric();
  Info hints(fi_allocinfo());
  if (hints == nullptr) return fail(ENOMEM, "no memory");
  hints->caps = FI_MSG | FI_RMA;
  hints->mode = FI_CONTEXT | FI_CONTEXT2;
  hints->ep_attr->type = FI_EP_RDM;
  hints->fabric_attr->prov_name = ::strdup(provider.libfabric);
  if (provider.fabric != nullptr) hints->fabric_attr->name = ::strdup(provider.fabric);
  if (domain != nullptr) hints->domain_attr->name = ::strdup(domain);
  hints->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
  hints->domain_attr->threading = FI_THREAD_DOMAIN;
  hints->domain_attr->progress = FI_PROGRESS_MANUAL;
  if (!provider.is_efa && (flags & WEFT_OFI_DELIVERY) != 0) hints->tx_attr->op_flags = FI_DELIVERY_COMPLETE;

  fi_info* found = nullptr;
  const std::uint64_t how = address != nullptr ? FI_SOURCE | FI_NUMERICHOST : 0;
  const int error = fi_getinfo(FI_VERSION(1, 20), address, nullptr, how, hints.get(), &found);
  if (error != 0) return explain(provider, domain, address, -error);
  out->reset(found);
  return 0;
}

void describe(const Provider& provider, const fi_info& info, weft_ofi_info* out) {
  out->flags = provider.is_efa ? WEFT_OFI_DMABUF : WEFT_OFI_VISIBLE;
  out->libfabric = fi_version();
  out->tx_depth = static_cast<std::uint32_t>(std::min<std::size_t>(info.tx_attr->size, UINT32_MAX));
  out->rx_depth = static_cast<std::uint32_t>(std::min<std::size_t>(info.rx_attr->size, UINT32_MAX));
  out->address_bytes = static_cast<std::uint32_t>(info.src_addrlen);
  out->max_send = out->max_rma = info.ep_attr->max_msg_size;
  std::snprintf(out->provider, sizeof(out->provider), "%s", provider.name);
  std::snprintf(out->domain, sizeof(out->domain), "%s", info.domain_attr->name);
  if (info.nic != nullptr && info.nic->bus_attr != nullptr && info.nic->bus_attr->bus_type == FI_BUS_PCI) {
    const fi_pci_attr& pci = info.nic->bus_attr->attr.pci;
    std::snprintf(out->bdf, sizeof(out->bdf), "%04x:%02x:%02x.%x", pci.domain_id, pci.bus_id, pci.device_id,
                  pci.function_id & 7);
  }
}

}  // namespace weft::ofi
