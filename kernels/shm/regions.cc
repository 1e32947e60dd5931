#include "regions.h"

namespace mpistrat {

int Regions::add(void* const* bases, int size, int rank, size_t nbytes) {
  Region region{{}, rank, static_cast<int64_t>(nbytes)};
  for (int r = 0; r < size; ++r) region.bases.push_back(static_cast<uint8_t*>(bases[r]));
  by_address_[region.bases[static_cast<size_t>(rank)]] = next_;
  regions_.emplace(next_, std::move(region));
  return next_++;
}

void Regions::remove(int region) {
  const auto found = regions_.find(region);
  if (found == regions_.end()) return;
  by_address_.erase(found->second.bases[static_cast<size_t>(found->second.rank)]);
  regions_.erase(found);
}

Address Regions::find(const void* data, int64_t nbytes) const {
  const auto* at = static_cast<const uint8_t*>(data);
  auto next = by_address_.upper_bound(at);
  if (next == by_address_.begin()) return {};
  --next;
  const int64_t offset = at - next->first;
  const bool fits = offset + nbytes <= regions_.at(next->second).nbytes;
  return fits ? Address{next->second, offset} : Address{};
}

bool Regions::are_shared(const void* data, int64_t nbytes) const {
  const Address address = find(data, nbytes);
  if (address.region < 0) return false;
  const auto& bases = regions_.at(static_cast<int>(address.region)).bases;
  return bases.front() == bases.back();  // of one for all ranks, all are
}

uint8_t* Regions::resolve(Address address, int rank) const {
  const auto found = regions_.find(static_cast<int>(address.region));
  if (found == regions_.end()) return nullptr;
  return found->second.bases[static_cast<size_t>(rank)] + address.offset;
}

}  // namespace mpistrat
