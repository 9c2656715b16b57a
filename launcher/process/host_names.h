// Machines as people and mpirun name them.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace anyorder::launcher {

struct OwnAddress {
  std::string text;            // "10.0.0.3"
  std::string network;         // "10.0.0.0/24"; "" of IPv6
  bool is_for_others = false;  // other machines may reach it
};
// The addresses of this machine's interfaces, or those of them that `name` leads to, in the
// order of the resolver, which is asked. Empty if the system does not tell.
std::vector<OwnAddress> OwnAddresses();
std::vector<OwnAddress> OwnAddressesOf(const std::string& name);

// Whether `name` is this machine: its own name, or one that leads to an address of its interfaces
// (asks the resolver).
bool IsThisHost(const std::string& name);

struct HostSlots {
  std::string name;
  int64_t slots = 1;  // ranks, at most
};

// "a:2,b:2", "a,b" or Slurm's "node[01-04,7]:2", or the path of a hostfile as mpirun reads it:
// "a slots=2" a line. Hosts that come twice have the sum. InvalidArgument, with the line, for
// anything else.
absl::StatusOr<std::vector<HostSlots>> ReadHosts(const std::string& list_or_file);

// The first `ranks` slots of `hosts`, in their order; hosts without one are left out.
std::vector<HostSlots> FillSlots(const std::vector<HostSlots>& hosts, int64_t ranks);

}  // namespace anyorder::launcher
