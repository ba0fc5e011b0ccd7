// A library with the functions of NVML that attune calls: one GPU that has a counter of energy and
// one that has none. Time passes by readings. The counter shows what the GPU has taken in ticks of
// ten readings; an idle GPU takes 1 mJ from one to the next.
#include <cstring>

namespace {

constexpr unsigned long long kReadingsOfATick = 10;
unsigned long long readings = 0;
unsigned long long taken = 1'000'000;
unsigned long long shown = taken;

void pass_one_reading() {
  taken += 1;
  if (++readings % kReadingsOfATick == 0) shown = taken;
}

}  // namespace

extern "C" {

int nvmlInit_v2() { return 0; }

const char* nvmlErrorString(int code) { return code == 3 ? "Not Supported" : "Not Found"; }

int nvmlDeviceGetHandleByUUID(const char* uuid, void** device) {
  static char devices[2];
  if (std::strcmp(uuid, "GPU-with-a-counter") == 0)
    *device = &devices[0];
  else if (std::strcmp(uuid, "GPU-without") == 0)
    *device = &devices[1];
  else
    return 6;
  static_cast<char*>(*device)[0] = *device == &devices[0] ? 1 : 0;
  return 0;
}

int nvmlDeviceGetTotalEnergyConsumption(void* device, unsigned long long* millijoules) {
  if (static_cast<char*>(device)[0] == 0) return 3;
  pass_one_reading();
  *millijoules = shown;
  return 0;
}

/// Waits, idle.
void attune_fake_nvml_wait(int for_readings) {
  for (int i = 0; i < for_readings; ++i) pass_one_reading();
}

/// Runs something for the time of some readings, in which the GPU takes so much.
void attune_fake_nvml_launch(int for_readings, int millijoules) {
  taken += static_cast<unsigned long long>(millijoules);
  for (int i = 0; i < for_readings; ++i) {
    taken -= 1;  // it is not idle
    pass_one_reading();
  }
}

/// The time, in readings.
int attune_fake_nvml_time() { return static_cast<int>(readings); }

}  // extern "C"
